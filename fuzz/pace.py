"""How long a participant's own work takes, measured once, so that "short" means something to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.line import Line
from quiesce.fuzz.steps import DataKind
from quiesce.fuzz.subject import Subject
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.traffic import Traffic
from quiesce.fuzz.wording import Durations
from quiesce.participants.identity import AttemptId

__all__ = ["measured"]

WORK_S_MAX: Final = 60.0
SHORT_S_MIN: Final = 0.05
SHORT_S_MAX: Final = 2.0
SHARE: Final = 3
ROOM: Final = 3.0
LEAST_S: Final = 1.0


async def measured(subject: Subject, line: Line, traffic: Traffic, durations: Durations, prefix: str) -> Durations:
    """``durations`` with the participant's own pace; as they are where there is no traffic to measure it by."""
    kinds = _KINDS.get(subject.role, ())
    surroundings = Surroundings(subject, line, traffic, replace(durations, work_s=WORK_S_MAX))
    took_s = 0.0
    for kind in kinds:
        began_at = line.clock.monotonic()
        work = await surroundings.begin("measured", AttemptId(f"{prefix}-measured", 0), kind)
        if work is None:
            return durations
        await asyncio.wait({work.task}, timeout=WORK_S_MAX)
        took_s = max(took_s, line.clock.monotonic() - began_at)
    await surroundings.forsake()
    if not kinds:
        return durations
    short_s = min(max(took_s / SHARE, SHORT_S_MIN), SHORT_S_MAX)
    return replace(durations, short_s=short_s, work_s=took_s * ROOM + LEAST_S)


_KINDS: Final = {
    Role.POLICY: (DataKind.PROBE,),
    Role.AGENT: (DataKind.FINISH,),
    Role.RESOURCES: (DataKind.SEED, DataKind.BEGIN, DataKind.END),
}
"""What is timed; the longest of them is the work."""
