"""Agent runs: admission, results and their receipts, retiring, and what a restore brings back."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from pathlib import Path
from types import MappingProxyType

import pytest
from support.refusals import refused
from support.stores import A0, A1, B0, FAR, Servers, fresh_servers, settle, started, tree
from support.virtual_loop import VirtualClock, virtual_time

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.execution import Execution, ExecutionRetired, ExecutionState
from quiesce.participants.server.runs import Runs

A2 = AttemptId("rollout-a", 2)


def new_runs(**options: object) -> Runs:
    """Runs of a fresh agent."""
    return Runs("agent", clock=VirtualClock(), **options)  # type: ignore[arg-type]  # options of the test


def park(runs: Runs) -> None:
    """Close and ask everything to park."""
    runs.close()
    runs.request_park()


async def saved_at_turn_one(directory: Path) -> Servers:
    """An agent whose rollout-a is parked at boundary 1, exported."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    park(servers.runs)
    await rollout.turn(call_id="call-1")
    await servers.runs.export(checkpoint_id="ck-1", directory=directory)
    return servers


# ---- admission


@virtual_time
async def test_an_attempt_runs_once() -> None:
    """A second run of a live attempt is a duplicate, whether it has begun or only passed the gate."""
    runs = new_runs()
    assert runs.admit(A0) is None
    with refused(RefusalCode.DUPLICATE_EXECUTION):
        runs.admit(A0)
    runs.begin(A0)
    with refused(RefusalCode.DUPLICATE_EXECUTION):
        runs.begin(A0)


@virtual_time
async def test_a_closed_agent_admits_nobody_but_lets_in_whom_it_had_admitted() -> None:
    """Nothing slips between gate and ``begin``: an admitted run counts as running, and begins parked at boundary 0."""
    runs = new_runs()
    runs.admit(A0)
    park(runs)
    with refused(RefusalCode.AGENT_ADMISSION_CLOSED):
        runs.admit(B0)
    with refused(RefusalCode.AGENT_ADMISSION_CLOSED):
        runs.begin(B0)
    assert runs.status()["running"] == 1
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), runs.begin(A0) as execution:
            pytest.fail(f"{execution.attempt} ran on though it was asked to park")
    # its caller is gone, and its boundary is a place to go on from until the agent opens
    assert (runs.status()["parked_with_boundary"], runs.status()["ready_to_commit"]) == (1, True)
    assert runs.open() == 0
    assert runs.is_fenced(A0)


@virtual_time
async def test_a_withdrawn_admission_leaves_nothing() -> None:
    """A caller that hung up before its run began blocks no cut; withdrawing later changes nothing."""
    runs = new_runs()
    runs.admit(A0)
    runs.withdraw(A0)
    assert runs.status()["active"] == 0
    runs.begin(A0)
    runs.withdraw(A0)
    assert runs.status()["active"] == 1


@virtual_time
async def test_a_stale_caller_learns_that_it_is_stale_even_while_closed() -> None:
    """Fences are looked at before admission (2.20)."""
    runs = new_runs()
    runs.retire(A0)
    runs.close()
    with refused(RefusalCode.STALE_ATTEMPT):
        runs.admit(A0)


@virtual_time
async def test_a_later_attempt_replaces_an_earlier_one() -> None:
    """The earlier execution is retired and fenced; both at once could not be restored."""
    servers = fresh_servers()
    earlier = await started(servers, A0)
    later = await started(servers, A1)
    with pytest.raises(ExecutionRetired):
        await earlier.outcome
    assert servers.runs.is_fenced(A0)
    assert later.execution.state is ExecutionState.RUNNING
    with refused(RefusalCode.STALE_ATTEMPT):
        servers.runs.begin(A0)


@virtual_time
async def test_the_number_of_executions_is_bounded() -> None:
    """Beyond the bound a run is refused until something ends."""
    runs = new_runs(executions_max=1)
    execution = runs.begin(A0)
    with refused(RefusalCode.AGENT_ADMISSION_CLOSED, "1 executions"):
        runs.begin(B0)
    runs.acknowledge([receipt_fields(execution, {"id": "r"})])
    runs.begin(B0)


