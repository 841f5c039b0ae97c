"""A policy of several workers behind a recorded coordinator, in whole cuts and restores.

Its commit and restore are served by the model server beside it, which the configuration names (wire-protocol F23).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.fleet import Fleet, keep
from support.ground import IN_PROCESS, CoordinatedFleet, Ground, on_every_ground

from quiesce.controller import DeadlineExceeded
from quiesce.controller.clock import Clock
from quiesce.controller.discovery import DiscoveryFailed
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import ControlRequestError
from quiesce.participants.identity import AttemptId


def coordinated(clock: Clock) -> CoordinatedFleet:
    """A policy with two workers behind its coordinator; the others as recorded."""
    return CoordinatedFleet(FenceVariant.GYM_A_SINGLE, clock=clock)


async def at_its_boundary(fleet: Fleet, rollout_id: str, until: asyncio.Event) -> None:
    """A rollout that has taken its first turn and comes by that turn's boundary again and again."""
    async with fleet.runs.begin(AttemptId(rollout_id, 0)) as execution:
        fleet.record_call(rollout_id, f"{rollout_id}-call-1")
        await execution.commit_boundary(
            boundary_index=1, last_committed_model_call_id=f"{rollout_id}-call-1", agent_state={"turn": 1}
        )
        while not until.is_set():
            await fleet.clock.sleep(0.01)
            await execution.commit_boundary(boundary_index=1, turn_index=1)
        execution.finish({"id": f"result-{rollout_id}"})


async def finished(fleet: Fleet, rollout_id: str) -> None:
    """A rollout whose result nobody has acknowledged."""
    async with fleet.runs.begin(AttemptId(rollout_id, 0)) as execution:
        execution.finish({"id": f"result-{rollout_id}"})


@on_every_ground(coordinated)
async def test_a_cut_over_work_at_both_workers_is_taken_and_restored(ground: Ground, root: Path) -> None:
    """Calls drain at each worker, a rollout parks, a result is owned, all is exported; fresh servers restore it."""
    fleet, over = ground.coordinated, asyncio.Event()
    rollout = asyncio.create_task(at_its_boundary(fleet, "r0", over))
    await finished(fleet, "done")
    assert await fleet.seed_session("r0") == 200
    calls = [asyncio.create_task(fleet.model_call("r0")) for _ in range(2)]
    await asyncio.sleep(0)
    assert [worker.inflight for worker in fleet.workers] == [1, 1]
    ground.after("policy", "pause", 1, fleet.let_calls_end.set)
    async with ground.controller(root, on_completed=keep) as controller:
        async with controller.cut("step-1") as cut:
            assert all(worker.gate.closed for worker in fleet.workers)
        assert controller.store.verify(cut.wire_id).is_good
    assert cut.result.rollouts == (AttemptId("r0", 0),)
    assert cut.result.storage_keys == ("stage/r0/r0-call-1",)
    assert [await call for call in calls] == [200, 200]
    said = ground.said("policy")
    assert said[0] == "pause 200"
    assert said[-3:] == ["capabilities 200", "commit 200", "resume 200"]
    assert set(said[1:-3]) == {"status 200"}
    assert await fleet.everybody_accepts()
    over.set()
    await rollout
    await restored_into_fresh_servers(ground, root)


async def restored_into_fresh_servers(ground: Ground, root: Path) -> None:
    """Lineage, boundary and session are there for the next attempt; the coordinator is healed from its idle resume."""
    fresh = CoordinatedFleet(FenceVariant.GYM_A_SINGLE, restore_expected=True, clock=ground.fleet.clock)
    ground.fleet = fresh
    ground.way.log.clear()
    async with ground.controller(root) as controller, controller.restore("step-1") as restored:
        assert ground.said("policy") == ["restore 200"]
    assert restored.result.rollouts == (AttemptId("r0", 0),)
    assert ground.said("policy") == [
        "restore 200",
        "resume invalid_phase",
        "capabilities 200",
        "pause 200",
        "resume 200",
    ]
    assert await fresh.everybody_accepts()
    assert [record.attempt for record in fresh.runs.restored()] == [AttemptId("r0", 1)]
    assert fresh.ledger.is_fenced(AttemptId("r0", 0))
    assert fresh.states.keys() == {AttemptId("r0", 1)}
    await ground.next_cut_works(root)


@on_every_ground(coordinated)
async def test_without_the_model_server_it_is_refused_before_anybody_is_paused(ground: Ground, root: Path) -> None:
    """F23: it declares export_restore, and has no route for it; the error names the route and whom it was asked of."""
    with pytest.raises(DiscoveryFailed, match=r"main/policy.*model-checkpoint/commit with 404.*: checkpoint_url of"):
        async with ground.controller(root, without_model_server=True):
            raise AssertionError("it cannot be cut")
    assert ground.said("policy") == ground.said("agent") == []
    assert await ground.fleet.everybody_accepts()


@on_every_ground(coordinated)
async def test_a_worker_lost_while_paused_exports_nothing(ground: Ground, root: Path) -> None:
    """The model server refuses to export what does not stand still; everybody is reopened once the worker is back."""
    workers = ground.coordinated.workers
    ground.before("policy", "commit", 1, workers["w1"].leave)
    ground.after("policy", "resume", 1, lambda: workers.register("w1"))
    async with ground.controller(root) as controller:
        with pytest.raises(ControlRequestError, match="ledger_not_quiescent"):
            async with controller.cut("first"):
                raise AssertionError("a worker is gone")
        assert controller.store.list() == ()
    said = ground.said("policy")
    assert said[-3:] == ["commit ledger_not_quiescent", "resume missing_workers", "resume 200"]
    assert await ground.fleet.everybody_accepts()
    await ground.next_cut_works(root)


@on_every_ground(coordinated, grounds=[IN_PROCESS])
async def test_a_worker_lost_while_draining_is_named_when_the_time_is_over(ground: Ground, root: Path) -> None:
    """It is never counted as drained; the error says how many have acknowledged of how many (F-10)."""
    fleet = ground.coordinated
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()

    def lose_one() -> None:
        fleet.workers["w1"].leave()
        fleet.let_calls_end.set()

    ground.after("policy", "pause", 1, lose_one)
    ground.after("policy", "resume", 1, lambda: fleet.workers.register("w1"))
    async with ground.controller(root, reach_timeout_s=12.0) as controller:
        with pytest.raises(DeadlineExceeded, match=r"main/policy.*1 of 2 workers"):
            async with controller.cut("first"):
                raise AssertionError("a worker is gone")
    assert await call == 200
    assert await fleet.everybody_accepts()
