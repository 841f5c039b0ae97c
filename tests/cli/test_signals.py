"""Signals at a command that runs as a process of its own: everybody accepts work, or is held closed by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.command import Command
from support.workload import TOKEN, Arrivals, Deployment, deployment

from quiesce.cli.workload.tools import Tools
from quiesce.controller.catalog import SnapshotState
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.vocabulary import Role
from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import ASGIApp, Receive, Scope, Send

PATIENCE_S = 60.0
INT, TERM, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1
LAST_CUT = 'last_cut_signals = ["SIGTERM", "SIGUSR1"]\ngrace_s = {grace_s}'


def started(*arguments: str, messages: Path | None = None) -> subprocess.Popen[str]:
    """The command, as a process of its own; its messages go into a file, if one is given."""
    environment = {**os.environ, TOKEN_VARIABLES[0]: TOKEN}
    command = [sys.executable, "-m", "quiesce.cli.main", *arguments, "--json"]
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(messages.open("w", encoding="utf-8")) if messages is not None else pipe
        return subprocess.Popen(command, stdout=pipe, stderr=errors, text=True, env=environment)


def interrupted_twice(child: subprocess.Popen[str], messages: Path) -> None:
    """Ctrl-C, and once more when the first one was heard: two at once are one."""
    child.send_signal(INT)
    until_s = time.monotonic() + PATIENCE_S
    while "ending well" not in messages.read_text(encoding="utf-8") and time.monotonic() < until_s:
        time.sleep(0.01)
    child.send_signal(INT)


def reached(child: subprocess.Popen[str], root: Path, target: str, *, of: str = "*") -> None:
    """Wait until a journal (``of`` ids like this) says that something has come to a state, or the process has ended."""
    until_s = time.monotonic() + PATIENCE_S
    sought = f'"target":"{target}"'
    while child.poll() is None and time.monotonic() < until_s:
        journals = (root / ".quiesce" / "journal").glob(f"{of}.ndjson")
        if any(sought in path.read_text(encoding="utf-8", errors="replace") for path in journals):
            return
        time.sleep(0.01)
    assert child.poll() is not None, f"it never came to {target}"


def ended(child: subprocess.Popen[str]) -> tuple[int, Mapping[str, Any], str]:
    """The exit code, the JSON object on the last line, and the messages."""
    out, err = child.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in (err or "")
    return child.returncode, json.loads(out.splitlines()[-1]), err or ""


@pytest.fixture(scope="module")
def servers() -> Iterator[Deployment]:
    """Servers on which a call takes longer than any test."""
    with deployment(latency_s=300) as here:
        here.run("slow", turns=1)
        here.arrivals.wait(Role.POLICY, "/v1/responses")
        yield here


@pytest.fixture(scope="module")
def idle() -> Iterator[Deployment]:
    """Servers on which nothing runs."""
    with deployment(latency_s=0) as here:
        yield here


@pytest.fixture
def saved(tmp_path: Path, quiesce: Command) -> Path:
    """A root with a snapshot of one rollout, called ``a``."""
    with deployment(latency_s=0.2) as here:
        config = here.write_config(tmp_path)
        here.run("live", turns=20)
        here.arrivals.wait(Role.RESOURCES, "/append", times=2)
        assert quiesce("checkpoint", "--label", "a", "--config", str(config)).exit_code == 0
    return tmp_path


def states(root: Path) -> list[SnapshotState]:
    """What the snapshots under a root are."""
    return [entry.state for entry in SnapshotStore(root).list()]


@pytest.mark.parametrize("number", [INT, TERM], ids=str)
def test_a_drain_that_is_interrupted_is_undone(servers: Deployment, tmp_path: Path, number: signal.Signals) -> None:
    """Nothing is published, everybody accepts work, and the command says that it was interrupted."""
    config = servers.write_config(tmp_path)
    child = started("checkpoint", "--label", "a", "--config", str(config))
    reached(child, root_of(config), "draining")
    child.send_signal(number)
    code, said, err = ended(child)
    assert (code, said["type"]) == (1, "Interrupted")
    assert f"{number.name}: ending well" in err
    assert servers.phases() == {"idle"}
    assert states(root_of(config)) == []


@pytest.mark.parametrize("numbers", [(USR1, TERM, USR1)], ids=str)
def test_a_drain_that_cannot_end_in_the_grace_is_undone_within_it(
    servers: Deployment, tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    """It goes on for as long as there is time for it, however often the end is announced."""
    config = servers.write_config(tmp_path, extra=LAST_CUT.format(grace_s=4.0))
    child = started("checkpoint", "--label", "a", "--config", str(config))
    reached(child, root_of(config), "draining")
    for number in numbers:
        child.send_signal(number)
    code, said, err = ended(child)
    assert (code, said["type"]) == (1, "Interrupted")
    assert "going on for 3 s at most" in err
    assert servers.phases() == {"idle"}


class Barred(threading.Event):
    """A server at which calls of one kind wait until this is set; ``came`` says that one does.

    The first one passes: whoever opens a controller reads everybody once, and knocks once at every route.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, role: Role, path: str) -> None:
        super().__init__()
        self.came = threading.Event()
        noting = Arrivals.noting
        passed: list[str] = []

        def barred(arrivals: Arrivals, here: Role, app: ASGIApp) -> ASGIApp:
            noted = noting(arrivals, here, app)

            async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
                if here is role and str(scope.get("path", "")).endswith(path):
                    if passed:
                        self.came.set()
                        assert await asyncio.to_thread(self.wait, PATIENCE_S)
                    passed.append(path)
                await noted(scope, receive, send)

            return waiting

        monkeypatch.setattr(Arrivals, "noting", barred)


