"""The live fence over whole servers: races of prepare, resume, commit, restore; deadlines; clients that leave."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.asgi import Caller, ask
from support.kit import Kit
from support.stores import A0, B0, settle, tree
from support.virtual_loop import virtual_time

from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.participants.capabilities import RESTORE_OWED_FEATURE
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.runs import Runs

GYM = FenceVariant.GYM_A_SINGLE
AGENT, RESOURCES, MODEL = "/agent-checkpoint", "/resources-checkpoint", "/model-checkpoint"
PREPARES = {"policy": "/model-admission/pause", "agent": f"{AGENT}/prepare", "resources": f"{RESOURCES}/prepare"}
RESUMES = {"policy": "/model-admission/resume", "agent": f"{AGENT}/resume", "resources": f"{RESOURCES}/resume"}
EVERY_SERVER = pytest.mark.parametrize("component", list(PREPARES))


def _where(server: MountedServer) -> tuple[str, object, bool]:
    state = server.fence.state
    return state.phase.value, state.active, state.closed


async def _busy_agent(kit: Kit) -> asyncio.Task[None]:
    """One execution that never comes to a boundary by itself."""

    async def run(runs: Runs) -> None:
        async with runs.begin(A0):
            await asyncio.get_running_loop().create_future()

    task = asyncio.ensure_future(run(kit.stores.runs))
    await settle()
    return task


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _slow_commit(kit: Kit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[asyncio.Event, Caller]:
    """A resource server whose commit runs until the event is set."""
    go = asyncio.Event()
    real = kit.stores.sessions.export

    async def export(*, checkpoint_id: str, directory: Path) -> object:
        await go.wait()
        return await real(checkpoint_id=checkpoint_id, directory=directory)

    monkeypatch.setattr(kit.stores.sessions, "export", export)
    await kit.post(kit.resources, f"{RESOURCES}/prepare")
    commit = kit.sending(kit.resources, f"{RESOURCES}/commit", checkpoint_dir=str(tmp_path))
    await settle()
    assert _where(kit.resources) == ("committing", "x", True)
    return go, commit


@EVERY_SERVER
@pytest.mark.parametrize("variant", [FenceVariant.STRICT, GYM])
@virtual_time
async def test_resume_from_idle_uses_the_id_up(component: str, variant: FenceVariant) -> None:
    """A resume of an id that was never prepared succeeds, can be repeated, and makes its prepare stale."""
    kit = Kit(variant)
    server = kit.server(component)
    assert (await kit.post(server, RESUMES[component])).status == 200
    assert (await kit.post(server, RESUMES[component])).status == 200
    late = await kit.post(server, PREPARES[component])
    assert (late.status, late.code) == (409, "stale_checkpoint")
    assert _where(server) == ("idle", None, False)


@virtual_time
async def test_resume_ends_a_waiting_agent_prepare() -> None:
    """The resume answers at once, the prepare answers stale, and what was asked to park runs on."""
    kit = Kit()
    busy = await _busy_agent(kit)
    prepare = kit.sending(kit.agent, f"{AGENT}/prepare")
    await settle()
    resume = await kit.post(kit.agent, f"{AGENT}/resume")
    await prepare.done()
    assert (resume.status, prepare.status, prepare.code) == (200, 409, "stale_checkpoint")
    assert _where(kit.agent) == ("idle", None, False)
    assert kit.stores.runs.status()["running"] == 1
    assert kit.clock.monotonic() == 0.0
    await _end(busy)


@virtual_time
async def test_resume_ends_a_waiting_resources_prepare_and_another_may_begin() -> None:
    """After the resume the server serves again, and a prepare of another id reaches its own end."""
    kit = Kit()
    await kit.stores.seed(A0)
    mutation = kit.work_call(kit.resources, "/hang", A0)
    await settle()
    first = kit.sending(kit.resources, f"{RESOURCES}/prepare", "x")
    await settle()
    assert (await kit.post(kit.resources, f"{RESOURCES}/resume", "x")).status == 200
    second = kit.sending(kit.resources, f"{RESOURCES}/prepare", "y")
    await settle()
    assert (await first.done()).code == "stale_checkpoint"
    kit.work.go.set()
    await mutation.done()
    assert (await second.done()).json == {"sessions": 1, "state": "prepared"}
    assert _where(kit.resources) == ("prepared", "y", True)


@virtual_time
async def test_resume_waits_for_a_commit_and_then_opens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A resume during commit neither interrupts nor is refused; both succeed, in that order."""
    kit = Kit()
    go, commit = await _slow_commit(kit, monkeypatch, tmp_path)
    resume = kit.sending(kit.resources, f"{RESOURCES}/resume")
    again = kit.sending(kit.resources, f"{RESOURCES}/resume")
    await settle()
    assert (resume.status, again.status) == (None, None)
    go.set()
    for call in (commit, resume, again):
        assert (await call.done()).status == 200
    assert _where(kit.resources) == ("idle", None, False)


