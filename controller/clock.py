"""The two clocks that a controller reads, behind one port.

Budgets are monotonic instants (``deadline``), so that a stepped wall clock neither shortens nor stretches a cut. The
wire wants a wall-clock instant (``deadline_ts``), which is made from what remains at the moment a call is sent.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Wall clock, monotonic clock and the only way to wait."""

    def now_ts(self) -> float:
        """Unix time in seconds: for the wire's ``deadline_ts`` and for records, never for budgets."""
        ...

    def monotonic(self) -> float:
        """Seconds on the running loop's own clock: what ``asyncio.timeout_at`` compares with."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long; zero or less only gives way to other tasks."""
        ...


class SystemClock:
    """The real clocks. ``monotonic`` is the running loop's own time, so that it fits any kind of loop."""

    def now_ts(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
