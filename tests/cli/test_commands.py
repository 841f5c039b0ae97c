"""The commands over real servers, with both fences: a cut with rollouts in flight, its proof, a restore."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.command import Command, last_object
from support.workload import Deployment, deployment

from quiesce.cli.workload import course
from quiesce.cli.workload.tools import Tools
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import Execution, runs_status
from quiesce.participants.server.completions import Completions

FENCES = [FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE]


@pytest.fixture(params=FENCES, ids=str)
def fence(request: pytest.FixtureRequest) -> FenceVariant:
    """Every fence that is served."""
    assert isinstance(request.param, FenceVariant)
    return request.param


@pytest.fixture(scope="module")
def idle() -> Iterator[Deployment]:
    """Servers on which nothing runs."""
    with deployment() as servers:
        yield servers


def test_a_cut_is_taken_proven_and_restored(quiesce: Command, fence: FenceVariant, tmp_path: Path) -> None:
    """Rollouts that were under way at the cut go on from it in fresh servers, each turn taken exactly once."""
    # slow at first, so that they are still under way at the cut; then as fast as can be
    with deployment(fence=fence, latency_s=0.4) as servers:
        config = ["--config", str(servers.write_config(tmp_path))]
        servers.result("done", turns=1)
        live = {f"live-{number}": 14 + number for number in range(2)}
        for rollout_id, turns in live.items():
            servers.run(rollout_id, turns=turns)
        kept = quiesce("checkpoint", "--label", "step-1", "--metadata", '{"step": 1}', *config, "--json")
        assert kept.exit_code == 1
        assert last_object(kept)["unacknowledged"] == [
            {"agent": "main/agent", "rollout_id": "done", "attempt_index": 0}
        ]
        assert servers.phases() == {"idle"}
        cut = quiesce("checkpoint", "--label", "step-1", "--acknowledge-completed", *config, "--json")
        assert cut.exit_code == 0, cut.stderr
        assert servers.phases() == {"idle"}
    saved = last_object(cut)
    assert {entry["rollout_id"] for entry in saved["rollouts"]} == set(live)
    assert saved["restarting"] == []
    assert quiesce("verify", "step-1", *config).exit_code == 0
    with deployment(fence=fence, expects_restore=True, latency_s=0) as servers:
        config = ["--config", str(servers.write_config(tmp_path))]
        restored = quiesce("restore", "step-1", *config, "--json")
        assert restored.exit_code == 0, restored.stderr
        assert last_object(restored)["source_wire_id"] == saved["wire_id"]
        assert servers.phases() == {"idle"}
        for rollout_id, turns in live.items():
            result = servers.result(rollout_id, turns=turns, attempt_index=1)
            due = course(f"task of {rollout_id}", turns)
            assert (result["observation"], result["reward"]) == (due.observation, 1.0)
            assert (result["model_calls"], result["model_words"]) == (turns, due.words)


def test_discover_names_everybody(quiesce: Command, idle: Deployment, tmp_path: Path) -> None:
    """Each participant stands there with its role, and the deployment with its fingerprint."""
    config = str(idle.write_config(tmp_path))
    found = last_object(quiesce("discover", "--config", config, "--json"))
    assert {entry["name"]: entry["role"] for entry in found["participants"]} == {
        "policy_model": "policy",
        "judge": "auxiliary",
        "agent": "agent",
        "tools": "resources",
    }
    assert set(found["without_lease"]) == {"main/policy_model", "main/agent", "main/tools"}
    shown = quiesce("discover", "--config", config)
    assert shown.exit_code == 0
    assert "without a lease, so closed until recovered if the controller dies: main/" in shown.stdout
    assert f"fingerprint of main: {found['fingerprints']['main']}" in shown.stdout
    assert idle.urls[Role.AGENT] in shown.stdout


def test_a_cut_tells_what_it_came_to(quiesce: Command, idle: Deployment, tmp_path: Path) -> None:
    """Without a label it is named by the time; on no terminal there is no progress."""
    config = str(idle.write_config(tmp_path))
    result = quiesce("checkpoint", "--acknowledge-completed", "--config", config)
    assert result.exit_code == 0
    assert result.stdout.startswith("published cut-2")
    assert "0 rollouts at a boundary" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(("token", "says"), [("wrong", "401"), (None, "401")])
def test_a_token_that_is_refused_is_exit_two(
    quiesce: Command, idle: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None, says: str
) -> None:
    """A wrong or missing token is found before anybody is paused, and never shown."""
    if token is None:
        monkeypatch.delenv(TOKEN_VARIABLES[0])
    else:
        monkeypatch.setenv(TOKEN_VARIABLES[0], token)
    result = quiesce("checkpoint", "--config", str(idle.write_config(tmp_path)), "--json")
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(last_object(result)["problems"]) == 3
    assert "wrong" not in result.output.replace("missing or wrong", "").replace("wrong,", "")
    assert idle.phases() == {"idle"}


def test_a_judge_that_is_taken_for_a_policy_is_exit_two(quiesce: Command, idle: Deployment, tmp_path: Path) -> None:
    """What the configuration contradicts is named with the server."""
    path = idle.write_config(tmp_path)
    path.write_text(path.read_text().replace('name = "judge",', 'name = "judge", role = "policy",'))
    result = quiesce("discover", "--config", str(path), "--json")
    assert result.exit_code == 2
    assert last_object(result)["type"] == "TopologyError"
    assert "judge" in result.stderr


def test_a_damaged_snapshot_is_exit_one(quiesce: Command, idle: Deployment, tmp_path: Path) -> None:
    """Verify names the file that differs; restore refuses it and calls nobody."""
    config = ["--config", str(idle.write_config(tmp_path))]
    cut = last_object(quiesce("checkpoint", "--label", "a", "--acknowledge-completed", *config, "--json"))
    (index,) = Path(cut["directory"]).rglob("continuations.jsonl")
    index.write_text("{}\n")
    result = quiesce("verify", "a", *config, "--json")
    assert result.exit_code == 1
    assert "continuations.jsonl" in result.stderr
    assert last_object(result)["problems"]
    assert quiesce("restore", "a", *config).exit_code == 1
    assert idle.phases() == {"idle"}
    assert quiesce("verify", cut["wire_id"], "--root", str(tmp_path / "root")).exit_code == 1


def test_a_restore_into_used_servers_is_held_or_aborted(quiesce: Command, tmp_path: Path) -> None:
    """Half a restore is exit 3 and stays closed; ``--if-failed abort`` reopens all and names who must be restarted."""
    with deployment(latency_s=0) as servers:
        config = ["--config", str(servers.write_config(tmp_path))]
        assert quiesce("checkpoint", "--label", "a", *config).exit_code == 0
        servers.result("used", turns=1)
        aborted = quiesce("restore", "a", "--if-failed", "abort", *config, "--json")
        assert aborted.exit_code == 3
        assert "restart them" in aborted.stderr
        assert servers.phases() == {"idle"}
        held = quiesce("restore", "a", "--retries", "1", *config, "--json")
        assert held.exit_code == 3
        found = last_object(held)
        assert found["type"] == "RestoreFailed"
        assert "main/policy_model" in found["failed"]
        assert servers.phases() != {"idle"}


def test_a_restore_that_fails_once_is_retried_under_its_id(
    quiesce: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed is tried again, what had succeeded stays, and everybody is resumed."""
    with deployment(latency_s=0.2) as servers:
        config = ["--config", str(servers.write_config(tmp_path))]
        servers.run("live", turns=20)
        servers.arrivals.wait(Role.RESOURCES, "/append", times=2)
        assert quiesce("checkpoint", "--label", "a", *config).exit_code == 0
    restore, failures = Tools.restore, [ValueError("not yet")]

    def restore_later(tools: Tools, attempt: AttemptId, state: Mapping[str, object]) -> None:
        if failures:
            raise failures.pop()
        restore(tools, attempt, state)

    monkeypatch.setattr(Tools, "restore", restore_later)
    with deployment(latency_s=0, expects_restore=True) as servers:
        config = ["--config", str(servers.write_config(tmp_path))]
        result = quiesce("restore", "a", "--retries", "2", *config)
        assert result.exit_code == 0, result.stderr
        assert "live attempt 0 goes on as attempt 1" in result.stdout
        assert failures == []
        assert servers.phases() == {"idle"}
        assert servers.result("live", turns=20, attempt_index=1)["reward"] == 1.0


