"""The outcome of a campaign as values: per participant its verdict, what was broken, and what could not be tested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.findings import TraceLine
from quiesce.fuzz.fresh import NEEDS_FRESH
from quiesce.fuzz.rules import Need, Profile, Rule, Severity
from quiesce.fuzz.steps import Step, render_step
from quiesce.fuzz.verdicts import Verdict
from quiesce.participants.excerpts import printable

__all__ = ["ParticipantReport", "Violation", "text_of"]

SEEN_ONCE: Final = "seen once"
"""The severity of an error that did not come again when the same calls were made once more."""
DID_NOT_COME_AGAIN: Final = "it did not come again"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, reported once, with the smallest sequence that breaks it.

    Attributes:
        rule, expected, got: what is broken, and how that showed.
        known: the name of the deviation where the profile knows it, else empty.
        steps: the minimal sequence; empty where no call was needed.
        trace: the run of it.
        found_in: the number of steps of the sequence in which it was found first.
        reproducible: whether it happened again when the same calls were made once more.
        needs_fresh: whether it could not, as it comes behind a restore, which the process takes only once.
        at_call, at_s: how many calls and seconds after the beginning it was found.
    """

    rule: Rule
    expected: str
    got: str
    known: str = ""
    steps: tuple[Step, ...] = ()
    trace: tuple[TraceLine, ...] = ()
    found_in: int = 0
    reproducible: bool = True
    needs_fresh: bool = False
    at_call: int = 0
    at_s: float = 0.0

    @property
    def is_error(self) -> bool:
        """Whether it makes the participant fail the test."""
        return self.is_grave and (self.reproducible or self.needs_fresh)

    @property
    def was_seen_once(self) -> bool:
        """Whether it would make the participant fail, had it come again."""
        return self.is_grave and not self.is_error

    @property
    def is_grave(self) -> bool:
        """Whether it breaks a rule of severity error that the profile does not know."""
        return self.rule.severity is Severity.ERROR and not self.known

    @property
    def remark(self) -> str:
        """What is to be said of how it was seen; empty where it came again."""
        if self.reproducible:
            return ""
        return NEEDS_FRESH if self.needs_fresh else DID_NOT_COME_AGAIN

    @property
    def severity(self) -> str:
        """How grave it is, in words."""
        return SEEN_ONCE if self.was_seen_once else self.rule.severity.value

    def described(self) -> dict[str, object]:
        """As members of a JSON object."""
        return {
            "rule": self.rule.id,
            "sentence": self.rule.sentence,
            "section": self.rule.section,
            "severity": self.severity,
            "known": self.known or None,
            "expected": self.expected,
            "got": self.got,
            "calls": [render_step(step) for step in self.steps],
            "trace": [str(line) for line in self.trace],
            "found_in_steps": self.found_in,
            "reproducible": self.reproducible,
            "needs_fresh_process": self.needs_fresh,
            "found_at_call": self.at_call,
            "found_after_s": round(self.at_s, 3),
        }