@virtual_time
async def test_a_state_that_is_no_json_is_refused_at_begin() -> None:
    """The attempt can begin again with a better one."""
    runs = new_runs()
    with refused(RefusalCode.AGENT_CHECKPOINT_ERROR, "agent_state"):
        runs.begin(A0, agent_state={"socket": object()})
    assert runs.status()["active"] == 0
    runs.begin(A0)


def test_an_agent_may_have_any_printable_name() -> None:
    """It is hashed before it becomes a folder; control characters and emptiness are refused."""
    Runs("Löser 7/b", clock=VirtualClock())
    for name in ("", "a\nb", "x" * 513):
        with pytest.raises(InvalidIdentity):
            Runs(name, clock=VirtualClock())


# ---- results


def receipt_fields(execution: Execution, result: object) -> dict[str, object]:
    """Finish, and give the receipt as the trainer sends it back."""
    receipt = execution.finish(result)
    return {
        "rollout_id": receipt.rollout_id,
        "attempt_index": receipt.attempt_index,
        "execution_generation": receipt.execution_generation,
        "result_identity": receipt.result_identity,
        "result_digest": receipt.result_digest,
    }


@virtual_time
async def test_a_finished_result_is_kept_until_it_is_acknowledged() -> None:
    """A repeated run gets it, also from a closed agent; an acknowledged attempt is over for good."""
    runs = new_runs()
    result = {"id": "resp-88", "reward": 1.0}
    fields = receipt_fields(runs.begin(A0), result)
    assert fields["result_digest"] == "1d52c6e1c85502763d6953a89cafb6bfde19c79257ed0f92f4ac3b51af5ae734"
    assert fields["result_identity"] == "resp-88"
    runs.close()
    assert runs.admit(A0) == result
    with refused(RefusalCode.DUPLICATE_EXECUTION):
        runs.begin(A0)
    assert runs.retire(A0) == {"retired": False, "tombstoned": False, "completed_unacknowledged": True}
    assert runs.acknowledge([fields]) == (True,)
    assert runs.status()["acknowledged_completed"] == 1
    with refused(RefusalCode.STALE_ATTEMPT):
        runs.admit(A0)


@virtual_time
async def test_acknowledging_is_all_or_nothing() -> None:
    """One wrong receipt in a batch and no result is let go."""
    runs = new_runs()
    good = receipt_fields(runs.begin(A0), {"id": "a"})
    other = receipt_fields(runs.begin(B0), {"id": "b"})
    for wrong in (
        other | {"result_digest": "0" * 64},
        other | {"execution_generation": 2},
        other | {"attempt_index": 7},
    ):
        with refused(RefusalCode.ACKNOWLEDGEMENT_ERROR):
            runs.acknowledge([good, wrong])
        assert runs.status()["completed_unacknowledged"] == 2
    assert runs.acknowledge([good, other]) == (True, True)
    assert runs.acknowledge([good]) == (False,)


@virtual_time
async def test_a_running_attempt_has_nothing_to_acknowledge() -> None:
    """A receipt for it is refused, however well-formed."""
    runs = new_runs()
    runs.begin(A0)
    with refused(RefusalCode.ACKNOWLEDGEMENT_ERROR, "no completed result"):
        runs.acknowledge([{"rollout_id": "rollout-a", "attempt_index": 0}])


@pytest.mark.parametrize(
    ("result", "identity"),
    [({"id": 7, "response": {"id": "r"}}, "r"), ({"id": ""}, None), ({"id": "x" * 513}, None), ([1], None)],
)
def test_a_result_without_a_usable_id_is_named_by_its_digest(result: object, identity: str | None) -> None:
    """``id``, else ``response.id``, else the digest; empty, overlong and foreign ids do not count."""

    @virtual_time
    async def scenario() -> None:
        receipt = new_runs().begin(A0).finish(result)
        assert receipt.result_identity == (identity or receipt.result_digest)

    scenario()


