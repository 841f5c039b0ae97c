"""How long each call may take, and which ``deadline_ts`` it carries.

Budgets are monotonic instants; a ``deadline_ts`` is made from what remains when a call is sent. The server-side wait
is always shorter than the client's, so that a slow drain is answered as what it is. Prepares that block go out in
slices, since their handler runs on to its deadline after the client has left (wire-protocol F17): an abort then
waits for a slice, never for the whole budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quiesce.fsm.messages import Leg, Timer
from quiesce.fsm.vocabulary import Role, Verb

__all__ = ["Backoff", "Budgets", "CallLimits", "limits_of"]

SLICE_S: Final = 5.0
"""Longest wait inside one prepare or status call (design 3)."""
SLICE_S_MIN: Final = 0.25
PAUSE_S: Final = 10.0
"""A coordinator waits this long for its workers' acknowledgement (wire-protocol 2.2)."""
HEALING_PAUSE_S: Final = 2.0
RELEASE_CALL_S: Final = 5.0
ACKNOWLEDGE_S: Final = 15.0
STATUS_S: Final = 5.0
"""Longest wait for a status that only says what holds a prepare up: an abort waits for it."""
SERVER_SLACK_S: Final = 2.0
"""By how much the client waits longer than it lets the server wait."""
SKEW_S: Final = 2.0
"""Clock skew that is reckoned with before a lost call is taken for ended."""
WAVE_PATIENCE_S: Final = 10.0
"""How long a wave of reopening waits for the one before it."""
PROBE_S: Final = 2.0
RENEW_EVERY_S: Final = 5.0
"""How often a lease is renewed."""
RENEW_FOR_S: Final = 15.0
"""For how long, from when the renewal is sent."""
RENEW_CALL_S: Final = 5.0
_PATIENCE_S: Final = {Verb.ACKNOWLEDGE: ACKNOWLEDGE_S, Verb.RENEW: RENEW_CALL_S}
"""How long short calls are waited for that have a limit of their own."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The configured times, in seconds."""

    reach_timeout_s: float = 120.0
    hold_timeout_s: float = 600.0
    control_timeout_s: float = 60.0
    release_timeout_s: float = 60.0
    straggler_after_s: float | None = None

    @property
    def first_slice_s(self) -> float:
        """How long the first prepare waits that blocks.

        Nothing can be done about a straggler before it has said what it waits for, so it says so before it is one.
        """
        if self.straggler_after_s is None:
            return SLICE_S
        return max(SLICE_S_MIN, min(SLICE_S, self.straggler_after_s / 2))

    def release_s(self, may_run_s: float | None, *, coordinator: bool) -> float:
        """How long reopening may take, where an earlier call may still run for so long (None: none may).

        Nobody is proven open before that call has ended; a reading comes after it. Given up before, a recovery would
        never come to its end. A call that may run longer than a prepare is not waited for: most are ended by a resume.
        """
        if may_run_s is None:
            return self.release_timeout_s
        proof_s = PAUSE_S + SERVER_SLACK_S if coordinator else RELEASE_CALL_S
        return max(self.release_timeout_s, min(may_run_s, PAUSE_S) + SKEW_S + proof_s)


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of one call, in seconds from now.

    The server may work for ``deadline_s``, is asked to wait ``wait_s`` at most, and is given up after ``timeout_s``.
    """

    deadline_s: float
    timeout_s: float
    wait_s: float = 0.0


def limits_of(
    verb: Verb, role: Role, leg: Leg, remaining_s: float, budgets: Budgets, *, coordinator: bool
) -> CallLimits:
    """The limits of one call, when ``remaining_s`` is left of the budget that it runs under."""
    left = max(0.0, remaining_s)
    if leg is Leg.RELEASE:
        return _release_limits(verb, left, coordinator=coordinator)
    if verb in (Verb.EXPORT, Verb.IMPORT):
        return CallLimits(left, left + SERVER_SLACK_S)
    if verb is Verb.CLOSE and role is Role.POLICY:
        wait = min(left, PAUSE_S)
        return CallLimits(wait, wait + SERVER_SLACK_S)
    if verb in (Verb.CLOSE, Verb.AWAIT_CUT):
        wait = min(left, budgets.first_slice_s if verb is Verb.CLOSE else SLICE_S)
        return CallLimits(wait, wait + SERVER_SLACK_S, wait)
    patience_s = _PATIENCE_S.get(verb, budgets.control_timeout_s)
    return CallLimits(left, min(left, patience_s))


def _release_limits(verb: Verb, left: float, *, coordinator: bool) -> CallLimits:
    if verb is Verb.CLOSE:
        return CallLimits(min(left, HEALING_PAUSE_S), min(left, HEALING_PAUSE_S) + SERVER_SLACK_S)
    # the deadline also says how long a lost resume is reckoned with at a coordinator, which waits for its workers
    wait = min(left, PAUSE_S + SERVER_SLACK_S if coordinator else RELEASE_CALL_S)
    return CallLimits(wait, wait)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow by half from ``first_s`` to ``most_s``."""

    first_s: float
    most_s: float

    def delay_s(self, tries: int) -> float:
        """The delay before try number ``tries`` (from 0)."""
        return float(min(self.most_s, self.first_s * 1.5 ** min(tries, 60)))


BACKOFFS: Final = {
    Timer.POLL: Backoff(0.1, 1.0),
    Timer.RETRY: Backoff(0.2, 1.0),
    Timer.BACKOFF: Backoff(0.1, 2.0),
}
"""Timers whose delay grows each time that they are armed for the same participant."""
