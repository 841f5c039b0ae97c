"""The few file operations that exports and restores need, behind a port, so that a test can make any of them fail.

``OsFiles`` is the real one. Every operation blocks: call it from a worker thread where it can be long. A write is
durable when it returns (wire-protocol 6.6); what is read is bounded.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final, Protocol

__all__ = ["READ_BYTES_MAX", "FilePort", "OsFiles"]

READ_BYTES_MAX: Final = 256 * 1024 * 1024


class FilePort(Protocol):
    """What the kit does with files. All of it may raise OSError; a failed operation leaves no half of itself."""

    def make_directories(self, directory: Path) -> None:
        """Create ``directory`` and what is missing above it, durably. An existing directory is fine."""
        ...

    def write(self, path: Path, content: bytes) -> None:
        """Create or overwrite ``path`` and wait until the content is on the disk."""
        ...

    def append(self, path: Path, content: bytes) -> None:
        """Add ``content`` to the end of ``path``, creating it, in one write and without waiting for the disk."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename ``source`` to ``target`` in one step, over whatever is there."""
        ...

    def remove(self, path: Path) -> None:
        """Delete ``path``. A missing one is fine."""
        ...

    def sync_directory(self, directory: Path) -> None:
        """Wait until the names in ``directory`` are on the disk."""
        ...

    def read(self, path: Path, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The whole of a regular file, of at most ``bytes_max`` bytes.

        Raises: FileNotFoundError; OSError, also where ``path`` is a link or no regular file (``strerror`` says so).
        """
        ...

    def names(self, directory: Path) -> tuple[str, ...]:
        """The names in ``directory``, sorted; none where it does not exist."""
        ...


class OsFiles:
    """The operating system's files."""

    def make_directories(self, directory: Path) -> None:
        missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self.sync_directory(folder.parent)
        if not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "no directory", str(directory))

    def write(self, path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def append(self, path: Path, content: bytes) -> None:
        with path.open("ab", buffering=0) as file:
            start = file.tell()
            if file.write(content) != len(content):
                file.truncate(start)
                raise OSError(errno.ENOSPC, "written in part and taken back", str(path))

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: Path, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        # not blocking, so that a named pipe in a checkpoint directory cannot hang the reader
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, no path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "no regular file", str(path))
            content = file.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", str(path))
        return content

    def names(self, directory: Path) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in directory.iterdir()))
        except FileNotFoundError:
            return ()