@virtual_time
async def test_a_resume_whose_caller_left_while_it_waited_still_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was asked for is done, whether or not somebody still listens."""
    kit = Kit()
    go, commit = await _slow_commit(kit, monkeypatch, tmp_path)
    resume = kit.sending(kit.resources, f"{RESOURCES}/resume")
    await settle()
    await _end(resume.task)
    go.set()
    await commit.done()
    assert _where(kit.resources) == ("idle", None, False)


@virtual_time
async def test_a_recorded_server_refuses_a_resume_during_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F13: busy is answered with invalid_phase at once."""
    kit = Kit(GYM)
    go, commit = await _slow_commit(kit, monkeypatch, tmp_path)
    refused = await kit.post(kit.resources, f"{RESOURCES}/resume")
    assert (refused.status, refused.code) == (409, "invalid_phase")
    go.set()
    assert (await commit.done()).status == 200


@virtual_time
async def test_a_duplicate_joins_and_a_cancelled_one_cancels_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F3, F17: the same commit twice runs once; either caller may leave, the other gets the reply."""
    kit = Kit()
    go, first = await _slow_commit(kit, monkeypatch, tmp_path)
    second = kit.sending(kit.resources, f"{RESOURCES}/commit", checkpoint_dir=str(tmp_path))
    await settle()
    await _end(first.task)
    go.set()
    assert (await second.done()).status == 200
    replayed = await kit.post(kit.resources, f"{RESOURCES}/commit", checkpoint_dir=str(tmp_path))
    assert replayed.json == second.json


@pytest.mark.parametrize("variant", [FenceVariant.STRICT, GYM])
@virtual_time
async def test_a_repeated_commit_into_another_directory(variant: FenceVariant, tmp_path: Path) -> None:
    """Strict refuses it as a conflict; a recorded server gives the first reply again and writes nothing (F2)."""
    kit = Kit(variant)
    await kit.post(kit.resources, f"{RESOURCES}/prepare")
    first = await kit.post(kit.resources, f"{RESOURCES}/commit", checkpoint_dir=str(tmp_path / "a"))
    other = await kit.post(kit.resources, f"{RESOURCES}/commit", checkpoint_dir=str(tmp_path / "b"))
    later = await kit.post(kit.resources, f"{RESOURCES}/commit", in_s=60.0, checkpoint_dir=str(tmp_path / "a"))
    expected = (409, "checkpoint_conflict") if variant is FenceVariant.STRICT else (200, None)
    assert (other.status, other.code) == expected
    assert (later.status, later.json) == (200, first.json)
    assert not (tmp_path / "b").exists()


@virtual_time
async def test_a_crash_in_an_operation_is_a_500_and_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """What a store raises that it must not becomes a bare 500; the phase is as before, and a retry runs again."""
    kit = Kit()
    await kit.post(kit.agent, f"{AGENT}/prepare")

    async def crash(**_named: object) -> object:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(kit.stores.runs, "export", crash)
        crashed = await kit.post(kit.agent, f"{AGENT}/commit", checkpoint_dir=str(tmp_path))
    assert (crashed.status, crashed.json, crashed.raw) == (500, None, b"Internal Server Error")
    assert "boom" in caplog.text
    assert _where(kit.agent) == ("prepared", "x", True)
    assert (await kit.post(kit.agent, f"{AGENT}/commit", checkpoint_dir=str(tmp_path))).status == 200


@virtual_time
async def test_a_failed_resources_prepare_reopens() -> None:
    """Strict: a prepare that ran into its deadline leaves the server open and the id free."""
    kit = Kit()
    await kit.stores.seed(A0)
    mutation = kit.work_call(kit.resources, "/hang", A0)
    await settle()
    failed = await kit.post(kit.resources, f"{RESOURCES}/prepare", in_s=0.5)
    assert (failed.status, failed.code) == (409, "resources_checkpoint_error")
    assert _where(kit.resources) == ("idle", None, False)
    kit.work.go.set()
    assert (await mutation.done()).status == 200
    assert (await kit.post(kit.resources, f"{RESOURCES}/prepare")).status == 200


@virtual_time
async def test_a_recorded_failed_resources_prepare_stays_closed_until_resume() -> None:
    """Field case 10: the fence is idle, and data calls are refused until somebody resumes."""
    kit = Kit(GYM)
    await kit.stores.seed(A0)
    mutation = kit.work_call(kit.resources, "/hang", A0)
    await settle()
    await kit.post(kit.resources, f"{RESOURCES}/prepare", in_s=0.5)
    assert _where(kit.resources) == ("idle", None, True)
    assert (await kit.work_call(kit.resources, "/mutate", A0).done()).code == "resources_admission_closed"
    kit.work.go.set()
    await mutation.done()
    await kit.post(kit.resources, f"{RESOURCES}/resume")
    assert (await kit.work_call(kit.resources, "/mutate", A0).done()).status == 200


@virtual_time
async def test_an_incomplete_agent_prepare_is_polled_under_one_id() -> None:
    """Between polls the agent stays closed and keeps asking; no other id gets in."""
    kit = Kit()
    busy = await _busy_agent(kit)
    for _ in range(3):
        reply = await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)
        assert (reply.status, reply.code) == (409, "agent_prepare_incomplete")
        assert _where(kit.agent) == ("preparing", "x", True)
        status = kit.stores.runs.status()
        assert status["executions"][0]["state"] == "park_requested"  # type: ignore[index]  # a list of objects
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", "y")).code == "checkpoint_conflict"
    assert (await kit.work_call(kit.agent, "/run", B0).done()).code == "agent_admission_closed"
    await _end(busy)


@pytest.mark.parametrize("waits", [29.9, 30.1])
@virtual_time
async def test_an_agent_that_nobody_polls_any_more_reopens_after_the_grace(waits: float) -> None:
    """From deadline plus 30 s on the agent is open, and the id is used up; not a moment earlier."""
    kit = Kit()
    busy = await _busy_agent(kit)
    await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)
    await asyncio.sleep(waits)
    if waits < 30.0:
        assert _where(kit.agent) == ("preparing", "x", True)
    else:
        assert _where(kit.agent) == ("idle", None, False)
        assert (await kit.post(kit.agent, f"{AGENT}/prepare")).code == "stale_checkpoint"
        assert (await kit.post(kit.agent, f"{AGENT}/resume")).json == {"state": "accepting", "released": 0}
        assert kit.stores.runs.status()["executions"][0]["state"] == "running"  # type: ignore[index]  # as above
    await _end(busy)


@virtual_time
async def test_polling_again_moves_the_grace() -> None:
    """While a prepare waits there is no grace; it begins anew at the last prepare's deadline."""
    kit = Kit()
    busy = await _busy_agent(kit)
    await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)
    await asyncio.sleep(25.0)
    await kit.post(kit.agent, f"{AGENT}/prepare", in_s=10.0)
    await asyncio.sleep(29.0)
    assert _where(kit.agent) == ("preparing", "x", True)
    await asyncio.sleep(2.0)
    assert _where(kit.agent) == ("idle", None, False)
    await _end(busy)


