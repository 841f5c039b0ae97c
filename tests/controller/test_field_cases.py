"""Cases that the field knows and that no other test shows: each names its number (docs/field-cases.md lists all)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, CutAborted, InDoubt
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import ControlRequestError, NeverSent
from quiesce.transport.faults import CallSite, Fault, FaultKind
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply

JSON = {"content-type": "application/json"}
PREPARE = {
    "policy": "model-admission/pause",
    "agent": "agent-checkpoint/prepare",
    "tools": "resources-checkpoint/prepare",
}
every_fence = pytest.mark.parametrize("fence", FENCES)
every_role = pytest.mark.parametrize("who", list(PREPARE))


def refusal(code: str) -> ControlReply:
    """A refusal with this code."""
    return ControlReply(409, JSON, b'{"error":{"code":"%b","detail":"said the test"}}' % code.encode())


def refusing(fleet: Fleet, route: str, code: str) -> Wiretap:
    """A way to the servers on which every call of a route is refused."""
    return Wiretap(fleet.transport(), instead=lambda call: refusal(code) if call.route == route else None)


async def next_cut_works(controller: Controller, fleet: Fleet) -> None:
    """Nothing of the one before is in its way."""
    async with controller.cut("next") as cut:
        pass
    assert controller.store.verify(cut.wire_id).is_good
    assert await fleet.everybody_accepts()


@every_fence
@every_role
@pytest.mark.parametrize("code", ["stale_checkpoint", "control_error", "declined_warming_up"])
@virtual_time
async def test_a_first_prepare_that_is_declined_ends_the_cut_at_once(
    tmp_path: Path, fence: FenceVariant, who: str, code: str
) -> None:
    """Not asked again until the deadline, whatever the reason; the error has it (F-03, F-31)."""
    fleet = Fleet(fence)
    tap = refusing(fleet, PREPARE[who], code)
    async with fleet.controller(tmp_path, transport=tap, reach_timeout_s=600.0) as controller:
        began = fleet.clock.monotonic()
        with pytest.raises(ControlRequestError, match=code) as caught:
            await controller.cut("step").__aenter__()
        # a resource server's refusal right at the end of its slice would say "not yet"; this one comes at once
        assert fleet.clock.monotonic() - began < 1.0
        assert (caught.value.participant, caught.value.error_code) == (f"main/{who}", code)
        assert len(tap.to(PREPARE[who])) == 1
        assert await fleet.everybody_accepts()
        tap.instead = lambda _call: None
        await next_cut_works(controller, fleet)


class Unreachable:
    """No resume gets through to one participant for a while; the probe of discovery and the preflight's question do."""

    def __init__(self) -> None:
        self.is_on = True

    def fault_for(self, site: CallSite) -> Fault | None:
        """What happens to a call."""
        stuck = self.is_on and site.participant == "main/tools" and site.call.endswith("/resume") and site.nth > 2
        return Fault(FaultKind.REQUEST_LOST) if stuck else None


@every_fence
@virtual_time
async def test_an_abort_does_not_wait_for_whoever_does_not_answer_it(tmp_path: Path, fence: FenceVariant) -> None:
    """It returns within its budget with that one unconfirmed, the others long open; later it is made up for (F-13)."""
    fleet = Fleet(fence)
    plan = Unreachable()
    network = FaultyTransport(fleet.transport(), plan)
    async with fleet.controller(tmp_path, transport=network, release_timeout_s=5.0) as controller:
        cut = await controller.begin_cut("step")
        await cut.prepare()
        began = fleet.clock.monotonic()
        await cut.abort()
        assert fleet.clock.monotonic() - began <= 5.5
        held = cut.held()
        assert isinstance(held, InDoubt)
        assert [str(key) for key in held.owed] == ["main/tools"]
        assert not fleet.apps["policy"].fence.state.closed
        assert not fleet.apps["agent"].fence.state.closed
        await controller.end(cut)
        plan.is_on = False
        await fleet.clock.sleep(600.0)
        assert controller.unsettled is None
        await next_cut_works(controller, fleet)


