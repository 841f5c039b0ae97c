"""What every command says while a restore holds everybody closed: exit code 3, the restore by name, what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.command import Command, last_object
from support.workload import TOKEN, Deployment, deployment

from quiesce.cli.workload.tools import Tools
from quiesce.controller import BlockingController, Controller
from quiesce.controller.config import load_config
from quiesce.fsm.vocabulary import Role
from quiesce.participants.identity import AttemptId
from quiesce.transport.token import StaticTokenProvider

TOKENS = StaticTokenProvider(TOKEN)


@dataclass(frozen=True)
class Held:
    """A restore whose controller went away inside it, and its servers, which it holds closed."""

    servers: Deployment
    config: Path
    wire_id: str

    @property
    def snapshot(self) -> Path:
        """Where the snapshot stands that it restores."""
        (found,) = (self.config.parent / "root" / "snapshots").glob("step-1-*")
        return found


async def _leave_restoring(config: Path) -> str:
    controller = Controller(load_config(config), tokens=TOKENS)
    await controller.open()
    restore = await controller.begin_restore("step-1")
    await restore.restore()
    await restore.close()  # what was under way ends here, and nothing is undone
    await controller.close()
    return restore.wire_id


@pytest.fixture
def held(quiesce: Command, tmp_path: Path) -> Iterator[Held]:
    """Everybody is restored and closed, and nobody is alive who would go on with it."""
    with deployment(latency_s=0.2) as servers:
        config = servers.write_config(tmp_path)
        servers.run("live", turns=20)
        servers.arrivals.wait(Role.RESOURCES, "/append", times=2)
        assert quiesce("checkpoint", "--label", "step-1", "--config", str(config)).exit_code == 0
    with deployment(expects_restore=True) as servers:
        config = servers.write_config(tmp_path)
        yield Held(servers, config, asyncio.run(_leave_restoring(config)))


def damage(snapshot: Path, how: str) -> None:
    """Make a snapshot one that is none."""
    manifest = snapshot / "MANIFEST.json"
    if how == "torn":
        manifest.write_bytes(manifest.read_bytes()[:200])
    elif how == "incomplete":
        manifest.unlink()


@pytest.mark.parametrize("how", ["no such label", "torn", "incomplete"])
def test_a_restore_that_is_refused_names_the_one_that_holds_everybody(quiesce: Command, held: Held, how: str) -> None:
    """Whatever it was refused for: nobody may take exit code 1, which says that everybody accepts work, for true."""
    damage(held.snapshot, how)
    name = "nosuch" if how == "no such label" else "step-1"
    refused = quiesce("restore", name, "--config", str(held.config), "--json")
    assert "snapshot" in last_object(refused)["error"]
    assert refused.exit_code == 3, refused.stderr
    (sentence,) = last_object(refused)["unsettled"]
    assert f"restore {held.wire_id} stood at restored and may hold main/agent, main/policy" in sentence
    assert f"`quiesce abort {held.wire_id}`" in sentence
    assert f"besides, {sentence}" in refused.stderr
    assert held.servers.phases() == {"idle", "restored_paused"}


def test_a_live_controller_that_holds_a_restore_is_no_proof_either(quiesce: Command, held: Held) -> None:
    """It waits for a person, unlike a cut that runs, which ends by itself and changes no exit code."""
    asked = ("restore", "nosuch", "--config", str(held.config))
    with BlockingController(load_config(held.config), tokens=TOKENS):
        beside = quiesce(*asked)
        assert (beside.exit_code, held.wire_id in beside.stderr) == (3, True)
        assert "until they are restarted" in quiesce("abort", held.wire_id, "--config", str(held.config)).stderr
    with deployment() as servers:
        servers.write_config(held.config.parent)
        with (
            BlockingController(load_config(held.config), tokens=TOKENS) as controller,
            controller.cut("step-2") as cut,
        ):
            beside = quiesce(*asked)
            assert (beside.exit_code, cut.wire_id in beside.stderr) == (1, False)


@pytest.mark.parametrize("why", ["damaged", "another topology"])
def test_why_a_restore_in_the_place_of_another_is_refused_is_said(quiesce: Command, held: Held, why: str) -> None:
    """Everybody was restarted, so it may take the place of the held one; what keeps it from that comes first."""
    with deployment(expects_restore=True) as servers:
        config = servers.write_config(held.config.parent)
        if why == "damaged":
            (held.snapshot / "extra").touch()
        else:
            config.write_text("\n".join(line for line in config.read_text().splitlines() if '"judge"' not in line))
        refused = quiesce("restore", "step-1", "--config", str(config), "--json")
        assert refused.exit_code == 3, refused.stderr
        told = last_object(refused)
        assert ("extra" if why == "damaged" else "judge") in told["error"]
        assert held.wire_id not in told["error"]
        (sentence,) = told["unsettled"]
        assert held.wire_id in sentence


def test_a_restore_that_fails_in_the_place_of_another_is_the_one_that_is_aborted(
    quiesce: Command, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the one that it was to replace, of which nobody holds anything any more."""

    async def refuse(_tools: Tools, _attempt: AttemptId, _state: Mapping[str, object]) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(Tools, "restore", refuse)
    with deployment() as servers:
        config = servers.write_config(held.config.parent)
        failed = quiesce("restore", "step-1", "--if-failed", "abort", "--config", str(config), "--json")
        assert failed.exit_code == 3, failed.stderr
        told = last_object(failed)
        assert (told["type"], told["wire_id"] != held.wire_id) == ("HalfRestored", True)
        assert "restored_paused" not in servers.phases()


@pytest.mark.parametrize("stands", ["", "torn"])
def test_a_dry_run_says_what_ends_a_restore_that_is_held(quiesce: Command, held: Held, stands: str) -> None:
    """A recovery alone finishes nothing of it. Where its snapshot is gone it cannot be gone on with either."""
    damage(held.snapshot, stands)
    config = ["--config", str(held.config)]
    planned = quiesce("recover", "--dry-run", *config)
    assert planned.exit_code == 3
    assert "finishes it" not in planned.stdout
    assert f"(`quiesce abort {held.wire_id}`)" in planned.stdout
    assert ("`quiesce recover --retry`" in planned.stdout) is (stands == "")
    assert ("cannot be retried" in planned.stdout) is (stands == "torn")
    assert quiesce("recover", *config).exit_code == 3
    if not stands:
        assert quiesce("recover", "--retry", *config).exit_code == 0
    quiesce("abort", held.wire_id, *config)
    assert held.servers.phases() == {"idle"}
