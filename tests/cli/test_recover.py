"""``quiesce recover`` and ``quiesce settle``: over real servers, after a controller that left somebody paused."""

from __future__ import annotations

import asyncio
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from support.command import Command, last_object
from support.servers import closed_port
from support.workload import TOKEN, Deployment, deployment

from quiesce.controller import BlockingController, Controller
from quiesce.controller.config import load_config
from quiesce.fsm.vocabulary import Role
from quiesce.transport.token import StaticTokenProvider


@pytest.fixture
def servers() -> Iterator[Deployment]:
    """Servers on which nothing runs."""
    with deployment() as running:
        yield running


def leave_paused(config: Path) -> str:
    """A controller that goes away inside its cut; the cut's id. It gives its root back, so that nobody waits for it."""

    async def live() -> str:
        controller = Controller(load_config(config), tokens=StaticTokenProvider(TOKEN))
        await controller.open()
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        await cut.close()  # what was under way ends here, and nothing is undone
        await controller.close()
        return cut.wire_id

    return asyncio.run(live())


def test_who_was_left_paused_is_reopened(quiesce: Command, servers: Deployment, tmp_path: Path) -> None:
    """A dry run says who may be paused and touches nobody; then everybody is open, and there is nothing left to do."""
    path = servers.write_config(tmp_path)
    config = ["--config", str(path), "--json"]
    wire_id = leave_paused(path)
    for _ in range(2):
        planned = quiesce("recover", "--dry-run", *config)
        assert planned.exit_code == 3
        (account,) = last_object(planned)["transactions"]
        assert account["live"] is False
        assert (account["wire_id"], account["kind"], account["stood"]) == (wire_id, "cut", "paused")
        assert account["touched"] == ["main/agent", "main/policy_model", "main/tools"]
        assert servers.phases() == {"idle", "prepared"}
    found = quiesce("recover", *config)
    assert found.exit_code == 0, found.stderr
    (told,) = last_object(found)["transactions"]
    assert (told["state"], told["settled"], told["published"], told["owed"]) == ("aborted", True, False, [])
    assert servers.phases() == {"idle"}
    nothing = {"ok": True, "dry_run": False, "transactions": [], "unread": [], "silent": {}}
    assert last_object(quiesce("recover", *config)) == nothing
    assert quiesce("recover", "--dry-run", *config).exit_code == 0
    assert "nothing was left" in quiesce("settle", *config[:2]).stdout


@pytest.mark.parametrize("command", ["recover", "settle"])
def test_who_stays_silent_is_not_taken_for_open(
    quiesce: Command, servers: Deployment, tmp_path: Path, command: str
) -> None:
    """No journal says that it is held, and it does not say that it is not: exit code 3, by name, with what to do."""
    path = servers.write_config(tmp_path, extra="control_timeout_s = 1.0")
    path.write_text(path.read_text().replace(servers.urls[Role.RESOURCES], f"http://127.0.0.1:{closed_port()}"))
    found = quiesce(command, "--config", str(path), "--json")
    assert found.exit_code == 3, found.stdout
    assert list(last_object(found)["silent"]) == ["main/tools"]
    assert "whether a checkpoint holds main/tools is not known" in last_object(found)["error"]
    assert "everybody accepts work" not in quiesce(command, "--config", str(path)).stdout


@pytest.mark.parametrize("command", ["recover", "settle"])
def test_whom_an_id_holds_whose_journal_is_gone_is_named(
    quiesce: Command, servers: Deployment, tmp_path: Path, command: str
) -> None:
    """The participants are asked, since the root knows nothing; exit code 3, until an abort of the id."""
    path = servers.write_config(tmp_path)
    wire_id = leave_paused(path)
    for journal in load_config(path).root.rglob(f"{wire_id}.ndjson"):
        journal.unlink()
    found = quiesce(command, "--config", str(path))
    assert found.exit_code == 3, found.stdout
    assert f"{wire_id} holds main/agent, main/policy_model, main/tools" in found.stderr
    assert f"`quiesce abort {wire_id}`" in found.stderr
    assert quiesce("abort", wire_id, "--config", str(path)).exit_code == 0
    assert quiesce(command, "--config", str(path)).exit_code == 0