@dataclass(frozen=True, slots=True)
class ParticipantReport:
    """What came of testing one participant.

    Attributes:
        url, name, role, coordinated: who it is; all but the URL as far as it is known.
        profile, seed: under what it was tested.
        verdict, reason: whether it was tested, and if not, why.
        violations: each rule at most once.
        held: ids of the rules that were put to the test and held.
        untested: ids of the other rules of its role, and why they were not.
        calls, ids, sequences, seconds: what the test took.
        notes: what else is worth knowing.
        accepts_work: whether it was read after the last call that it does.
    """

    url: str
    profile: Profile
    seed: int
    verdict: Verdict
    reason: str = ""
    name: str = ""
    role: Role | None = None
    coordinated: bool = False
    violations: tuple[Violation, ...] = ()
    held: tuple[str, ...] = ()
    untested: Mapping[str, str] | None = None
    calls: int = 0
    ids: int = 0
    sequences: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    accepts_work: bool = False

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The violations that make it fail."""
        return tuple(violation for violation in self.violations if violation.is_error)

    @property
    def seen_once(self) -> tuple[Violation, ...]:
        """The violations that would make it fail, had they come again."""
        return tuple(violation for violation in self.violations if violation.was_seen_once)

    @property
    def conforms(self) -> bool:
        """Whether it was tested and was never seen to break a rule of severity error that the profile does not know."""
        return self.verdict is Verdict.TESTED and not self.errors and not self.seen_once

    @property
    def in_doubt(self) -> bool:
        """Whether it could not be proven that the participant accepts work."""
        return self.verdict.in_doubt and self.ids > 0

    def described(self) -> dict[str, object]:
        """As members of a JSON object."""
        return {
            "url": self.url,
            "name": self.name or None,
            "role": None if self.role is None else self.role.value,
            "coordinated": self.coordinated,
            "profile": self.profile.value,
            "seed": self.seed,
            "verdict": self.verdict.value,
            "reason": self.reason or None,
            "conforms": self.conforms,
            "violations": [violation.described() for violation in self.violations],
            "held": list(self.held),
            "untested": dict(self.untested or {}),
            "calls": self.calls,
            "ids_used_up": self.ids,
            "sequences": self.sequences,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }


def text_of(reports: Iterable[ParticipantReport]) -> str:
    """The reports for a person. Names are whoever's under test: no line of it is begun or coloured by them."""
    return "\n".join(printable(line, _LINE_CHARS_MAX) for report in reports for line in _lines(report))


_LINE_CHARS_MAX: Final = 10_000
_HINTS: Final = {
    Need.TRAFFIC.value: "--traffic",
    Need.DIRECTORY.value: "--checkpoint-dir",
    Need.RESTORE.value: "--allow-restore",
    Need.GRACE.value: "--wait-grace-s",
    "did not come up": "more calls, traffic, or work that lasts longer may bring it up",
}
"""What would bring up a rule, by a part of the reason why it was not tested."""


def _lines(report: ParticipantReport) -> list[str]:
    who = f"{report.url} ({report.name}, {report.role.value})" if report.role is not None else report.url
    lines = [f"{who}: {report.verdict.value}" + (f": {report.reason}" if report.reason else "")]
    for violation in report.violations:
        lines += _violation_lines(violation)
    if report.verdict is Verdict.TESTED or report.sequences:
        once = len(report.seen_once)
        others = len(report.violations) - len(report.errors) - once
        seen_once = f"{once} seen once, " if once else ""
        lines.append(
            f"  {len(report.held)} rules held, {len(report.errors)} broken, {seen_once}{others} warnings or known, "
            f"{len(report.untested or {})} not tested; {report.calls} calls in {report.sequences} sequences, "
            f"{report.ids} ids used up, {report.seconds:.1f} s"
        )
        lines += _untested_lines(report.untested or {})
    lines += [f"  note: {note}" for note in report.notes]
    return lines


def _untested_lines(untested: Mapping[str, str]) -> list[str]:
    """The rules that were not put to the test, by what is missing for that."""
    lines = []
    for reason in dict.fromkeys(untested.values()):
        rules = ", ".join(rule_id for rule_id, why in untested.items() if why == reason)
        hints = ", ".join(hint for words, hint in _HINTS.items() if words in reason)
        lines.append(f"  not tested, {reason}" + (f" ({hints}): {rules}" if hints else f": {rules}"))
    return lines


def _violation_lines(violation: Violation) -> list[str]:
    rule = violation.rule
    known = f", known as {violation.known}" if violation.known else ""
    remark = f" ({violation.remark})" if violation.remark else ""
    lines = [f"  {violation.severity} {rule.id}{known}: {rule.sentence} ({rule.source}){remark}"]
    lines += [f"    {number}. {line}" for number, line in enumerate(violation.trace, start=1)]
    return [*lines, f"    expected {violation.expected}; got {violation.got}"]
