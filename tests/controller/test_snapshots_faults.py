"""The snapshot store when storage fails or participants lie: nothing half published, nothing good lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_files import FaultyFiles
from support.snapshots import CHECKPOINT, FullCut, trainer_only, tree_of

from quiesce.controller.catalog import SnapshotState
from quiesce.controller.errors import PublishUncertain, StorageFailed
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.messages import Publication
from quiesce.participants.artefact_writing import sha256_hex
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import record_name

OLD = "old-00000001"


def root_with_an_old_snapshot(root: Path, files: FaultyFiles) -> SnapshotStore:
    """A store whose latest snapshot is a good one; the faults begin to count after it."""
    trainer_only(SnapshotStore(root, files=FaultyFiles()), OLD, label="old", created_at=1.0)
    return SnapshotStore(root, files=files, recheck_pauses_s=())


def operations_of_a_cut() -> list[str]:
    """Every changing operation of a whole cut, from staging to publication."""
    files = FaultyFiles()
    with TemporaryDirectory() as folder:
        FullCut.staged_in(root_with_an_old_snapshot(Path(folder), files)).publish()
    return files.operations


OPERATIONS = operations_of_a_cut()
RENAME = OPERATIONS.index(f"rename {CHECKPOINT}") + 1
"""The number of the operation that publishes."""


def test_a_cut_has_the_operations_that_the_sweep_relies_on() -> None:
    """The manifest is written and synced before the rename, the parent is synced after it, the hint comes last."""
    before, after = OPERATIONS[: RENAME - 1], OPERATIONS[RENAME:]
    written = before.index("rename MANIFEST.json")
    assert before[written - 1].startswith("sync .MANIFEST.json.")
    assert before[-1] == f"sync_directory {CHECKPOINT}"
    assert "sync_file state.bin" in before
    assert "sync_directory deployments" in before
    assert after[0] == "sync_directory snapshots"
    assert after[-2] == "rename latest"


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("number", range(1, len(OPERATIONS) + 1))
def test_a_fault_at_any_operation(
    tmp_path: Path, number: int, error: int, *, takes_effect: bool, lasting: bool
) -> None:
    """Each operation in turn: before the rename nothing is published; from it on all of it is, or it is uncertain."""
    files = FaultyFiles(fail_at=number, error=error, takes_effect=takes_effect, lasting=lasting)
    store = root_with_an_old_snapshot(tmp_path, files)
    outcome: StorageFailed | None = None
    try:
        FullCut.staged_in(store).publish()
    except StorageFailed as failed:
        outcome = failed
    files.fail_at = None
    hint = (tmp_path / "latest").read_text().strip()
    if number < RENAME or (number == RENAME and not takes_effect):
        assert outcome is not None
        assert not isinstance(outcome, PublishUncertain)
        assert outcome.errno == error
        assert store.published(CHECKPOINT) is Publication.NOT_PUBLISHED
        assert store.resolve("latest").wire_id == hint == OLD
        assert [entry.state for entry in store.list()] == [SnapshotState.VALID]
    else:
        is_uncertain = number == RENAME + 1 or (number == RENAME and lasting)
        assert isinstance(outcome, PublishUncertain) is is_uncertain
        assert outcome is None or is_uncertain
        assert store.published(CHECKPOINT) is Publication.PUBLISHED
        assert store.resolve("latest").wire_id == CHECKPOINT
        assert store.verify(CHECKPOINT).is_good
        assert hint in {OLD, CHECKPOINT}
    assert store.verify(OLD).is_good


@given(number=st.integers(min_value=1, max_value=len(OPERATIONS)), takes_effect=st.booleans())
def test_after_a_fault_the_same_cut_can_be_published(number: int, *, takes_effect: bool) -> None:
    """A fault while publishing leaves what a second try of the same needs; a fault before that, a discard."""
    with TemporaryDirectory() as folder:
        files = FaultyFiles(fail_at=number, takes_effect=takes_effect)
        store = root_with_an_old_snapshot(Path(folder), files)
        try:
            cut = FullCut.staged_in(store)
        except StorageFailed:
            store.discard(CHECKPOINT)
            cut = FullCut.staged_in(store)
        for _ in range(2):
            try:
                cut.publish()
            except (StorageFailed, SnapshotInvalid):
                if store.published(CHECKPOINT) is Publication.PUBLISHED:
                    break
        assert store.resolve("latest").wire_id == CHECKPOINT
        assert store.verify(CHECKPOINT).is_good


class _BlindAfterRename(FaultyFiles):
    """The rename answers with an error, and then nothing can be read either."""

    def rename(self, source: Path, target: Path) -> None:
        is_publication = target.name == CHECKPOINT
        self.fail_at = len(self.operations) + 1 if is_publication else None
        self.blind = is_publication
        super().rename(source, target)


@pytest.mark.parametrize("takes_effect", [False, True])
def test_what_cannot_be_read_back_is_uncertain_and_settled_later(tmp_path: Path, *, takes_effect: bool) -> None:
    """While the folder cannot be read the outcome is unknown and the files are kept; later looking tells (F-45)."""
    files = _BlindAfterRename(error=errno.ETIMEDOUT, takes_effect=takes_effect)
    store = root_with_an_old_snapshot(tmp_path, files)
    cut = FullCut.staged_in(store)
    with pytest.raises(PublishUncertain, match=f"publish the snapshot at .*{CHECKPOINT}"):
        cut.publish()
    assert store.published(CHECKPOINT) is Publication.UNKNOWN
    files.blind, files.fail_at = False, None
    settled = Publication.PUBLISHED if takes_effect else Publication.NOT_PUBLISHED
    assert store.published(CHECKPOINT) is settled
    kept = store.layout.snapshot(CHECKPOINT) if takes_effect else cut.staged.directory
    assert len([path for path in kept.rglob("*") if path.is_file()]) > 9


def _delete(cut: FullCut, path: Path) -> None:
    del cut
    path.unlink()


def _truncate(cut: FullCut, path: Path) -> None:
    del cut
    path.write_bytes(path.read_bytes()[:-1])


def _flip(cut: FullCut, path: Path) -> None:
    del cut
    content = path.read_bytes()
    path.write_bytes(content.replace(b"job7.r3", b"job7.r4"))


def _link(cut: FullCut, path: Path) -> None:
    same = cut.path(cut.export("tools"), "same.json")
    same.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(same)


def _link_folder(cut: FullCut, path: Path) -> None:
    elsewhere = cut.staged.directory.parent / "elsewhere"
    path.parent.rename(elsewhere)
    path.parent.symlink_to(elsewhere)


def _pipe(cut: FullCut, path: Path) -> None:
    del cut
    path.unlink()
    path.mkdir()


LIES: dict[str, tuple[Callable[[FullCut, Path], None], str]] = {
    "missing": (_delete, "does not exist"),
    "short": (_truncate, "not JSON|digest"),
    "changed": (_flip, "has digest"),
    "link": (_link, "a link, which is never followed"),
    "linked folder": (_link_folder, "a link, which is never followed"),
    "no file": (_pipe, "a directory, not a file"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_export_that_lies_is_not_published(tmp_path: Path, lie: str) -> None:
    """Participant, file and reason are named, and the folder is not published (F-46)."""
    spoil, reason = LIES[lie]
    cut = FullCut.staged_in(root_with_an_old_snapshot(tmp_path, FaultyFiles()))
    agent = cut.export("solver_agent")
    spoil(cut, cut.path(agent, record_name(AttemptId("job7.r3", 0))))
    with pytest.raises(SnapshotInvalid, match=rf"main/solver_agent: agent/instance-.*: .*({reason})"):
        cut.publish()
    assert cut.store.resolve("latest").wire_id == OLD


def test_a_digest_in_upper_case_is_the_same_digest(tmp_path: Path) -> None:
    """How a participant writes its digest does not matter (F-46)."""
    cut = FullCut.staged_in(root_with_an_old_snapshot(tmp_path, FaultyFiles()))
    tools = cut.export("tools")
    tools.receipt = replace(tools.receipt, manifest_digest=tools.receipt.manifest_digest.upper())
    assert len(cut.verify(tools)) == 2


LATE: dict[str, tuple[Callable[[FullCut], object], str]] = {
    "an undeclared file": (
        lambda cut: cut.path(cut.export("tools"), "core.1234").write_text("core"),
        r"core\.1234: is not declared",
    ),
    "a file that still grows": (
        lambda cut: cut.path(cut.export("tools"), "manifest.json").write_bytes(b"x" * 999),
        "has 999 bytes, expected",
    ),
    "a trainer's file that still grows": (
        lambda cut: (cut.staged.trainer / "optimizer" / "state.bin").write_bytes(b"more"),
        "has 4 bytes, expected 22",
    ),
    "a file that went away": (
        lambda cut: cut.path(cut.export("tools"), "manifest.json").unlink(),
        "does not exist",
    ),
}


@pytest.mark.parametrize("what", LATE)
def test_what_changes_after_verification_is_noticed_at_publication(tmp_path: Path, what: str) -> None:
    """The folder must hold exactly the verified files at the moment of publication."""
    spoil, reason = LATE[what]
    cut = FullCut.staged_in(root_with_an_old_snapshot(tmp_path, FaultyFiles()))
    manifest = cut.manifest()
    spoil(cut)
    with pytest.raises(SnapshotInvalid, match=reason):
        cut.store.publish(cut.staged, manifest)
    assert cut.store.published(CHECKPOINT) is Publication.NOT_PUBLISHED
    assert not (cut.staged.directory / "MANIFEST.json").exists()


def test_names_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    """Two files of the trainer that some file systems would mix up are not published, though both are declared."""
    cut = FullCut.staged_in(root_with_an_old_snapshot(tmp_path, FaultyFiles()))
    (cut.staged.trainer / "optimizer" / "State.bin").write_bytes(b"another state")
    with pytest.raises(SnapshotInvalid, match=r"state\.bin: differs from '.*State\.bin' in case only"):
        cut.publish()


def test_a_file_that_shows_late_is_waited_for_within_bounds(tmp_path: Path) -> None:
    """A network file system may show a file late: it is looked for again, a fixed number of times (F-46)."""
    waits: list[float] = []
    store = SnapshotStore(tmp_path, files=FaultyFiles(), recheck_pauses_s=(0.2, 0.8), sleep=waits.append)
    cut = FullCut.staged_in(store)
    path = cut.path(cut.export("tools"), "manifest.json")
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(SnapshotInvalid, match="does not exist"):
        cut.verify(cut.export("tools"))
    assert waits == [0.2, 0.8]

    def appear(_seconds: float) -> None:
        path.write_bytes(content)

    store._sleep = appear
    assert cut.verify(cut.export("tools"))[-1].sha256 == sha256_hex(content)


def test_a_failed_cut_leaves_the_old_snapshot_as_it_was(tmp_path: Path) -> None:
    """Staging, a refused publication and a discard change no byte of what is published."""
    store = root_with_an_old_snapshot(tmp_path, FaultyFiles())
    before = tree_of(store.layout.snapshots)
    cut = FullCut.staged_in(store)
    cut.path(cut.export("tools"), "manifest.json").unlink()
    with pytest.raises(SnapshotInvalid):
        cut.publish()
    store.discard(CHECKPOINT)
    assert tree_of(store.layout.snapshots) == before
    assert tree_of(store.layout.staging) == {}
