"""The file port: the few operations on files that the controller needs, so that tests can fail each of them.

Everything here is synchronous and keeps no state; a caller on an event loop goes through ``asyncio.to_thread``. Links
are never followed below the root of the checkpoints: a link that a participant or anybody else has put there is seen
as a link (:attr:`FileKind.LINK`) and refused by whoever meets it. The root itself, and what stands above it, may be a
link; it is followed by whoever asks for that (:func:`reached`). Operations raise plain ``OSError``;
:func:`storage_errors` turns those into :class:`~quiesce.controller.errors.StorageFailed`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from quiesce.controller.errors import StorageFailed

__all__ = [
    "FileKind",
    "FileStatus",
    "FileSystem",
    "LocalFiles",
    "WritableFile",
    "hash_file",
    "is_there",
    "make_directories",
    "reached",
    "remove_tree",
    "storage_errors",
    "walk",
    "write_durably",
]

CHUNK_BYTES: Final = 1 << 20
DEPTH_MAX: Final = 32
"""Deepest nesting that :func:`walk` enters; an export has at most five levels."""


class FileKind(StrEnum):
    """What stands at a path, without following a link."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"

    @property
    def in_words(self) -> str:
        """For a sentence: what it *is*."""
        return "a pipe, a socket or a device" if self is FileKind.OTHER else f"a {self.value}"


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Kind and size in bytes of what stands at a path, and when it was last changed, in Unix seconds."""

    kind: FileKind
    size: int
    modified_ts: float = field(default=0.0, compare=False)


class WritableFile(Protocol):
    """An open file that only grows."""

    def write(self, content: bytes) -> None:
        """Append all of ``content``. After an error any part of it may have been written."""
        ...

    def sync(self) -> None:
        """Return when everything written is on stable storage."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file back to ``size`` bytes."""
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """What the controller does with files. Every method raises ``OSError`` and nothing else."""

    def status(self, path: Path) -> FileStatus | None:
        """What stands there, or None where there is nothing (or a parent is no directory)."""
        ...

    def names(self, path: Path) -> tuple[str, ...]:
        """Names in a directory, sorted."""
        ...

    def read(self, path: Path, limit: int) -> bytes:
        """The whole file, of at most ``limit`` bytes; a larger one is refused with ``EFBIG``."""
        ...

    def chunks(self, path: Path) -> Iterator[bytes]:
        """The whole file, piece by piece."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make one directory; its parent exists, it does not."""
        ...

    def create(self, path: Path) -> WritableFile:
        """Make a new empty file; nothing stands there yet."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or a directory in one step. A file at ``target`` is replaced."""
        ...

    def sync_file(self, path: Path) -> None:
        """Return when a file that somebody else wrote is on stable storage."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on stable storage."""
        ...

    def remove_file(self, path: Path) -> None:
        """Remove a file or a link (never what it points to)."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        ...


class _LocalFile:
    """A file descriptor that only grows."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalFiles:
    """The real file system."""

    def status(self, path: Path) -> FileStatus | None:
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStatus(_kind(found.st_mode), found.st_size, found.st_mtime)

    def names(self, path: Path) -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in path.iterdir()))

    def read(self, path: Path, limit: int) -> bytes:
        with _opened(path) as descriptor:
            content = b"".join(_pieces(descriptor, limit + 1))
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
        return content

    def chunks(self, path: Path) -> Iterator[bytes]:
        with _opened(path) as descriptor:
            while piece := os.read(descriptor, CHUNK_BYTES):
                yield piece

    def make_directory(self, path: Path) -> None:
        path.mkdir()

    def create(self, path: Path) -> WritableFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        return _LocalFile(os.open(path, flags, 0o666))

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def sync_file(self, path: Path) -> None:
        with _opened(path) as descriptor:
            os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        with _opened(path, os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)

    def remove_file(self, path: Path) -> None:
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        path.rmdir()


def hash_file(files: FileSystem, path: Path, *, read: Callable[[int], object] | None = None) -> tuple[str, int]:
    """SHA-256 (64 lower-case hex digits) and size in bytes of a file, without holding it in memory.

    ``read`` is told the size of each piece that was read.
    """
    digest = hashlib.sha256()
    size = 0
    for piece in files.chunks(path):
        digest.update(piece)
        size += len(piece)
        if read is not None:
            read(len(piece))
    return digest.hexdigest(), size


