"""The snapshot store: published whole or not at all, found by label, and never confused by what lies about."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_files import FaultyFiles
from support.snapshots import CHECKPOINT, FullCut, trainer_only, tree_of

from quiesce.controller.catalog import SnapshotState
from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import LocalFiles
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.messages import Publication
from quiesce.participants.errors import InvalidIdentity, SnapshotInvalid


def store_at(root: Path) -> SnapshotStore:
    """A store that never waits for a network file system."""
    return SnapshotStore(root, recheck_pauses_s=())


def test_a_cut_is_staged_verified_published_and_found(tmp_path: Path) -> None:
    """Before publication there is nothing; afterwards it is found by label, wire id and ``latest``, and verifies."""
    store = store_at(tmp_path / "run")
    cut = FullCut.staged_in(store)
    assert store.published(CHECKPOINT) is Publication.NOT_PUBLISHED
    assert store.list() == ()
    folder = cut.publish()
    assert store.published(CHECKPOINT) is Publication.PUBLISHED
    assert not cut.staged.directory.exists()
    for name in ("step-40", CHECKPOINT, "latest"):
        assert store.resolve(name).directory == folder
        assert store.verify(name).is_good
    assert store.load("step-40").created_at == cut.created_at
    assert (tmp_path / "run" / "latest").read_text() == f"{CHECKPOINT}\n"
    entry = store.list()[0]
    assert (entry.state, entry.label, entry.reason) == (SnapshotState.VALID, "step-40", "")
    assert entry.to_json()["directory"] == str(folder)


def test_the_participants_part_may_be_empty(tmp_path: Path) -> None:
    """Where no control call is made, a snapshot is the trainer's part alone."""
    store = store_at(tmp_path)
    folder = trainer_only(store, "a-00000001", label="a", created_at=1.0)
    assert store.resolve("a").directory == folder
    assert store.verify("a").unhashed == 1


def test_a_label_means_the_newest_valid_snapshot_that_has_it(tmp_path: Path) -> None:
    """By the instant in the manifest, never by the order of folder names or of publication."""
    store = store_at(tmp_path)
    trainer_only(store, "a-ffffffff", label="a", created_at=10.0)
    newest = trainer_only(store, "a-00000001", label="a", created_at=30.0)
    trainer_only(store, "a-88888888", label="a", created_at=20.0)
    trainer_only(store, "b-00000000", label="b", created_at=25.0)
    assert store.resolve("a").directory == store.resolve("latest").directory == newest
    assert [entry.created_at for entry in store.list()] == [30.0, 25.0, 20.0, 10.0]


def test_a_wire_id_comes_before_a_label(tmp_path: Path) -> None:
    """A label that looks like another snapshot's wire id does not hide that snapshot, nor a damaged one."""
    store = store_at(tmp_path)
    exact = trainer_only(store, "a-00000001", label="a", created_at=10.0)
    trainer_only(store, "a-00000001-00000002", label="a-00000001", created_at=20.0)
    assert store.resolve("a-00000001").directory == exact
    (exact / "MANIFEST.json").write_bytes(b"")
    with pytest.raises(SnapshotInvalid, match="a-00000001: is torn"):
        store.resolve("a-00000001")


def test_what_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    """The error lists valid snapshots and the others with what they are."""
    store = store_at(tmp_path)
    with pytest.raises(SnapshotInvalid, match="there is no snapshot in "):
        store.resolve("latest")
    trainer_only(store, "a-00000001", label="a", created_at=10.0)
    (store.layout.snapshots / "left-over").mkdir()
    with pytest.raises(SnapshotInvalid, match=r"valid: a \(a-00000001\); not valid: 'left-over' is incomplete"):
        store.resolve("b")


