"""A root on a full file system: whoever cannot take it leaves no trace, and pruning makes room there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.faulty_files import FaultyFiles
from support.fleet import Fleet
from support.snapshots import trainer_only
from support.virtual_loop import VirtualClock, virtual_time

from quiesce.controller.epoch import Tenure, highest_epoch
from quiesce.controller.errors import RootHeld, RootNotGivenBack, StorageFailed, Superseded
from quiesce.controller.files import LocalFiles, WritableFile
from quiesce.controller.housekeeping import prune_root
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.snapshots import SnapshotStore


class Full(LocalFiles):
    """No file can be made while nothing was removed; a folder neither, where ``is_brimful``."""

    def __init__(self, *, is_brimful: bool = False) -> None:
        self.is_full = True
        self.is_brimful = is_brimful

    def create(self, path: Path) -> WritableFile:
        if self.is_full:
            raise _no_space(path)
        return super().create(path)

    def make_directory(self, path: Path) -> None:
        if self.is_full and self.is_brimful:
            raise _no_space(path)
        super().make_directory(path)

    def remove_file(self, path: Path) -> None:
        super().remove_file(path)
        self.is_full = False


def _no_space(path: Path) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


async def used(root: Path) -> RootLayout:
    """A root with three snapshots that a controller has given back."""
    store = SnapshotStore(root)
    for number in range(1, 4):
        trainer_only(store, f"c{number}-{number:08x}", label=f"c{number}", created_at=float(number))
    await (await taken(store.layout)).release()
    return store.layout


async def taken(layout: RootLayout) -> Tenure:
    """The root, held."""
    return await Tenure.acquire(LocalFiles(), layout, VirtualClock())


def claims(layout: RootLayout) -> list[str]:
    """Which numbers stand there."""
    return sorted(path.name for path in layout.epochs.iterdir() if path.name.isdecimal())


@virtual_time
async def test_a_claim_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Wherever it fails before its holder stands there, also on a root of which nothing is there yet."""
    layout = await used(tmp_path / "used")
    counting = FaultyFiles()
    await (await Tenure.acquire(counting, layout, VirtualClock())).release()
    until = counting.operations.index("rename holder.json") + 1
    for at in range(1, until + 1):
        before = claims(layout)
        for place in (layout, RootLayout(tmp_path / f"new-{at}")):
            with pytest.raises(StorageFailed):
                await Tenure.acquire(FaultyFiles(fail_at=at), place, VirtualClock())
        assert claims(layout) == before
        assert highest_epoch(LocalFiles(), RootLayout(tmp_path / f"new-{at}")) == 0
        # nobody who comes later waits for it
        began_s = VirtualClock().monotonic()
        await (await taken(layout)).release()
        assert VirtualClock().monotonic() == began_s


@virtual_time
async def test_a_holder_that_may_stand_there_is_left(tmp_path: Path) -> None:
    """A rename that took effect although it failed: somebody may have seen it, so that its number is not used again."""
    layout = await used(tmp_path)
    counting = FaultyFiles()
    await (await Tenure.acquire(counting, layout, VirtualClock())).release()
    at = counting.operations.index("rename holder.json") + 1
    with pytest.raises(StorageFailed):
        await Tenure.acquire(FaultyFiles(fail_at=at, takes_effect=True), layout, VirtualClock())
    later = await taken(layout)
    assert later.epoch == 4
    await later.release()


@virtual_time
async def test_pruning_makes_room_on_a_full_file_system(tmp_path: Path) -> None:
    """Nothing can be written before something is removed; afterwards the root is given back as ever."""
    layout = await used(tmp_path)
    fleet = Fleet()
    with pytest.raises(StorageFailed, match=r"free space there \(`quiesce prune"):
        await fleet.controller(tmp_path, files=Full()).open()
    pruned = await prune_root(tmp_path, keep=1, clock=VirtualClock(), files=Full())
    assert (pruned.removed, pruned.failed) == (("c1-00000001", "c2-00000002"), {})
    began_s = VirtualClock().monotonic()
    await (await taken(layout)).release()
    assert VirtualClock().monotonic() == began_s


