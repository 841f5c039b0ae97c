"""Parking: where a cut catches an execution, what makes it wait, and what becomes of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.refusals import refused
from support.stores import A0, B0, FAR, Servers, fresh_servers, settle, started, tree
from support.virtual_loop import VirtualClock, virtual_time

from quiesce.participants.server.errors import RefusalCode
from quiesce.participants.server.execution import CallParked, Execution, ExecutionRetired, is_parking_reply
from quiesce.participants.server.runs import Runs


def park(runs: Runs) -> None:
    """Close and ask everything to park."""
    runs.close()
    runs.request_park()


def states(runs: Runs) -> list[object]:
    """The state of each execution."""
    executions = runs.status()["executions"]
    assert isinstance(executions, list)
    return [entry["state"] for entry in executions]


@virtual_time
async def test_a_running_execution_parks_at_its_next_boundary_and_goes_on_after_the_resume() -> None:
    """Running, asked to park, parked, running again: each step shows in the status."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    runs = servers.runs
    assert states(runs) == ["running"]
    park(runs)
    assert states(runs) == ["park_requested"]
    ready = asyncio.ensure_future(runs.wait_ready(FAR))
    await settle()
    assert not ready.done()
    await rollout.turn()
    assert await ready
    assert states(runs) == ["parked"]
    assert runs.open() == 1
    await settle()
    assert states(runs) == ["running"]
    await rollout.finish()
    assert await rollout.outcome == {"id": "response-rollout-a"}


@virtual_time
async def test_waiting_ends_at_the_deadline_and_the_request_can_be_withdrawn() -> None:
    """An execution that reaches no boundary is still running; one that is parked stays so until the agent opens."""
    servers = fresh_servers()
    parking, _ = await started(servers, A0), await started(servers, B0)
    runs = servers.runs
    park(runs)
    await parking.turn()
    before = servers.clock.monotonic()
    assert not await runs.wait_ready(before + 5.0)
    assert servers.clock.monotonic() == pytest.approx(before + 5.0)
    assert states(runs) == ["parked", "park_requested"]
    runs.cancel_park()
    assert states(runs) == ["parked", "running"]
    assert not await runs.wait_ready(before)
    assert runs.open() == 1


@virtual_time
async def test_waiting_ends_at_once_where_it_cannot_help() -> None:
    """Only an unacknowledged result is left: somebody else has to act, and no time passes."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    park(servers.runs)
    ready = asyncio.ensure_future(servers.runs.wait_ready(FAR))
    await rollout.finish()
    assert not await ready
    assert servers.clock.monotonic() == 0
    assert servers.runs.status()["blocking_attempts"] == []


@virtual_time
async def test_a_retired_straggler_lets_the_waiting_prepare_end() -> None:
    """Retire works while a prepare waits."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    park(servers.runs)
    ready = asyncio.ensure_future(servers.runs.wait_ready(FAR))
    await settle()
    servers.runs.retire(A0)
    assert await ready
    with pytest.raises(ExecutionRetired):
        await rollout.outcome


