"""A cut over a coordinator's policy in which any single call, or a worker at any moment, goes wrong.

Whatever the cut does, nobody may stay closed unnamed, what is published must verify, and once the worker is back and
what is in doubt is settled, everybody is open and the next cut works.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fleet import keep
from support.ground import CoordinatedFleet, Ground, in_process
from support.virtual_loop import VirtualClock, run_virtual

from quiesce.controller import Controller
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import Unreachable
from quiesce.participants.server import ControlRefusal, Workers
from quiesce.transport.faults import CallSite, Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply, ControlRequest, Transport

FAULTS = (
    Fault(FaultKind.REFUSED),
    Fault(FaultKind.REQUEST_LOST),
    Fault(FaultKind.REPLY_LOST),
    Fault(FaultKind.REPLY_STUCK),
    Fault(FaultKind.DELAYED, 3.0),
    Fault(FaultKind.DELAYED, 20.0),
    Fault(FaultKind.RESET),
    Fault(FaultKind.DUPLICATED),
    Fault(FaultKind.RESENT, 0.5),
    Fault(FaultKind.REPLY_SLOW, 20.0),
    Fault(FaultKind.GARBLED),
    Fault(FaultKind.ANSWERED_FOR),
    Fault(FaultKind.REPLY_REPLACED),
)
AWAY_S = 7.0


class Recorder:
    """Carries calls to the policy and remembers their sites; ``act`` is done right before the nth of them."""

    def __init__(self, inner: Transport, nth: int = 0, act: Callable[[], None] = lambda: None) -> None:
        self._inner = inner
        self._nth = nth
        self._act = act
        self._counts: dict[tuple[str, str], int] = {}
        self.sites: list[CallSite] = []

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one."""
        if request.participant == "main/policy":
            name = (request.participant, request.call)
            self._counts[name] = self._counts.get(name, 0) + 1
            self.sites.append(CallSite(*name, self._counts[name]))
            if len(self.sites) == self._nth:
                self._act()
        return await self._inner.send(request)

    async def aclose(self) -> None:
        """Close what is under it."""
        await self._inner.aclose()


async def cut_under(root: Path, way: Callable[[Transport, Workers], Transport]) -> None:
    """One cut over work at both workers with calls going that way, and one without trouble."""
    fleet = CoordinatedFleet(FenceVariant.GYM_A_SINGLE, clock=VirtualClock(), acknowledge_timeout_s=10.0)
    async with in_process(fleet) as ground:
        rollouts = [fleet.rollout("r0", 60), fleet.rollout("done", 1)]
        await fleet.clock.sleep(2.5)
        calls = [asyncio.create_task(fleet.model_call("r0")) for _ in range(2)]
        asyncio.get_running_loop().call_later(4.0, fleet.let_calls_end.set)
        plain = ground.way.inner
        ground.way.inner = way(plain, fleet.workers)
        # discovery may meet the fault; nobody was paused then
        with contextlib.suppress(Unreachable, ExceptionGroup):
            async with ground.controller(root, on_completed=keep) as controller:
                await attempt(controller, ground)
        if isinstance(ground.way.inner, FaultyTransport):
            await ground.way.inner.settled()
        ground.way.inner = plain
        assert await fleet.everybody_accepts()
        await ground.next_cut_works(root)
        for task in (*rollouts, *calls):
            task.cancel()
        await asyncio.gather(*rollouts, *calls, return_exceptions=True)


async def attempt(controller: Controller, ground: Ground) -> None:
    """One cut, whatever becomes of it; then everybody is waited for and settled."""
    with contextlib.suppress(QuiesceError, ExceptionGroup):
        async with controller.cut("first"):
            pass
    workers = ground.coordinated.workers
    while workers.acknowledged < workers.expected:
        await ground.fleet.clock.sleep(1.0)
    await controller.settle()
    published = [entry for entry in controller.store.list() if entry.label == "first"]
    assert all(controller.store.verify(entry.wire_id).is_good for entry in published)
    assert await ground.fleet.everybody_accepts()


def sites_of_a_clean_cut(root: Path) -> list[CallSite]:
    """The calls to the policy when nothing goes wrong."""
    recorders: list[Recorder] = []

    def way(inner: Transport, _workers: Workers) -> Transport:
        recorders.append(Recorder(inner))
        return recorders[-1]

    run_virtual(cut_under(root, way))
    return recorders[0].sites


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind.value}-{fault.delay_s:g}")
def test_any_single_call_to_a_coordinator_may_go_wrong(tmp_path: Path, fault: Fault) -> None:
    """Its admission calls, and the commit at the server beside it."""
    sites = sites_of_a_clean_cut(tmp_path / "clean")
    assert {site.call.rpartition("/")[2] for site in sites} >= {"capabilities", "pause", "status", "commit", "resume"}
    for number, site in enumerate(sites):

        def way(inner: Transport, _workers: Workers, site: CallSite = site) -> Transport:
            return FaultyTransport(inner, ScriptedFaults({(site.participant, site.call, site.nth): fault}))

        try:
            run_virtual(cut_under(tmp_path / str(number), way))
        except BaseException as error:
            error.add_note(f"at {site}, {fault}")
            raise


def leave(workers: Workers) -> None:
    """It dies, and its successor tries to register until it is let in."""

    def come_back() -> None:
        try:
            workers.register("w1")
        except ControlRefusal:
            asyncio.get_running_loop().call_later(1.0, come_back)

    workers["w1"].leave()
    asyncio.get_running_loop().call_later(AWAY_S, come_back)


def fall_silent(workers: Workers) -> None:
    """It hangs for longer than it is waited for."""
    workers["w1"].fall_silent()
    asyncio.get_running_loop().call_later(3 * AWAY_S, workers["w1"].wake)


def slow_down(workers: Workers) -> None:
    """It takes its time from now on."""
    workers["w1"].slow_down(3.0)


def slow_down_too_much(workers: Workers) -> None:
    """It takes longer than it is waited for, until it is quick again."""
    workers["w1"].slow_down(12.0)
    asyncio.get_running_loop().call_later(4 * AWAY_S, workers["w1"].slow_down, 0.0)


@pytest.mark.parametrize("trouble", [leave, fall_silent, slow_down, slow_down_too_much], ids=lambda one: one.__name__)
def test_a_worker_may_go_wrong_before_any_call(tmp_path: Path, trouble: Callable[[Workers], None]) -> None:
    """It leaves, hangs or is slow: everybody is open in the end, and nothing that is published lacks anything."""
    sites = sites_of_a_clean_cut(tmp_path / "clean")
    for number in range(1, len(sites) + 1):

        def way(inner: Transport, workers: Workers, number: int = number) -> Transport:
            return Recorder(inner, number, lambda: trouble(workers))

        try:
            run_virtual(cut_under(tmp_path / str(number), way))
        except BaseException as error:
            error.add_note(f"{trouble.__name__} before {sites[number - 1]}")
            raise
