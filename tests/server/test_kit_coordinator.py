"""The recorded coordinator of the kit: its workers, what it answers when they fail it, and the server beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.asgi import ask
from support.coordinated import CoordinatedKit
from support.kit import CONTROL, Work, identity
from support.stores import A0, A1, B0, finished_call, settle
from support.virtual_loop import virtual_time

from quiesce.participants.dialects.gym_a.routes import COORDINATOR_ROUTES, MODEL_SERVER_ROUTES, ROUTES
from quiesce.participants.errors import ConfigurationError, InvalidIdentity
from quiesce.participants.server import ControlRefusal, ModelLedger, Workers, mount_coordinator

COMMIT, RESTORE = "/model-checkpoint/commit", "/model-checkpoint/restore"
ABORT = "/model-admission/abort_inflight"


async def at(kit: CoordinatedKit, id_: str = "x") -> dict[str, object]:
    """The status reply."""
    reply = (await kit.status(id_)).json
    assert isinstance(reply, dict)
    return reply


# the data plane


@virtual_time
async def test_calls_go_to_the_connected_workers_in_turn() -> None:
    """A call reaches one worker's gate; one that left gets none, and with nobody left the answer is 503."""
    kit = CoordinatedKit()
    calls = [ask(kit.control, "POST", "/v1/responses", headers=identity(A0)) for _ in range(2)]
    calls += [ask(kit.model_server, "POST", "/v1/responses", headers=identity(B0)) for _ in range(2)]
    running = [asyncio.ensure_future(call) for call in calls]
    await settle()
    assert [worker.inflight for worker in kit.workers] == [2, 2]
    kit.workers["w0"].leave()
    running += [asyncio.ensure_future(ask(kit.control, "POST", "/v1/responses")) for _ in range(2)]
    await settle()
    assert [worker.inflight for worker in kit.workers] == [2, 4]
    kit.workers["w1"].leave()
    assert (await ask(kit.control, "POST", "/v1/responses")).status == 503
    assert (await ask(kit.control, "GET", "/health")).status == 200
    kit.work.go.set()
    assert {(await call).status for call in running} == {200}


@virtual_time
async def test_a_pause_closes_every_worker_and_drains_each_count() -> None:
    """Each worker refuses new calls and keeps its old ones; the long poll ends with the last of them."""
    kit = CoordinatedKit()
    calls = [kit.work_call("w0", A0), kit.work_call("w1", B0)]
    await settle()
    paused = await kit.pause()
    assert (paused.json["state"], paused.json["inflight_total"]) == ("draining", 2)
    assert {(await kit.work_call(name, A1).done()).code for name in ("w0", "w1")} == {"checkpoint_parked"}
    asyncio.get_running_loop().call_later(3.0, kit.work.go.set)
    waited = await kit.status(wait_state="paused", timeout_s=30)
    assert (waited.json["state"], kit.clock.monotonic()) == ("paused", 3.0)
    assert kit.where() == ("prepared", "x", [True, True])
    await kit.resume()
    assert kit.where() == ("idle", None, [False, False])
    assert {(await call.done()).status for call in calls} == {200}


@virtual_time
async def test_calls_that_wait_for_resume_are_counted_and_let_in() -> None:
    """With ``hold`` a call waits at its worker, and the resume's order lets it in."""
    kit = CoordinatedKit(when_closed="hold")
    kit.work.go.set()
    await kit.pause()
    held = kit.work_call("w1", A0)
    await settle()
    assert (await at(kit))["waiters_total"] == 1
    await kit.resume()
    assert (await held.done()).status == 200


# the status asks less than a single worker's (2.3)


