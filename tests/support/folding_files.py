"""A file system that keeps the case of names and does not tell them apart by it, as on macOS, on Windows, over SMB."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

from quiesce.controller.files import FileStatus, LocalFiles, WritableFile

__all__ = ["FoldingFiles"]


class FoldingFiles:
    """Satisfies ``quiesce.controller.files.FileSystem``: every name means whatever stands there in any case."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._real = LocalFiles()

    def _found(self, path: Path) -> Path:
        """The path as it stands on the disk; names that stand nowhere stay as they are."""
        found = self._top
        for part in path.relative_to(self._top).parts:
            names = [entry.name for entry in found.iterdir()] if found.is_dir() else []
            found /= next((name for name in names if name.casefold() == part.casefold()), part)
        return found

    def status(self, path: Path) -> FileStatus | None:
        return self._real.status(self._found(path))

    def names(self, path: Path) -> tuple[str, ...]:
        return self._real.names(self._found(path))

    def read(self, path: Path, limit: int) -> bytes:
        return self._real.read(self._found(path), limit)

    def chunks(self, path: Path) -> Iterator[bytes]:
        return self._real.chunks(self._found(path))

    def make_directory(self, path: Path) -> None:
        self._real.make_directory(self._found(path))

    def create(self, path: Path) -> WritableFile:
        return self._real.create(self._found(path))

    def rename(self, source: Path, target: Path) -> None:
        found = self._found(target)
        if found.is_dir() and any(found.iterdir()):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(target))
        self._real.rename(self._found(source), found)

    def sync_file(self, path: Path) -> None:
        self._real.sync_file(self._found(path))

    def sync_directory(self, path: Path) -> None:
        self._real.sync_directory(self._found(path))

    def remove_file(self, path: Path) -> None:
        self._real.remove_file(self._found(path))

    def remove_directory(self, path: Path) -> None:
        self._real.remove_directory(self._found(path))
