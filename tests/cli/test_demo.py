"""``quiesce demo`` from end to end: real processes, a real kill, and the account that must come out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import Command

from quiesce.cli.demonstration.fleet import Fleet, ServerFailed, log_tails
from quiesce.participants.control_token import TOKEN_VARIABLES

DEMO = [sys.executable, "-m", "quiesce.cli.main", "demo"]


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # one that nobody has waited for is dead as well
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def pids_in(story: str) -> list[int]:
    """The pids of the servers that the story names."""
    lines = [line for line in story.splitlines() if "each in a process of its own:" in line]
    return [int(server.split()[1]) for line in lines for server in line.rpartition(": ")[2].split(", ")]


def test_the_demo_accounts_for_every_rollout(quiesce: Command, tmp_path: Path) -> None:
    """Nobody is left paused and nothing is lost, doubled, restarted or wrong; the snapshot it names can be verified."""
    place = tmp_path / "demo"
    found = subprocess.run([*DEMO, "--json", "--dir", str(place)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    result: dict[str, Any] = json.loads(found.stdout)  # Any: a JSON object; nothing else is on the output
    assert result["ok"] is True
    assert result["left_paused"] == 0
    rollouts = result["rollouts"]
    assert rollouts["live_at_cut"] >= 8
    assert rollouts["finished_before_cut"] >= 1
    assert rollouts["thrown_away"] >= 1
    assert rollouts["completed"] == rollouts["total"] == 16
    assert [rollouts[name] for name in ("lost", "doubled", "restarted", "wrong")] == [0, 0, 0, 0]
    assert set(result["killed"].values()) == {-signal.SIGKILL}
    assert all(result["checks"].values())
    lines = (place / "trainer-second" / "results.jsonl").read_text().splitlines()
    assert len({json.loads(line)["rollout_id"] for line in lines}) == len(lines) == 16
    label, wire_id = result["snapshot"]["label"], result["snapshot"]["wire_id"]
    assert quiesce("verify", label, "--config", result["config"]).exit_code == 0
    assert quiesce("verify", wire_id, "--config", result["config"]).exit_code == 0
    assert [pid for pid in pids_in(found.stderr) if is_alive(pid)] == []
    assert len(pids_in(found.stderr)) == 8
    assert "Traceback" not in found.stderr


def test_a_demo_whose_controller_is_killed_accounts_for_every_rollout(tmp_path: Path) -> None:
    """It dies by SIGKILL while everybody is paused; another one finishes its cut, and then all goes on as it would."""
    place = tmp_path / "demo"
    found = subprocess.run(
        [*DEMO, "--crash", "--json", "--dir", str(place)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    result: dict[str, Any] = json.loads(found.stdout)  # Any: a JSON object; nothing else is on the output
    assert result["ok"] is True
    assert all(result["checks"].values())
    assert result["crash"]["killed"] == -signal.SIGKILL
    (recovered,) = result["crash"]["recovered"]
    assert recovered["label"] == "crashed"
    assert recovered["settled"] is True
    assert recovered["state"] == ("resumed" if recovered["published"] else "aborted")
    assert set(recovered["touched"]) == {"main/agent", "main/policy_model", "main/tools"}
    rollouts = result["rollouts"]
    assert rollouts["completed"] == rollouts["total"] == 16
    assert [rollouts[name] for name in ("lost", "doubled", "restarted", "wrong")] == [0, 0, 0, 0]
    assert "Traceback" not in found.stderr


def test_an_interrupted_demo_leaves_nobody_behind(tmp_path: Path) -> None:
    """A signal in the middle ends every server, without a traceback, and the exit code says that it did not work."""
    child = subprocess.Popen(
        [*DEMO, "--json", "--dir", str(tmp_path / "demo"), "--no-keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    story = ""
    while "dispatched" not in story:
        line = child.stderr.readline()
        assert line, story
        story += line
    child.send_signal(signal.SIGTERM)
    output, rest = child.communicate(timeout=60)
    assert child.returncode == 1
    assert json.loads(output)["type"] == "Interrupted"
    assert "Traceback" not in rest
    assert len(pids_in(story)) == 4
    assert [pid for pid in pids_in(story) if is_alive(pid)] == []
    assert not (tmp_path / "demo").exists()


async def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    """The role is named, and what its log says last can be shown."""
    fleet = Fleet(tmp_path / "servers", token="secret-of-the-test", fence="no-such-fence")
    try:
        with pytest.raises(ServerFailed, match="server did not start"):
            await fleet.start()
    finally:
        await fleet.kill()
    tails = log_tails([fleet.directory])
    assert "no-such-fence" in tails
    assert ".log\n" in tails
    assert "secret-of-the-test" not in tails
    assert TOKEN_VARIABLES[0] not in os.environ
