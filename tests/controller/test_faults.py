"""A cut and a restore in which any single call goes wrong: everybody goes on, or is named in doubt.

The calls are those of a clean run, each with every fault, so nothing is left out. A lost request stays lost for its
first arrival only; the run may then succeed or abort. Whatever it does, nobody may stay closed unnamed, what is
published must verify, and the next cut must work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import run_virtual

from quiesce.controller import Controller
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import Unreachable
from quiesce.transport.faults import CallSite, Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply, ControlRequest, Transport

FAULTS = (
    Fault(FaultKind.REFUSED),
    Fault(FaultKind.REQUEST_LOST),
    Fault(FaultKind.REPLY_LOST),
    Fault(FaultKind.REPLY_STUCK),
    Fault(FaultKind.DELAYED, 3.0),
    Fault(FaultKind.DELAYED, 9.0),
)


class Recorder:
    """Carries calls and remembers their sites."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._counts: dict[tuple[str, str], int] = {}
        self.sites: list[CallSite] = []

    async def send(self, request: ControlRequest) -> ControlReply:
        name = (request.participant, request.call)
        self._counts[name] = self._counts.get(name, 0) + 1
        self.sites.append(CallSite(*name, self._counts[name]))
        return await self._inner.send(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def busy(fence: FenceVariant) -> tuple[Fleet, list[asyncio.Task[object]]]:
    """A fleet with a rollout that parks, a finished result and an open call that ends in a while."""
    fleet = Fleet(fence)
    tasks: list[asyncio.Task[object]] = [fleet.rollout("r0", 30), fleet.rollout("done", 1)]
    await fleet.clock.sleep(2.5)
    tasks.append(asyncio.create_task(fleet.model_call("r0")))
    await fleet.call_began.wait()
    asyncio.get_running_loop().call_later(4.0, fleet.let_calls_end.set)
    return fleet, tasks


def script(site: CallSite, fault: Fault) -> ScriptedFaults:
    """Only this call, only this fault."""
    return ScriptedFaults({tuple(site): fault})


async def run_cut(root: Path, fence: FenceVariant, plan: ScriptedFaults | None) -> list[CallSite]:
    """One cut under a plan of faults and one without; the sites of all its calls."""
    fleet, tasks = await busy(fence)
    recorder = Recorder(fleet.transport())
    transport = FaultyTransport(recorder, plan) if plan is not None else recorder
    try:
        async with fleet.controller(root, transport=transport, on_completed=keep) as controller:
            await attempt(controller, fleet)
    except (Unreachable, ExceptionGroup):
        assert plan is not None  # discovery met the fault; nobody was paused
        assert await fleet.everybody_accepts()
    if isinstance(transport, FaultyTransport):
        await transport.settled()
        assert transport.injected
    async with fleet.controller(root, on_completed=keep) as controller:
        await second(controller, fleet)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return recorder.sites


async def attempt(controller: Controller, fleet: Fleet) -> None:
    """One cut, whatever becomes of it: published or as if nothing had happened. One lost call leaves no doubt."""
    with contextlib.suppress(QuiesceError, ExceptionGroup):
        async with controller.cut("first"):
            pass
    assert controller.unsettled is None
    published = [entry for entry in controller.store.list() if entry.label == "first"]
    assert all(controller.store.verify(entry.wire_id).is_good for entry in published)
    assert await fleet.everybody_accepts()


async def second(controller: Controller, fleet: Fleet) -> None:
    """The next cut works without anybody doing anything."""
    async with controller.cut("second") as cut:
        pass
    assert controller.store.verify(cut.wire_id).is_good
    assert await fleet.everybody_accepts()


def every_site(fence: FenceVariant, tmp: Path) -> Iterator[CallSite]:
    """The calls of a run in which nothing goes wrong."""
    yield from dict.fromkeys(run_virtual(run_cut(tmp / "clean", fence, None)))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind.value}-{fault.delay_s:g}")
@pytest.mark.parametrize("fence", FENCES)
def test_any_single_call_of_a_cut_may_go_wrong(tmp_path: Path, fence: FenceVariant, fault: Fault) -> None:
    """Everybody accepts work afterwards or is named, and the next cut works."""
    sites = list(every_site(fence, tmp_path))
    assert len(sites) >= 40
    for number, site in enumerate(sites):
        try:
            run_virtual(run_cut(tmp_path / str(number), fence, script(site, fault)))
        except BaseException as error:
            error.add_note(f"at {site}, {fault}")
            raise