@virtual_time
async def test_the_status_needs_no_deadline_and_takes_any_wait() -> None:
    """Another wait_state means no wait, a negative timeout is none; without an id it is refused as malformed."""
    kit = CoordinatedKit()
    kit.work_call("w0")
    await settle()
    await kit.pause()
    for wait_state, timeout_s in (("drained", 9), ("paused", -1)):
        assert (await kit.status(wait_state=wait_state, timeout_s=timeout_s)).json["state"] == "draining"
    assert kit.clock.monotonic() == 0
    over = await kit.status(wait_state="paused", timeout_s=2, deadline_ts=0)
    assert (over.status, over.json["state"], kit.clock.monotonic()) == (200, "draining", 2)
    assert (await ask(kit.control, "GET", CONTROL + "/model-admission/status", headers=kit.bearer())).status == 422
    kit.work.go.set()


# workers that fail it


@pytest.mark.parametrize("workers", [("w0",), ("w0", "w1", "w2")], ids=["too few", "too many"])
@virtual_time
async def test_a_pause_needs_exactly_the_expected_workers(workers: tuple[str, ...]) -> None:
    """One too few or too many: refused at once, nobody is closed, the fence stays idle."""
    kit = CoordinatedKit()
    kit.workers["w1"].leave()
    for name in workers:
        kit.workers.register(name)
    refused = await kit.pause()
    assert (refused.status, refused.code, kit.clock.monotonic()) == (409, "missing_workers", 0)
    assert f"expected 2, found {len(workers)} connected" in refused.json["error"]["detail"]
    assert kit.where() == ("idle", None, [False] * len(list(kit.workers)))


@virtual_time
async def test_a_silent_worker_fails_the_pause_and_the_others_reopen_by_themselves() -> None:
    """F18: after the acknowledgement time-out 409, the healthy worker is open again, and the fence is idle."""
    kit = CoordinatedKit()
    kit.workers["w1"].fall_silent()
    pausing = kit.sending("/model-admission/pause")
    await settle()
    assert kit.where() == ("preparing", "x", [True, False])
    assert ((await pausing.done()).code, kit.clock.monotonic()) == ("missing_workers", 0.4)
    assert kit.where() == ("idle", None, [False, False])
    assert (await kit.resume()).code == "invalid_phase"
    kit.workers["w1"].wake()
    assert kit.where() == ("idle", None, [False, False])
    assert (await kit.pause()).json["workers"] == {"acknowledged": 2, "expected": 2}


@virtual_time
async def test_a_slow_worker_closes_late_and_then_reopens_by_itself() -> None:
    """F18: it does what it was told in order, after the pause has long failed."""
    kit = CoordinatedKit()
    kit.workers["w1"].slow_down(1.0)
    assert (await kit.pause()).code == "missing_workers"
    assert kit.where()[2] == [False, False]
    await asyncio.sleep(1.0)
    assert kit.where()[2] == [False, True]
    await asyncio.sleep(1.0)
    assert kit.where()[2] == [False, False]


@virtual_time
async def test_the_wait_for_acknowledgements_is_bounded_by_the_deadline() -> None:
    """The smaller of the time-out and what is left of the deadline; a past deadline leaves a millisecond."""
    kit = CoordinatedKit(acknowledge_timeout_s=10)
    kit.workers["w1"].fall_silent()
    for in_s, until_s in ((2.0, 2.0), (-5.0, 2.001), (60.0, 12.001)):
        assert (await kit.pause(in_s=in_s)).code == "missing_workers"
        assert kit.clock.monotonic() == pytest.approx(until_s)


@virtual_time
async def test_a_worker_lost_while_closed_is_missing_and_never_drained() -> None:
    """The status counts it as missing, says draining, and the fence does not become prepared."""
    kit = CoordinatedKit()
    call = kit.work_call("w0")
    await settle()
    await kit.pause()
    kit.workers["w1"].leave()
    kit.work.go.set()
    await call.done()
    status = await at(kit)
    assert (status["state"], status["missing_workers"], status["inflight_total"]) == ("draining", 1, 0)
    assert status["workers"] == {"acknowledged": 1, "expected": 2, "live": 1}
    assert kit.where() == ("preparing", "x", [True, True])


