"""Rollouts that do not come to the cut in time are retired and start over: in the snapshot, or named as restarting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet, keep
from support.ground import CoordinatedFleet, Ground, on_every_ground
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, DeadlineExceeded
from quiesce.controller.clock import Clock
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import ExecutionRetired
from quiesce.transport.faults import Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply, Transport

SLOW, QUICK = AttemptId("slow", 0), AttemptId("quick", 0)
RETIRE = "POST /ng-control/v1/agent-checkpoint/retire"
RETIRE_SESSION = "POST /ng-control/v1/resources-checkpoint/retire"
ABORT_INFLIGHT = "POST /ng-control/v1/model-admission/abort_inflight"
on_both_fences = pytest.mark.parametrize("fence", FENCES)


def restarting(
    fleet: Fleet, root: Path, transport: Transport | None = None, *, straggler_after_s: float = 5.0
) -> Controller:
    """A controller that restarts whoever takes longer."""
    return fleet.controller(
        root,
        transport=transport,
        on_completed=keep,
        straggler_policy="restart",
        straggler_after_s=straggler_after_s,
        reach_timeout_s=60.0,
    )


async def work(fleet: Fleet) -> asyncio.Task[None]:
    """A rollout that never comes to a boundary and one that does, each with a session of the tools; the first one."""
    slow, _quick = fleet.stuck("slow"), fleet.rollout("quick", 1000)
    for rollout in ("slow", "quick"):
        await fleet.seed_session(rollout)
    await fleet.clock.sleep(2.5 * fleet.turn_s)
    return slow


async def retired(execution: asyncio.Task[None]) -> None:
    """The rollout's code was told that it is over."""
    with pytest.raises(ExecutionRetired):
        await execution


def check_manifest(controller: Controller) -> None:
    """The snapshot has what came to the cut, names what did not, and holds no half of it."""
    manifest = controller.store.load("step-1")
    assert [entry.attempt for entry in manifest.rollouts] == [QUICK]
    (entry,) = manifest.restarting
    assert (entry.attempt, entry.agent, entry.reason) == (SLOW, "agent", "retired as a straggler")
    assert not [file.path for file in manifest.files if "slow" in file.path]


def scenario_of(fence: FenceVariant) -> Callable[[str, Path], None]:
    """The main case, on servers with this fence."""

    def build(clock: Clock) -> Fleet:
        return Fleet(fence, clock=clock, turn_s=0.05)

    @on_every_ground(build)
    async def scenario(ground: Ground, root: Path) -> None:
        """A straggler is retired at its agent and at the tools; the result and the manifest name it (F-15, F22)."""
        slow = await work(ground.fleet)
        async with ground.controller(
            root, on_completed=keep, straggler_policy="restart", straggler_after_s=0.5
        ) as controller:
            async with controller.cut("step-1") as cut:
                pass
            assert cut.result.restarting == (SLOW,)
            assert cut.result.rollouts == (QUICK,)
            assert any("slow" in note and "starts over" in note for note in cut.result.notes)
            check_manifest(controller)
        await retired(slow)
        assert await ground.fleet.everybody_accepts()
        assert list(ground.fleet.states) == [QUICK]
        assert [said for said in ground.said("agent") if said.startswith("retire")] == ["retire 200"]

    return scenario


test_a_straggler_is_restarted_strict = scenario_of(FenceVariant.STRICT)
test_a_straggler_is_restarted_as_recorded = scenario_of(FenceVariant.GYM_A_SINGLE)


@on_both_fences
@virtual_time
async def test_what_was_restarted_starts_over_after_a_restore(tmp_path: Path, fence: FenceVariant) -> None:
    """The restore continues what is in the snapshot, and says what starts over."""
    fleet = Fleet(fence)
    slow = await work(fleet)
    async with restarting(fleet, tmp_path) as controller, controller.cut("step-1"):
        pass
    fresh = Fleet(fence, restore_expected=True)
    async with fresh.controller(tmp_path) as controller, controller.restore("step-1") as restored:
        pass
    assert restored.result.restarting == (SLOW,)
    assert [record.attempt for record in fresh.runs.restored()] == [AttemptId("quick", 1)]
    assert list(fresh.states) == [AttemptId("quick", 1)]
    await retired(slow)


