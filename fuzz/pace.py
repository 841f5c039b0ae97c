"""How long a participant's answers and its own work take, measured once, so that "short" means something to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from quiesce.controller.cancellation import finish_first
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.account import Account
from quiesce.fuzz.patience import given_time
from quiesce.fuzz.place import Place
from quiesce.fuzz.recovery import Recovery
from quiesce.fuzz.steps import CallStep, Operation, WorkKind
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.wording import Durations, Wording
from quiesce.participants.errors import Unreachable

__all__ = ["measured", "measured_by_work"]

WORK_S_MAX: Final = 60.0
SHORT_S_MAX: Final = 2.0
SHARE: Final = 3
ROOM: Final = 3.0
LEAST_S: Final = 1.0
LOOKS: Final = 10
SETTLE_ANSWERS: Final = 5
SETTLE_S_MAX: Final = 1.0
_SYMBOL: Final = "p"
_LOOK: Final = CallStep(operation=Operation.CAPABILITIES)


async def measured(place: Place) -> Durations:
    """The durations of ``place`` with what a request needs to arrive: as the slowest of a few answers took."""
    durations = place.durations
    look = Wording(place.subject, place.new_bindings(), durations).asked(_LOOK, 0.0, {}).request
    slowest_s = 0.0
    for _ in range(LOOKS):
        await place.line.free()
        began_at = place.clock.monotonic()
        try:
            await place.line.send(look)
        except Unreachable:
            break  # whatever is asked next will find that out, and say so
        slowest_s = max(slowest_s, place.clock.monotonic() - began_at)
    arrive_s = min(slowest_s * SETTLE_ANSWERS, SETTLE_S_MAX)
    settle_s = max(durations.settle_s, arrive_s) + place.line.spacing_s
    return replace(
        durations,
        arrive_s=arrive_s + place.line.spacing_s,
        settle_s=settle_s,
        prompt_s=durations.prompt_s + settle_s,
        short_s=max(durations.short_s, settle_s),  # a deadline that passes on the way tells nothing
    )


async def measured_by_work(place: Place) -> Durations:
    """The durations of ``place`` with how long work lasts; as they are where no traffic can measure it.

    A process that has served work takes no restore any more.
    """
    kinds = _KINDS.get(place.subject.role, ())
    if not kinds:
        return place.durations
    bindings = place.new_bindings()
    surroundings = Surroundings(place.subject, place.line, place.traffic, replace(place.durations, work_s=WORK_S_MAX))
    took_s = 0.0
    try:
        for kind in kinds:
            began_at = place.clock.monotonic()
            work = await surroundings.begin(_SYMBOL, bindings.attempt(_SYMBOL), kind)
            if work is None:
                return place.durations
            await given_time([work.task], WORK_S_MAX)
            took_s = max(took_s, place.clock.monotonic() - began_at)
    finally:
        await finish_first(Recovery(place, bindings, Account(), surroundings).leave_open([], 0.0, gone=False))
    short_s = min(max(took_s / SHARE, place.durations.arrive_s), SHORT_S_MAX)
    return replace(place.durations, short_s=short_s, work_s=took_s * ROOM + LEAST_S)


_KINDS: Final = {
    Role.POLICY: (WorkKind.PROBE,),
    Role.AGENT: (WorkKind.FINISH,),
    Role.RESOURCES: (WorkKind.SEED, WorkKind.BEGIN, WorkKind.END),
}
"""What is timed; the longest of them is the work."""
