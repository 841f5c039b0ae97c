"""The real clocks of a server. Tests give their own, so that deadlines pass when they say so."""

from __future__ import annotations

import asyncio
import time

__all__ = ["SystemClock"]


class SystemClock:
    """Implements ``quiesce.participants.server.ports.Clock``; ``monotonic`` is the running loop's own time."""

    def now_ts(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