def test_a_drain_that_takes_too_long_is_exit_one(quiesce: Command, tmp_path: Path) -> None:
    """Who was how far is named, with what is in flight, and everybody accepts work again."""
    with deployment(latency_s=30) as servers:
        config = str(servers.write_config(tmp_path, extra="reach_timeout_s = 0.6"))
        servers.run("slow", turns=1)
        servers.arrivals.wait(Role.POLICY, "/v1/responses")
        result = quiesce("checkpoint", "--config", config, "--json")
        assert result.exit_code == 1
        assert servers.phases() == {"idle"}
    assert last_object(result)["type"] == "DeadlineExceeded"
    assert "main/policy_model: draining" in result.stderr
    assert "1 calls in flight" in result.stderr


def test_an_interrupted_drain_reopens_everybody(quiesce: Command, tmp_path: Path) -> None:
    """Ctrl-C while somebody drains is an abort: nothing is published, everybody accepts work, exit 1."""
    with deployment(latency_s=30) as servers:
        config = str(servers.write_config(tmp_path))
        servers.run("slow", turns=1)
        servers.arrivals.wait(Role.POLICY, "/v1/responses")
        waiting = threading.Thread(target=interrupt_once, args=(lambda: servers.phases() != {"idle"},))
        waiting.start()
        result = quiesce("checkpoint", "--label", "a", "--config", config, "--json")
        waiting.join(30)
        assert result.exit_code == 1
        assert last_object(result)["type"] == "Interrupted"
        assert servers.phases() == {"idle"}
    assert quiesce("verify", "a", "--config", config).exit_code == 1


