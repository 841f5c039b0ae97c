"""Retention: the newest valid snapshots stay, half of one is never seen, one bad thing keeps nothing else."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_files import FaultyFiles
from support.fleet import Fleet
from support.snapshots import trainer_only, tree_of
from support.virtual_loop import virtual_time
from support.wiretap import Wiretap

from quiesce.controller.catalog import SnapshotState
from quiesce.controller.epoch import Tenure
from quiesce.controller.errors import RootHeld, StorageFailed, Superseded
from quiesce.controller.files import LocalFiles
from quiesce.controller.housekeeping import prune_root
from quiesce.controller.retention import Pruned
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.sweeping import JOURNALS_KEPT_MAX
from quiesce.participants.errors import ConfigurationError


def nobody_else() -> None:
    """A guard that never objects."""


def store_of(root: Path, count: int, files: FaultyFiles | None = None) -> SnapshotStore:
    """A store with snapshots c1 (the oldest) to c<count>; faults begin to count after them."""
    plain = SnapshotStore(root, files=FaultyFiles())
    for number in range(1, count + 1):
        trainer_only(plain, name_of(number), label=f"c{number}", created_at=float(number))
    return SnapshotStore(root, files=files or FaultyFiles())


def name_of(number: int) -> str:
    """The wire id of a snapshot of ``store_of``."""
    return f"c{number}-{number:08x}"


def names(*numbers: int) -> tuple[str, ...]:
    """Several of them."""
    return tuple(name_of(number) for number in numbers)


def prune(store: SnapshotStore, keep: int | None, **more: object) -> Pruned:
    """Prune, with nobody else on the root."""
    return store.prune(keep=keep, guard=nobody_else, **more)  # type: ignore[arg-type]  # keywords of the same call


def valid(store: SnapshotStore) -> list[str]:
    """The valid snapshots, the newest first."""
    return [entry.wire_id for entry in store.list() if entry.state is SnapshotState.VALID]


@given(count=st.integers(0, 6), keep=st.integers(1, 7), torn=st.sets(st.integers(1, 6)))
def test_the_newest_valid_snapshots_stay(count: int, keep: int, torn: set[int]) -> None:
    """So many as are asked for; a torn one is never counted, never removed, and never the reason to lose a good one."""
    with TemporaryDirectory() as folder:
        store = store_of(Path(folder), count)
        bad = sorted(number for number in torn if number <= count)
        for number in bad:
            (store.layout.snapshot(name_of(number)) / "MANIFEST.json").write_bytes(b"{")
        good = [number for number in range(count, 0, -1) if number not in bad]
        pruned = prune(store, keep)
        assert pruned.kept == names(*good[:keep])
        assert set(pruned.removed) == set(names(*good[keep:]))
        assert set(pruned.ignored) == set(names(*bad))
        assert pruned.failed == {}
        assert valid(store) == list(names(*good[:keep]))
        assert all((store.layout.snapshot(name_of(number)) / "MANIFEST.json").exists() for number in bad)
        assert list(store.layout.trash.iterdir() if store.layout.trash.exists() else ()) == []


@pytest.mark.parametrize("keep", [0, -1, True])
def test_the_newest_snapshot_cannot_be_given_up(tmp_path: Path, keep: int) -> None:
    """Keeping none is refused, and nothing changes."""
    store = store_of(tmp_path, 2)
    before = tree_of(tmp_path)
    with pytest.raises(ConfigurationError, match="keep at least 1"):
        prune(store, keep)
    assert tree_of(tmp_path) == before


def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path: Path) -> None:
    """What would be removed is what then is; nothing is created for asking (F-24)."""
    store = store_of(tmp_path, 4)
    store.stage("aborted-00000001", ["main"])
    before = tree_of(tmp_path)
    would = prune(store, 2, dry_run=True)
    assert tree_of(tmp_path) == before
    did = prune(store, 2)
    assert would.removed == did.removed == names(1, 2)
    assert would.swept == did.swept == (".quiesce/staging/aborted-00000001",)
    assert (would.dry_run, did.dry_run) == (True, False)
    assert set(would.to_json()) == {"kept", "removed", "swept", "ignored", "failed", "dry_run"}


class Undeletable(FaultyFiles):
    """Some paths cannot be removed, or not even renamed."""

    def __init__(self, blocks: Callable[[str, Path], bool]) -> None:
        super().__init__()
        self.blocks = blocks

    def _change(
        self, name: str, path: Path, effect: Callable[[], None], half: Callable[[], None] | None = None
    ) -> None:
        if self.blocks(name, path):
            raise OSError(errno.EACCES, "Permission denied", str(path))
        super()._change(name, path, effect, half)


def test_one_thing_that_cannot_be_removed_keeps_nothing_else(tmp_path: Path) -> None:
    """The other six go, the bad one is named and tried again, and it is no snapshot any more meanwhile (F-43)."""
    files = Undeletable(lambda name, path: name == "remove_file" and "/c1-" in str(path))
    store = store_of(tmp_path, 10, files)
    pruned = prune(store, 3)
    assert pruned.kept == names(10, 9, 8)
    assert len(pruned.removed) == 7
    (reason,) = pruned.failed.values()
    assert "Permission denied" in reason
    assert valid(store) == list(names(10, 9, 8))
    assert [entry.state for entry in store.list()] == [SnapshotState.VALID] * 3
    again = prune(store, 3)
    assert len(again.failed) == 1
    files.blocks = lambda _name, _path: False
    assert prune(store, 3).failed == {}
    assert list(store.layout.trash.iterdir()) == []


def test_a_snapshot_that_cannot_be_renamed_away_stays_whole(tmp_path: Path) -> None:
    """It is reported, still counts as what it is, and verifies (F-43)."""
    store = store_of(tmp_path, 3, Undeletable(lambda name, path: name == "rename" and path.name.startswith("c1-")))
    pruned = prune(store, 1)
    assert pruned.removed == names(2)
    assert pruned.kept == names(3, 1)
    assert store.verify(name_of(1)).is_good


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link among the snapshots, or in one, is never a way out of the root (F-43, F-44)."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    store = store_of(tmp_path / "root", 3)
    (store.layout.snapshot(name_of(1)) / "trainer" / "away").symlink_to(outside)
    (store.layout.snapshots / "linked-00000001").symlink_to(store.layout.snapshot(name_of(2)))
    (store.layout.staging / "away-00000001").symlink_to(outside)
    pruned = prune(store, 1)
    assert set(pruned.removed) == set(names(1, 2))
    assert pruned.swept == (".quiesce/staging/away-00000001",)
    assert "linked-00000001" in pruned.ignored
    assert (store.layout.snapshots / "linked-00000001").is_symlink()
    assert (outside / "precious").read_text() == "precious"


def operations() -> int:
    """How many changing operations an undisturbed pruning asks for."""
    with TemporaryDirectory() as folder:
        files = FaultyFiles()
        store = store_of(Path(folder), 4, files)
        store.stage("aborted-00000001", ["main"])
        files.operations.clear()
        prune(store, 2)
        return len(files.operations)


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_fault_at_any_operation_leaves_whole_snapshots(
    tmp_path: Path, error: int, *, lasting: bool, takes_effect: bool
) -> None:
    """Whatever breaks off, what still stands verifies, the newest are there, and the next pruning ends the work."""
    count = operations()
    assert count >= 20
    for number in range(1, count + 1):
        root = tmp_path / str(number)
        files = FaultyFiles(error=error, lasting=lasting, takes_effect=takes_effect)
        store = store_of(root, 4, files)
        SnapshotStore(root, files=FaultyFiles()).stage("aborted-00000001", ["main"])
        files.fail_at = number
        pruned = prune(store, 2)
        healthy = SnapshotStore(root, files=FaultyFiles())
        assert valid(healthy)[:2] == list(names(4, 3))
        assert {entry.state for entry in healthy.list()} == {SnapshotState.VALID}
        assert all(healthy.verify(wire_id).is_good for wire_id in valid(healthy))
        assert set(pruned.kept) == set(valid(healthy))
        assert prune(healthy, 2).failed == {}
        assert valid(healthy) == list(names(4, 3))
        assert list(healthy.layout.trash.iterdir()) == []
        assert list(healthy.layout.staging.iterdir()) == []


def test_whoever_was_superseded_removes_nothing_more(tmp_path: Path) -> None:
    """The tenure is looked at before each step that lasts."""
    store = store_of(tmp_path, 5)
    asked = 0

    def guard() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise Superseded(tmp_path, 1, 2)

    with pytest.raises(Superseded):
        store.prune(keep=1, guard=guard)
    assert valid(store) == list(names(5, 4, 3, 2))


def test_what_is_not_settled_is_protected(tmp_path: Path) -> None:
    """Neither the snapshot that a held restore needs nor what it staged is touched."""
    store = store_of(tmp_path, 3)
    store.stage("held-00000001", ["main"])
    pruned = prune(store, 1, protected=(name_of(1), "held-00000001"))
    assert pruned.removed == names(2)
    assert pruned.swept == ()


def test_a_store_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Nobody knows then what would be removed."""
    files = FaultyFiles()
    store = store_of(tmp_path, 2, files)
    files.blind = True
    with pytest.raises(StorageFailed):
        prune(store, 1)


