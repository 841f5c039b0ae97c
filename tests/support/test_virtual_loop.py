"""The virtual loop itself: time passes only when idle, threads' jobs are deterministic, a deadlock is an error."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.virtual_loop import NothingCanHappen, VirtualClock, run_virtual, virtual_time


@virtual_time
async def test_a_day_passes_without_waiting() -> None:
    """A sleep of a day takes virtual time only."""
    clock = VirtualClock()
    before, before_ts, real = clock.monotonic(), clock.now_ts(), time.monotonic()
    await clock.sleep(86_400)
    assert clock.monotonic() - before == pytest.approx(86_400)
    assert clock.now_ts() - before_ts == pytest.approx(86_400)
    assert time.monotonic() - real < 60


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=20))
@virtual_time
async def test_sleepers_wake_in_order_of_their_instants(delays: list[float]) -> None:
    """Whoever sleeps less wakes first, at exactly its instant."""
    loop = asyncio.get_running_loop()
    woken: list[float] = []

    async def sleeper(delay: float) -> None:
        await asyncio.sleep(delay)
        assert loop.time() == pytest.approx(delay, abs=1e-6)
        woken.append(delay)

    await asyncio.gather(*(sleeper(delay) for delay in delays))
    assert woken == sorted(delays)


@virtual_time
async def test_timeouts_fire_at_their_instant() -> None:
    """``asyncio.timeout`` counts virtual seconds."""
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.Event().wait()
    assert loop.time() == pytest.approx(30)


@virtual_time
async def test_a_thread_job_takes_no_virtual_time_and_gives_its_outcome() -> None:
    """What a job returns or raises reaches its caller, and time stands still meanwhile."""
    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)
    assert loop.time() == 0


@virtual_time
async def test_a_cancelled_caller_does_not_undo_its_thread_job() -> None:
    """As with a real thread: the job is done although its caller was cancelled while it waited."""
    done: list[str] = []
    caller = asyncio.ensure_future(asyncio.to_thread(done.append, "written"))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["written"]


def test_a_deadlock_is_an_error_and_no_hang() -> None:
    """A wait that nothing can end raises instead of hanging the suite."""

    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingCanHappen, match="deadlock"):
        run_virtual(scenario())


def test_endless_polling_is_an_error_and_no_hang() -> None:
    """A poll without an end raises after many virtual days."""

    async def scenario() -> None:
        while True:  # noqa: ASYNC110  # the defect that must be noticed
            await asyncio.sleep(3600)

    with pytest.raises(NothingCanHappen, match="livelock"):
        run_virtual(scenario())