@virtual_time
async def test_a_prepare_that_becomes_ready_disarms_the_grace() -> None:
    """A prepared agent stays prepared however long the commit takes: only preparing has a grace."""
    kit = Kit()
    busy = await _busy_agent(kit)
    await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)
    await kit.post(kit.agent, f"{AGENT}/retire", rollout_id=A0.rollout_id, attempt_index=A0.attempt_index)
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)).status == 200
    await asyncio.sleep(500.0)
    assert _where(kit.agent) == ("prepared", "x", True)
    await _end(busy)


@pytest.mark.parametrize(
    ("component", "path", "members"),
    [
        ("policy", "/model-admission/pause", {}),
        ("policy", f"{MODEL}/restore", {"checkpoint_dir": "/nowhere"}),
        ("agent", f"{AGENT}/prepare", {}),
        ("agent", f"{AGENT}/restore", {"checkpoint_dir": "/nowhere"}),
        ("resources", f"{RESOURCES}/prepare", {}),
        ("resources", f"{RESOURCES}/restore", {"checkpoint_dir": "/nowhere"}),
    ],
)
@virtual_time
async def test_no_work_begins_after_its_deadline(component: str, path: str, members: dict[str, Any]) -> None:
    """A deadline that is past, or is just now, is 409 deadline_exceeded, and nothing was closed or touched."""
    kit = Kit()
    for in_s in (-10.0, 0.0):
        reply = await kit.post(kit.server(component), path, in_s=in_s, **members)
        assert (reply.status, reply.code) == (409, "deadline_exceeded")
        assert _where(kit.server(component)) == ("idle", None, False)