@virtual_time
async def test_a_cut_keeps_the_newest_and_sweeps_what_aborted_cuts_left(tmp_path: Path) -> None:
    """With keep_latest_k the result says nothing about it; without, every snapshot stays."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        for number in range(4):
            async with controller.cut(f"all-{number}"):
                pass
        assert len(await controller.snapshots()) == 4
    async with fleet.controller(tmp_path, keep_latest_k=2) as controller:
        async with controller.cut("new") as cut:
            pass
        assert cut.result.notes == ()
        assert [entry.label for entry in await controller.snapshots()] == ["new", "all-3"]
        pruned = await controller.prune(keep=1)
        assert len(pruned.removed) == 1
        assert [entry.label for entry in await controller.snapshots()] == ["new"]


@virtual_time
async def test_a_cut_whose_retention_fails_is_a_success_with_a_note(tmp_path: Path) -> None:
    """The snapshot stands and everybody goes on; the note names what could not be removed (F-43)."""
    fleet = Fleet()
    files = Undeletable(lambda name, path: name == "rename" and path.parent.name == "trash")
    async with fleet.controller(tmp_path, files=files, keep_latest_k=1) as controller:
        async with controller.cut("first"):
            pass
        async with controller.cut("second") as cut:
            pass
        (note,) = cut.result.notes
        assert "Permission denied" in note
        assert "tried again after the next cut" in note
        assert controller.store.verify("second").is_good
    assert await fleet.everybody_accepts()


@virtual_time
async def test_a_controller_that_was_taken_over_prunes_nothing(tmp_path: Path) -> None:
    """The tenure is checked before anything goes."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        for number in range(2):
            async with controller.cut(f"c{number}"):
                pass
        (tmp_path / ".quiesce" / "epoch" / "99").mkdir()
        with pytest.raises(Superseded):
            await controller.prune(keep=1)
        assert len(await controller.snapshots()) == 2