@every_fence
@virtual_time
async def test_an_export_whose_work_dies_fails_at_once(tmp_path: Path, fence: FenceVariant) -> None:
    """Not at the deadline; and the next transaction is not concerned (F-18)."""
    fleet = Fleet(fence)
    await fleet.seed_session("r0")
    write = fleet.states.copy
    fleet.states.clear()  # the export hook raises where the state is gone
    async with fleet.controller(tmp_path, hold_timeout_s=600.0) as controller:
        began = fleet.clock.monotonic()
        with pytest.raises(ControlRequestError, match="main/tools"):
            await controller.cut("step").__aenter__()
        assert fleet.clock.monotonic() - began < 10.0
        assert await fleet.everybody_accepts()
        fleet.states.update(write())
    assert await fleet.everybody_accepts()


@every_fence
@virtual_time
async def test_each_caller_gets_its_own_error(tmp_path: Path, fence: FenceVariant) -> None:
    """B's time-out is B's alone, and A's failure is A's (F-35)."""
    fleet = Fleet(fence)
    stuck = fleet.stuck("slow")
    tap = refusing(fleet, PREPARE["tools"], "control_error")
    async with fleet.controller(tmp_path, transport=tap, reach_timeout_s=600.0) as controller:
        first = asyncio.ensure_future(controller.cut("step").__aenter__())
        await fleet.clock.sleep(1.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await controller.idle()
        assert not first.done()
        fleet.let_calls_end.set()
        with pytest.raises(ControlRequestError, match="control_error"):
            await first
        assert await fleet.everybody_accepts()
    await asyncio.gather(stuck, return_exceptions=True)


@every_fence
@virtual_time
async def test_one_caller_who_leaves_does_not_take_the_other_along(tmp_path: Path, fence: FenceVariant) -> None:
    """A caller that waits for its turn is refused, and cancelling it changes nothing for the one who has it (F-35)."""
    fleet = Fleet(fence)
    async with fleet.controller(tmp_path, on_completed=keep) as controller, controller.cut("step") as cut:
        waiting = asyncio.ensure_future(controller.idle())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(Exception, match="is running"):
            await controller.cut("other").__aenter__()
    assert cut.result.label == "step"


@every_fence
@every_role
@virtual_time
async def test_somebody_who_ends_between_discovery_and_prepare_is_met_at_once(
    tmp_path: Path, fence: FenceVariant, who: str
) -> None:
    """Refused connections are no reason to wait for the deadline (F-40)."""
    fleet = Fleet(fence)
    network = fleet.transport()
    async with fleet.controller(tmp_path, transport=network, reach_timeout_s=600.0) as controller:
        network.unmount(f"http://{who}")
        began = fleet.clock.monotonic()
        with pytest.raises(NeverSent, match=f"main/{who}"):
            await controller.cut("step").__aenter__()
        assert fleet.clock.monotonic() - began < 5.0
        network.mount(f"http://{who}", fleet.apps[who])
        assert await fleet.everybody_accepts()
        await next_cut_works(controller, fleet)


@every_fence
@virtual_time
async def test_somebody_who_prepares_and_ends_is_caught_before_the_commit(tmp_path: Path, fence: FenceVariant) -> None:
    """A 200 of somebody who is gone right afterwards exports nothing (F-40)."""
    fleet = Fleet(fence)
    network = fleet.transport()

    def die(call: TappedCall) -> None:
        if call.route == PREPARE["tools"]:
            asyncio.get_running_loop().call_soon(network.unmount, "http://agent")

    tap = Wiretap(network, instead=die)
    async with fleet.controller(tmp_path, transport=tap, hold_timeout_s=600.0, release_timeout_s=5.0) as controller:
        with pytest.raises(ExceptionGroup) as caught:
            await controller.cut("step").__aenter__()
        assert any(isinstance(error, InDoubt) for error in caught.value.exceptions)
        assert not any(isinstance(error, CutAborted) for error in caught.value.exceptions)
        assert not tap.to("agent-checkpoint/commit")
        network.mount("http://agent", fleet.apps["agent"])
        tap.instead = lambda _call: None
        await controller.settle()
        await next_cut_works(controller, fleet)