def spoilt(whole: bytes, how: str, at: int) -> bytes:
    """What became of a manifest; ``at`` is the byte at which it happened."""
    return {
        "cut": whole[:at],
        "padded": whole[:at] + b"\0" * (len(whole) - at),
        "not utf-8": whole[:at] + b"\xff" + whole[at + 1 :],
        "doubled": whole[: at + 1] + whole,
        "blank": b" " * at,
        "wrong shape": b'{"schema_version": 1, "kind": "quiesce.snapshot"}',
        "a list": b"[" + whole + b"]",
        "newer": whole.replace(b'"schema_version": 1', b'"schema_version": 2', 1),
    }[how]


WAYS = ["cut", "padded", "not utf-8", "doubled", "blank", "wrong shape", "a list", "newer"]


@given(how=st.sampled_from(WAYS), at=st.integers(min_value=0, max_value=100_000))
def test_a_torn_manifest_never_confuses_the_store(how: str, at: int) -> None:
    """Whatever became of c3's manifest: latest is c2, c3 is reported and kept, and the next cut works (F-41)."""
    with TemporaryDirectory() as folder:
        store = SnapshotStore(Path(folder), files=FaultyFiles())
        for number in (1, 2, 3):
            trainer_only(store, f"c{number}-0000000{number}", label="c", created_at=float(number))
        path = store.layout.snapshot("c3-00000003") / "MANIFEST.json"
        whole = path.read_bytes()
        content = spoilt(whole, how, at % len(whole))
        path.write_bytes(content)
        for name in ("latest", "c"):
            assert store.resolve(name).wire_id == "c2-00000002"
        assert store.published("c3-00000003") is Publication.NOT_PUBLISHED
        states = {entry.wire_id: entry.state for entry in store.list()}
        assert states["c3-00000003"] is SnapshotState.TORN
        assert list(states)[:2] == ["c2-00000002", "c1-00000001"]
        assert path.read_bytes() == content
        with pytest.raises(SnapshotInvalid, match="c3-00000003: is torn"):
            store.verify("c3-00000003")
        with pytest.raises(StorageFailed, match="stands there already"):
            store.stage("c3-00000003", [])
        trainer_only(store, "c4-00000004", label="c", created_at=4.0)
        assert store.resolve("latest").wire_id == "c4-00000004"


@pytest.mark.parametrize("gone", ["MANIFEST.json", "trainer/step"])
def test_a_half_deleted_snapshot_is_incomplete(tmp_path: Path, gone: str) -> None:
    """A snapshot that lost its manifest or a file of it is not chosen, and is reported."""
    store = store_at(tmp_path)
    trainer_only(store, "a-00000001", label="a", created_at=1.0)
    newest = trainer_only(store, "a-00000002", label="a", created_at=2.0)
    (newest / gone).unlink()
    assert store.resolve("a").wire_id == "a-00000001"
    assert store.list()[1].state is SnapshotState.INCOMPLETE


class _Unreadable(LocalFiles):
    """One manifest cannot be read at the moment."""

    def __init__(self, wire_id: str, error: int) -> None:
        self._wire_id = wire_id
        self._error = error

    def read(self, path: Path, limit: int) -> bytes:
        if path.parent.name == self._wire_id:
            raise OSError(self._error, os.strerror(self._error), str(path))
        return super().read(path, limit)


def test_an_older_snapshot_is_never_taken_silently_for_an_unreadable_newer_one(tmp_path: Path) -> None:
    """A storage error hides which snapshot is the newest: that is said, and a wire id still works."""
    store = store_at(tmp_path)
    older = trainer_only(store, "a-00000001", label="a", created_at=1.0)
    trainer_only(store, "a-00000002", label="a", created_at=2.0)
    ill = SnapshotStore(tmp_path, files=_Unreadable("a-00000002", errno.EIO))
    assert [entry.state for entry in ill.list()] == [SnapshotState.VALID, SnapshotState.UNREADABLE]
    for name in ("latest", "a", "a-00000002"):
        with pytest.raises(SnapshotInvalid, match=r"a-00000002: .*cannot be read: Input/output error"):
            ill.resolve(name)
    assert ill.resolve("a-00000001").directory == older
    assert ill.published("a-00000002") is Publication.UNKNOWN
    too_large = SnapshotStore(tmp_path, files=_Unreadable("a-00000002", errno.EFBIG))
    assert too_large.resolve("a").directory == older