def is_there(files: FileSystem, directory: Path) -> bool:
    """Whether something stands in a directory's place; where not, one could be made there.

    Raises:
        OSError: something above it is no directory (``ENOTDIR``), or a link that leads nowhere.
    """
    if files.status(directory) is not None:
        return True
    for above in directory.parents:
        found = files.status(above)
        if found is not None:
            _check_directory(files.status(reached(files, above)), above)
            return False
    return False


def _check_directory(found: FileStatus | None, path: Path) -> None:
    if found is not None and found.kind is not FileKind.DIRECTORY:
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is {found.kind.in_words}, not a directory", str(path))


def make_directories(files: FileSystem, path: Path) -> None:
    """Make a directory and those above it that are missing, and make their names durable.

    Raises:
        OSError: also when something that is no directory stands in the way (``ENOTDIR``), or a link that leads nowhere.
    """
    found = files.status(path)
    if found is not None:
        if found.kind is FileKind.LINK:
            reached(files, path)
            return
        _check_directory(found, path)
        return
    if path.parent != path:
        make_directories(files, path.parent)
    try:
        files.make_directory(path)
    except FileExistsError:
        return  # another process made it first; a file in its place shows at the first use
    files.sync_directory(reached(files, path.parent))


def reached(files: FileSystem, path: Path) -> Path:
    """A directory itself, or the one that a link in its place stands for: a link has no names that could be synced.

    Raises:
        OSError: the link leads nowhere (``ENOENT``), or in a circle (``ELOOP``).
    """
    found = files.status(path)
    if found is None or found.kind is not FileKind.LINK:
        return path
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        target = os.path.realpath(path)
        words = f"{path} is a link to {target}, and nothing stands there"
        raise FileNotFoundError(errno.ENOENT, words, str(path)) from None


def write_durably(files: FileSystem, path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or what was there before, also after a crash.

    Temporary name beside it, write, sync, rename, sync of the directory (wire-protocol 6.6 P1). On an error the
    temporary file is removed if that works.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _remove_if_there(files, temporary)
    try:
        _write_and_sync(files, temporary, content)
        files.rename(temporary, path)
    except OSError:
        _remove_quietly(files, temporary)
        raise
    files.sync_directory(path.parent)


def remove_tree(files: FileSystem, path: Path) -> None:
    """Remove a directory and everything below it; a link is removed, never what it points to.

    Raises:
        OSError: something could not be removed. What could be is gone; a second call goes on.
    """
    for name in files.names(path):
        found = files.status(path / name)
        if found is not None and found.kind is FileKind.DIRECTORY:
            remove_tree(files, path / name)
        elif found is not None:
            files.remove_file(path / name)
    files.remove_directory(path)


def walk(files: FileSystem, top: Path) -> Iterator[tuple[str, FileStatus]]:
    """Everything below a directory that is no directory: (path relative to ``top`` with ``/``, status), sorted.

    Links are reported, never entered.

    Raises:
        OSError: an entry cannot be read, or the tree is deeper than 32 levels (``ELOOP``).
    """
    yield from _walk(files, top, "", 0)


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a StorageFailed that says what was done, where, and what helps."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(doing, path, error) from error


def _walk(files: FileSystem, directory: Path, prefix: str, depth: int) -> Iterator[tuple[str, FileStatus]]:
    if depth > DEPTH_MAX:
        raise OSError(errno.ELOOP, f"nested deeper than {DEPTH_MAX} directories", str(directory))
    for name in files.names(directory):
        found = files.status(directory / name)
        if found is None:
            continue
        if found.kind is FileKind.DIRECTORY:
            yield from _walk(files, directory / name, f"{prefix}{name}/", depth + 1)
        else:
            yield prefix + name, found


def _write_and_sync(files: FileSystem, path: Path, content: bytes) -> None:
    file = files.create(path)
    try:
        file.write(content)
        file.sync()
    finally:
        file.close()


def _remove_if_there(files: FileSystem, path: Path) -> None:
    if files.status(path) is not None:
        files.remove_file(path)


def _remove_quietly(files: FileSystem, path: Path) -> None:
    try:
        _remove_if_there(files, path)
    except OSError:
        return  # the error that led here is the one to report; the left-over is swept by the next write


def _kind(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    if stat.S_ISLNK(mode):
        return FileKind.LINK
    return FileKind.OTHER


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    # without O_NONBLOCK a pipe that somebody put in the place of a file would hang the open
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pieces(descriptor: int, count: int) -> Iterator[bytes]:
    """At most ``count`` bytes from a descriptor."""
    while count > 0 and (piece := os.read(descriptor, min(count, CHUNK_BYTES))):
        count -= len(piece)
        yield piece