@on_both_fences
@virtual_time
async def test_a_model_call_that_never_ends_is_cut_off_with_its_rollout(tmp_path: Path, fence: FenceVariant) -> None:
    """The rollout is retired at its agent, its call at the model; a call of nobody's rollout is not touched."""
    fleet = Fleet(fence)
    slow = await work(fleet)
    call = asyncio.create_task(fleet.model_call("slow"))
    await fleet.call_began.wait()
    tap = Wiretap(fleet.transport())
    async with restarting(fleet, tmp_path, tap) as controller:
        async with controller.cut("step-1") as cut:
            pass
        check_manifest(controller)
    assert cut.result.restarting == (SLOW,)
    assert [one.body["rollout_id"] for one in tap.to("model-admission/abort_inflight")] == ["slow"]
    await asyncio.gather(call, return_exceptions=True)
    assert await fleet.everybody_accepts()
    await retired(slow)


@on_both_fences
@virtual_time
async def test_a_model_call_of_nobodys_rollout_is_waited_for(tmp_path: Path, fence: FenceVariant) -> None:
    """Nobody could start it over: the cut ends with the budget, and nothing was cut off."""
    fleet = Fleet(fence)
    call = asyncio.create_task(fleet.model_call("somebody"))
    await fleet.call_began.wait()
    tap = Wiretap(fleet.transport())
    async with restarting(fleet, tmp_path, tap) as controller:
        with pytest.raises(DeadlineExceeded, match="somebody"):
            await controller.cut("step-1").__aenter__()
    assert not tap.to("model-admission/abort_inflight")
    assert await fleet.everybody_accepts()
    fleet.let_calls_end.set()
    assert await call == 200


@on_both_fences
@pytest.mark.parametrize("call", [RETIRE, RETIRE_SESSION])
@pytest.mark.parametrize("kind", [FaultKind.REFUSED, FaultKind.RESET, FaultKind.REPLY_LOST, FaultKind.DUPLICATED])
@virtual_time
async def test_a_retire_that_goes_wrong_is_asked_again(
    tmp_path: Path, fence: FenceVariant, call: str, kind: FaultKind
) -> None:
    """Once or twice is the same; the rollout is named once."""
    fleet = Fleet(fence)
    slow = await work(fleet)
    who = "main/agent" if call == RETIRE else "main/tools"
    faults = ScriptedFaults({(who, call, nth): Fault(kind) for nth in (1, 2)})
    network = FaultyTransport(fleet.transport(), faults)
    async with restarting(fleet, tmp_path, network) as controller:
        async with controller.cut("step-1") as cut:
            pass
        check_manifest(controller)
    assert network.injected
    assert cut.result.restarting == (SLOW,)
    await retired(slow)


@on_both_fences
@virtual_time
async def test_an_aborted_cut_says_what_it_has_retired(tmp_path: Path, fence: FenceVariant) -> None:
    """What was retired is gone also where nothing is published: the error's notes name it."""
    fleet = Fleet(fence)
    slow = await work(fleet)
    refused = ControlReply(409, {"content-type": "application/json"}, b'{"error":{"code":"control_error","detail":""}}')

    def refuse(call: TappedCall) -> ControlReply | None:
        return refused if call.route == "resources-checkpoint/prepare" else None

    tap = Wiretap(fleet.transport(), instead=refuse)
    async with restarting(fleet, tmp_path, tap) as controller:
        with pytest.raises(Exception, match="control_error") as caught:
            await controller.cut("step-1").__aenter__()
    assert any("slow attempt 0 was retired as a straggler" in note for note in caught.value.__notes__)
    assert await fleet.everybody_accepts()
    await retired(slow)


