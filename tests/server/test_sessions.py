"""Resource sessions: locks and revisions, freezing, retiring, and what a restore brings back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.refusals import refused
from support.stores import A0, A1, B0, FAR, Counters, Servers, fresh_servers, settle, tree
from support.virtual_loop import VirtualClock, virtual_time

from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.errors import RefusalCode
from quiesce.participants.server.session import SessionHooks
from quiesce.participants.server.sessions import Sessions

C0 = AttemptId("rollout-c", 0)


def per_session(servers: Servers) -> list[tuple[str, int, int, bool]]:
    """Rollout, attempt, revision and lock of each session."""
    rows = servers.sessions.status()["per_session"]
    assert isinstance(rows, list)
    return [tuple(row.values()) for row in rows]


async def saved(directory: Path, **mutations: int) -> Servers:
    """A server with one session a rollout, that many mutations each, frozen and exported."""
    servers = fresh_servers()
    for rollout_id, count in mutations.items():
        await servers.seed(AttemptId(rollout_id, 0), mutations=count)
    servers.sessions.close()
    await servers.sessions.freeze(FAR)
    await servers.sessions.export(checkpoint_id="ck-1", directory=directory)
    return servers


def stubborn(counters: Counters, **replaced: object) -> SessionHooks:
    """The counters' hooks with some replaced."""
    hooks = {"export": counters.export, "restore": counters.restore, "retire": counters.retire} | replaced
    return SessionHooks(**hooks)  # type: ignore[arg-type]  # hooks of the test


# ---- traffic


@virtual_time
async def test_each_success_raises_the_revision_by_one() -> None:
    """A failed call raises nothing; the seed is the first success; verifying ends the session."""
    servers = fresh_servers()
    assert await servers.post("/seed_session", A0) == 1
    assert await servers.post("/mutate", A0) == 2
    assert await servers.post("/mutate", A0, status=500) == -1
    assert await servers.post("/verify", A0, status=400) == -1
    assert per_session(servers) == [("rollout-a", 0, 2, False)]
    assert await servers.post("/verify", A0) == 3
    assert per_session(servers) == []
    with refused(RefusalCode.RESOURCES_SESSION_UNBOUND):
        await servers.post("/mutate", A0)


@virtual_time
async def test_a_session_needs_a_seed_that_succeeded() -> None:
    """Neither no seed nor a failed one makes a session."""
    servers = fresh_servers()
    for route in ("/mutate", "/verify", "/deep/mutate"):
        with refused(RefusalCode.RESOURCES_SESSION_UNBOUND):
            await servers.post(route, A0)
    await servers.post("/seed_session", A0, status=500)
    with refused(RefusalCode.RESOURCES_SESSION_UNBOUND):
        await servers.post("/mutate", A0)
    assert servers.sessions.status()["lock_entries"] == 0


@virtual_time
async def test_calls_of_one_session_come_one_after_the_other() -> None:
    """A second call waits for the first; another session does not."""
    servers = fresh_servers()
    await servers.seed(A0)
    await servers.seed(B0)
    ticket = await servers.sessions.enter("/mutate", A0)
    waiting = asyncio.ensure_future(servers.post("/mutate", A0))
    await servers.post("/mutate", B0)
    assert not waiting.done()
    assert per_session(servers)[0][3] is True
    servers.sessions.leave(ticket)
    assert await waiting == 2
    servers.sessions.leave(ticket)
    assert servers.sessions.status()["locked_sessions"] == 0


@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [
        ("closed", RefusalCode.RESOURCES_ADMISSION_CLOSED),
        ("retired", RefusalCode.STALE_ATTEMPT),
        ("ended", RefusalCode.RESOURCES_SESSION_UNBOUND),
    ],
)
def test_a_call_that_waited_is_judged_by_what_holds_when_its_turn_comes(meanwhile: str, code: RefusalCode) -> None:
    """It is refused as if it had come only now, and it blocks nobody."""

    @virtual_time
    async def scenario() -> None:
        servers = fresh_servers()
        await servers.seed(A0)
        ticket = await servers.sessions.enter("/verify", A0)
        waiting = asyncio.ensure_future(servers.post("/mutate", A0))
        await settle()
        if meanwhile == "closed":
            servers.sessions.close()
        elif meanwhile == "retired":
            with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR):
                await servers.sessions.retire(A0, deadline=0.0)
        else:
            servers.sessions.settle(ticket, 200)
        servers.sessions.leave(ticket)
        with refused(code):
            await waiting
        assert servers.sessions.status()["locked_sessions"] == 0

    scenario()


