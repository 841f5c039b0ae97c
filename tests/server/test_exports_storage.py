"""The real file port: durable, bounded, and not to be led astray."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from quiesce.participants.server.saved import SnapshotDirectory
from quiesce.participants.server.storage import OsFiles

FILES = OsFiles()


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    """Writing overwrites, appending adds, and names are sorted."""
    FILES.write(tmp_path / "b", b"first")
    FILES.write(tmp_path / "b", b"second")
    FILES.append(tmp_path / "a", b"one\n")
    FILES.append(tmp_path / "a", b"two\n")
    assert (FILES.read(tmp_path / "b"), FILES.read(tmp_path / "a")) == (b"second", b"one\ntwo\n")
    assert FILES.names(tmp_path) == ("a", "b")
    assert FILES.names(tmp_path / "nowhere") == ()


def test_a_file_longer_than_the_bound_is_not_taken_in(tmp_path: Path) -> None:
    """Exactly the bound is fine; one byte more is an error that names the bound."""
    FILES.write(tmp_path / "f", b"x" * 10)
    assert len(FILES.read(tmp_path / "f", bytes_max=10)) == 10
    with pytest.raises(OSError, match="larger than 9 bytes") as refused:
        FILES.read(tmp_path / "f", bytes_max=9)
    assert refused.value.errno == errno.EFBIG


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    """A directory, a pipe that nobody writes to and a link are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("pipe", "link"):
        with pytest.raises(OSError):  # noqa: PT011 - which error it is differs between kernels
            FILES.read(tmp_path / name)
    with pytest.raises(OSError):  # noqa: PT011 - as above
        FILES.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        FILES.read(tmp_path / "nothing")


def test_directories_are_made_with_what_is_above_them(tmp_path: Path) -> None:
    """An existing directory is fine; a file in the way is an error."""
    FILES.make_directories(tmp_path / "a" / "b" / "c")
    FILES.make_directories(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        FILES.make_directories(tmp_path / "file")


def test_removing_twice_is_harmless(tmp_path: Path) -> None:
    """A missing file is as good as removed."""
    FILES.write(tmp_path / "f", b"")
    FILES.remove(tmp_path / "f")
    FILES.remove(tmp_path / "f")
    assert FILES.names(tmp_path) == ()


def test_a_snapshot_directory_is_not_left_through_a_link(tmp_path: Path) -> None:
    """A folder below it that leads elsewhere is not followed; the directory itself may be reached by a link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "way").symlink_to(outside)
    (inside / "f").write_bytes(b"own")
    (tmp_path / "link").symlink_to(inside)
    with pytest.raises(OSError, match="leads out"):
        SnapshotDirectory(FILES, inside).read_bytes("way/f", 100)
    assert SnapshotDirectory(FILES, tmp_path / "link").read_bytes("f", 100) == b"own"


def test_what_was_read_once_stays_what_it_was(tmp_path: Path) -> None:
    """What was verified is what is installed, whatever happens to the file meanwhile."""
    (tmp_path / "f").write_bytes(b"verified")
    reader = SnapshotDirectory(FILES, tmp_path)
    assert reader.read_bytes("f", 100) == b"verified"
    (tmp_path / "f").write_bytes(b"exchanged")
    assert reader.read_bytes("f", 100) == b"verified"
