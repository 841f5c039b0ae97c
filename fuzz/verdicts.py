"""What came of the whole of a participant's test."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from quiesce.participants.errors import NeverSent, Unreachable

__all__ = ["LATE_SHARE", "Verdict", "verdict_on"]

LATE_SHARE: Final = 0.9
"""A call that came to nothing after this much of its time-out was not answered in time."""


class Verdict(StrEnum):
    """Whether a participant was tested, and if not, or not to the end, why."""

    TESTED = "tested"

    # it was not tested, and nothing was done to it
    UNREACHABLE = "unreachable"
    NOT_A_PARTICIPANT = "not a participant"
    OTHER_DIALECT = "speaks another dialect"
    TAKES_NO_PART = "takes no part"
    TOKEN_REFUSED = "token refused"  # noqa: S105 - the name of a verdict
    UNMANAGED = "unmanaged workers"
    HELD = "held by somebody"
    LIVE_WORK = "has live work"
    OWES_RESTORE = "owes a restore"
    NOT_BEGUN = "not begun"

    # it was tested in part, and left open
    INTERRUPTED = "interrupted"

    SHARED = "used by somebody else"

    # it was never understood, or lost on the way: nobody can say whether it accepts work
    GARBAGE = "answers garbage"
    DIED = "died"
    HANGS = "hangs"
    LEFT_CLOSED = "left closed"

    @property
    def was_tested(self) -> bool:
        """Whether the test went to its end."""
        return self is Verdict.TESTED

    @property
    def is_failure(self) -> bool:
        """Whether something went wrong that is not the way in which the test was asked for."""
        failures = {Verdict.UNREACHABLE, Verdict.NOT_BEGUN, Verdict.INTERRUPTED, Verdict.SHARED}
        return self in failures or self.in_doubt

    @property
    def in_doubt(self) -> bool:
        """Whether it could not be proven that the participant accepts work."""
        return self in {Verdict.DIED, Verdict.HANGS, Verdict.LEFT_CLOSED, Verdict.GARBAGE}


def verdict_on(error: Unreachable, *, waited_s: float, timeout_s: float) -> Verdict:
    """What a participant is that answers not even the capabilities: gone, silent, or no speaker of HTTP."""
    if isinstance(error, NeverSent):
        return Verdict.DIED
    return Verdict.HANGS if waited_s >= timeout_s * LATE_SHARE else Verdict.GARBAGE