@virtual_time
async def test_a_worker_that_comes_while_closed_is_rejected_and_closes_itself() -> None:
    """Membership is frozen: nobody stands in for a frozen worker (wire-protocol 9, 34)."""
    kit = CoordinatedKit()
    await kit.pause()
    kit.workers["w1"].leave()
    for name in ("w1", "w2"):
        with pytest.raises(ControlRefusal, match="worker_registration_rejected"):
            kit.workers.register(name)
        assert kit.workers[name].gate.closed
        assert not kit.workers[name].connected


@virtual_time
async def test_a_resume_without_a_worker_has_opened_the_others_and_passes_once_it_is_back() -> None:
    """F19: missing_workers though admission is open, the id still holds the fence; a repeated resume passes."""
    kit = CoordinatedKit()
    await kit.pause()
    kit.workers["w1"].leave()
    assert (await kit.resume()).code == "missing_workers"
    assert kit.where() == ("prepared", "x", [False, True])
    assert (await at(kit))["state"] == "accepting"
    kit.workers.register("w1")
    assert kit.where()[2] == [False, False]
    assert (await kit.resume()).status == 200
    assert kit.where() == ("idle", None, [False, False])
    assert (await kit.pause()).code == "stale_checkpoint"


@virtual_time
async def test_a_resume_waits_for_a_slow_worker_and_a_repetition_shares_its_end() -> None:
    """Two resumes at once end as one, when the last worker has acknowledged; a later one is replayed."""
    kit = CoordinatedKit(acknowledge_timeout_s=10)
    await kit.pause()
    kit.workers["w0"].slow_down(3.0)
    first, second = kit.sending("/model-admission/resume"), kit.sending("/model-admission/resume")
    assert (await first.done()).json == (await second.done()).json
    assert kit.clock.monotonic() == 3.0
    assert (await kit.resume()).json == first.json


# abort_inflight


@virtual_time
async def test_abort_inflight_cuts_off_at_every_worker_and_does_not_say_how_many() -> None:
    """Every worker's calls of the attempt end as stale; the reply has no aborted_inflight (2.6)."""
    kit = CoordinatedKit()
    calls = [kit.work_call("w0", A0), kit.work_call("w1", A0), kit.work_call("w1", B0)]
    await settle()
    await kit.pause()
    aborted = await kit.post(ABORT, rollout_id=A0.rollout_id, attempt_index=0)
    assert aborted.json == {"state": "draining", "inflight_total": 3}
    assert {(await call.done()).code for call in calls[:2]} == {"stale_attempt"}
    assert kit.ledger.is_fenced(A0)
    assert (await at(kit))["inflight_total"] == 1
    assert (await kit.post(ABORT, rollout_id=A0.rollout_id, attempt_index=0)).json == aborted.json
    kit.work.go.set()


@virtual_time
async def test_an_abort_inflight_that_a_worker_did_not_acknowledge_is_done_anew() -> None:
    """It fails with missing_workers; asked again once the worker is awake, it succeeds (F9)."""
    kit = CoordinatedKit()
    await kit.pause()
    kit.workers["w1"].fall_silent()
    assert (await kit.post(ABORT, rollout_id="r", attempt_index=0)).code == "missing_workers"
    kit.workers["w1"].wake()
    assert (await kit.post(ABORT, rollout_id="r", attempt_index=0)).status == 200


# the two applications


@virtual_time
async def test_each_application_has_its_own_routes_and_both_declare_the_same() -> None:
    """F23: the coordinator has no commit and no restore, the server beside it nothing else; 404 for what is absent."""
    kit = CoordinatedKit()
    model = {route.path for route in ROUTES if "/model-" in route.path}
    for server, routes in ((kit.control, COORDINATOR_ROUTES), (kit.model_server, MODEL_SERVER_ROUTES)):
        served = {route.path for route in routes}
        for path in model - served:
            assert (await ask(server, "POST", path, headers=kit.bearer(), json_body={})).json == {"detail": "Not Found"}
        for path in served & model - {CONTROL + "/model-admission/status"}:
            assert (await ask(server, "POST", path, headers=kit.bearer(), json_body={})).status == 422
        declared = server.capabilities()
        assert declared["multi_process"] == {"mode": "coordinator", "num_workers": 2}
        assert declared["checkpoint_mode"] == "export_restore"
    assert kit.control.instance != kit.model_server.instance