def test_what_does_not_belong_among_snapshots_is_foreign(tmp_path: Path) -> None:
    """A file, a link, a bad name and a copied folder under another name are reported and left alone."""
    store = store_at(tmp_path)
    folder = trainer_only(store, "a-00000001", label="a", created_at=1.0)
    snapshots = store.layout.snapshots
    (snapshots / "file").write_text("")
    (snapshots / "link").symlink_to(folder)
    (snapshots / ".hidden").mkdir()
    folder.rename(snapshots / "copy")
    before = tree_of(tmp_path)
    assert {entry.wire_id: entry.state for entry in store.list()} == dict.fromkeys(
        ["copy", "file", "link", ".hidden"], SnapshotState.FOREIGN
    )
    with pytest.raises(SnapshotInvalid, match="there is no valid snapshot of that name"):
        store.resolve("a")
    assert tree_of(tmp_path) == before


def test_left_overs_do_not_block_the_next_attempt(tmp_path: Path) -> None:
    """Old staging is ignored for another id and refused for its own; so is anything in the final place (F-42)."""
    store = store_at(tmp_path)
    store.stage("a-00000001", ["main"])
    (store.layout.snapshots / "b-00000001").mkdir()
    (store.layout.snapshots / "c-00000001").write_text("")
    before = tree_of(tmp_path)
    for taken in ("a-00000001", "A-00000001", "b-00000001", "c-00000001", "C-00000001"):
        with pytest.raises(StorageFailed, match=r"stands there already.*move it away"):
            store.stage(taken, ["main"])
    assert tree_of(tmp_path) == before
    assert store.stage("a-00000002", ["main"]).deployment("main").is_dir()


def test_publishing_again_is_a_success_only_for_the_same(tmp_path: Path) -> None:
    """The same manifest twice is one snapshot; another one never mixes with what stands there."""
    store = store_at(tmp_path)
    cut = FullCut.staged_in(store)
    manifest = cut.manifest()
    store.publish(cut.staged, manifest)
    before = tree_of(tmp_path)
    store.publish(cut.staged, manifest)
    assert tree_of(tmp_path) == before
    with pytest.raises(StorageFailed, match="something else stands there"):
        store.publish(cut.staged, manifest.model_copy(update={"created_at": 5.0}))
    assert tree_of(tmp_path) == before


def test_a_manifest_of_another_checkpoint_is_not_published(tmp_path: Path) -> None:
    """The manifest's id and the staged one must be the same."""
    store = store_at(tmp_path)
    cut = FullCut.staged_in(store)
    manifest = cut.manifest()
    other = store.stage("other-00000000", ["main"])
    with pytest.raises(SnapshotInvalid, match=f"is of checkpoint {CHECKPOINT}, not of other-00000000"):
        store.publish(other, manifest)