@virtual_time
async def test_a_controller_prunes_only_while_it_is_open_and_idle(tmp_path: Path) -> None:
    """In the middle of a cut, or before it was opened, it is refused."""
    fleet = Fleet()
    controller = fleet.controller(tmp_path)
    with pytest.raises(ConfigurationError, match="not open"):
        await controller.prune()
    async with controller, controller.cut("c"):
        with pytest.raises(ConfigurationError, match="is running"):
            await controller.prune()


@virtual_time
async def test_the_snapshot_of_a_held_restore_stays(tmp_path: Path) -> None:
    """A restore that is held closed can still be retried after a pruning, also by somebody without a controller."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        for number in range(3):
            async with controller.cut(f"c{number}"):
                pass
    fresh = Fleet()
    async with fresh.controller(tmp_path) as controller:
        with pytest.raises(ExceptionGroup):
            async with controller.restore("c0"):
                raise ValueError("no such weights")
        await controller.prune(keep=1)
        assert [entry.label for entry in await controller.snapshots()] == ["c2", "c0"]
    pruned = await prune_root(tmp_path, keep=1, clock=fleet.clock)
    assert pruned.removed == ()
    assert any("has not ended, so its snapshot c0-" in reason for reason in pruned.failed.values())
    (journal,) = (tmp_path / ".quiesce" / "journal").glob("restore-*.ndjson")
    journal.write_bytes(b"?" + journal.read_bytes())
    trainer_only(controller.store, "c3-00000003", label="c3", created_at=fleet.clock.now_ts() + 9.0)
    pruned = await prune_root(tmp_path, keep=1, clock=fleet.clock)
    assert pruned.removed == ()
    assert any("no snapshot was removed" in reason for reason in pruned.failed.values())
    journal.unlink()
    assert len((await prune_root(tmp_path, keep=1, clock=fleet.clock)).removed) == 2


@virtual_time
async def test_pruning_calls_nobody_and_takes_the_root(tmp_path: Path) -> None:
    """It is refused while a controller is alive there, except for a dry run (F-24)."""
    fleet = Fleet()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller:
        async with controller.cut("c0"):
            pass
        calls = len(tap.calls)
        with pytest.raises(RootHeld):
            await prune_root(tmp_path, keep=1, clock=fleet.clock)
        assert (await prune_root(tmp_path, keep=1, dry_run=True)).kept != ()
        await controller.prune(keep=1)
        await controller.snapshots()
        assert len(tap.calls) == calls
    tenure = await Tenure.acquire(LocalFiles(), controller.store.layout, fleet.clock)
    await tenure.release()


class IllJournals(FaultyFiles):
    """No journal can be read."""

    def read(self, path: Path, limit: int) -> bytes:
        if path.suffix == ".ndjson":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return super().read(path, limit)


@virtual_time
async def test_what_a_journal_that_cannot_be_read_is_about_is_left(tmp_path: Path) -> None:
    """What was staged for it stays, and somebody without a controller removes no snapshot beside it."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        async with controller.cut("c0"):
            pass
        async with controller.cut("c1") as cut:
            pass
        layout = controller.store.layout
    (layout.staging / cut.wire_id).mkdir()
    pruned = await prune_root(tmp_path, keep=1, clock=fleet.clock, files=IllJournals())
    assert (pruned.removed, pruned.swept) == ((), ())
    assert len(pruned.failed) == 2
    assert all("cannot be read" in reason for reason in pruned.failed.values())
    assert (layout.staging / cut.wire_id).exists()
    assert (await prune_root(tmp_path, keep=1, clock=fleet.clock)).swept == (f".quiesce/staging/{cut.wire_id}",)


