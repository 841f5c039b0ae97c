"""Sequence diagrams: who says what to whom, in which order. The model of all of them, and its rendering as Mermaid.

The model is neutral: the order of a phase, a recorded run and a counterexample all become steps between names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap
from typing import Final

from quiesce.diagrams.escape import identifiers, mermaid_text, one_line

__all__ = ["CONTROLLER", "Sequence", "SequenceStep", "StepKind", "names_of", "sequence_mermaid", "sequence_of"]

CONTROLLER: Final = "controller"
_INDENT: Final = "    "
_BREAK: Final = "<br/>"
_NOTE_CHARACTERS: Final = 48
"""In a line of what stands over all lifelines. Mermaid does not fold it, and moves two of them apart for a long one."""
# what Mermaid reads as syntax in the name of a lifeline
_LIFELINE_ACTIVE: Final = re.compile(r"[-+,(){}\[\]=@'!?✓✗↺★–]")


class StepKind(StrEnum):
    """What a step is."""

    CALL = "call"
    REPLY = "reply"
    LOST = "lost"
    """It was sent and did not arrive, or nobody knows whether it did."""
    NOTE = "note"
    """Something that happens at one of them (source and target are the same)."""
    STAGE = "stage"
    """A new stretch of the whole; source and target do not matter."""


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """One step. ``source`` and ``target`` are names of lifelines, shown as they are."""

    source: str
    target: str
    label: str
    kind: StepKind = StepKind.CALL


@dataclass(frozen=True, slots=True)
class Sequence:
    """A whole sequence: its lifelines from left to right, and its steps from top to bottom."""

    title: str
    lifelines: tuple[str, ...]
    steps: tuple[SequenceStep, ...]


def sequence_of(title: str, steps: Iterable[SequenceStep], lifelines: Iterable[str] = ()) -> Sequence:
    """A sequence whose lifelines are ``lifelines`` and then whatever else the steps name, as it first occurs."""
    kept = tuple(steps)
    named = dict.fromkeys(lifelines)
    for step in kept:
        if step.kind is not StepKind.STAGE:
            named.setdefault(step.source)
            named.setdefault(step.target)
    return Sequence(title, tuple(named) or (CONTROLLER,), kept)


def names_of(lifelines: Iterable[str]) -> Mapping[str, str]:
    """Each lifeline with what is shown: one line, never nothing."""
    return {name: one_line(name) or "(empty)" for name in lifelines}


def sequence_mermaid(sequence: Sequence) -> str:
    """The sequence as a Mermaid ``sequenceDiagram``, ending in a line break.

    >>> call = SequenceStep("controller", "agent", "close")
    >>> reply = SequenceStep("agent", "controller", "paused", StepKind.REPLY)
    >>> print(sequence_mermaid(sequence_of("One call", [call, reply])), end="")
    sequenceDiagram
        title One call
        participant controller as controller
        participant agent as agent
        controller->>agent: close
        agent-->>controller: paused
    """
    names = identifiers(sequence.lifelines)
    title = one_line(sequence.title)
    is_long = len(title) > _NOTE_CHARACTERS
    lines = [] if is_long else [f"title {_text(title)}"]
    lines += [
        f"participant {names[line]} as {_lifeline(shown)}" for line, shown in names_of(sequence.lifelines).items()
    ]
    # Mermaid folds no title, and cuts off what is wider than the lifelines
    heading = [SequenceStep(CONTROLLER, CONTROLLER, title, StepKind.STAGE)] if is_long else []
    lines += _steps([*heading, *sequence.steps], names)
    return "sequenceDiagram\n" + "".join(f"{_INDENT}{line}\n" for line in lines)


_ARROWS: Final = {StepKind.CALL: "->>", StepKind.REPLY: "-->>", StepKind.LOST: "--x"}


def _steps(steps: Iterable[SequenceStep], names: Mapping[str, str]) -> Iterator[str]:
    known = tuple(names.values())
    over_all = ",".join(dict.fromkeys((known[0], known[-1])))
    for step in steps:
        if step.kind is StepKind.STAGE:
            yield f"Note over {over_all}: {_BREAK.join(map(mermaid_text, _folded(step.label)))}"
        elif step.kind is StepKind.NOTE:
            yield f"Note over {names[step.source]}: {_text(step.label)}"
        else:
            yield f"{names[step.source]}{_ARROWS[step.kind]}{names[step.target]}: {_text(step.label)}"


def _folded(text: str) -> list[str]:
    return wrap(one_line(text), _NOTE_CHARACTERS, break_long_words=False, break_on_hyphens=False) or [chr(0xA0)]


def _text(text: str) -> str:
    return mermaid_text(one_line(text)) or "#160;"


def _lifeline(text: str) -> str:
    return _LIFELINE_ACTIVE.sub(lambda found: f"#{ord(found[0])};", mermaid_text(text))
