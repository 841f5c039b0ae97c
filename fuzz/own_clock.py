"""Whether an application in this process goes by the clock of its test: if not, its deadlines accuse nobody."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from quiesce.controller.cancellation import finish_first
from quiesce.controller.clock import Clock
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.own_calls import post
from quiesce.fuzz.place import Place
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Operation
from quiesce.participants.errors import ConfigurationError, Unreachable

__all__ = ["check_clock"]

LONG_PAST_S: Final = 3600.0
_PASSED: Final = "deadline_exceeded"


async def check_clock(place: Place, other: Clock) -> None:
    """The application takes its time from the clock of ``place``, not from ``other``.

    It is asked to close with a deadline that has passed by the one and is to come by the other. An application that
    heeds no deadline at all goes by neither, and is left to the test.

    Raises:
        ConfigurationError: it goes by the other one.
    """
    if place.subject.role is Role.AUXILIARY:
        return
    with suppress(Unreachable):  # the test will tell what is wrong with it
        await _check(place, other)


async def _check(place: Place, other: Clock) -> None:
    own_ts, other_ts = place.clock.now_ts(), other.now_ts()
    between = await finish_first(_closed_by(place, (own_ts + other_ts) / 2))
    refused = between.code == _PASSED
    if own_ts < other_ts and refused:
        raise _goes_by_another("refuses a deadline that is to come")
    if own_ts > other_ts and not refused:
        past = await finish_first(_closed_by(place, min(own_ts, other_ts) - LONG_PAST_S))
        if past.code == _PASSED:
            raise _goes_by_another("takes a deadline that has passed")


async def _closed_by(place: Place, deadline_ts: float) -> Seen:
    """The answer to a prepare with this deadline; admission is open again afterwards."""
    checkpoint_id = place.own_id()
    seen = await post(place, Operation.PREPARE, checkpoint_id, deadline_ts=deadline_ts)
    if seen.code != _PASSED:
        # whichever clock it goes by, this deadline is to come
        await post(place, Operation.RESUME, checkpoint_id, deadline_ts=max(deadline_ts, place.clock.now_ts()) * 2)
    return seen


def _goes_by_another(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the application does not go by the clock of its test: it {what}. With in_virtual_time=True it must take its "
        "time from quiesce.fuzz.VirtualClock(), and without it from the system's clock"
    )
