"""``quiesce discover`` where somebody is held, or waits for a restore: by which id, and which command helps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.command import Command, last_object
from support.workload import TOKEN, deployment

from quiesce.controller import Controller
from quiesce.controller.config import load_config
from quiesce.transport.token import StaticTokenProvider


def leave_paused(config: Path) -> str:
    """A controller that goes away inside its cut; the cut's id."""

    async def live() -> str:
        controller = Controller(load_config(config), tokens=StaticTokenProvider(TOKEN))
        await controller.open()
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        await cut.close()
        await controller.close()
        return cut.wire_id

    return asyncio.run(live())


def test_who_is_held_by_a_controller_that_is_gone_is_named_with_what_to_do(quiesce: Command, tmp_path: Path) -> None:
    """With the id and the command; another one where the root knows nothing of the id. Then there is nothing to say."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with deployment() as servers:
        path, stranger = servers.write_config(tmp_path), servers.write_config(elsewhere)
        wire_id = leave_paused(path)
        held = quiesce("discover", "--config", str(path))
        assert held.exit_code == 0
        assert f"cut {wire_id} stands at paused in its journal and holds main/" in held.stdout
        assert "`quiesce recover` finishes it" in held.stdout
        told = last_object(quiesce("discover", "--config", str(stranger), "--json"))
        assert list(told["holding"]) == [wire_id]
        assert any(f"`quiesce abort {wire_id}` reopens them" in note for note in told["notes"])
        assert quiesce("recover", "--config", str(path)).exit_code == 0
        free = last_object(quiesce("discover", "--config", str(path), "--json"))
        assert free["holding"] == {}
        assert not [note for note in free["notes"] if wire_id in note]


def test_who_waits_for_a_restore_is_named(quiesce: Command, tmp_path: Path) -> None:
    """As a server of the kit says it of itself; a cut is refused, with what to do, and nobody is in doubt."""
    with deployment(expects_restore=True) as servers:
        config = ["--config", str(servers.write_config(tmp_path)), "--json"]
        told = last_object(quiesce("discover", *config))
        assert told["waiting"] == ["main/tools"]
        assert any("main/tools waits for a restore" in note for note in told["notes"])
        refused = quiesce("checkpoint", "--label", "step-1", *config)
        assert refused.exit_code == 1
        assert "main/tools waits for a restore" in refused.stderr
        assert last_object(quiesce("list", *config))["snapshots"] == []
