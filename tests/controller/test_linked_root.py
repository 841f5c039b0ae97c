"""A root that is a link, or stands behind one, is as good as any; a link in it, or one to nothing, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fleet import Fleet
from support.virtual_loop import virtual_time

from quiesce.controller import Controller, StorageFailed
from quiesce.controller.files import LocalFiles


def linked(tmp_path: Path, *, below: str = "") -> Path:
    """A root behind a link to an empty folder; nothing stands there yet."""
    (tmp_path / "real").mkdir()
    (tmp_path / "checkpoints").symlink_to("real")
    return tmp_path / "checkpoints" / below


def names(directory: Path) -> list[str]:
    """What stands in a directory."""
    return [path.name for path in directory.iterdir()]


async def cuts(controller: Controller, count: int) -> None:
    """So many cuts in a row, none of which has anything to remark."""
    for number in range(count):
        async with controller.cut(f"cut-{number}") as cut:
            (cut.directory / "trainer" / "weights").write_text("w")
        assert cut.result.notes == ()


@pytest.mark.parametrize("below", ["", "run", "run/1"], ids=["the root itself", "above it", "further above"])
@virtual_time
async def test_a_cut_is_taken_kept_and_restored_behind_a_link(tmp_path: Path, below: str) -> None:
    """On the real file system: also the hint, retention, what an earlier cut left, and the next controller."""
    root = linked(tmp_path, below=below)
    fleet = Fleet()
    await fleet.seed_session("r0")
    async with fleet.controller(root, files=LocalFiles(), keep_latest_k=1) as controller:
        await cuts(controller, 2)
    (root / ".latest.4711.tmp").write_text("half")
    fresh = Fleet()
    async with fresh.controller(root, files=LocalFiles()) as controller:
        pruned = await controller.prune()
        assert (pruned.swept, pruned.failed) == ((".latest.4711.tmp",), {})
        assert controller.store.verify("cut-1").is_good
        assert [entry.label for entry in await controller.snapshots()] == ["cut-1"]
        async with controller.restore("latest") as restored:
            assert (restored.directory / "trainer" / "weights").read_text() == "w"
    assert (tmp_path / "real" / below / "latest").read_text().startswith("cut-1-")
    assert (tmp_path / "checkpoints").is_symlink()
    assert await fleet.everybody_accepts()
    assert await fresh.everybody_accepts()


@pytest.mark.parametrize("below", ["", "run"], ids=["the root itself", "above it"])
@virtual_time
async def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, below: str) -> None:
    """With what it is a link to; nothing is made in its place, and once that is there it works."""
    root = linked(tmp_path, below=below)
    (tmp_path / "real").rmdir()
    fleet = Fleet()
    with pytest.raises(StorageFailed, match=r"checkpoints is a link to .*/real, and nothing stands there"):
        await fleet.controller(root, files=LocalFiles()).open()
    assert names(tmp_path) == ["checkpoints"]
    (tmp_path / "real").mkdir()
    async with fleet.controller(root, files=LocalFiles()) as controller:
        await cuts(controller, 1)


@pytest.mark.parametrize("name", ["snapshots", ".quiesce", ".quiesce/staging", ".quiesce/journal"])
@virtual_time
async def test_a_link_in_the_root_is_refused_before_anybody_is_called(tmp_path: Path, name: str) -> None:
    """What would be renamed or synced through it is somewhere else; nothing there is touched."""
    elsewhere, place = tmp_path / "elsewhere", tmp_path / "root" / name
    elsewhere.mkdir()
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere)
    fleet = Fleet()
    with pytest.raises(StorageFailed, match=f"{name} is a link, and only the root itself may be one"):
        await fleet.controller(tmp_path / "root", files=LocalFiles()).open()
    assert names(elsewhere) == []
    assert await fleet.everybody_accepts()
