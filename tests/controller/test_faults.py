"""A cut and a restore in which any single call goes wrong: everybody goes on, or is named in doubt.

The calls are those of a clean run, each with every fault, so nothing is left out. A lost request stays lost for its
first arrival only; the run may then succeed or abort. Whatever it does, nobody may stay closed unnamed, what is
published must verify, and the next cut must work.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import run_virtual
from support.wiretap import Wiretap

from quiesce.controller import Controller
from quiesce.controller.discovery import DiscoveryFailed
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.transport.faults import CallSite, Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport

FAULTS = (
    Fault(FaultKind.REFUSED),
    Fault(FaultKind.REQUEST_LOST),
    Fault(FaultKind.REPLY_LOST),
    Fault(FaultKind.REPLY_STUCK),
    Fault(FaultKind.DELAYED, 3.0),
    Fault(FaultKind.DELAYED, 9.0),
)


async def busy(fence: FenceVariant) -> tuple[Fleet, list[asyncio.Task[object]]]:
    """A fleet with a rollout that parks, a finished result and an open call that ends in a while."""
    fleet = Fleet(fence)
    tasks: list[asyncio.Task[object]] = [fleet.rollout("r0", 30), fleet.rollout("done", 1)]
    await fleet.clock.sleep(2.5)
    tasks.append(asyncio.create_task(fleet.model_call("r0")))
    await fleet.call_began.wait()
    asyncio.get_running_loop().call_later(4.0, fleet.let_calls_end.set)
    return fleet, tasks


async def run_cut(root: Path, fence: FenceVariant, plan: ScriptedFaults | None) -> list[CallSite]:
    """A cut over a network that follows a plan, then one over a network that is well again; the first one's calls."""
    fleet, tasks = await busy(fence)
    tap = Wiretap(fleet.transport())
    transport = FaultyTransport(tap, plan) if plan is not None else tap
    try:
        async with fleet.controller(root, transport=transport, on_completed=keep) as controller:
            await attempt(controller, fleet)
    except DiscoveryFailed:
        assert plan is not None
        assert tap.mutating() == []
    if isinstance(transport, FaultyTransport):
        await transport.settled()
        assert transport.injected
    if tap.mutating():
        async with fleet.controller(root, on_completed=keep) as controller:
            await second(controller, fleet)
    assert await fleet.everybody_accepts()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tap.sites


async def attempt(controller: Controller, fleet: Fleet) -> None:
    """One cut, whatever becomes of it: published or as if nothing had happened. One lost call leaves no doubt."""
    is_published = False
    with contextlib.suppress(QuiesceError, ExceptionGroup):
        async with controller.cut("first"):
            pass
        is_published = True
    assert controller.unsettled is None
    found = [entry for entry in controller.store.list() if entry.label == "first"]
    assert len(found) == is_published
    assert all(controller.store.verify(entry.wire_id).is_good for entry in found)
    assert await fleet.everybody_accepts()


async def second(controller: Controller, fleet: Fleet) -> None:
    """The next cut works without anybody doing anything."""
    async with controller.cut("second") as cut:
        pass
    assert controller.store.verify(cut.wire_id).is_good
    assert await fleet.everybody_accepts()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind.value}-{fault.delay_s:g}")
@pytest.mark.parametrize("fence", FENCES)
def test_any_single_call_of_a_cut_may_go_wrong(tmp_path: Path, fence: FenceVariant, fault: Fault) -> None:
    """Everybody accepts work afterwards or is named, and the next cut works."""
    sites = list(dict.fromkeys(run_virtual(run_cut(tmp_path / "clean", fence, None))))
    assert len(sites) >= 40
    for number, site in enumerate(sites):
        plan = ScriptedFaults({(site.participant, site.call, site.nth): fault})
        try:
            run_virtual(run_cut(tmp_path / str(number), fence, plan))
        except BaseException as error:
            error.add_note(f"at {site}, {fault}")
            raise
