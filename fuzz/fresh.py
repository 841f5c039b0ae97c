"""What only a fresh process shows: a server takes a restore once, before it has served anything.

So the one restore that it takes comes first, what is found behind it cannot be shown by it a second time, and where it
takes none, nothing can be said of what comes behind one.
"""

from __future__ import annotations

from typing import Final

from quiesce.fuzz.danger import danger
from quiesce.fuzz.findings import Episode
from quiesce.fuzz.rules import PARTICIPATING
from quiesce.fuzz.steps import CallStep, Operation, Step

__all__ = ["FIRST_RESTORE", "NEEDS_FRESH", "is_of_the_past", "is_restore", "refused_first_restore", "refused_now"]

FIRST_RESTORE: Final = danger(
    "the restore of a fresh process",
    "2.8, 2.12, 2.16, 2.19, 9 #14",
    PARTICIPATING,
    "prepare a",
    "commit a",
    "resume a",
    "restore b",
    "status b",
    "renew b",
    "discard b p",
    "restore b",
    "restore b directory=d2",
    "prepare b",
    "commit b",
    "status c",
    "resume b",
)
"""Everything about a restore that succeeds, in one sequence, as there may be only one."""

NEEDS_FRESH: Final = "it takes a restore once: only a fresh process shows this again"

_DONE: Final = "200"


def is_of_the_past(found: Episode, again: Episode) -> bool:
    """Whether the same calls did not come to the same place, as a restore that succeeded is refused by now."""
    before = zip(found.trace[:-1], again.trace, strict=False)
    return any(refused_now(then.step, then.outcome, now.outcome) for then, now in before)


def refused_now(step: Step, then: str, now: str) -> bool:
    """Whether a step is a restore that succeeded then, and does not any more."""
    return is_restore(step) and then == _DONE and now != _DONE


def refused_first_restore(episode: Episode) -> str:
    """What is to be said where the first restore was refused; empty where it was not, or never sent."""
    line = next((line for line in episode.trace if is_restore(line.step)), None)
    if line is None or line.outcome == _DONE:
        return ""
    return (
        f"its first restore came to {line.outcome}, so that what holds behind a restore was not tested; "
        "start it anew, and test it before it has served or restored anything"
    )


def is_restore(step: Step) -> bool:
    """Whether a step is one."""
    return isinstance(step, CallStep) and step.operation is Operation.RESTORE
