"""The recorded set-ups, exported by our stores, give the recorded files byte for byte and the recorded replies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.recordings import Json, exchanges_of, trees
from support.stores import (
    A0,
    A1,
    B0,
    B1,
    FAR,
    Servers,
    TakenAt,
    fresh_servers,
    prepare_recorded,
    recorded_rollouts,
    settle,
    started,
    tree,
)
from support.virtual_loop import virtual_time

from quiesce.participants.server.errors import ControlRefusal

TREES = trees()
SAVED = sorted(name for name, files in TREES.items() if len(files) > 6 and "tampered" not in name)


def taken_at(name: str) -> float:
    """The instant at which the recorded server took its session, from the session's file."""
    files = TREES[name]
    (session,) = (text for path, text in files.items() if re.fullmatch(r"resources/resources/.*\.a\d+\.json", path))
    return float(json.loads(session)["created_at"])


def scenario_of(name: str) -> str:
    """The scenario that left this tree."""
    return name.split("/", 1)[0]


def recorded_reply(scenario: str, step: str, component: str) -> Json:
    """The first recorded reply of this step."""
    found = (
        exchange for exchange in exchanges_of(scenario) if (exchange.step, exchange.component) == (step, component)
    )
    return next(found).reply


def as_json(fields: object) -> Json:
    """``fields`` as they come over the wire."""
    return json.loads(json.dumps(fields))


def timeless(fields: Json) -> Json:
    """``fields`` without ages, which differ from run to run."""
    if isinstance(fields, Mapping):
        return {key: timeless(value) for key, value in fields.items() if key != "age_seconds"}
    return [timeless(value) for value in fields] if isinstance(fields, list) else fields


def lay_out(name: str, directory: Path) -> None:
    """Write a recorded tree."""
    for path, content in TREES[name].items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


def test_the_recordings_have_whole_trees() -> None:
    """There are several, or the tests below would prove nothing."""
    assert len(SAVED) >= 4


@pytest.mark.parametrize("name", SAVED)
def test_a_recorded_checkpoint_is_reproduced_byte_for_byte(name: str, tmp_path: Path) -> None:
    """With the clock at the recorded instant, every file and every reply is the recorded one."""

    @virtual_time
    async def scenario() -> None:
        servers = fresh_servers(clock=TakenAt(taken_at(name)))
        await prepare_recorded(servers, await recorded_rollouts(servers))
        replies = await servers.save(tmp_path)
        assert tree(tmp_path) == TREES[name]
        commits = {
            exchange.component: exchange.reply
            for exchange in exchanges_of(scenario_of(name))
            if exchange.step == "commit"
        }
        assert {component: as_json(replies[component]) for component in commits} == commits

    scenario()


@virtual_time
async def test_the_status_of_a_parked_rollout_is_the_recorded_one() -> None:
    """Prepare answers with the recorded fields, in the recorded order, before and after the agent is let go."""
    servers = fresh_servers()
    rollout = await recorded_rollouts(servers)
    await prepare_recorded(servers, rollout)
    parked = recorded_reply("abort_path_after_prepare", "prepare", "agent")
    assert list(timeless(servers.runs.status()).items()) == list(timeless(parked).items())
    assert list(servers.runs.status()["executions"][0]) == list(parked["executions"][0])  # type: ignore[index]  # rows
    assert servers.runs.open() == 1
    await settle()
    running = recorded_reply("abort_path_after_prepare", "status_after", "agent")
    assert timeless({"checkpoint_id": "ck-2", **servers.runs.status()}) == timeless(running)


@virtual_time
async def test_the_status_of_a_finished_result_is_the_recorded_one() -> None:
    """An unacknowledged result blocks, carries its recorded receipt, and is counted once it is acknowledged."""
    servers = fresh_servers()
    rollout = await started(servers, A0)
    await rollout.turn(call_id="call-1")
    servers.runs.close()
    result = {"id": "response-rollout-a"}
    receipt = rollout.execution.finish(result)
    assert not await servers.runs.wait_ready(FAR)
    recorded = recorded_reply("agent_completed_result_acknowledgement", "status", "agent")
    status = timeless({"checkpoint_id": "ck-1", **as_json(servers.runs.status())})
    digest = recorded["executions"][0]["completion_receipt"].pop("result_digest")
    recorded["completed_unacknowledged_attempts"][0]["completion_receipt"]["result_digest"] = receipt.result_digest
    recorded["executions"][0]["completion_receipt"]["result_digest"] = receipt.result_digest
    assert len(digest) == len(receipt.result_digest)
    assert status == timeless(recorded)
    (fields,) = (entry["completion_receipt"] for entry in as_json(servers.runs.status())["executions"])
    assert servers.runs.acknowledge([fields]) == (True,)
    assert servers.runs.acknowledge([fields]) == (False,)
    ready = recorded_reply("agent_completed_result_acknowledgement", "prepare_ok", "agent")
    assert servers.runs.status() == ready


@virtual_time
async def test_a_running_rollout_without_a_boundary_stands_in_the_status_as_recorded() -> None:
    """Without boundary 0 the status of a run that has committed nothing is the recorded one."""
    servers = fresh_servers()
    servers.runs._boundary_at_begin = False
    rollout = await started(servers, A0)
    servers.runs.close()
    servers.runs.request_park()
    assert not await servers.runs.wait_ready(0.4)
    servers.runs.cancel_park()
    recorded = recorded_reply("prepare_agent_deadline_incomplete", "status_after", "agent")
    assert timeless({"checkpoint_id": "ck-1", **servers.runs.status()}) == timeless(recorded)
    assert servers.runs.open() == 0
    assert rollout.execution.boundary is None