@virtual_time
async def test_a_commit_after_its_deadline_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    """In prepared too: the server stays prepared, and a commit in time succeeds."""
    kit = Kit()
    await kit.post(kit.agent, f"{AGENT}/prepare")
    late = await kit.post(kit.agent, f"{AGENT}/commit", in_s=-1.0, checkpoint_dir=str(tmp_path))
    assert (late.status, late.code) == (409, "deadline_exceeded")
    assert tree(tmp_path) == {}
    assert (await kit.post(kit.agent, f"{AGENT}/commit", checkpoint_dir=str(tmp_path))).status == 200


@EVERY_SERVER
@virtual_time
async def test_the_way_out_has_no_deadline(component: str) -> None:
    """Resume is never too late."""
    kit = Kit()
    server = kit.server(component)
    await kit.post(server, PREPARES[component])
    assert (await kit.post(server, RESUMES[component], in_s=-1000.0)).status == 200
    assert _where(server) == ("idle", None, False)


@virtual_time
async def test_retire_has_no_deadline() -> None:
    """Retiring an attempt is never too late, on agents and on resource servers."""
    kit = Kit()
    await kit.stores.seed(A0)
    await kit.post(kit.resources, f"{RESOURCES}/prepare")
    for server, path in ((kit.agent, f"{AGENT}/retire"), (kit.resources, f"{RESOURCES}/retire")):
        reply = await kit.post(server, path, in_s=-10.0, rollout_id="rollout-a", attempt_index=0)
        assert reply.status == 200


@virtual_time
async def test_acknowledging_is_bound_to_no_id_and_no_phase() -> None:
    """A finished result can be acknowledged while another id holds the fence, one by one and in a batch."""
    kit = Kit()
    receipts = []
    for attempt in (A0, B0):
        async with kit.stores.runs.begin(attempt) as execution:
            receipts.append(execution.finish({"id": attempt.rollout_id}))
    await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)
    listed = kit.stores.runs.status()["completed_unacknowledged_attempts"]
    assert isinstance(listed, list)
    sent = [entry["completion_receipt"] for entry in listed]
    body = {"schema_version": 1, "executions": sent}
    reply = await ask(
        kit.agent, "POST", f"/ng-control/v1{AGENT}/acknowledge-completed", json_body=body, headers=kit.bearer()
    )
    assert (reply.status, reply.json) == (200, {"acknowledged": sent})
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", in_s=1.0)).status == 200
    assert len(receipts) == 2


