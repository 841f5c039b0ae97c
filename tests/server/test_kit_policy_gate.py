"""The gate of a policy server: what is counted, refused, held and cut off, and how the drain is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.asgi import Caller, calling
from support.kit import Kit, identity
from support.stores import A0, A1, B0, settle
from support.virtual_loop import virtual_time

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.server.headers import ATTEMPT_HEADER, PLANE_HEADER, ROLLOUT_HEADER

PAUSE, STATUS, RESUME, ABORT = (f"/model-admission/{name}" for name in ("pause", "status", "resume", "abort_inflight"))
CALL, STREAM = "/v1/responses", "/v1/chat/completions"


def _phase(kit: Kit) -> str:
    return kit.policy.fence.state.phase.value


async def _open(kit: Kit, path: str = CALL) -> Caller:
    call = kit.work_call(kit.policy, path, A0, {PLANE_HEADER: "rollouts"})
    await settle()
    return call


@virtual_time
async def test_a_closed_policy_parks_new_calls_and_lets_old_ones_finish() -> None:
    """New calls get 409 checkpoint_parked with retry-after; the one in flight ends well; other paths are not gated."""
    kit = Kit()
    old = await _open(kit)
    assert (await kit.post(kit.policy, PAUSE)).json["state"] == "draining"
    parked = await kit.work_call(kit.policy, CALL, B0).done()
    assert (parked.status, parked.code, parked.reply_headers["retry-after"]) == (409, "checkpoint_parked", "1")
    assert (await calling(kit.policy, "GET", "/health").done()).status == 200
    kit.work.go.set()
    assert (await old.done()).status == 200
    assert _phase(kit) == "prepared"
    await kit.post(kit.policy, RESUME)
    assert (await kit.work_call(kit.policy, CALL, B0).done()).status == 200


@virtual_time
async def test_a_call_in_flight_is_listed_with_whose_it_is_and_its_age() -> None:
    """The status names rollout, attempt, plane and age of each call, and null where a caller named nothing."""
    kit = Kit()
    await _open(kit)
    await asyncio.sleep(4.2)
    nobody = kit.work_call(kit.policy, CALL, None)
    await settle()
    await kit.post(kit.policy, PAUSE)
    status = (await kit.status(kit.policy, STATUS)).json
    assert status["inflight"] == [
        {"rollout_id": "rollout-a", "attempt_index": 0, "plane": "rollouts", "age_seconds": 4.2},
        {"rollout_id": None, "attempt_index": None, "plane": None, "age_seconds": 0.0},
    ]
    assert (status["state"], status["inflight_total"]) == ("draining", 2)
    assert nobody.status is None


@virtual_time
async def test_a_stream_is_in_flight_until_its_last_byte_is_sent() -> None:
    """The drain is not over while a client still reads: neither headers nor chunks end a call."""
    kit = Kit()
    call = await _open(kit, STREAM)
    assert (call.status, call.raw) == (200, b"first ")
    await kit.post(kit.policy, PAUSE)
    call.hold = asyncio.Event()  # the client stops reading
    kit.work.go.set()
    await settle()
    assert (await kit.status(kit.policy, STATUS)).json["state"] == "draining"
    call.hold.set()
    await call.done()
    assert call.raw == b"first last"
    assert (await kit.status(kit.policy, STATUS)).json["state"] == "paused"


@virtual_time
async def test_a_client_that_leaves_ends_its_call() -> None:
    """A cancelled data call is not in flight for ever, and the drain it was the last of completes the cut."""
    kit = Kit()
    call = await _open(kit)
    await kit.post(kit.policy, PAUSE)
    call.task.cancel()
    await asyncio.gather(call.task, return_exceptions=True)
    assert kit.work.served == [CALL]
    assert _phase(kit) == "prepared"


@virtual_time
async def test_a_call_whose_server_crashes_ends() -> None:
    """An exception of the application passes through the gate, and the call is counted no more."""
    kit = Kit()

    async def crash() -> bool:
        raise RuntimeError("boom")

    kit.work.go.wait = crash  # type: ignore[method-assign, assignment]  # the application's own failure
    call = kit.work_call(kit.policy, CALL, A0)
    with pytest.raises(RuntimeError, match="boom"):
        await call.done()
    assert (await kit.post(kit.policy, PAUSE)).json["state"] == "paused"


@virtual_time
async def test_a_long_poll_answers_when_the_drain_ends() -> None:
    """Status with wait_state waits for the end of the last call, and that moment is the cut."""
    kit = Kit()
    call = await _open(kit)
    await kit.post(kit.policy, PAUSE)
    poll = asyncio.ensure_future(kit.status(kit.policy, STATUS, wait_state="paused", timeout_s=10))
    asyncio.get_running_loop().call_later(3.0, kit.work.go.set)
    assert (await poll).json["state"] == "paused"
    assert kit.clock.monotonic() == 3.0
    await call.done()


@pytest.mark.parametrize(("timeout_s", "in_s", "waited"), [(5, 30, 5.0), (60, 30, 30.0), (0, 30, 0.0), (60, -1, 0.0)])
@virtual_time
async def test_a_long_poll_ends_with_its_own_time_or_the_deadline(timeout_s: float, in_s: float, waited: float) -> None:
    """It waits for the smaller of the two, then answers 200 with what holds: a time-out is no error (5.2)."""
    kit = Kit()
    await _open(kit)
    await kit.post(kit.policy, PAUSE)
    reply = await kit.get(
        kit.policy,
        STATUS,
        checkpoint_id="x",
        deadline_ts=kit.deadline(in_s),
        wait_state="paused",
        timeout_s=timeout_s,
    )
    assert (reply.status, reply.json["state"]) == (200, "draining")
    assert kit.clock.monotonic() == waited


@virtual_time
async def test_a_long_poll_ends_when_its_id_is_resumed() -> None:
    """Nobody polls for an id that is used up."""
    kit = Kit()
    await _open(kit)
    await kit.post(kit.policy, PAUSE)
    poll = asyncio.ensure_future(kit.status(kit.policy, STATUS, wait_state="paused", timeout_s=10))
    await settle()
    await kit.post(kit.policy, RESUME)
    reply = await poll
    assert (reply.status, reply.code, kit.clock.monotonic()) == (409, "stale_checkpoint", 0.0)


@virtual_time
async def test_a_recorded_policy_needs_a_status_call_to_become_prepared() -> None:
    """Field case 6: the drain ends, nobody asks, and commit is a wrong phase."""
    kit = Kit(FenceVariant.GYM_A_SINGLE)
    call = await _open(kit)
    await kit.post(kit.policy, PAUSE)
    kit.work.go.set()
    await call.done()
    assert _phase(kit) == "preparing"
    await kit.status(kit.policy, STATUS)
    assert _phase(kit) == "prepared"


@virtual_time
async def test_aborting_an_attempt_cuts_its_calls_off_and_fences_it() -> None:
    """The caller learns that it is stale; the call counts until its handler has ended; later calls are refused."""
    kit = Kit()
    mine, other = await _open(kit), kit.work_call(kit.policy, CALL, B0)
    await settle()
    await kit.post(kit.policy, PAUSE)
    members: dict[str, Any] = {"rollout_id": "rollout-a", "attempt_index": 0}
    aborted = kit.sending(kit.policy, ABORT, **members)
    assert (await aborted.done()).json == {"state": "draining", "aborted_inflight": 1, "inflight_total": 2}
    assert ((await mine.done()).status, mine.code) == (409, "stale_attempt")
    status = (await kit.status(kit.policy, STATUS)).json
    assert status["tombstones"] == [members]
    assert status["inflight_total"] == 1
    assert (await kit.post(kit.policy, ABORT, **members)).json == aborted.json
    nobody = await kit.post(kit.policy, ABORT, rollout_id="rollout-a", attempt_index=5)
    assert nobody.json["aborted_inflight"] == 0
    kit.work.go.set()
    await other.done()
    await kit.post(kit.policy, RESUME)
    assert (await kit.work_call(kit.policy, CALL, A0).done()).code == "stale_attempt"


@virtual_time
async def test_a_stream_that_was_cut_off_after_its_begin_just_ends() -> None:
    """What was sent cannot be taken back: the stream breaks off incomplete, and counts no more."""
    kit = Kit()
    call = await _open(kit, STREAM)
    await kit.post(kit.policy, PAUSE)
    await kit.post(kit.policy, ABORT, rollout_id="rollout-a", attempt_index=0)
    await call.done()
    assert (call.status, call.raw, call.complete) == (200, b"first ", False)
    assert _phase(kit) == "prepared"


@virtual_time
async def test_a_fenced_caller_learns_that_it_is_stale_even_while_closed() -> None:
    """Fencing is checked before admission (2.20)."""
    kit = Kit()
    kit.stores.ledger.fence(A0)
    await kit.post(kit.policy, PAUSE)
    assert (await kit.work_call(kit.policy, CALL, A0).done()).code == "stale_attempt"
    assert (await kit.work_call(kit.policy, CALL, A1).done()).code == "checkpoint_parked"


@pytest.mark.parametrize(
    "headers",
    [
        {ROLLOUT_HEADER: "r"},
        {ATTEMPT_HEADER: "0"},
        {ROLLOUT_HEADER: "../r", ATTEMPT_HEADER: "0"},
        {ROLLOUT_HEADER: "", ATTEMPT_HEADER: "0"},
        {ROLLOUT_HEADER: "r", ATTEMPT_HEADER: "-1"},
        {ROLLOUT_HEADER: "r", ATTEMPT_HEADER: "01"},
        {ROLLOUT_HEADER: "r", ATTEMPT_HEADER: "1.0"},
        {ROLLOUT_HEADER: "r", ATTEMPT_HEADER: "one"},
        {ROLLOUT_HEADER: "r" * 600, ATTEMPT_HEADER: "0"},
        {ROLLOUT_HEADER: "r\u00e9", ATTEMPT_HEADER: "0"},
    ],
    ids=repr,
)
@virtual_time
async def test_half_an_identity_or_a_malformed_one_is_refused(headers: dict[str, str]) -> None:
    """One header without the other, or one that is no id or index, is 409 execution_identity_mismatch."""
    kit = Kit()
    reply = await kit.work_call(kit.policy, CALL, None, headers).done()
    assert (reply.status, reply.code) == (409, "execution_identity_mismatch")
    assert kit.work.entered == 0


@virtual_time
async def test_an_identity_given_twice_must_agree_with_itself() -> None:
    """Two different values of one header are no identity."""
    kit = Kit()
    call = kit.work_call(kit.policy, CALL, None)
    call.headers += [(name.encode(), value.encode()) for name, value in identity(A0).items()]
    call.headers += [(ROLLOUT_HEADER.encode(), b"another")]
    assert ((await call.done()).status, call.code) == (409, "execution_identity_mismatch")


@pytest.mark.parametrize(
    ("key", "attempt", "agrees"),
    [("rollout-a", A0, True), ("rollout-a-a1", A1, True), ("rollout-a", A1, False), ("rollout-b", A0, False)],
)
@virtual_time
async def test_the_identity_agrees_with_the_capture_key_of_the_path(key: str, attempt: object, agrees: bool) -> None:  # noqa: FBT001 - a table
    """A path that captures for one attempt refuses a caller that says it is another."""
    kit = Kit()
    kit.work.go.set()
    assert isinstance(attempt, type(A0))
    reply = await kit.work_call(kit.policy, f"/capture/{key}/v1/responses", attempt).done()
    assert (reply.status, reply.code) == ((200, None) if agrees else (409, "execution_identity_mismatch"))


@virtual_time
async def test_two_attempts_that_would_share_a_capture_key_are_not_both_served() -> None:
    """Field case 31: x-a2 attempt 0 and x attempt 2 would write one file; the second is refused."""
    kit = Kit()
    kit.work.go.set()
    first = await kit.work_call(kit.policy, CALL, A0._replace(rollout_id="x", attempt_index=2)).done()
    second = await kit.work_call(kit.policy, CALL, A0._replace(rollout_id="x-a2")).done()
    assert (first.status, second.code) == (200, "execution_identity_mismatch")


@virtual_time
async def test_a_holding_gate_keeps_calls_until_resume() -> None:
    """With ``when_closed="hold"`` a call waits instead of being refused, is reported as waiting, and goes on."""
    kit = Kit(when_closed="hold")
    kit.work.go.set()
    await kit.post(kit.policy, PAUSE)
    held = [kit.work_call(kit.policy, CALL, attempt) for attempt in (A0, B0)]
    await settle()
    status = (await kit.status(kit.policy, STATUS)).json
    assert (status["state"], status["inflight_total"], status["waiters_total"]) == ("paused", 0, 2)
    assert (await kit.post(kit.policy, RESUME)).json["released_waiters"] == 2
    assert [(await call.done()).status for call in held] == [200, 200]


@virtual_time
async def test_a_held_call_that_was_fenced_meanwhile_is_stale() -> None:
    """Whatever happened while a call was held counts as if it had come only now; a caller that left is forgotten."""
    kit = Kit(when_closed="hold")
    await kit.post(kit.policy, PAUSE)
    held, left = kit.work_call(kit.policy, CALL, A0), kit.work_call(kit.policy, CALL, B0)
    await settle()
    left.task.cancel()
    await asyncio.gather(left.task, return_exceptions=True)
    await kit.post(kit.policy, ABORT, rollout_id="rollout-a", attempt_index=0)
    assert (await kit.post(kit.policy, RESUME)).json["released_waiters"] == 1
    assert (await held.done()).code == "stale_attempt"


@virtual_time
async def test_calls_that_come_while_a_drain_ends_never_slip_through() -> None:
    """However calls and pauses fall together, no call is served between paused and resumed."""
    kit = Kit()
    kit.work.go.set()
    for number in range(20):
        calls = [kit.work_call(kit.policy, CALL, A0._replace(attempt_index=number * 10 + k)) for k in range(5)]
        pause = kit.sending(kit.policy, PAUSE, f"x{number}")
        for _ in range(number):
            await asyncio.sleep(0)
        late = [kit.work_call(kit.policy, CALL, B0) for _ in range(5)]
        await pause.done()
        await kit.status(kit.policy, STATUS, f"x{number}", wait_state="paused", timeout_s=10)
        entered = kit.work.entered
        await settle()
        assert kit.work.entered == entered
        assert _phase(kit) == "prepared"
        for call in (*calls, *late):
            assert (await call.done()).status in {200, 409}
        await kit.post(kit.policy, RESUME, f"x{number}")