@virtual_time
async def test_a_result_that_is_no_json_is_refused_and_the_run_goes_on() -> None:
    """Nothing is stored; a second, proper finish works, a third is too late."""
    runs = new_runs()
    execution = runs.begin(A0)
    for bad in (None, object(), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            execution.finish(bad)
    assert execution.state is ExecutionState.RUNNING
    execution.finish({})
    with pytest.raises(QuiesceError, match="has finished"):
        execution.finish({})


# ---- retiring


@virtual_time
async def test_retiring_a_running_execution_cancels_it_and_tells_its_caller_why() -> None:
    """The handler's own work is cancelled; whoever awaits it sees a stale attempt, not a cancellation."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    assert servers.runs.retire(A0) == {"retired": True, "tombstoned": True}
    with pytest.raises(ExecutionRetired):
        await rollout.outcome
    assert servers.runs.status()["executions"] == []
    assert servers.runs.is_fenced(A0)


@virtual_time
async def test_retiring_a_parked_execution_ends_its_wait() -> None:
    """It is gone from the cut at once."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    park(servers.runs)
    await rollout.turn()
    assert servers.runs.status()["parked"] == 1
    servers.runs.retire(A0)
    assert servers.runs.status()["parked"] == 0
    with pytest.raises(ExecutionRetired):
        await rollout.outcome
    assert servers.runs.open() == 0


@virtual_time
async def test_an_unknown_attempt_is_fenced_without_being_retired() -> None:
    """A late run of it is stale."""
    runs = new_runs()
    assert runs.retire(A0) == {"retired": False, "tombstoned": True}
    with refused(RefusalCode.STALE_ATTEMPT):
        runs.begin(A0)


@virtual_time
async def test_a_cancellation_that_is_not_ours_stays_a_cancellation() -> None:
    """A caller that cancels a running execution sees its cancellation; the attempt is fenced."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    rollout.outcome.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rollout.outcome
    assert servers.runs.is_fenced(A0)


@virtual_time
async def test_an_execution_that_fails_or_is_left_unfinished_is_retired() -> None:
    """Its own error passes through; leaving without a result is an error of the server's author."""
    runs = new_runs()
    with pytest.raises(ZeroDivisionError):
        async with runs.begin(A0):
            raise ZeroDivisionError
    with pytest.raises(QuiesceError, match="without finish"):
        async with runs.begin(B0):
            pass
    assert runs.is_fenced(A0)
    assert runs.is_fenced(B0)
    assert runs.status()["active"] == 0


@virtual_time
async def test_a_retired_execution_ends_as_such_however_its_author_leaves() -> None:
    """Retired by its own task it is not cancelled, and learns of it when it is left; swallowing changes nothing."""
    runs = new_runs()
    with pytest.raises(ExecutionRetired):
        async with runs.begin(A0):
            runs.retire(A0)
    swallowed = asyncio.Event()

    async def swallowing() -> None:
        async with runs.begin(B0):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                swallowed.set()

    task = asyncio.ensure_future(swallowing())
    await settle()
    runs.retire(B0)
    with pytest.raises(ExecutionRetired):
        await task
    assert swallowed.is_set()
    assert task.cancelling() == 0


@virtual_time
async def test_a_retired_execution_can_commit_and_finish_nothing() -> None:
    """Whatever it still tries counts for nothing."""
    runs = new_runs()
    execution = runs.begin(A0)
    runs.retire(A0)
    with pytest.raises(ExecutionRetired):
        execution.finish({})
    with pytest.raises(ExecutionRetired):
        await execution.commit_boundary()
    with pytest.raises(ExecutionRetired):
        await execution.call(settle)
    assert runs.status()["completed_unacknowledged"] == 0
    # the execution's owner is this very task, which is therefore not cancelled
    await asyncio.sleep(0)


# ---- boundaries


@virtual_time
async def test_a_boundary_keeps_what_is_not_said_again() -> None:
    """A committed call, state and revisions stay until they are replaced; the index counts by itself."""
    runs = new_runs()
    execution = runs.begin(A0, agent_state={"task": "t"})
    first = execution.boundary
    assert first is not None
    assert (first.boundary_index, first.turn_index, first.agent_state) == (0, 0, {"task": "t"})
    execution.note_revision("tools", 4)
    await execution.commit_boundary(last_committed_model_call_id="c1", output_items=[{"n": 1}])
    second = await execution.commit_boundary(turn_index=7)
    assert (second.boundary_index, second.turn_index) == (2, 7)
    assert second.last_committed_model_call_id == "c1"
    assert (second.agent_state, second.output_items) == ({"task": "t"}, [{"n": 1}])
    assert second.resource_state_revisions == {"tools": 4}


@virtual_time
async def test_a_committed_boundary_is_not_changed_by_what_the_author_does_later() -> None:
    """It is a copy."""
    runs = new_runs()
    execution = runs.begin(A0)
    items: list[object] = [{"deep": [1]}]
    record = await execution.commit_boundary(output_items=items)
    items.append(2)
    assert record.output_items == [{"deep": [1]}]
    frozen = await execution.commit_boundary(agent_state=MappingProxyType({"items": deque([1])}))
    assert frozen.agent_state == {"items": [1]}
    for bad in ({"b": b"bytes"}, {"s": {1}}):
        with refused(RefusalCode.AGENT_CHECKPOINT_ERROR, "agent_state"):
            await execution.commit_boundary(agent_state=bad)
    assert execution.boundary == frozen


@virtual_time
async def test_a_boundary_index_grows_unless_the_boundary_is_the_same() -> None:
    """Committing the same again is harmless; going back, or the same index with other content, is an error."""
    runs = new_runs()
    execution = runs.begin(A0)
    first = await execution.commit_boundary(boundary_index=3, agent_state={"step": 1})
    assert await execution.commit_boundary(boundary_index=3, agent_state={"step": 1}) == first
    for index, step in ((3, 2), (2, 1)):
        with refused(RefusalCode.AGENT_CHECKPOINT_ERROR, "does not come after"):
            await execution.commit_boundary(boundary_index=index, agent_state={"step": step})
    assert execution.boundary == first


@virtual_time
async def test_a_pending_model_boundary_has_its_call_and_no_other_has() -> None:
    """The kind and the pending call go together (6.3)."""
    runs = new_runs()
    execution = runs.begin(A0)
    record = await execution.commit_boundary(boundary_kind="pending_model", pending_model={"model_call_id": "c"})
    assert record.pending_model == {"model_call_id": "c"}
    with refused(RefusalCode.AGENT_CHECKPOINT_ERROR, "pending_model"):
        await execution.commit_boundary(pending_model={"model_call_id": "c"})
    assert (await execution.commit_boundary()).boundary_kind == "turn_complete"


# ---- export and restore


@virtual_time
async def test_a_restored_boundary_waits_for_the_next_attempt(tmp_path: Path) -> None:
    """Attempt n is fenced, n + 1 goes on from the boundary, and only once."""
    await saved_at_turn_one(tmp_path)
    runs = new_runs()
    runs.close()
    restored = await runs.restore(directory=tmp_path)
    assert (restored["records"], restored["source_checkpoint_id"]) == (1, "ck-1")
    (waiting,) = runs.restored()
    assert (waiting.attempt, waiting.boundary_index, waiting.agent_state) == (A1, 1, {"step": 1})
    with refused(RefusalCode.STALE_ATTEMPT):
        runs.admit(A0)
    with refused(RefusalCode.AGENT_ADMISSION_CLOSED):
        runs.begin(A1)
    assert runs.open() == 0
    execution = runs.begin(A1, agent_state={"step": "from the input"})
    assert execution.restored == waiting
    assert execution.boundary == waiting
    assert runs.restored() == ()
    following = await execution.commit_boundary()
    assert (following.boundary_index, following.agent_state) == (2, {"step": 1})


@virtual_time
async def test_a_restored_boundary_that_nobody_took_is_in_the_next_cut(tmp_path: Path) -> None:
    """Its root names the lineage of the attempt that made the call until it commits a call of its own."""
    await saved_at_turn_one(tmp_path / "one")
    servers = fresh_servers()
    await servers.runs.restore(directory=tmp_path / "one")
    park(servers.runs)
    assert await servers.runs.wait_ready(FAR)
    await servers.runs.export(checkpoint_id="ck-2", directory=tmp_path / "two")
    servers.runs.open()
    rollout = await started(servers, A1)
    park(servers.runs)
    await rollout.turn()
    await servers.runs.export(checkpoint_id="ck-3", directory=tmp_path / "three")
    servers.runs.open()
    await settle()
    park(servers.runs)
    await rollout.turn(call_id="call-2")
    await servers.runs.export(checkpoint_id="ck-4", directory=tmp_path / "four")
    rows = [continuation(tmp_path / name) for name in ("two", "three", "four")]
    assert [(row["attempt_index"], row["capture_key"], row["last_committed_model_call_id"]) for row in rows] == [
        (1, "rollout-a", "call-1"),
        (1, "rollout-a", "call-1"),
        (1, "rollout-a-a1", "call-2"),
    ]


def continuation(directory: Path) -> dict[str, object]:
    """The one row of the continuation index below ``directory``."""
    (content,) = (content for name, content in tree(directory).items() if name.endswith("continuations.jsonl"))
    row = json.loads(content)
    assert isinstance(row, dict)
    return row


@virtual_time
async def test_a_discarded_continuation_is_gone(tmp_path: Path) -> None:
    """Nothing waits for it any more; a second discard says so; a run of the attempt starts from its input."""
    await saved_at_turn_one(tmp_path)
    runs = new_runs()
    await runs.restore(directory=tmp_path)
    assert not runs.discard(A0)
    assert runs.discard(A1)
    assert not runs.discard(A1)
    execution = runs.begin(A1, agent_state={"task": "t"})
    assert execution.restored is None


@virtual_time
async def test_retiring_a_waiting_continuation_drops_and_fences_it(tmp_path: Path) -> None:
    """As does a later attempt that begins in its place."""
    await saved_at_turn_one(tmp_path)
    retiring, replacing = new_runs(), new_runs()
    for runs in (retiring, replacing):
        await runs.restore(directory=tmp_path)
    assert retiring.retire(A1) == {"retired": True, "tombstoned": True}
    replacing.begin(A2)
    for runs in (retiring, replacing):
        assert runs.restored() == ()
        assert runs.is_fenced(A1)


@virtual_time
async def test_only_a_fresh_agent_is_restored(tmp_path: Path) -> None:
    """An agent that had executions, or was restored before, refuses and keeps what it has."""
    await saved_at_turn_one(tmp_path)
    used = new_runs()
    used.begin(B0)
    restored = new_runs()
    await restored.restore(directory=tmp_path)
    for runs in (used, restored):
        with refused(RefusalCode.AGENT_CHECKPOINT_ERROR, "fresh"):
            await runs.restore(directory=tmp_path)
    assert used.restored() == ()
    assert len(restored.restored()) == 1


@virtual_time
async def test_an_agent_that_is_not_ready_exports_nothing(tmp_path: Path) -> None:
    """A commit while something runs is refused with what still runs."""
    servers = fresh_servers()
    await started(servers, A0)
    with refused(RefusalCode.AGENT_CHECKPOINT_ERROR, "running=1"):
        await servers.runs.export(checkpoint_id="ck-1", directory=tmp_path)
    assert tree(tmp_path) == {}


@virtual_time
async def test_a_save_of_another_agent_is_not_taken(tmp_path: Path) -> None:
    """Its folder is another one."""
    await saved_at_turn_one(tmp_path)
    with pytest.raises(ControlRefusal, match=r"manifest\.json: does not exist"):
        await Runs("other", clock=VirtualClock()).restore(directory=tmp_path)


@virtual_time
async def test_a_server_can_wait_until_it_may_begin() -> None:
    """``wait_open`` returns at once where it is open, else with the resume."""
    runs = new_runs()
    await runs.wait_open()
    runs.close()
    waiting = asyncio.ensure_future(runs.wait_open())
    await settle()
    assert not waiting.done()
    runs.open()
    await waiting