@virtual_time
async def test_a_process_that_owes_a_restore_opens_only_by_being_restored(tmp_path: Path) -> None:
    """It refuses prepare and resume, a failed restore changes nothing, and after a good one resume opens it."""
    saving = Kit()
    await saving.stores.seed(A0)
    await saving.post(saving.resources, f"{RESOURCES}/prepare")
    await saving.post(saving.resources, f"{RESOURCES}/commit", checkpoint_dir=str(tmp_path))
    recorded = Kit(restore_expected=True, variant=FenceVariant.GYM_A_SINGLE)
    assert RESTORE_OWED_FEATURE not in str(recorded.resources.capabilities())
    kit = Kit(restore_expected=True)
    server = kit.resources
    assert server.capabilities()["features"] == [RESTORE_OWED_FEATURE]
    for path in (f"{RESOURCES}/prepare", f"{RESOURCES}/resume"):
        assert (await kit.post(server, path, "r")).code == "resources_checkpoint_error"
    missing = await kit.post(server, f"{RESOURCES}/restore", "r", checkpoint_dir=str(tmp_path / "nowhere"))
    assert (missing.status, missing.code) == (409, "resources_checkpoint_error")
    assert _where(server) == ("idle", None, True)
    assert (await kit.work_call(server, "/seed_session", B0).done()).code == "resources_admission_closed"
    restored = await kit.post(server, f"{RESOURCES}/restore", "r", checkpoint_dir=str(tmp_path))
    assert restored.json == {"sessions": 1, "source_checkpoint_id": "x"}
    assert server.capabilities()["features"] == []
    assert (await kit.post(server, f"{RESOURCES}/resume", "r")).status == 200
    assert (await kit.work_call(server, "/seed_session", B0).done()).status == 200


@pytest.mark.parametrize("component", ["agent", "resources"])
@virtual_time
async def test_a_failed_restore_reopens_and_frees_the_id(component: str, tmp_path: Path) -> None:
    """Strict: an agent or resource server that could not be restored is as it was before, under a free id."""
    kit = Kit()
    server = kit.server(component)
    path = {"agent": AGENT, "resources": RESOURCES}[component]
    assert (await kit.post(server, f"{path}/restore", "r", checkpoint_dir=str(tmp_path))).status == 409
    assert _where(server) == ("idle", None, False)
    assert (await kit.post(server, PREPARES[component], "r")).status == 200


@virtual_time
async def test_a_policy_whose_restore_failed_is_held_closed_for_its_id(tmp_path: Path) -> None:
    """It admits nothing, refuses other ids, answers status, and resume lets it go."""
    kit = Kit()
    failed = await kit.post(kit.policy, f"{MODEL}/restore", "r", checkpoint_dir=str(tmp_path))
    assert (failed.status, failed.code) == (409, "ledger_mismatch")
    assert _where(kit.policy) == ("restore_failed_paused", "r", True)
    assert (await kit.work_call(kit.policy, "/v1/responses", A0).done()).code == "checkpoint_parked"
    assert (await kit.post(kit.policy, f"{MODEL}/restore", "other", checkpoint_dir="/c")).code == "checkpoint_conflict"
    assert (await kit.status(kit.policy, "/model-admission/status", "r")).json["state"] == "paused"
    assert (await kit.post(kit.policy, "/model-admission/resume", "r")).status == 200
    assert _where(kit.policy) == ("idle", None, False)


@virtual_time
async def test_f14_over_a_whole_recorded_agent(tmp_path: Path) -> None:
    """Prepare x ends after y is prepared: y cannot be committed until its prepare is posted again."""
    kit = Kit(GYM)
    busy = await _busy_agent(kit)
    first = kit.sending(kit.agent, f"{AGENT}/prepare", "x", in_s=20.0)
    await settle()
    await kit.post(kit.agent, f"{AGENT}/resume", "x")
    await kit.post(kit.agent, f"{AGENT}/retire", "fresh", rollout_id="rollout-a", attempt_index=0)
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", "y")).status == 200
    assert _where(kit.agent) == ("prepared", "y", True)
    assert (await first.done()).code == "stale_checkpoint"
    assert _where(kit.agent) == ("preparing", "y", True)
    assert (await kit.post(kit.agent, f"{AGENT}/commit", "y", checkpoint_dir=str(tmp_path))).code == "invalid_phase"
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", "y")).status == 200
    assert (await kit.post(kit.agent, f"{AGENT}/commit", "y", checkpoint_dir=str(tmp_path))).status == 200
    await _end(busy)


