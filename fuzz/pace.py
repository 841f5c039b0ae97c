"""How long a participant's own work takes, measured once, so that "short" means something to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.account import Account
from quiesce.fuzz.place import Place
from quiesce.fuzz.recovery import Recovery
from quiesce.fuzz.steps import WorkKind
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.wording import Durations

__all__ = ["measured"]

WORK_S_MAX: Final = 60.0
SHORT_S_MIN: Final = 0.05
SHORT_S_MAX: Final = 2.0
SHARE: Final = 3
ROOM: Final = 3.0
LEAST_S: Final = 1.0
_SYMBOL: Final = "p"


async def measured(place: Place) -> Durations:
    """The durations of ``place`` with the participant's own pace; as they are where no traffic can measure it."""
    kinds = _KINDS.get(place.subject.role, ())
    if not kinds:
        return place.durations
    bindings = place.new_bindings()
    surroundings = Surroundings(place.subject, place.line, place.traffic, replace(place.durations, work_s=WORK_S_MAX))
    took_s = 0.0
    for kind in kinds:
        began_at = place.clock.monotonic()
        work = await surroundings.begin(_SYMBOL, bindings.attempt(_SYMBOL), kind)
        if work is None:
            return place.durations
        await asyncio.wait({work.task}, timeout=WORK_S_MAX)
        took_s = max(took_s, place.clock.monotonic() - began_at)
    await Recovery(place, bindings, Account(), surroundings).leave_open([], 0.0, gone=False)
    short_s = min(max(took_s / SHARE, SHORT_S_MIN), SHORT_S_MAX)
    return replace(place.durations, short_s=short_s, work_s=took_s * ROOM + LEAST_S)


_KINDS: Final = {
    Role.POLICY: (WorkKind.PROBE,),
    Role.AGENT: (WorkKind.FINISH,),
    Role.RESOURCES: (WorkKind.SEED, WorkKind.BEGIN, WorkKind.END),
}
"""What is timed; the longest of them is the work."""