@virtual_time
async def test_an_execution_that_is_asked_again_before_it_woke_parks_again_where_it_was() -> None:
    """Resume and the next prepare in one turn of the loop: it is still at its boundary."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    park(servers.runs)
    await rollout.turn()
    assert servers.runs.open() == 1
    park(servers.runs)
    await settle()
    assert states(servers.runs) == ["parked"]
    assert rollout.execution.boundary is not None
    assert rollout.execution.boundary.boundary_index == 1


@virtual_time
async def test_without_a_first_boundary_a_refused_call_leaves_nothing_to_export() -> None:
    """The recorded behaviour: parked without a boundary, and no waiting helps (F22)."""
    runs = Runs("agent", clock=VirtualClock(), boundary_at_begin=False)
    server = Gate()
    execution = runs.begin(A0)
    call = asyncio.ensure_future(execution.call(server.ask))
    park(runs)
    await settle()
    status = runs.status()
    assert (status["parked_without_boundary"], status["ready_to_commit"]) == (1, False)
    assert not await runs.wait_ready(FAR)
    runs.retire(A0)
    with pytest.raises(ExecutionRetired):
        await call


class Gate:
    """A server that refuses calls while it is ``closed``. ``asked`` counts them."""

    def __init__(self, *, closed: bool = True) -> None:
        self.closed = closed
        self.asked = 0

    async def ask(self) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        if self.closed:
            raise CallParked
        return "reply"


async def calling(servers: Servers, server: Gate) -> tuple[Execution, asyncio.Task[str]]:
    """An execution that calls the server, as a task of its own."""
    execution = servers.runs.begin(A0, agent_state={"step": 0})
    call = asyncio.ensure_future(execution.call(server.ask))
    await settle()
    return execution, call


@virtual_time
async def test_a_call_refused_by_a_closed_server_parks_its_caller_until_the_resume(tmp_path: Path) -> None:
    """The execution can be cut at its last boundary, and the call is sent again afterwards, once."""
    servers = fresh_servers()
    server = Gate()
    execution, call = await calling(servers, server)
    park(servers.runs)
    assert await servers.runs.wait_ready(FAR)
    await asyncio.sleep(30)
    assert (execution.state, server.asked) == ("parked", 1)
    committed = await servers.runs.export(checkpoint_id="ck-1", directory=tmp_path)
    assert committed["records"] == 1
    server.closed = False
    assert servers.runs.open() == 1
    assert await call == "reply"
    assert server.asked == 2


@virtual_time
async def test_a_call_refused_while_this_agent_is_open_is_sent_again_by_itself() -> None:
    """A cut that was given up before it came to this agent sends it no resume."""
    servers = fresh_servers()
    server = Gate()
    execution, call = await calling(servers, server)
    assert execution.state == "parked"
    await asyncio.sleep(3.5)
    assert server.asked == 4
    server.closed = False
    assert await call == "reply"
    assert execution.state == "running"


@virtual_time
async def test_an_execution_ahead_of_its_boundary_blocks_the_cut_rather_than_repeat_a_change() -> None:
    """It changed a session and has not committed that: going on from the old boundary would do it twice."""
    servers = fresh_servers()
    server = Gate()
    execution, call = await calling(servers, server)
    execution.note_revision("tools", 5)
    park(servers.runs)
    assert not await servers.runs.wait_ready(FAR)
    (blocking,) = entries(servers.runs, "blocking_attempts")
    assert blocking["parked_boundary_state"] == "parked_without_boundary"
    server.closed = False
    servers.runs.open()
    assert await call == "reply"
    park(servers.runs)
    commit = asyncio.ensure_future(execution.commit_boundary())
    assert await servers.runs.wait_ready(FAR)
    (selected,) = entries(servers.runs, "selected_boundaries")
    assert selected["resource_state_revisions"] == {"tools": 5}
    servers.runs.open()
    await commit


def entries(runs: Runs, name: str) -> list[dict[str, object]]:
    """A list of the status."""
    found = runs.status()[name]
    assert isinstance(found, list)
    return found


async def parked_and_cancelled(servers: Servers) -> asyncio.Future[object]:
    """The caller of a parked rollout is cancelled; what it ends with."""
    rollout = await started(servers, A0)
    park(servers.runs)
    await rollout.turn(call_id="call-1")
    rollout.outcome.cancel()
    await settle()
    return rollout.outcome


async def parked_and_disconnected(servers: Servers) -> asyncio.Future[object]:
    """The caller of a parked rollout hangs up, and its handler waits on; what it ends with."""
    rollout = await started(servers, A0)
    park(servers.runs)
    await rollout.turn(call_id="call-1")
    servers.runs.caller_gone(A0)
    return rollout.outcome


@pytest.mark.parametrize(
    ("leave", "end"),
    [(parked_and_cancelled, asyncio.CancelledError), (parked_and_disconnected, ExecutionRetired)],
    ids=["cancelled", "disconnected"],
)
def test_a_parked_execution_whose_caller_is_gone_is_exported_and_then_retired(
    leave: Callable[[Servers], Awaitable[asyncio.Future[object]]], end: type[BaseException], tmp_path: Path
) -> None:
    """Its boundary is in the cut; the resume retires and fences it and does not count it."""

    @virtual_time
    async def scenario() -> None:
        servers = fresh_servers()
        outcome = await leave(servers)
        assert await servers.runs.wait_ready(FAR)
        committed = await servers.runs.export(checkpoint_id="ck-1", directory=tmp_path)
        assert committed["records"] == 1
        assert len(tree(tmp_path)) == 3
        assert servers.runs.open() == 0
        with pytest.raises(end):
            await outcome
        assert servers.runs.status()["executions"] == []
        with refused(RefusalCode.STALE_ATTEMPT):
            servers.runs.begin(A0)

    scenario()


@virtual_time
async def test_a_caller_that_hung_up_does_not_stop_a_running_execution() -> None:
    """It finishes, and its result waits to be asked for again or acknowledged."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    servers.runs.caller_gone(A0)
    servers.runs.open()
    await rollout.finish()
    assert servers.runs.admit(A0) == {"id": "response-rollout-a"}


@pytest.mark.parametrize(
    ("status", "body", "parks"),
    [
        (409, {"error": {"code": "checkpoint_parked", "detail": ""}}, True),
        (409, {"error": {"code": "resources_admission_closed", "message": ""}}, True),
        (409, {"error": {"code": "stale_attempt"}}, False),
        (503, {"error": {"code": "checkpoint_parked"}}, False),
        (409, {"error": "checkpoint_parked"}, False),
        (409, [], False),
        (200, {}, False),
    ],
)
def test_which_replies_park_their_caller(status: int, body: object, parks: bool) -> None:  # noqa: FBT001 - a table
    """The two codes of closed servers do, with status 409 only."""
    assert is_parking_reply(status, body) is parks
