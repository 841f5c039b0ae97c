"""The clocks: budgets fit the loop's own time, whatever kind of loop that is."""

from __future__ import annotations

import asyncio
import time

from support.virtual_loop import virtual_time

from quiesce.controller.clock import Clock, SystemClock


@virtual_time
async def test_the_monotonic_clock_is_that_of_the_running_loop() -> None:
    """A deadline made with it fires at its instant, here in virtual time, and a sleep ends at its own."""
    clock: Clock = SystemClock()
    await clock.sleep(5)
    assert clock.monotonic() == asyncio.get_running_loop().time() == 5
    async with asyncio.timeout_at(clock.monotonic() + 10):
        await clock.sleep(9)
    await clock.sleep(-1)
    assert clock.monotonic() == 14


@virtual_time
async def test_the_wall_clock_is_unix_time() -> None:
    """It is what the wire's deadlines are made from."""
    before = time.time()
    assert before <= SystemClock().now_ts() <= time.time()