@virtual_time
async def test_a_cancelled_wait_leaves_the_session_to_others() -> None:
    """A caller that gives up while it waits holds nothing."""
    servers = fresh_servers()
    await servers.seed(A0)
    ticket = await servers.sessions.enter("/mutate", A0)
    waiting = asyncio.ensure_future(servers.post("/mutate", A0))
    await settle()
    waiting.cancel()
    await settle()
    servers.sessions.leave(ticket)
    assert await servers.post("/mutate", A0) == 2


@virtual_time
async def test_a_call_without_identity_is_refused_unless_the_server_takes_it() -> None:
    """Where it is taken, one that succeeded makes every freeze fail: its state belongs to nobody (9, 52)."""
    strict = fresh_servers()
    with refused(RefusalCode.EXECUTION_IDENTITY_MISMATCH):
        await strict.sessions.enter("/mutate", None)
    recorded = Sessions("resources", hooks=Counters().hooks(), clock=VirtualClock(), require_identity=False)
    failed = await recorded.enter("/mutate", None)
    assert recorded.settle(failed, 500) is None
    recorded.leave(failed)
    assert (await recorded.freeze(FAR))["sessions"] == 0
    ticket = await recorded.enter("/mutate", None)
    assert recorded.settle(ticket, 200) is None
    recorded.leave(ticket)
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "named no attempt"):
        await recorded.freeze(FAR)
    recorded.close()
    with refused(RefusalCode.RESOURCES_ADMISSION_CLOSED):
        await recorded.enter("/mutate", None)


@virtual_time
async def test_a_later_attempt_replaces_the_session_of_an_earlier_one() -> None:
    """The earlier one is freed and fenced, also while it is busy."""
    servers = fresh_servers()
    await servers.seed(A0)
    busy = await servers.sessions.enter("/mutate", A0)
    seeding = asyncio.ensure_future(servers.seed(A1))
    await settle()
    assert not seeding.done()
    servers.sessions.leave(busy)
    assert await seeding == 1
    assert servers.counters.freed == [A0]
    assert [row[:2] for row in per_session(servers)] == [("rollout-a", 1)]
    with refused(RefusalCode.STALE_ATTEMPT):
        await servers.post("/mutate", A0)


# ---- freezing


@virtual_time
async def test_freezing_waits_for_each_session_and_takes_what_it_is_then(tmp_path: Path) -> None:
    """A mutation in progress is in the snapshot; the file is what was taken, whatever the state is at the commit."""
    servers = fresh_servers()
    await servers.seed(A0, mutations=1)
    ticket = await servers.sessions.enter("/mutate", A0)
    servers.sessions.close()
    freezing = asyncio.ensure_future(servers.sessions.freeze(FAR))
    await settle()
    assert not freezing.done()
    servers.counters.values[A0] = 41
    servers.sessions.settle(ticket, 200)
    servers.sessions.leave(ticket)
    assert await freezing == {"sessions": 1, "state": "prepared"}
    servers.counters.values[A0] = 99
    await servers.sessions.export(checkpoint_id="ck-1", directory=tmp_path)
    record = json.loads(tree(tmp_path)["resources/resources/rollout-a.a0.json"])
    assert (record["state"], record["state_revision"]) == ({"value": 41}, 3)


@virtual_time
async def test_a_busy_session_ends_the_freeze_at_the_deadline() -> None:
    """The refusal names it; nothing is held, so nothing can be committed; freezing again works once it is free."""
    servers = fresh_servers()
    await servers.seed(A0)
    await servers.seed(B0)
    ticket = await servers.sessions.enter("/mutate", B0)
    servers.sessions.close()
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "rollout 'rollout-b' attempt 0"):
        await servers.sessions.freeze(servers.clock.monotonic() + 0.8)
    assert servers.clock.monotonic() == pytest.approx(0.8)
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "prepare first"):
        await servers.sessions.export(checkpoint_id="ck-1", directory=Path("unused"))
    servers.sessions.leave(ticket)
    assert (await servers.sessions.freeze(FAR))["sessions"] == 2


@virtual_time
async def test_a_deadline_that_has_passed_is_enough_for_no_session() -> None:
    """As recorded: an error with one session, a success with none (4.7)."""
    servers = fresh_servers()
    servers.sessions.close()
    assert (await servers.sessions.freeze(-1.0))["sessions"] == 0
    servers.sessions.open()
    await servers.seed(A0)
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "timed out"):
        await servers.sessions.freeze(-1.0)


