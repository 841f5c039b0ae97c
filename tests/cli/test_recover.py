"""``quiesce recover`` and ``quiesce settle``: over real servers, after a controller that left somebody paused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command, last_object
from support.servers import closed_port
from support.workload import TOKEN, Deployment, deployment

from quiesce.controller import Controller
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
        assert planned.exit_code == 0
        (account,) = last_object(planned)["transactions"]
        assert (account["wire_id"], account["kind"], account["stood"]) == (wire_id, "cut", "paused")
        assert account["touched"] == ["main/agent", "main/policy_model", "main/tools"]
        assert servers.phases() == {"idle", "prepared"}
    found = quiesce("recover", *config)
    assert found.exit_code == 0, found.stderr
    (told,) = last_object(found)["transactions"]
    assert (told["state"], told["settled"], told["published"], told["owed"]) == ("aborted", True, False, [])
    assert servers.phases() == {"idle"}
    assert last_object(quiesce("recover", *config)) == {"ok": True, "dry_run": False, "transactions": []}
    assert "nothing was left" in quiesce("settle", *config[:2]).stdout


def test_who_cannot_be_reached_is_in_doubt_until_it_is_given_up(
    quiesce: Command, servers: Deployment, tmp_path: Path
) -> None:
    """Exit code 3 and its name; the others are open; nobody is given up who is owed nothing."""
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
    wrong = quiesce("settle", "--give-up", "agent", *config)
    assert wrong.exit_code == 2
    assert "main/tools" in last_object(wrong)["error"]
    given_up = quiesce("settle", "--give-up", "tools", *config)
    assert given_up.exit_code == 0, given_up.stderr
    (told,) = last_object(given_up)["transactions"]
    assert told["excused"] == {"main/tools": "it was given up by the operator"}
    assert last_object(quiesce("recover", *config))["transactions"] == []


def test_a_restore_that_was_broken_off_is_held_until_it_is_retried(quiesce: Command, tmp_path: Path) -> None:
    """Exit code 3 and everybody closed; retried under its own id by another program, everybody goes on."""

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
        retried = quiesce("recover", "--retry", *config)
        assert retried.exit_code == 0, retried.stderr
        assert last_object(retried)["transactions"][0]["state"] == "resumed"
        assert servers.phases() == {"idle"}