@virtual_time
async def test_a_recorded_checkpoint_is_restored_with_the_recorded_replies(tmp_path: Path) -> None:
    """The tree that a real server wrote goes into fresh stores, and they answer and stand as the real ones did."""
    lay_out("full_restore_resume/<checkpoint_dir>", tmp_path)
    servers = fresh_servers()
    replies = await servers.load(tmp_path)
    for component, fields in replies.items():
        assert as_json(fields) == recorded_reply("full_restore_resume", "restore", component)
    servers.runs.close()
    servers.sessions.close()
    for component, status in (("agent", servers.runs.status()), ("resources", servers.sessions.status())):
        recorded = recorded_reply("full_restore_resume", "status_restored", component)
        assert {"checkpoint_id": "restore-1", **as_json(status)} == recorded
    assert servers.ledger.is_fenced(A0)
    assert servers.ledger.is_fenced(B0)
    assert not servers.ledger.is_fenced(A1)


@virtual_time
async def test_frozen_sessions_stand_as_recorded(tmp_path: Path) -> None:
    """Two sessions, one retired while frozen: every reply and the file that is left are the recorded ones."""
    name = "resources_prepare_refuses_traffic"
    recorded = TREES[f"{name}/<checkpoint_dir>"]
    servers = fresh_servers(clock=TakenAt(taken_at(f"{name}/<checkpoint_dir>")))
    assert await servers.seed(A0, mutations=2) == 3
    assert await servers.seed(B1, mutations=1) == 2
    sessions = servers.sessions
    sessions.close()
    assert await sessions.freeze(FAR) == recorded_reply(name, "prepare", "resources")
    assert {"checkpoint_id": "ck-1", **as_json(sessions.status())} == recorded_reply(name, "status", "resources")
    with pytest.raises(ControlRefusal, match="resources_admission_closed"):
        await servers.post("/mutate", A0)
    assert await sessions.retire(B1, deadline=FAR) == recorded_reply(name, "retire", "resources")
    committed = await sessions.export(checkpoint_id="ck-1", directory=tmp_path)
    assert committed == recorded_reply(name, "commit", "resources")
    assert tree(tmp_path) == recorded
    sessions.open()
    with pytest.raises(ControlRefusal, match="stale_attempt"):
        await servers.post("/mutate", B1)


@virtual_time
async def test_empty_exports_have_the_recorded_digests(tmp_path: Path) -> None:
    """Servers without any work export the recorded manifests, down to the digest."""
    servers = fresh_servers()
    await servers.freeze_all()
    replies = await servers.save(tmp_path)
    for component, fields in replies.items():
        assert as_json(fields) == recorded_reply("expired_deadline", "commit", component)


@virtual_time
async def test_an_attempt_that_only_called_is_counted_as_inactive_as_recorded(tmp_path: Path) -> None:
    """A call without continuation is left out, counted, and named among the source attempts."""
    servers = fresh_servers()
    servers.ledger.note_call(A0)
    committed = await servers.ledger.export(checkpoint_id="ck-1", directory=tmp_path, continuation_indexes=[])
    assert as_json(committed) == recorded_reply("commit_before_prepare", "commit_after_status", "policy")


@pytest.mark.parametrize("component", ["policy", "agent", "resources"])
def test_a_recorded_tree_with_changed_files_is_refused_with_the_recorded_code(component: str, tmp_path: Path) -> None:
    """One appended byte is enough, nothing is installed, and the code is the recorded one."""

    @virtual_time
    async def scenario() -> None:
        lay_out("restore_tampered/<checkpoint_dir>", tmp_path)
        servers = fresh_servers()
        store = servers.store(component)
        with pytest.raises(ControlRefusal) as refused:
            await store.restore(directory=tmp_path)
        assert refused.value.code == recorded_reply("restore_tampered", "restore", component)["error"]["code"]
        assert_untouched(servers)

    scenario()


@pytest.mark.parametrize("component", ["policy", "agent", "resources"])
def test_a_missing_save_is_refused_with_the_recorded_code_and_the_right_one_then_works(
    component: str, tmp_path: Path
) -> None:
    """A folder that is not there is refused by name; the same store then restores the right one."""

    @virtual_time
    async def scenario() -> None:
        lay_out("restore_missing_dir/<checkpoint_dir>", tmp_path)
        servers = fresh_servers()
        store = servers.store(component)
        with pytest.raises(ControlRefusal, match=r"manifest\.json") as refused:
            await store.restore(directory=tmp_path / "nowhere")
        assert (
            refused.value.code == recorded_reply("restore_missing_dir", "restore_missing", component)["error"]["code"]
        )
        assert_untouched(servers)
        restored = await store.restore(directory=tmp_path)
        assert as_json(restored) == recorded_reply("restore_missing_dir", "restore_right_dir", component)

    scenario()


def assert_untouched(servers: Servers) -> None:
    """Nothing was installed anywhere."""
    assert servers.ledger.tombstones() == ()
    assert servers.runs.restored() == ()
    assert not servers.runs.is_fenced(A0)
    assert servers.sessions.status()["sessions"] == 0
    assert servers.counters.values == {}
