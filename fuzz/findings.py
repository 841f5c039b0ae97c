"""What a run has found: a broken rule, what was expected, what came, and the calls that lead to it."""

from __future__ import annotations

from dataclasses import dataclass

from quiesce.fuzz.rules import Rule
from quiesce.fuzz.steps import Step, render_step
from quiesce.fuzz.verdicts import Verdict

__all__ = ["Episode", "Finding", "TraceLine"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule, as it was seen once.

    Attributes:
        rule: what is broken.
        expected, got: in words; ids are called by their letters.
        known: the name of the deviation where the profile knows it, else empty.
    """

    rule: Rule
    expected: str
    got: str
    known: str = ""


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One step of a run and what came of it.

    ``seen`` is how the participant stood afterwards; ``is_odd`` says that a rule was broken there, or nothing is known.
    """

    step: Step
    outcome: str
    seen: str = ""
    is_odd: bool = False

    def __str__(self) -> str:
        return f"{render_step(self.step)} -> {self.outcome}" + (f" [{self.seen}]" if self.seen else "")


@dataclass(frozen=True, slots=True)
class Episode:
    """One run of a sequence: what it found first, what else was seen on the way and is known already, and the trace.

    ``steps`` are those that were run: a sequence ends with its first finding. ``lost_at`` is the step after which
    nothing is known of the fence any more, since it broke a muted rule. ``verdict`` and ``gone`` say that and how the
    participant was lost; None and empty when it answers and is open.
    """

    steps: tuple[Step, ...]
    trace: tuple[TraceLine, ...]
    finding: Finding | None = None
    muted: tuple[Finding, ...] = ()
    exercised: frozenset[str] = frozenset()
    lost_at: int | None = None
    verdict: Verdict | None = None
    gone: str = ""
