"""An export becomes visible as a whole or not at all, whatever the disk does (rules P1 to P4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import FailingFiles, tree

from quiesce.participants.server.publication import Export, ExportConflict, publish, write_atomically
from quiesce.participants.server.storage import OsFiles

MEMBERS = {"a.json": b"one", "b.json": b"two", "index.jsonl": b""}


def export_into(folder: Path, *, manifest: bytes = b"{}", members: dict[str, bytes] | None = None) -> Export:
    """An export of two records and an index."""
    return Export(folder, MEMBERS if members is None else members, manifest)


def steps_of_a_whole_export(folder: Path) -> list[str]:
    """The changing operations of one export, in order."""
    files = FailingFiles()
    publish(files, export_into(folder))
    return files.operations


def test_the_manifest_comes_last_and_everything_before_it_is_durable(tmp_path: Path) -> None:
    """Files, then the directory, then the manifest, then the directory again; each file by a temporary name."""
    operations = [
        name.replace(name.split()[1], "temporary") if ".partial-" in name else name
        for name in steps_of_a_whole_export(tmp_path / "x")
    ]
    assert operations == [
        "make_directories x",
        *(step for name in MEMBERS for step in ("write temporary", f"replace {name}")),
        "sync_directory x",
        "write temporary",
        "replace manifest.json",
        "sync_directory x",
    ]
    assert tree(tmp_path / "x") == {**MEMBERS, "manifest.json": b"{}"}


@pytest.mark.parametrize("lasting", [True, False])
def test_wherever_the_disk_is_full_there_is_no_manifest_or_a_complete_export(tmp_path: Path, lasting: bool) -> None:  # noqa: FBT001 - a table
    """After a failure at any operation a reader finds no manifest, unless all but the last wait was done."""
    count = len(steps_of_a_whole_export(tmp_path / "whole"))
    assert count == 11
    for fail_at in range(1, count + 1):
        folder = tmp_path / f"{fail_at}"
        with pytest.raises(OSError, match="No space left"):
            publish(FailingFiles(fail_at=fail_at, lasting=lasting), export_into(folder))
        left = tree(folder) if folder.exists() else {}
        assert ("manifest.json" in left) is (fail_at == count)
        assert all(MEMBERS.get(name, b"") == left[name] for name in left if name in MEMBERS)
        publish(OsFiles(), export_into(folder))
        complete = tree(folder)
        assert {name: complete[name] for name in (*MEMBERS, "manifest.json")} == {**MEMBERS, "manifest.json": b"{}"}


def test_a_failed_write_leaves_no_temporary_file_where_it_can_be_removed(tmp_path: Path) -> None:
    """A disk that recovers is not left with parts of files."""
    (tmp_path / "x").mkdir()
    for fail_at in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            write_atomically(FailingFiles(fail_at=fail_at, lasting=False), tmp_path / "x" / "file", b"content")
        assert tree(tmp_path / "x") == {}


def test_a_failed_write_over_a_file_keeps_the_old_one(tmp_path: Path) -> None:
    """A reader sees the old content until the new one is complete."""
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(FailingFiles(fail_at=1), tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_publishing_the_same_again_proves_every_byte_and_waits_for_the_disk(tmp_path: Path) -> None:
    """A repeated commit changes nothing and repeats the last wait, which may be what failed the first time (9, 56)."""
    publish(OsFiles(), export_into(tmp_path))
    files = FailingFiles()
    publish(files, export_into(tmp_path))
    assert files.operations == [f"sync_directory {tmp_path.name}"]


@given(name=st.sampled_from([*MEMBERS, "manifest.json"]), change=st.sampled_from(["missing", "longer", "other"]))
def test_a_committed_folder_that_differs_in_any_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, change: str
) -> None:
    """Nothing is ever written into a folder with a manifest, and what differs is an error."""
    folder = tmp_path_factory.mktemp("export")
    publish(OsFiles(), export_into(folder))
    path = folder / name
    if change == "missing" and name != "manifest.json":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"x" if change == "longer" else b"other")
    before = tree(folder)
    with pytest.raises(ExportConflict):
        publish(OsFiles(), export_into(folder))
    assert tree(folder) == before


def test_leftovers_of_a_failed_export_are_overwritten_or_ignored(tmp_path: Path) -> None:
    """Files without a manifest mean nothing; those that the manifest does not name stay and are not part of it."""
    (tmp_path / "a.json").write_bytes(b"torn")
    (tmp_path / "stray.json").write_bytes(b"stray")
    publish(OsFiles(), export_into(tmp_path))
    assert tree(tmp_path) == {**MEMBERS, "manifest.json": b"{}", "stray.json": b"stray"}


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    """The error is the operating system's, and nothing was written."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        publish(OsFiles(), export_into(tmp_path / "file" / "below"))
    assert tree(tmp_path) == {"file": b""}
