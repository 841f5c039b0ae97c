"""A counterexample for people: as a sequence between the controller and its participants, and as a test that fails."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

from quiesce.diagrams.sequence import CONTROLLER, Sequence, SequenceStep, StepKind, sequence_of
from quiesce.fuzz.counterexample import Counterexample, counterexample_text

__all__ = ["pytest_text", "sequence_of_counterexample"]

_IN: Final = " " * 4
_AT: Final = re.compile(r"(?P<name>[^:/ ]+): (?P<what>.+)")
_ANSWER: Final = re.compile(r"the answer to (?P<call>.+) (?P<how>arrives|is lost): (?P<outcome>.+)")
_ARRIVES: Final = re.compile(r"(?:the (?:abandoned|second) )?(?P<call>[a-z_]+(?: #\d+)?) arrives.*")
_LOST: Final = re.compile(r"(?P<call>[a-z_]+(?: #\d+)?) (?:never leaves|is lost|is given up before it arrives)")


def sequence_of_counterexample(found: Counterexample) -> Sequence:
    """Every action as a step; what it comes to is the last one."""
    steps = [*(_step(action) for action in found.actions), _end(found)]
    title = f"{found.claim.kind.value} {found.claim.name}: {found.setup.name}"
    names = (CONTROLLER, *(taking.name for taking in found.setup.participants))
    return sequence_of(title, steps, names)


def _step(action: str) -> SequenceStep:
    at = _AT.fullmatch(action)
    if at is None:
        return SequenceStep(CONTROLLER, CONTROLLER, action, StepKind.NOTE)
    name, what = at["name"], at["what"]
    if answer := _ANSWER.fullmatch(what):
        kind = StepKind.REPLY if answer["how"] == "arrives" else StepKind.LOST
        return SequenceStep(name, CONTROLLER, f"{answer['call']}: {answer['outcome']}", kind)
    if _ARRIVES.fullmatch(what):
        return SequenceStep(CONTROLLER, name, what.replace(" arrives", "", 1))
    if _LOST.fullmatch(what):
        return SequenceStep(CONTROLLER, name, what, StepKind.LOST)
    return SequenceStep(name, name, what, StepKind.NOTE)


def _end(found: Counterexample) -> SequenceStep:
    word = "seen" if found.is_witness else "violated"
    label = f"{word}: {found.claim}"
    return SequenceStep(CONTROLLER, CONTROLLER, label, StepKind.STAGE)


def pytest_text(found: Counterexample) -> str:
    """A module with one test function, which fails as long as the tables do what the counterexample shows.

    It stands alone: the file is part of it, and it may outlive the tables that it was found with. A witness makes a
    test that fails when what it shows is not seen any more.
    """
    name = re.sub(r"[^a-z0-9]+", "_", found.claim.name.lower()).strip("_") or "property"
    return "".join(f"{line}\n" for line in _lines(found, name))


def _lines(found: Counterexample, name: str) -> Iterator[str]:
    wanted = "is True" if found.is_witness else "is False"
    claim = f"{found.claim.kind.value} {found.claim.name}"
    yield '"""' + _plain(f"Made by 'quiesce replay --pytest': {found.setup.name}.") + '"""'
    yield from ("", "from quiesce.fuzz.replay_tables import still_shown", "")
    yield f"COUNTEREXAMPLE = r'''{counterexample_text(found).rstrip()}'''"
    yield from ("", "")
    yield f"def test_{name}() -> None:"
    yield from textwrap.wrap(f'"""{_plain(found.claim.meaning)}."""', 110, initial_indent=_IN, subsequent_indent=_IN)
    yield f'    claim = "{_plain(claim)}"'
    yield f'    assert still_shown(COUNTEREXAMPLE) {wanted}, f"{{claim}}; see the actions above"'


def _plain(text: str) -> str:
    """Text that is safe in a string literal and in an f-string."""
    return re.sub(r'["\\{}]', "'", " ".join(text.split()))