def test_a_second_ctrl_c_at_a_cut_leaves_at_once_and_names_who_is_closed(
    tmp_path: Path, quiesce: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 3, who may be closed and what reopens them; also where the recovery of that is left in the same way."""
    resumes = Barred(monkeypatch, Role.POLICY, "/resume")
    messages = tmp_path / "messages"
    with deployment(latency_s=300) as here:
        here.run("slow", turns=1)
        here.arrivals.wait(Role.POLICY, "/v1/responses")
        config = here.write_config(tmp_path)
        for arguments in (("checkpoint", "--label", "a"), ("recover",)):
            child = started(*arguments, "--config", str(config), messages=messages)
            if arguments == ("recover",):
                assert resumes.came.wait(PATIENCE_S)
            else:
                reached(child, root_of(config), "draining")
            interrupted_twice(child, messages)
            code, said, _ = ended(child)
            err = messages.read_text(encoding="utf-8")
            assert (code, said["type"]) == (3, "Interrupted"), err
            (left,) = said["unsettled"]
            assert (left["kind"], "main/policy_model" in left["touched"]) == ("cut", True)
            assert "closed: `quiesce recover` reopens them" in err
            assert "Traceback" not in err
            resumes.came.clear()
        resumes.set()
        assert quiesce("recover", "--config", str(config)).exit_code == 0
        assert here.phases() == {"idle"}


def test_a_second_ctrl_c_at_a_restore_says_how_to_go_on(
    saved: Path, quiesce: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held closed and not reopened by a recovery: the message names its retry and its abort."""
    came, gate = threading.Event(), threading.Event()

    async def restore_slowly(_tools: Tools, _attempt: AttemptId, _state: Mapping[str, object]) -> None:
        came.set()
        assert await asyncio.to_thread(gate.wait, PATIENCE_S)

    monkeypatch.setattr(Tools, "restore", restore_slowly)
    with deployment(latency_s=0) as here:
        config = here.write_config(saved)
        child = started("restore", "a", "--config", str(config))
        assert came.wait(PATIENCE_S)
        child.send_signal(INT)
        reached(child, root_of(config), "restore_failed", of="restore-*")
        child.send_signal(INT)
        code, said, err = ended(child)
        gate.set()
        assert (code, said["type"]) == (3, "Interrupted"), err
        (left,) = said["unsettled"]
        assert (left["kind"], "main/policy_model" in left["touched"]) == ("restore", True)
        assert "`quiesce recover --retry`" in err
        assert f"`quiesce abort {left['wire_id']}`" in err
        assert "reopens them" not in err


@pytest.mark.parametrize(
    ("state", "number"), [("preflight", INT), ("committing", TERM), ("publishing", INT), ("resuming", TERM)]
)
def test_a_signal_at_any_moment_leaves_everybody_open(
    idle: Deployment, tmp_path: Path, state: str, number: signal.Signals
) -> None:
    """Published whole, or not at all; the exit code tells a success only where it is published."""
    config = idle.write_config(tmp_path)
    child = started("checkpoint", "--label", "a", "--config", str(config))
    reached(child, root_of(config), state)
    child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    assert idle.phases() == {"idle"}
    found = states(root_of(config))
    assert set(found) <= {SnapshotState.VALID}
    # a signal that comes when everything is done and not yet told ends the process as it ends any other
    if child.returncode != -number:
        assert (child.returncode == 0) == json.loads(out.splitlines()[-1])["ok"]
        assert found == [SnapshotState.VALID] or child.returncode == 1


def test_an_announced_end_lets_a_cut_be_finished(idle: Deployment, tmp_path: Path) -> None:
    """There is time enough: the cut is published, and the command has worked."""
    config = idle.write_config(tmp_path, extra=LAST_CUT.format(grace_s=60.0))
    child = started("checkpoint", "--label", "a", "--config", str(config))
    reached(child, root_of(config), "preflight")
    child.send_signal(TERM)
    code, said, _ = ended(child)
    assert (code, said["ok"]) == (0, True)
    assert states(root_of(config)) == [SnapshotState.VALID]
    assert idle.phases() == {"idle"}


def test_a_restore_that_is_interrupted_is_held_closed(
    quiesce: Command, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody runs on half of it; the message says who is closed; an abort reopens them and says whom to restart."""
    gate = threading.Event()

    async def restore_slowly(_tools: Tools, _attempt: AttemptId, _state: Mapping[str, object]) -> None:
        assert await asyncio.to_thread(gate.wait, PATIENCE_S)

    monkeypatch.setattr(Tools, "restore", restore_slowly)
    with deployment(latency_s=0) as here:
        config = here.write_config(saved)
        child = started("restore", "a", "--config", str(config))
        # the policy is, which comes first; the tools cannot be
        reached(child, root_of(config), "restored", of="restore-*")
        child.send_signal(TERM)
        reached(child, root_of(config), "restore_failed", of="restore-*")
        gate.set()
        code, said, err = ended(child)
        assert (code, said["type"]) == (3, "RestoreFailed"), err
        assert "main/policy_model" in said["restored"]
        assert "is held closed" in err
        assert here.capabilities(Role.POLICY)["phase"] != "idle"
        aborted = quiesce("abort", "--config", str(config))
        assert here.phases() == {"idle"}
        assert aborted.exit_code == 3, aborted.output
        assert "main/policy_model must be restarted" in aborted.output


def test_a_restore_that_is_interrupted_before_anybody_is_called_leaves_nothing(
    quiesce: Command, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was only looked who is there: nobody was closed, nobody must be restarted, and nothing is left to abort."""
    root = saved / "root"
    readings = Barred(monkeypatch, Role.RESOURCES, "/capabilities")
    with deployment(latency_s=0) as here:
        config = here.write_config(saved)
        child = started("restore", "a", "--config", str(config))
        reached(child, root, "preflight", of="restore-*")
        child.send_signal(TERM)
        reached(child, root, "aborted", of="restore-*")
        readings.set()
        code, said, err = ended(child)
        assert (code, said["type"]) == (1, "Interrupted"), err
        assert here.phases() == {"idle"}
        aborted = quiesce("abort", "--config", str(config))
        assert (aborted.exit_code, "restarted" in aborted.output) == (0, False), aborted.output


def root_of(config: Path) -> Path:
    """The root that a configuration of the tests names."""
    return config.parent / "root"