BAD_NAMES = [
    "../x",
    "a/../../x",
    "/etc/passwd",
    "C:\\x",
    "",
    ".",
    "..",
    "x" * 300,
    "a\0b",
    "a\n",
    "\u0430bc",
    "con",
    "aux.txt",
    "a.",
    "a ",
    "%2e%2e%2fx",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_id_that_is_a_path_touches_nothing(tmp_path: Path, name: str) -> None:
    """Every entrance refuses it by its field, escaped and cut, before any I/O (F-44)."""
    store = store_at(tmp_path / "root")
    staged = FullCut.staged_in(store).staged
    before = tree_of(tmp_path)
    for entrance in (
        lambda: store.stage(name, ["main"]),
        lambda: store.stage("fine-00000001", [name]),
        lambda: store.published(name),
        lambda: store.discard(name),
        lambda: store.resolve(name),
        lambda: store.load(name),
        lambda: store.verify(name),
        lambda: staged.deployment(name),
        lambda: store.layout.journal(name),
    ):
        with pytest.raises(InvalidIdentity) as caught:
            entrance()
        assert len(str(caught.value)) < 250
        assert str(caught.value).isprintable()
    assert tree_of(tmp_path) == before


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """Listing, resolving and verifying create and change no file, also where there is no root yet (F-24)."""
    root = tmp_path / "root"
    assert store_at(root).list() == ()
    assert not root.exists()
    store = store_at(root)
    FullCut.staged_in(store).publish()
    watching = FaultyFiles()
    onlooker = SnapshotStore(root, files=watching)
    before = tree_of(root)
    onlooker.list()
    onlooker.resolve("latest")
    onlooker.prove(onlooker.resolve("step-40"))
    onlooker.verify("step-40")
    onlooker.published(CHECKPOINT)
    assert tree_of(root) == before
    assert watching.operations == []


def test_discarding_removes_what_was_staged_and_nothing_else(tmp_path: Path) -> None:
    """A link in it is removed, not what it points to; what is published stays; a second time is no error."""
    store = store_at(tmp_path / "root")
    published = trainer_only(store, "a-00000001", label="a", created_at=1.0)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    staged = store.stage("b-00000001", ["main"])
    (staged.deployment("main") / "link").symlink_to(outside)
    store.discard("b-00000001")
    store.discard("b-00000001")
    store.discard("a-00000001")
    (store.layout.staging / "c-00000001").write_text("a file in its place")
    store.discard("c-00000001")
    assert not (store.layout.staging / "c-00000001").exists()
    assert not staged.directory.exists()
    assert (outside / "precious").exists()
    assert (published / "MANIFEST.json").exists()


def test_a_root_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A parent that is a file, a file in the place of a folder, a full disk: said before anybody is paused."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match=r"prepare the checkpoint root at .*/file/run: .*/file is a file"):
        store_at(tmp_path / "file" / "run").prepare()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "snapshots").write_text("")
    with pytest.raises(StorageFailed, match=r"snapshots is a file, not a directory"):
        store_at(tmp_path / "run").stage("a-00000001", [])
    full = SnapshotStore(tmp_path / "full", files=FaultyFiles(fail_at=1, error=errno.ENOSPC))
    with pytest.raises(StorageFailed, match="the file system is full; free space"):
        full.prepare()


@pytest.mark.parametrize("hashed", [True, False])
def test_a_file_that_differs_is_named(tmp_path: Path, *, hashed: bool) -> None:
    """Each file in turn, one bit changed: verification names it; a trainer's file without digest only by its size."""
    store = SnapshotStore(tmp_path, hash_trainer_files=hashed, recheck_pauses_s=())
    folder = FullCut.staged_in(store).publish()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "MANIFEST.json"):
        whole = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        for content in (whole[:-1] + bytes([whole[-1] ^ 1]) if whole else b"x", whole + b"x", None):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            found = store.verify(CHECKPOINT)
            if content is not None and len(content) == len(whole) and "trainer/" in name and not hashed:
                assert found.is_good
                assert found.unhashed == 1
            else:
                assert [problem.file for problem in found.problems] == [name]
        path.write_bytes(whole)
    assert store.verify(CHECKPOINT).is_good


def test_a_restore_is_refused_with_the_first_file_that_differs(tmp_path: Path) -> None:
    """Proving a snapshot raises, names a file and says how many more there are."""
    store = store_at(tmp_path)
    folder = FullCut.staged_in(store).publish()
    snapshot = store.resolve("step-40")
    store.prove(snapshot)
    for name in ("rollout-x.json", "rollout-y.json"):
        (folder / "deployments" / "main" / name).write_text("{}")
    with pytest.raises(SnapshotInvalid, match=r"rollout-x\.json: is not declared .*1 more files differ"):
        store.prove(snapshot)