@virtual_time
async def test_f16_over_a_whole_recorded_agent() -> None:
    """A late end leaves preparing with nobody: every prepare is refused until a fresh id is resumed."""
    kit = Kit(GYM)
    busy = await _busy_agent(kit)
    first = kit.sending(kit.agent, f"{AGENT}/prepare", "x", in_s=20.0)
    await settle()
    await kit.post(kit.agent, f"{AGENT}/resume", "x")
    await kit.post(kit.agent, f"{AGENT}/retire", "fresh", rollout_id="rollout-a", attempt_index=0)
    await first.done()
    assert _where(kit.agent) == ("preparing", None, False)
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", "y")).code == "invalid_phase"
    assert (await kit.post(kit.agent, f"{AGENT}/resume", "z")).status == 200
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", "z")).code == "stale_checkpoint"
    assert (await kit.post(kit.agent, f"{AGENT}/prepare", "y")).status == 200
    await _end(busy)


@virtual_time
async def test_f15_over_a_whole_recorded_agent() -> None:
    """The late time-out of x frees the fence that y holds; strict, in the same run, keeps it."""
    seen = {}
    for variant in (GYM, FenceVariant.STRICT):
        kit = Kit(variant)
        busy = await _busy_agent(kit)
        first = kit.sending(kit.agent, f"{AGENT}/prepare", "x", in_s=5.0)
        await settle()
        await kit.post(kit.agent, f"{AGENT}/resume", "x")
        second = kit.sending(kit.agent, f"{AGENT}/prepare", "y", in_s=20.0)
        await first.done()
        seen[variant] = (*_where(kit.agent), first.code)
        await _end(busy, second.task)
    assert seen[GYM] == ("idle", None, True, "agent_prepare_incomplete")
    assert seen[FenceVariant.STRICT] == ("preparing", "y", True, "stale_checkpoint")


@virtual_time
async def test_a_refusal_of_a_store_keeps_its_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a store refuses reaches the client with the store's code and words."""
    kit = Kit()
    await kit.post(kit.agent, f"{AGENT}/prepare")

    async def refuse(**_named: object) -> object:
        raise ControlRefusal(RefusalCode.AGENT_CHECKPOINT_ERROR, "the disk is full")

    monkeypatch.setattr(kit.stores.runs, "export", refuse)
    reply = await kit.post(kit.agent, f"{AGENT}/commit", checkpoint_dir=str(tmp_path))
    assert reply.json == {"error": {"code": "agent_checkpoint_error", "detail": "the disk is full"}}
    assert kit.agent.fence.state.phase is FencePhase.PREPARED


@virtual_time
async def test_a_crash_in_a_read_is_a_500_and_leaves_the_fence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that cannot even say how it stands is a bare 500; the fence is where it was, and resume still works."""
    kit = Kit()
    await kit.post(kit.agent, f"{AGENT}/prepare")

    def crash() -> object:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(kit.stores.runs, "status", crash)
        reply = await kit.get(kit.agent, f"{AGENT}/status", checkpoint_id="x")
    assert (reply.status, reply.raw) == (500, b"Internal Server Error")
    assert "boom" in caplog.text
    assert _where(kit.agent) == ("prepared", "x", True)
    assert (await kit.post(kit.agent, f"{AGENT}/resume")).status == 200


@virtual_time
async def test_a_directory_that_can_be_no_path_is_refused() -> None:
    """A zero character in checkpoint_dir is a refusal that says so, for each role."""
    kit = Kit()
    for server, path in (
        (kit.policy, f"{MODEL}/restore"),
        (kit.agent, f"{AGENT}/restore"),
        (kit.resources, f"{RESOURCES}/restore"),
    ):
        reply = await kit.post(server, path, checkpoint_dir="/a\0b")
        assert reply.status == 409
        assert "zero character" in reply.json["error"]["detail"]
        assert _where(server) == ("idle", None, False)