def test_an_interrupted_restore_is_held_closed(
    quiesce: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a restore opens nobody on half of it: exit 3, and the message says who is closed."""
    with deployment(latency_s=0.2) as servers:
        config = ["--config", str(servers.write_config(tmp_path))]
        servers.run("live", turns=20)
        servers.arrivals.wait(Role.RESOURCES, "/append", times=2)
        assert quiesce("checkpoint", "--label", "a", *config).exit_code == 0
    entered, go = threading.Event(), threading.Event()

    async def restore_slowly(_tools: Tools, _attempt: AttemptId, _state: Mapping[str, object]) -> None:
        entered.set()
        await asyncio.to_thread(go.wait, 30)

    monkeypatch.setattr(Tools, "restore", restore_slowly)

    def interrupt() -> None:
        assert entered.wait(30)
        os.kill(os.getpid(), signal.SIGINT)
        go.set()

    with deployment(latency_s=0, expects_restore=True) as servers:
        config = ["--config", str(servers.write_config(tmp_path))]
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        result = quiesce("restore", "a", *config, "--json")
        interrupting.join(30)
        assert result.exit_code == 3, result.stderr
        assert last_object(result)["type"] == "RestoreFailed"
        assert "is held closed" in result.stderr
        assert "idle" not in {servers.capabilities(role)["phase"] for role in (Role.POLICY, Role.AGENT)}


def test_results_without_receipt_cannot_be_acknowledged(
    quiesce: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of an older kind names no receipts; the command says that somebody else must acknowledge."""
    entry = runs_status._entry

    def without_receipt(execution: Execution, completions: Completions) -> dict[str, object]:
        found = entry(execution, completions)
        return {name: value for name, value in found.items() if name != "completion_receipt"}

    monkeypatch.setattr(runs_status, "_entry", without_receipt)
    with deployment(latency_s=0) as servers:
        servers.result("finished", turns=1)
        config = str(servers.write_config(tmp_path))
        result = quiesce("checkpoint", "--acknowledge-completed", "--config", config)
        assert result.exit_code == 1
        assert "names no receipt for them: main/agent: finished attempt 0" in result.stderr
        assert servers.phases() == {"idle"}


def interrupt_once(due: Callable[[], bool]) -> None:
    """Press Ctrl-C as soon as ``due`` says so."""
    while not due():
        pass
    os.kill(os.getpid(), signal.SIGINT)


def test_a_snapshot_of_other_servers_is_not_restored(quiesce: Command, idle: Deployment, tmp_path: Path) -> None:
    """The fingerprints are compared before anybody is called."""
    path = idle.write_config(tmp_path)
    assert quiesce("checkpoint", "--label", "a", "--acknowledge-completed", "--config", str(path)).exit_code == 0
    path.write_text(path.read_text().replace('name = "tools"', 'name = "other-tools"'))
    result = quiesce("restore", "a", "--config", str(path), "--json")
    assert result.exit_code == 2
    assert "fingerprint" in result.stderr or "topology" in result.stderr
    assert idle.phases() == {"idle"}
    shutil.rmtree(tmp_path / "root")