@on_both_fences
@virtual_time
async def test_a_rollout_that_finishes_before_it_is_retired_is_no_straggler(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """Its result waits to be acknowledged, and is; nothing starts over."""
    fleet = Fleet(fence)
    async with fleet.runs.begin(SLOW) as execution:

        def finish(call: TappedCall) -> None:
            if call.site.call == RETIRE and not call.is_probe:
                execution.finish({"id": "result-slow"})

        tap = Wiretap(fleet.transport(), instead=finish)
        async with restarting(fleet, tmp_path, tap) as controller, controller.cut("step-1") as cut:
            pass
    assert cut.result.restarting == ()
    assert cut.result.rollouts == ()


@on_both_fences
@virtual_time
async def test_several_stragglers_of_one_agent_are_restarted(tmp_path: Path, fence: FenceVariant) -> None:
    """All of them at once, whoever else parks in time."""
    fleet = Fleet(fence)
    stuck = [*(fleet.stuck(f"slow{number}") for number in range(3)), await work(fleet)]
    async with restarting(fleet, tmp_path) as controller, controller.cut("step-1") as cut:
        pass
    assert {attempt.rollout_id for attempt in cut.result.restarting} == {"slow", "slow0", "slow1", "slow2"}
    assert cut.result.rollouts == (QUICK,)
    for execution in stuck:
        await retired(execution)


@on_both_fences
@virtual_time
async def test_a_model_call_is_cut_off_before_any_agent_is_closed(tmp_path: Path, fence: FenceVariant) -> None:
    """Where policies drain first, the rollout is retired at an agent that is still open."""
    fleet = Fleet(fence)
    slow = await work(fleet)
    call = asyncio.create_task(fleet.model_call("slow"))
    await fleet.call_began.wait()
    settings = {"drain": "policies_first", "straggler_policy": "restart", "straggler_after_s": 5.0}
    controller = Controller(
        fleet.config(tmp_path, **settings), on_completed=keep, transport=fleet.transport(), clock=fleet.clock
    )
    async with controller:
        async with controller.cut("step-1") as cut:
            pass
        check_manifest(controller)
    assert cut.result.restarting == (SLOW,)
    await asyncio.gather(call, return_exceptions=True)
    await retired(slow)
    assert await fleet.everybody_accepts()


def coordinated(clock: Clock) -> Fleet:
    """A policy of two workers."""
    return CoordinatedFleet(FenceVariant.GYM_A_SINGLE, clock=clock, turn_s=0.05)


@on_every_ground(coordinated)
async def test_a_model_call_behind_a_coordinator_is_cut_off(ground: Ground, root: Path) -> None:
    """It lists no calls: what the agents were rid of is cut off at its workers."""
    slow = await work(ground.fleet)
    call = asyncio.create_task(ground.fleet.model_call("slow"))
    await ground.fleet.call_began.wait()
    async with ground.controller(
        root, on_completed=keep, straggler_policy="restart", straggler_after_s=0.5
    ) as controller:
        async with controller.cut("step-1") as cut:
            pass
        check_manifest(controller)
    assert cut.result.restarting == (SLOW,)
    await asyncio.gather(call, return_exceptions=True)
    await retired(slow)
    assert await ground.fleet.everybody_accepts()


@on_both_fences
@pytest.mark.parametrize("straggler_after_s", [0.5, 1.0, 4.0, 9.0])
@virtual_time
async def test_a_straggler_is_acted_on_when_its_time_is_over(
    tmp_path: Path, fence: FenceVariant, straggler_after_s: float
) -> None:
    """Also where that is before a whole slice: the first prepare is answered before, so that it is known who waits."""
    fleet = Fleet(fence)
    slow = await work(fleet)
    began = fleet.clock.monotonic()
    acted: list[tuple[float, str]] = []

    def observe(step: TraceRecord) -> None:
        if step.event == "straggling":
            acted.append((fleet.clock.monotonic() - began, step.effects[-1] if step.effects else ""))

    controller = fleet.controller(
        tmp_path,
        on_completed=keep,
        straggler_policy="restart",
        straggler_after_s=straggler_after_s,
        observers=(observe,),
    )
    async with controller, controller.cut("step-1") as cut:
        pass
    assert cut.result.restarting == (SLOW,)
    assert [effect for _, effect in acted] == ["call_retire"]
    assert acted[0][0] <= straggler_after_s + 0.5
    await retired(slow)
