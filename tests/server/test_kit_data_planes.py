"""The gates of agent and resource servers: admission, stored results, sessions, and callers that leave."""

from __future__ import annotations

import asyncio

import pytest
from support.asgi import ask
from support.kit import Kit
from support.stores import A0, A1, B0, settle
from support.virtual_loop import virtual_time

from quiesce.participants.server import agent_gate
from quiesce.participants.server.headers import REVISION_HEADER

AGENT, RESOURCES = "/agent-checkpoint", "/resources-checkpoint"


@virtual_time
async def test_a_run_is_admitted_once_and_its_result_is_given_again() -> None:
    """A second run of a live attempt is a duplicate; of a finished one it gets the stored result; then it is stale."""
    kit = Kit()
    first = kit.work_call(kit.agent, "/run", A0)
    await settle()
    assert (await kit.work_call(kit.agent, "/run", A0).done()).code == "duplicate_execution"
    kit.work.go.set()
    await first.done()
    again = await kit.work_call(kit.agent, "/run", A0).done()
    assert (again.status, again.json) == (200, first.json)
    assert kit.work.entered == 1
    status = await kit.get(kit.agent, f"{AGENT}/status", checkpoint_id="x")
    (entry,) = status.json["completed_unacknowledged_attempts"]
    reply = await ask(
        kit.agent,
        "POST",
        f"/ng-control/v1{AGENT}/acknowledge",
        json_body=entry["completion_receipt"],
        headers=kit.bearer(),
    )
    assert reply.json == {"acknowledged": True, "idempotent": False}
    assert (await kit.work_call(kit.agent, "/run", A0).done()).code == "stale_attempt"


@virtual_time
async def test_a_closed_agent_refuses_new_runs_but_gives_stored_results() -> None:
    """Admission is about new work: a result that is there already is given out while closed."""
    kit = Kit()
    kit.work.go.set()
    first = await kit.work_call(kit.agent, "/run", A0).done()
    await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)
    assert (await kit.work_call(kit.agent, "/run", B0).done()).code == "agent_admission_closed"
    assert (await kit.work_call(kit.agent, "/run", None).done()).code == "agent_admission_closed"
    assert (await kit.work_call(kit.agent, "/run", A0).done()).json == first.json


@virtual_time
async def test_a_run_between_the_gate_and_its_begin_blocks_the_cut() -> None:
    """What was admitted counts as running before the server has begun it, and no more when the call ends without."""
    kit = Kit()
    assert kit.stores.runs.admit(A0) is None
    prepare = await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)
    assert prepare.code == "agent_prepare_incomplete"
    assert "running=1" in prepare.json["error"]["detail"]
    kit.stores.runs.withdraw(A0)
    assert (await kit.post(kit.agent, f"{AGENT}/prepare")).status == 200


@virtual_time
async def test_a_run_that_the_server_never_begins_is_withdrawn() -> None:
    """A call that ends with an error before any execution leaves nothing that could block a cut."""
    kit = Kit()
    other = kit.work_call(kit.agent, "/elsewhere/run", A0)
    assert (await other.done()).status == 404
    assert kit.stores.runs.status()["running"] == 0
    assert kit.stores.runs.is_fenced(A0) is False


@virtual_time
async def test_an_execution_whose_caller_left_while_parked_is_exported_and_then_retired() -> None:
    """Its boundary is in the cut; resume retires it instead of releasing it, and does not count it."""
    kit = Kit()
    call = kit.work_call(kit.agent, "/run", A0)
    await settle()
    prepare = kit.sending(kit.agent, f"{AGENT}/prepare", in_s=1.0)
    await settle()
    # the workload has no further boundary: it parks through a call that a closed server refuses
    kit.stores.runs._executions[A0]._park()
    assert (await prepare.done()).json["parked_with_boundary"] == 1
    call.hang_up()
    await settle()
    assert (await kit.post(kit.agent, f"{AGENT}/resume")).json == {"state": "accepting", "released": 0}
    assert kit.stores.runs.is_fenced(A0)
    call.task.cancel()
    await asyncio.gather(call.task, return_exceptions=True)


@virtual_time
async def test_the_body_of_a_run_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is too large is refused before the server sees it, and the attempt may come again."""
    monkeypatch.setattr(agent_gate, "BODY_BYTES_MAX", 1)
    kit = Kit()
    assert (await kit.work_call(kit.agent, "/run", A0).done()).status == 413
    monkeypatch.setattr(agent_gate, "BODY_BYTES_MAX", 1000)
    kit.work.go.set()
    assert (await kit.work_call(kit.agent, "/run", A0).done()).status == 200


@virtual_time
async def test_discard_drops_a_restored_continuation_between_restore_and_resume_only() -> None:
    """In idle it is a wrong phase."""
    kit = Kit()
    path = f"{AGENT}/discard-restored-continuation"
    reply = await kit.post(kit.agent, path, rollout_id="rollout-a", attempt_index=1)
    assert (reply.status, reply.code) == (409, "invalid_phase")


@virtual_time
async def test_a_session_is_seeded_mutated_and_named_by_its_revision() -> None:
    """Each success raises the revision in the reply header; a failure does not; an unseeded session is unbound."""
    kit = Kit()

    async def revision(path: str) -> tuple[int | None, str | None]:
        reply = await kit.work_call(kit.resources, path, A0).done()
        return reply.status, reply.reply_headers.get(REVISION_HEADER)

    unbound = await kit.work_call(kit.resources, "/mutate", A0).done()
    assert (unbound.status, unbound.code) == (409, "resources_session_unbound")
    assert await revision("/seed_session") == (200, "1")
    assert await revision("/mutate") == (200, "2")
    assert await revision("/fail") == (400, None)
    assert await revision("/mutate") == (200, "3")
    assert (await revision("/verify"))[0] == 200
    assert (await kit.work_call(kit.resources, "/mutate", A0).done()).code == "resources_session_unbound"


@virtual_time
async def test_calls_of_one_session_wait_for_each_other_and_a_prepare_for_both() -> None:
    """The cut is between two mutations, never inside one; what waits when admission closes is refused."""
    kit = Kit()
    await kit.stores.seed(A0)
    first = kit.work_call(kit.resources, "/hang", A0)
    await settle()
    second = kit.work_call(kit.resources, "/mutate", A0)
    other = kit.work_call(kit.resources, "/seed_session", B0)
    assert (await other.done()).status == 200
    prepare = kit.sending(kit.resources, f"{RESOURCES}/prepare")
    await settle()
    assert (second.status, prepare.status) == (None, None)
    kit.work.go.set()
    assert (await first.done()).status == 200
    assert (await second.done()).code == "resources_admission_closed"
    assert (await prepare.done()).json == {"sessions": 2, "state": "prepared"}


@virtual_time
async def test_what_is_outside_the_resources_gate_is_never_refused() -> None:
    """Aggregated metrics and control paths pass while closed; a call without identity is refused while open."""
    kit = Kit()
    anonymous = await kit.work_call(kit.resources, "/mutate", None).done()
    assert (anonymous.status, anonymous.code) == (409, "execution_identity_mismatch")
    await kit.post(kit.resources, f"{RESOURCES}/prepare")
    refused = await kit.work_call(kit.resources, "/mutate", A0).done()
    assert refused.json["error"] == {
        "code": "resources_admission_closed",
        "message": "resources mutation admission is closed for checkpoint preparation",
    }
    assert (await kit.work_call(kit.resources, "/aggregate_metrics", A1).done()).status == 200
    assert (await kit.post(kit.resources, f"{RESOURCES}/resume")).status == 200