@virtual_time
async def test_the_model_server_exports_only_what_stands_still(tmp_path: Path) -> None:
    """Commit is refused before the pause, while it drains, under another id, and without a worker; then it exports."""
    kit = CoordinatedKit()
    finished_call(kit.ledger, A0)

    async def commit(id_: str = "x") -> tuple[int | None, str | None]:
        reply = await kit.post(COMMIT, id_, at=kit.model_server, checkpoint_dir=str(tmp_path), continuation_indexes=[])
        return reply.status, reply.code

    refused = (409, "ledger_not_quiescent")
    assert await commit() == refused
    call = kit.work_call("w1")
    await settle()
    await kit.pause()
    assert await commit() == refused
    kit.work.go.set()
    await call.done()
    assert await commit() == refused
    await at(kit)
    assert await commit("other") == refused
    assert not (tmp_path / "model-ledger").exists()
    assert await commit() == (200, None)
    assert (tmp_path / "model-ledger" / "policy" / "manifest.json").is_file()
    assert await commit() == (200, None)
    assert kit.model_server.fence.state.active is None
    await kit.resume()
    await kit.pause("y")
    kit.workers["w0"].leave()
    assert await commit("y") == refused


@virtual_time
async def test_the_model_server_restores_and_closes_nobody(tmp_path: Path) -> None:
    """The ledger is installed, the old attempt fenced; admission is the coordinator's and stays as it was."""
    kit = CoordinatedKit()
    finished_call(kit.ledger, A0)
    kit.ledger.note_call(A0)
    await kit.pause()
    saved = str(tmp_path)
    committed = await kit.post(COMMIT, at=kit.model_server, checkpoint_dir=saved, continuation_indexes=[])
    assert committed.status == 200
    fresh = CoordinatedKit()
    restored = await fresh.post(RESTORE, "r", at=fresh.model_server, checkpoint_dir=saved)
    assert restored.json["checkpoint_id"] == "x"
    assert fresh.where() == ("idle", None, [False, False])
    assert (await fresh.work_call("w0", A0).done()).code == "stale_attempt"
    again = await fresh.post(RESTORE, "r2", at=fresh.model_server, checkpoint_dir="/nowhere")
    assert again.code == "ledger_mismatch"
    assert fresh.model_server.fence.state.active is None


@virtual_time
async def test_without_a_token_it_takes_part_in_nothing() -> None:
    """It declares accepting and stateless, has no control route but that, and never gates a call."""
    kit = CoordinatedKit(token=None)
    kit.work.go.set()
    assert kit.control.capabilities()["checkpoint_mode"] == "stateless"
    assert (await kit.pause()).status == 404
    assert (await ask(kit.control, "POST", "/v1/responses")).status == 200


def test_workers_that_cannot_be_are_refused() -> None:
    """None, two of one name, a name that may not be used, and workers that have a coordinator already."""
    for names in (0, [], ["a", "a"], 1025):
        with pytest.raises(ConfigurationError, match="workers"):
            Workers(names)
    with pytest.raises(InvalidIdentity):
        Workers(["../x"])
    workers = Workers(1)
    with pytest.raises(ConfigurationError, match="serves nothing yet"):
        _ = workers["w0"].gate
    for taken in (False, True):
        ledger = ModelLedger("policy")
        if taken:
            with pytest.raises(ConfigurationError, match="coordinator already"):
                mount_coordinator(Work().model_app(), ledger=ledger, workers=workers, token="t")
        else:
            mount_coordinator(Work().model_app(), ledger=ledger, workers=workers, token="t")