@pytest.mark.parametrize("command", [("checkpoint", "--label", "next"), ("settle", "--give-up", "main/agent")])
def test_whatever_error_ends_a_command_somebody_in_doubt_makes_it_3(
    quiesce: Command, servers: Deployment, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Discovery fails first, or somebody is named who is owed nothing: whoever is not settled is named besides."""
    path = servers.write_config(tmp_path, extra="release_timeout_s = 1.0")
    wire_id = leave_paused(path)
    path.write_text(path.read_text().replace(servers.urls[Role.RESOURCES], f"http://127.0.0.1:{closed_port()}"))
    ended = quiesce(*command, "--config", str(path), "--json")
    assert ended.exit_code == 3, ended.stderr
    assert ended.stderr.count(f"besides, {wire_id} is not settled: in doubt after") == 1
    found = last_object(ended)
    assert found["type"] in ("DiscoveryFailed", "NothingOwed")
    assert [sentence for sentence in found["unsettled"] if "main/tools" in sentence]


def test_who_cannot_be_reached_is_in_doubt_until_it_is_given_up(
    quiesce: Command, servers: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3 and its name; the others are open; nobody is given up who is owed nothing.

    It is tried for as long as the configuration says, which a terminal shows.
    """
    path = servers.write_config(tmp_path, extra="release_timeout_s = 3.0")
    wire_id = leave_paused(path)
    moved = path.read_text().replace(servers.urls[Role.RESOURCES], f"http://127.0.0.1:{closed_port()}")
    path.write_text(moved)
    config = ["--config", str(path), "--json"]
    found = quiesce("settle", *config)
    assert found.exit_code == 3
    (told,) = last_object(found)["transactions"]
    assert (told["wire_id"], told["state"], told["owed"]) == (wire_id, "in_doubt_unpublished", ["main/tools"])
    assert servers.capabilities(Role.POLICY)["phase"] == servers.capabilities(Role.AGENT)["phase"] == "idle"
    assert "a controller that stays open does so by itself" in found.stderr
    wrong = quiesce("settle", "--give-up", "agent", *config)
    assert wrong.exit_code == 3
    assert "agent: nothing is owed there, so that nobody was given up" in last_object(wrong)["error"]
    assert "Owed a resume: main/tools" in last_object(wrong)["error"]
    shown: list[str] = []
    terminal = Console(file=_Lines(shown), force_terminal=True, width=100)
    with monkeypatch.context() as patched:
        patched.setattr("quiesce.cli.recovering.Console", lambda **_more: terminal)
        given_up = quiesce("settle", "--give-up", "tools", *config)
    assert given_up.exit_code == 0, given_up.stderr
    assert {word in "".join(shown) for word in ("settle", "main/tools")} == {True}
    (told,) = last_object(given_up)["transactions"]
    assert told["excused"] == {"main/tools": "it was given up by the operator"}
    after = quiesce("recover", *config)
    assert (last_object(after)["transactions"], list(last_object(after)["silent"])) == ([], ["main/tools"])
    assert after.exit_code == 3
    nobody = quiesce("settle", "--give-up", "tools", *config)
    assert (nobody.exit_code, "Nobody is owed a resume" in nobody.stderr) == (2, True)


def test_a_restore_that_was_broken_off_is_held_until_it_is_retried(quiesce: Command, tmp_path: Path) -> None:
    """Exit code 3 and everybody closed, also by a retry that fails; by one that does not everybody goes on."""

    async def leave_restoring(config: Path) -> None:
        controller = Controller(load_config(config), tokens=StaticTokenProvider(TOKEN))
        await controller.open()
        restore = await controller.begin_restore("step-1")
        await restore.restore()
        await restore.close()
        await controller.close()

    with deployment() as servers:
        assert (
            quiesce("checkpoint", "--label", "step-1", "--config", str(servers.write_config(tmp_path))).exit_code == 0
        )
    with deployment(expects_restore=True) as servers:
        path = servers.write_config(tmp_path)
        config = ["--config", str(path), "--json"]
        asyncio.run(leave_restoring(path))
        held = quiesce("recover", *config)
        assert held.exit_code == 3
        (told,) = last_object(held)["transactions"]
        assert (told["kind"], told["state"], told["settled"]) == ("restore", "restore_failed", False)
        assert servers.phases() == {"idle", "restored_paused"}
        away = tmp_path / "away.toml"
        away.write_text(path.read_text().replace(servers.urls[Role.RESOURCES], f"http://127.0.0.1:{closed_port()}"))
        failed = quiesce("recover", "--retry", "--config", str(away), "--json")
        assert failed.exit_code == 3
        (told,) = last_object(failed)["transactions"]
        assert (told["state"], told["settled"]) == ("restore_failed", False)
        assert "Failed: main/tools" in told["problem"]
        assert servers.phases() == {"idle", "restored_paused"}
        retried = quiesce("recover", "--retry", *config)
        assert retried.exit_code == 0, retried.stderr
        assert last_object(retried)["transactions"][0]["state"] == "resumed"
        assert servers.phases() == {"idle"}


def test_a_dry_run_tells_a_cut_that_runs_from_one_that_was_left(
    quiesce: Command, servers: Deployment, tmp_path: Path
) -> None:
    """Who holds the root is alive and its cut goes on; nobody touches it."""
    path = servers.write_config(tmp_path)
    with (
        BlockingController(load_config(path), tokens=StaticTokenProvider(TOKEN)) as controller,
        controller.cut("step-1") as cut,
    ):
        told = quiesce("recover", "--dry-run", "--config", str(path))
        assert told.exit_code == 3
        assert f"cut {cut.wire_id} stands at committed" in told.stdout
        assert f"its controller is alive ({socket.gethostname()}, process {os.getpid()})" in told.stdout
        assert last_object(quiesce("recover", "--dry-run", "--config", str(path), "--json"))["transactions"][0]["live"]
    leave_paused(path)
    left = quiesce("recover", "--dry-run", "--config", str(path))
    assert "its controller is gone, and `quiesce recover` finishes it" in left.stdout
    assert "may be held by step-1-" in left.stderr
    assert quiesce("recover", "--config", str(path)).exit_code == 0


def test_what_cannot_be_read_keeps_nobody_and_is_named_until_it_is_aborted(
    quiesce: Command, servers: Deployment, tmp_path: Path
) -> None:
    """A folder, a link, an empty and a damaged file among the journals: all others are recovered, these are named."""
    path = servers.write_config(tmp_path)
    config = ["--config", str(path), "--json"]
    wire_id = leave_paused(path)
    journals = tmp_path / "root" / ".quiesce" / "journal"
    (journals / "folder.ndjson").mkdir()
    (journals / "link.ndjson").symlink_to("nowhere")
    (journals / "empty.ndjson").touch()
    planned = quiesce("recover", "--dry-run", *config)
    assert planned.exit_code == 3
    assert {one["wire_id"] for one in last_object(planned)["unread"]} == {"empty", "folder", "link"}
    found = quiesce("recover", *config)
    assert found.exit_code == 0, found.stderr
    assert [one["wire_id"] for one in last_object(found)["transactions"]] == [wire_id]
    problems = {one["wire_id"]: one["problem"] for one in last_object(found)["unread"]}
    assert "quiesce abort folder" in problems["folder"]
    assert "quiesce abort link" in problems["link"]
    assert "was moved to empty.ndjson." in problems["empty"]
    assert servers.phases() == {"idle"}
    wire_id = leave_paused(path)
    journal = journals / f"{wire_id}.ndjson"
    journal.write_bytes(b"?" + journal.read_bytes())
    for command in (("recover",), ("settle",), ("abort",), ("abort", "folder"), ("recover", "--dry-run")):
        named = quiesce(*command, *config)
        assert named.exit_code == 3, command
        assert wire_id in named.stderr, command
        assert servers.phases() == {"idle", "prepared"}
    blocked = quiesce("prune", "--keep", "1", *config)
    assert (blocked.exit_code, f"quiesce abort {wire_id}" in blocked.stderr) == (1, True)
    aborted = quiesce("abort", wire_id, *config)
    assert aborted.exit_code == 0, aborted.stderr
    assert servers.phases() == {"idle"}
    assert journal.name in last_object(aborted)["moved_to"]
    assert not journal.exists()
    assert quiesce("abort", "link", *config).exit_code == 0
    assert quiesce("prune", "--keep", "1", *config).exit_code == 0
    assert last_object(quiesce("recover", *config))["unread"] == []


@pytest.mark.parametrize(
    "command", [("recover",), ("recover", "--dry-run"), ("settle",), ("abort",), ("abort", "an-id")]
)
def test_a_root_that_cannot_be_read_is_no_proof(
    quiesce: Command, servers: Deployment, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Nobody knows then whether somebody is held: exit code 3, with what stands in the way."""
    path = servers.write_config(tmp_path)
    (tmp_path / "root" / ".quiesce").mkdir(parents=True)
    (tmp_path / "root" / ".quiesce" / "journal").write_text("no folder")
    told = quiesce(*command, "--config", str(path), "--json")
    assert told.exit_code == 3
    assert "whether somebody is held is not known" in last_object(told)["error"]
    assert "not a directory" in last_object(told)["error"].lower()


@pytest.mark.parametrize("command", [("recover",), ("recover", "--dry-run"), ("settle",), ("abort", "an-id")])
@pytest.mark.parametrize("place", ["root/.quiesce", "root", "link"])
def test_a_root_in_whose_place_something_else_stands_is_no_proof(
    quiesce: Command, servers: Deployment, tmp_path: Path, command: tuple[str, ...], place: str
) -> None:
    """What it had said of whom it holds is not there to be read: that is no root on which nothing ever was."""
    path = servers.write_config(tmp_path)
    if place == "link":
        (tmp_path / "root").symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("no folder")
    told = quiesce(*command, "--config", str(path), "--json")
    assert told.exit_code == 3
    assert "whether somebody is held is not known" in last_object(told)["error"]
    assert str(tmp_path / "root") in last_object(told)["error"]
    if place != "root/.quiesce":
        for asked in (("list",), ("prune", "--keep", "1"), ("prune", "--dry-run"), ("verify", "latest")):
            refused = quiesce(*asked, "--config", str(path), "--json")
            assert (refused.exit_code, last_object(refused)["type"]) == (1, "StorageFailed"), asked
    assert (tmp_path / "root").exists() or place == "link"


class _Lines(io.StringIO):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def write(self, text: str) -> int:
        self._lines.append(text)
        return len(text)