@virtual_time
async def test_a_cut_whose_retention_breaks_off_is_a_success_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the root cannot even be read for it, the cut stands all the same (F-43)."""
    fleet = Fleet()

    def ill(*_arguments: object, **_more: object) -> object:
        raise StorageFailed("list the snapshots", tmp_path, OSError(errno.EIO, "Input/output error"))

    async with fleet.controller(tmp_path, keep_latest_k=1) as controller:
        monkeypatch.setattr("quiesce.controller.retention.list_snapshots", ill)
        async with controller.cut("first") as cut:
            pass
        (note,) = cut.result.notes
        assert note.startswith(f"old snapshots were not removed: cannot list the snapshots at {tmp_path}: Input/output")


@virtual_time
async def test_every_cut_sweeps_what_nobody_needs(tmp_path: Path) -> None:
    """Also where every snapshot is kept, neither journals nor folders of cuts that ended pile up."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        async with controller.cut("kept"):
            pass
        layout = controller.store.layout
        (whole,) = [path.read_bytes() for path in layout.journals.iterdir()]
        for number in range(JOURNALS_KEPT_MAX + 5):
            (layout.journals / f"old-{number:08x}.ndjson").write_bytes(whole)
        controller.store.stage("left-00000001", ["main"])
        (layout.trash / "thrown.1").mkdir(parents=True)
        (tmp_path / ".latest.4711.tmp").write_text("half")
        async with controller.cut("next") as cut:
            pass
        assert cut.result.notes == ()
        assert len(list(layout.journals.iterdir())) <= JOURNALS_KEPT_MAX + 2
        assert [*layout.staging.iterdir(), *layout.trash.iterdir()] == []
        assert not (tmp_path / ".latest.4711.tmp").exists()
        assert [entry.label for entry in await controller.snapshots()] == ["next", "kept"]


@virtual_time
async def test_old_journals_are_bounded(tmp_path: Path) -> None:
    """Those of snapshots stay with them; of the others the newest, and whatever has not ended."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        async with controller.cut("kept") as cut:
            pass
        with pytest.raises(ValueError, match="never mind"):
            async with controller.cut("aborted"):
                raise ValueError("never mind")
        journals = controller.store.layout.journals
        (ended,) = [path for path in journals.iterdir() if path.name.startswith("aborted-")]
        whole = ended.read_bytes()
        (journals / "torn-00000000.ndjson").write_bytes(whole[:-20])
        for number in range(JOURNALS_KEPT_MAX + 10):
            (journals / f"old-{number:08x}.ndjson").write_bytes(whole)
        await controller.prune()
        left = {path.name for path in journals.iterdir()}
        assert {f"{cut.wire_id}.ndjson", "torn-00000000.ndjson"} <= left
        assert JOURNALS_KEPT_MAX <= len(left) <= JOURNALS_KEPT_MAX + 2


@virtual_time
async def test_a_clock_that_is_set_back_makes_no_new_snapshot_an_older_one(tmp_path: Path) -> None:
    """What was published last is the newest: ``latest`` means it, and retention keeps it."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        trainer_only(controller.store, "future-00000001", label="future", created_at=fleet.clock.now_ts() + 86_400.0)
    async with fleet.controller(tmp_path, keep_latest_k=1) as controller:
        async with controller.cut("now"):
            pass
        assert controller.store.resolve("latest").manifest.label == "now"
        assert [entry.label for entry in await controller.snapshots()] == ["now"]
    async with fleet.controller(tmp_path, enabled=False) as controller:
        async with controller.cut("trainer-only"):
            pass
        assert controller.store.resolve("latest").manifest.label == "trainer-only"
