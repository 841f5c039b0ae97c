"""A configuration that is not enabled: the trainer's own part is saved and brought back, and nobody is called."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from support.faulty_files import FaultyFiles
from support.fleet import Fleet
from support.virtual_loop import virtual_time
from support.wiretap import Wiretap

from quiesce.controller import PublishUncertain
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError, InvalidIdentity, SnapshotInvalid
from quiesce.participants.identity import AttemptId


@virtual_time
async def test_the_trainers_part_is_saved_and_brought_back_without_a_call(tmp_path: Path) -> None:
    """The same code runs; the snapshot verifies; nobody hears of it."""
    fleet = Fleet()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, enabled=False) as controller:
        async with controller.cut("step-1", metadata={"step": 1}) as cut:
            (cut.directory / "trainer" / "weights").write_text("w")
            assert cut.progress() == {}
        assert controller.store.verify("step-1").is_good
        assert cut.result.rollouts == ()
        async with controller.restore("step-1") as restored:
            assert (restored.directory / "trainer" / "weights").read_text() == "w"
            assert restored.rollouts == ()
            assert await restored.discard([]) == ()
            with pytest.raises(ConfigurationError, match="r0 attempt 0"):
                await restored.discard([AttemptId("r0", 0)])
        assert restored.result.source_wire_id == cut.wire_id
    assert tap.calls == []


@virtual_time
async def test_an_exception_inside_publishes_nothing(tmp_path: Path) -> None:
    """It goes on its way; nothing stays staged; the next cut works."""
    fleet = Fleet()
    async with fleet.controller(tmp_path, enabled=False) as controller:
        with pytest.raises(ValueError, match="the trainer failed"):
            async with controller.cut("step-1"):
                raise ValueError("the trainer failed")
        assert controller.store.list() == ()
        with pytest.raises(SnapshotInvalid):
            await controller.restore("step-1").__aenter__()
        async with controller.cut("step-1"):
            pass
    assert list((tmp_path / ".quiesce" / "staging").iterdir()) == []


@virtual_time
async def test_a_snapshot_with_participants_is_not_restored_without_them(tmp_path: Path) -> None:
    """Half of it would be a run that silently starts anew."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1"):
        pass
    async with fleet.controller(tmp_path, enabled=False) as controller:
        with pytest.raises(ConfigurationError, match="holds the state of 3 participants"):
            await controller.restore("step-1").__aenter__()
        async with controller.cut("step-2"):
            pass


@pytest.mark.parametrize("turn", range(1, 12))
@virtual_time
async def test_a_cancelled_cut_is_published_whole_or_not_at_all(tmp_path: Path, turn: int) -> None:
    """At whatever turn of the loop; nothing stays staged, and the cancellation goes on."""
    fleet = Fleet()
    async with fleet.controller(tmp_path, enabled=False) as controller:

        async def take() -> None:
            async with controller.cut("step-1"):
                pass

        task = asyncio.create_task(take())
        for _ in range(turn):
            await asyncio.sleep(0)
        was_running = task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == was_running
        assert all(controller.store.verify(entry.wire_id).is_good for entry in controller.store.list())
        async with controller.cut("step-2"):
            pass
    assert list((tmp_path / ".quiesce" / "staging").iterdir()) == []


@virtual_time
async def test_what_may_have_been_published_is_kept(tmp_path: Path) -> None:
    """The error says that it is not known; no file is removed."""
    counted = FaultyFiles()
    await one_cut(tmp_path / "clean", counted)
    rename = next(n for n, name in enumerate(counted.operations, start=1) if name.startswith("rename step-1-"))
    files = FaultyFiles(fail_at=rename + 1, error=errno.EIO)
    with pytest.raises(PublishUncertain):
        await one_cut(tmp_path / "root", files)
    async with Fleet().controller(tmp_path / "root", enabled=False) as controller:
        assert controller.store.verify("step-1").is_good


async def one_cut(root: Path, files: FaultyFiles) -> None:
    """A cut with a trainer's file over these files."""
    async with Fleet().controller(root, files=files, enabled=False) as controller, controller.cut("step-1") as cut:
        (cut.directory / "trainer" / "weights").write_text("w")


@virtual_time
async def test_what_is_asked_for_too_early_says_so(tmp_path: Path) -> None:
    """Neither a result before the end nor a directory before the beginning."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        cut, restore = controller.cut("step-1"), controller.restore("step-1")
        for early in (lambda: cut.directory, lambda: cut.wire_id, lambda: cut.result):
            with pytest.raises(ConfigurationError, match="step-1"):
                early()
        for too_early in (lambda: restore.directory, lambda: restore.wire_id, lambda: restore.result):
            with pytest.raises(ConfigurationError, match=r"entered|no result"):
                too_early()
        with pytest.raises(InvalidIdentity, match="label"):
            await controller.begin_cut("../x")
        async with cut:
            with pytest.raises(ConfigurationError, match="no result"):
                _ = cut.result
        assert cut.result.label == "step-1"


@virtual_time
async def test_whom_an_earlier_run_left_paused_is_reopened_all_the_same(tmp_path: Path) -> None:
    """Switched off to get going again: whoever is still held would hang the run; else nobody is called."""
    fleet = Fleet()
    controller = fleet.controller(tmp_path)
    await controller.open()
    cut = await controller.begin_cut("step-1")
    await cut.prepare()
    await cut.close()
    controller._turns.running = None
    await controller.close()
    assert not await fleet.everybody_accepts()
    async with fleet.controller(tmp_path, enabled=False) as controller:
        assert [one.is_settled for one in controller.recovered] == [True]
        assert await fleet.everybody_accepts()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, enabled=False) as controller, controller.cut("step-2"):
        pass
    assert tap.calls == []


@virtual_time
async def test_who_cannot_be_reopened_is_named_and_keeps_nobody_from_saving(tmp_path: Path) -> None:
    """The servers of the earlier run are gone: the trainer's part is saved, and what is open is in the notes."""
    fleet = Fleet()
    network = fleet.transport()
    controller = fleet.controller(tmp_path, transport=network)
    await controller.open()
    cut = await controller.begin_cut("step-1")
    await cut.prepare()
    await cut.close()
    controller._turns.running = None
    await controller.close()
    network.unmount("http://tools")
    async with fleet.controller(tmp_path, transport=network, enabled=False) as controller:
        assert controller.owed == (ParticipantKey("main", "tools"),)
        async with controller.cut("step-2") as saved:
            (saved.directory / "trainer" / "weights").write_text("w")
        assert any("main/tools" in note and cut.wire_id in note for note in saved.result.notes)
        assert controller.store.verify("step-2").is_good
        assert controller.unsettled is not None