@virtual_time
async def test_a_seed_in_progress_is_waited_for_and_counts_if_it_succeeds() -> None:
    """A session that begins right at the cut is in it or was never there."""
    for status, sessions in ((200, 1), (500, 0)):
        servers = fresh_servers()
        ticket = await servers.sessions.enter("/seed_session", A0)
        servers.counters.values[A0] = 0
        servers.sessions.close()
        freezing = asyncio.ensure_future(servers.sessions.freeze(FAR))
        await settle()
        servers.sessions.settle(ticket, status)
        servers.sessions.leave(ticket)
        assert (await freezing)["sessions"] == sessions


@pytest.mark.parametrize("state", [["no object"], {"socket": object()}, {"nan": float("nan")}, "raises", "times out"])
def test_a_state_that_cannot_be_taken_fails_the_freeze(state: object) -> None:
    """The refusal names the session and the hook's error, and the session is free again."""

    async def export(attempt: AttemptId) -> object:
        if state == "raises":
            raise RuntimeError(f"container of {attempt} is gone")
        if state == "times out":
            raise TimeoutError
        return state

    @virtual_time
    async def scenario() -> None:
        servers = fresh_servers()
        servers.sessions._hooks = stubborn(servers.counters, export=export)
        await servers.seed(A0)
        with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "rollout-a.*could not be taken"):
            await servers.sessions.freeze(FAR)
        assert servers.sessions.status()["locked_sessions"] == 0

    scenario()


@virtual_time
async def test_a_slow_hook_is_bounded_by_the_deadline() -> None:
    """A state that takes for ever is a busy session."""

    async def export(attempt: AttemptId) -> Mapping[str, object]:
        await asyncio.sleep(1000)
        return {"attempt": attempt}

    servers = fresh_servers()
    servers.sessions._hooks = stubborn(servers.counters, export=export)
    await servers.seed(A0)
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "timed out"):
        await servers.sessions.freeze(5.0)
    assert servers.clock.monotonic() == pytest.approx(5.0)


# ---- retiring


@virtual_time
async def test_a_session_retired_while_the_freeze_waits_is_not_in_the_cut() -> None:
    """It vanishes silently (9, 51), whether it was taken already or is still to be taken."""
    servers = fresh_servers()
    for attempt in (A0, B0, C0):
        await servers.seed(attempt)
    ticket = await servers.sessions.enter("/mutate", B0)
    servers.sessions.close()
    freezing = asyncio.ensure_future(servers.sessions.freeze(FAR))
    await settle()
    await servers.sessions.retire(A0, deadline=FAR)
    await servers.sessions.retire(C0, deadline=FAR)
    servers.sessions.leave(ticket)
    assert (await freezing)["sessions"] == 1
    assert servers.counters.freed == [A0, C0]


@virtual_time
async def test_a_busy_session_is_fenced_at_once_and_freed_when_it_is_free() -> None:
    """Retiring it times out as long as it is busy; repeating it frees it, once."""
    servers = fresh_servers()
    await servers.seed(A0)
    ticket = await servers.sessions.enter("/mutate", A0)
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "still busy"):
        await servers.sessions.retire(A0, deadline=1.0)
    with refused(RefusalCode.STALE_ATTEMPT):
        await servers.post("/mutate", A0)
    servers.sessions.leave(ticket)
    for _ in range(2):
        assert await servers.sessions.retire(A0, deadline=FAR) == {
            "retired": True, "rollout_id": "rollout-a", "attempt_index": 0
        }  # fmt: skip
    assert servers.counters.freed == [A0]
    assert servers.sessions.status()["tombstones"] == 1


@virtual_time
async def test_a_retire_hook_that_fails_is_reported_and_the_attempt_stays_fenced() -> None:
    """The session is gone from the server's books either way."""

    def retire(attempt: AttemptId) -> None:
        raise RuntimeError(f"container of {attempt} will not die")

    servers = fresh_servers()
    servers.sessions._hooks = stubborn(servers.counters, retire=retire)
    await servers.seed(A0)
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "will not die"):
        await servers.sessions.retire(A0, deadline=FAR)
    assert per_session(servers) == []
    await servers.seed(B0)
    assert await servers.seed(AttemptId("rollout-b", 1)) == 1


# ---- export and restore


@virtual_time
async def test_restored_sessions_go_on_under_the_next_attempt(tmp_path: Path) -> None:
    """State and revision are those of the save, attempt n is fenced, and the next call goes on from there."""
    await saved(tmp_path, **{"rollout-a": 2, "rollout-b": 0})
    servers = fresh_servers()
    servers.sessions.close()
    restored = await servers.sessions.restore(directory=tmp_path)
    assert restored == {"sessions": 2, "source_checkpoint_id": "ck-1"}
    assert per_session(servers) == [("rollout-a", 1, 3, False), ("rollout-b", 1, 1, False)]
    servers.sessions.open()
    with refused(RefusalCode.STALE_ATTEMPT):
        await servers.post("/mutate", A0)
    assert await servers.post("/mutate", A1) == 4
    assert servers.counters.values[A1] == 3


