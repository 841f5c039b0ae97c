"""The file port: durable writes are all or nothing, links are never followed, limits hold."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_files import FaultyFiles

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import (
    FileKind,
    FileStatus,
    LocalFiles,
    hash_file,
    make_directories,
    remove_tree,
    storage_errors,
    walk,
    write_durably,
)

FILES = LocalFiles()


@given(
    fail_at=st.integers(min_value=1, max_value=6),
    takes_effect=st.booleans(),
    error=st.sampled_from([errno.ENOSPC, errno.EIO, errno.EROFS]),
)
def test_a_durable_write_is_all_or_nothing(fail_at: int, error: int, *, takes_effect: bool) -> None:
    """Whichever operation fails, a reader sees the old or the new content whole, and the next write works."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        write_durably(FILES, path, b"old content")
        files = FaultyFiles(fail_at=fail_at, error=error, takes_effect=takes_effect)
        try:
            write_durably(files, path, b"new content")
        except OSError:
            assert path.read_bytes() in {b"old content", b"new content"}
        else:
            assert path.read_bytes() == b"new content"
        write_durably(FILES, path, b"newest")
        assert path.read_bytes() == b"newest"
        assert [entry.name for entry in Path(folder).iterdir()] == ["f"]


def test_every_step_of_a_durable_write_is_there(tmp_path: Path) -> None:
    """Write, sync, rename, sync of the directory, in this order (wire-protocol 6.6 P1)."""
    files = FaultyFiles()
    write_durably(files, tmp_path / "f", b"x")
    assert [operation.split()[0] for operation in files.operations] == [
        "create",
        "write",
        "sync",
        "rename",
        "sync_directory",
    ]


def test_links_are_seen_and_not_followed(tmp_path: Path) -> None:
    """A link is a link to every operation: it is not read, not written through, not entered, only itself removed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    link = FileStatus(FileKind.LINK, len(str(outside / "secret")))
    assert FILES.status(root / "file") == link
    assert [name for name, _ in walk(FILES, root)] == ["file", "folder"]
    for refused in (
        lambda: FILES.read(root / "file", 100),
        lambda: FILES.create(root / "file"),
        lambda: hash_file(FILES, root / "file"),
        lambda: FILES.sync_file(root / "file"),
        lambda: FILES.sync_directory(root / "folder"),
    ):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory|File exists"):
            refused()
    remove_tree(FILES, root)
    assert (outside / "secret").read_text() == "secret"


def test_what_stands_at_a_path_is_told_apart(tmp_path: Path) -> None:
    """File, directory, pipe and nothing, also below something that is no directory."""
    (tmp_path / "f").write_bytes(b"12345")
    os.mkfifo(tmp_path / "p")
    assert FILES.status(tmp_path / "f") == FileStatus(FileKind.FILE, 5)
    assert FILES.status(tmp_path / "f" / "x") is None
    assert FILES.status(tmp_path / "none") is None
    directory, pipe = FILES.status(tmp_path), FILES.status(tmp_path / "p")
    assert directory is not None
    assert pipe is not None
    assert (directory.kind, pipe.kind) == (FileKind.DIRECTORY, FileKind.OTHER)


def test_a_file_over_its_limit_is_refused(tmp_path: Path) -> None:
    """Exactly the limit is read, one byte more is not."""
    (tmp_path / "f").write_bytes(b"x" * 100)
    assert len(FILES.read(tmp_path / "f", 100)) == 100
    with pytest.raises(OSError, match="larger than 99 bytes"):
        FILES.read(tmp_path / "f", 99)


def test_directories_are_made_where_they_are_missing(tmp_path: Path) -> None:
    """Several levels at once, a second time without harm, and not through a file."""
    make_directories(FILES, tmp_path / "a" / "b" / "c")
    make_directories(FILES, tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "a" / "f").write_text("")
    with pytest.raises(NotADirectoryError, match="a/f is a file, not a directory"):
        make_directories(FILES, tmp_path / "a" / "f" / "g")


def test_a_tree_without_end_is_refused(tmp_path: Path) -> None:
    """Too deep a nesting is an error, not a recursion."""
    (tmp_path / "/".join("d" * 40)).mkdir(parents=True)
    with pytest.raises(OSError, match="nested deeper than 32"):
        list(walk(FILES, tmp_path))


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.ENOTDIR, "no directory stands in the way"),
        (errno.EIO, "I/O error"),
        (9999, "check the file system"),
    ],
)
def test_a_storage_error_says_what_where_and_what_to_do(error: int, advice: str) -> None:
    """The operation, the path and the remedy are in the text; number and path are attributes."""
    path = Path("/shared/run")
    pattern = rf"cannot write the manifest at /shared/run: .*{advice}"
    with pytest.raises(StorageFailed, match=pattern) as caught, storage_errors("write the manifest", path):
        raise OSError(error, os.strerror(error))
    assert (caught.value.errno, caught.value.path) == (error, path)