@virtual_time
async def test_pruning_that_frees_nothing_leaves_no_claim(tmp_path: Path) -> None:
    """It is tried again as often as one likes."""
    layout = await used(tmp_path)
    before = claims(layout)
    for _ in range(2):
        assert (await prune_root(tmp_path, keep=3, clock=VirtualClock(), files=Full())).removed == ()
        assert claims(layout) == before


@virtual_time
async def test_where_not_even_a_folder_can_be_made_it_is_said_what_may_go(tmp_path: Path) -> None:
    """By its path, the oldest first, and nothing that pruning would keep."""
    layout = await used(tmp_path)
    with pytest.raises(StorageFailed) as caught:
        await prune_root(tmp_path, keep=2, clock=VirtualClock(), files=Full(is_brimful=True))
    (note,) = caught.value.__notes__
    assert f"rm -r {layout.snapshot('c1-00000001')}" in note
    assert "c2-" not in note
    with pytest.raises(StorageFailed) as caught:
        await prune_root(tmp_path, keep=3, clock=VirtualClock(), files=Full(is_brimful=True))
    assert not hasattr(caught.value, "__notes__")


@virtual_time
async def test_a_claim_that_came_to_nothing_is_no_holder(tmp_path: Path) -> None:
    """A controller that was killed between its claim and its holder's file: whoever was before it counts."""
    layout = await used(tmp_path)
    for number in (2, 3):
        (layout.epochs / str(number)).mkdir()
    assert len((await prune_root(tmp_path, keep=1, clock=VirtualClock())).removed) == 2


@virtual_time
async def test_whoever_was_killed_before_such_a_claim_is_still_recovered_first(tmp_path: Path) -> None:
    """Also where the holder's file is damaged, or the folders before it are gone: it did begin then."""
    layout = await used(tmp_path)
    holder = await taken(layout)
    (layout.epochs / "3").mkdir()
    with pytest.raises(RootNotGivenBack) as caught:
        await prune_root(tmp_path, keep=1, clock=VirtualClock())
    (note,) = caught.value.__notes__
    assert "where `quiesce recover` finds no space, remove by hand" in note
    assert f"`rm -r {layout.snapshot('c1-00000001')}`" in note
    with pytest.raises(Superseded):
        holder.check()
    (layout.epochs / "3" / "holder.json").write_text("{")
    with pytest.raises(RootNotGivenBack, match="epoch 3"):
        await prune_root(tmp_path, keep=1, clock=VirtualClock())
    (layout.epochs / "3" / "holder.json").unlink()
    await holder.release()
    layout.holder(2).unlink()
    (layout.epochs / "2").rmdir()
    with pytest.raises(RootNotGivenBack, match="epoch 3"):
        await prune_root(tmp_path, keep=1, clock=VirtualClock())


@virtual_time
async def test_whoever_prunes_a_full_root_holds_it_by_its_number_alone(tmp_path: Path) -> None:
    """A controller that comes meanwhile takes over, and pruning stops at the next thing; of two never both go on."""
    layout = await used(tmp_path)
    pruning = await Tenure.acquire(Full(), layout, VirtualClock(), to_make_room=True)
    pruning.check()
    with pytest.raises(StorageFailed):
        await Tenure.acquire(Full(), layout, VirtualClock())
    pruning.check()
    controller = await taken(layout)
    with pytest.raises(Superseded):
        pruning.check()
    controller.check()
    await pruning.release()
    controller.check()
    await controller.release()


@virtual_time
async def test_room_that_was_made_shows_who_holds_the_root(tmp_path: Path) -> None:
    """From the first beat after it on."""
    layout = await used(tmp_path)
    files = Full()
    pruning = await Tenure.acquire(files, layout, VirtualClock(), to_make_room=True)
    files.is_full = False
    with pytest.raises(RootHeld):
        await taken(layout)
    pruning.check()
    await pruning.release()