def test_verification_tells_how_far_it_is(tmp_path: Path) -> None:
    """Progress rises to the whole number of bytes, and the result counts files and bytes."""
    store = SnapshotStore(tmp_path, hash_trainer_files=True)
    folder = FullCut.staged_in(store).publish()
    told: list[tuple[int, int]] = []
    found = store.verify("latest", progress=lambda done, total: told.append((done, total)))
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "MANIFEST.json"]
    assert (found.files, found.size_bytes, found.unhashed) == (len(sizes), sum(sizes), 0)
    assert told[-1] == (sum(sizes), sum(sizes))
    assert told == sorted(told)
    assert found.to_json()["problems"] == []


def test_a_link_in_a_published_snapshot_is_not_followed(tmp_path: Path) -> None:
    """A file replaced by a link to the same content is a difference: nobody can say what it will hold tomorrow."""
    store = SnapshotStore(tmp_path / "root", hash_trainer_files=True)
    folder = FullCut.staged_in(store).publish()
    path = folder / "trainer" / "optimizer" / "state.bin"
    (tmp_path / "same").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(tmp_path / "same")
    found = store.verify(CHECKPOINT)
    assert "a link, which is never followed" in str(found.problems[0])
    assert store.list()[0].state is SnapshotState.INCOMPLETE


def test_what_the_trainer_cannot_keep_is_refused(tmp_path: Path) -> None:
    """A link or a pipe in the trainer's folder, or a name that cannot be kept, is named with what to do."""
    store = store_at(tmp_path)
    makes: list[tuple[Callable[[Path], object], str]] = [
        (lambda folder: (folder / "best").symlink_to("step-1"), "copy what it stands for"),
        (lambda folder: os.mkfifo(folder / "pipe"), "is a pipe, a socket or a device; only regular files"),
        (lambda folder: (folder / "a\nb").write_text(""), "not printable"),
    ]
    for number, (make, fragment) in enumerate(makes):
        staged = store.stage(f"a-0000000{number}", [])
        make(staged.trainer)
        with pytest.raises(SnapshotInvalid, match=rf"trainer: .*{fragment}"):
            store.trainer_files(staged)


class Meeting(LocalFiles):
    """A file is read only once another one is, too."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(2, timeout=30.0)

    def chunks(self, path: Path) -> Iterator[bytes]:
        self.meeting.wait()
        yield from super().chunks(path)


def test_several_files_are_read_at_once(tmp_path: Path) -> None:
    """Two readers meet at each pair of files; one alone would wait for ever. The result is in the manifest's order."""
    store = SnapshotStore(tmp_path, hash_trainer_files=True)
    cut = FullCut.staged_in(store)
    hashed = sum(1 for path in cut.staged.directory.rglob("*") if path.is_file())
    if hashed % 2:
        (cut.staged.trainer / "one more").write_text("so that they are an even number")
    folder = cut.publish()
    for name in ("a", "b"):
        path = next(folder.rglob(f"*{'continuations' if name == 'a' else 'state'}*"))
        path.write_bytes(bytes(len(path.read_bytes())))
    found = SnapshotStore(tmp_path, files=Meeting()).verify("latest")
    manifest = store.load("latest")
    order = [*(file.path for file in manifest.files), *(file.path for file in manifest.trainer)]
    assert len(found.problems) == 2
    assert [problem.file for problem in found.problems] == sorted(
        (problem.file for problem in found.problems), key=order.index
    )


def test_a_verification_that_is_broken_off_stops_reading(tmp_path: Path) -> None:
    """Ctrl-C, say, comes through at once; no thread reads on."""
    store = SnapshotStore(tmp_path, hash_trainer_files=True)
    FullCut.staged_in(store).publish()

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.verify("latest", progress=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("quiesce-verify")]