@virtual_time
async def test_a_server_that_owes_a_restore_serves_nobody_before(tmp_path: Path) -> None:
    """It begins closed and opening it does nothing, until it has been restored."""
    await saved(tmp_path, **{"rollout-a": 0})
    sessions = Sessions("resources", hooks=Counters().hooks(), clock=VirtualClock(), restore_expected=True)
    sessions.open()
    assert bool(sessions.owes_restore)
    with refused(RefusalCode.RESOURCES_ADMISSION_CLOSED):
        await sessions.enter("/seed_session", B0)
    await sessions.restore(directory=tmp_path)
    assert not bool(sessions.owes_restore)
    sessions.open()
    sessions.leave(await sessions.enter("/mutate", A1))


@virtual_time
async def test_only_a_process_that_has_served_nothing_is_restored(tmp_path: Path) -> None:
    """After stateful traffic, or a restore, it refuses and keeps what it has."""
    await saved(tmp_path, **{"rollout-a": 0})
    used = fresh_servers()
    await used.seed(B0)
    restored = fresh_servers()
    await restored.sessions.restore(directory=tmp_path)
    for servers in (used, restored):
        before = per_session(servers)
        with refused(RefusalCode.UNSAFE_RESOURCES_RESTORE):
            await servers.sessions.restore(directory=tmp_path)
        assert per_session(servers) == before


@virtual_time
async def test_a_restore_that_fails_half_way_installs_nothing(tmp_path: Path) -> None:
    """What the hook had made is freed again, newest first, and the process may be restored after all."""
    await saved(tmp_path, **{"rollout-a": 0, "rollout-b": 0, "rollout-c": 0})
    servers = fresh_servers()

    def restore(attempt: AttemptId, state: Mapping[str, object]) -> None:
        if attempt.rollout_id == "rollout-b":
            raise RuntimeError("no container left")
        servers.counters.values[attempt] = len(state)

    servers.sessions._hooks = stubborn(servers.counters, restore=restore)
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "rollout-b attempt 1 .*no container left"):
        await servers.sessions.restore(directory=tmp_path)
    assert servers.counters.freed == [AttemptId("rollout-b", 1), A1]
    assert servers.counters.values == {}
    assert servers.sessions.status()["sessions"] == 0
    servers.sessions._hooks = servers.counters.hooks()
    assert (await servers.sessions.restore(directory=tmp_path))["sessions"] == 3


@virtual_time
async def test_a_cancelled_restore_frees_what_it_had_made(tmp_path: Path) -> None:
    """A restore whose caller gives up leaves a process that can be restored, also where freeing fails."""
    await saved(tmp_path, **{"rollout-a": 0, "rollout-b": 0})
    servers = fresh_servers()
    freed: list[AttemptId] = []

    async def restore(attempt: AttemptId, state: Mapping[str, object]) -> None:
        if attempt.rollout_id == "rollout-b":
            await asyncio.sleep(1000 + len(state))

    def retire(attempt: AttemptId) -> None:
        freed.append(attempt)
        raise RuntimeError("already gone")

    servers.sessions._hooks = stubborn(servers.counters, restore=restore, retire=retire)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await servers.sessions.restore(directory=tmp_path)
    assert freed == [AttemptId("rollout-b", 1), A1]
    servers.sessions._hooks = servers.counters.hooks()
    assert (await servers.sessions.restore(directory=tmp_path))["sessions"] == 2


@virtual_time
async def test_two_attempts_of_one_rollout_are_neither_written_nor_read(tmp_path: Path) -> None:
    """Attempt n would go on as n + 1, which is the other one."""
    servers = await saved(tmp_path / "good", **{"rollout-a": 0})
    held = servers.sessions._held
    assert held is not None
    held[A1] = held[A0]
    with refused(RefusalCode.RESOURCES_CHECKPOINT_ERROR, "2 attempts"):
        await servers.sessions.export(checkpoint_id="ck-1", directory=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "x y"])
def test_a_resource_server_needs_a_name_that_can_be_a_folder(name: str) -> None:
    """A bad name is refused when the sessions are made."""
    with pytest.raises(InvalidIdentity):
        Sessions(name, hooks=Counters().hooks(), clock=VirtualClock())
