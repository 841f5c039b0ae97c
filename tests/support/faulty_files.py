"""A file system that fails at a chosen operation: the real one behind a counter.

``FaultyFiles(fail_at=n)`` raises at the n-th changing operation (from 1); with ``lasting`` at every one from there on.
``takes_effect`` makes the operation happen first, so that its caller is told of a failure that was none. A write that
fails has written half of its bytes. Syncs only count: no test can pull the plug. ``operations`` lists what was asked
for, so that a test can count first and then fail each in turn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from quiesce.controller.files import FileStatus, LocalFiles, WritableFile

__all__ = ["FaultyFiles"]


class FaultyFiles:
    """Satisfies ``quiesce.controller.files.FileSystem``. Reading operations fail only while ``blind`` is set."""

    def __init__(
        self,
        *,
        fail_at: int | None = None,
        error: int = errno.ENOSPC,
        lasting: bool = False,
        takes_effect: bool = False,
    ) -> None:
        self.fail_at = fail_at
        self.error = error
        self.lasting = lasting
        self.takes_effect = takes_effect
        self.blind = False
        self.operations: list[str] = []
        self._real = LocalFiles()

    def status(self, path: Path) -> FileStatus | None:
        self._look(path)
        return self._real.status(path)

    def names(self, path: Path) -> tuple[str, ...]:
        self._look(path)
        return self._real.names(path)

    def read(self, path: Path, limit: int) -> bytes:
        self._look(path)
        return self._real.read(path, limit)

    def chunks(self, path: Path) -> Iterator[bytes]:
        self._look(path)
        return self._real.chunks(path)

    def make_directory(self, path: Path) -> None:
        self._change("make_directory", path, lambda: self._real.make_directory(path))

    def create(self, path: Path) -> WritableFile:
        created: list[WritableFile] = []
        self._change("create", path, lambda: created.append(self._real.create(path)))
        return _FaultyFile(self, path, created[0])

    def rename(self, source: Path, target: Path) -> None:
        self._change("rename", target, lambda: self._real.rename(source, target))

    def sync_file(self, path: Path) -> None:
        self._change("sync_file", path, _nothing)

    def sync_directory(self, path: Path) -> None:
        self._change("sync_directory", path, _nothing)

    def remove_file(self, path: Path) -> None:
        self._change("remove_file", path, lambda: self._real.remove_file(path))

    def remove_directory(self, path: Path) -> None:
        self._change("remove_directory", path, lambda: self._real.remove_directory(path))

    def _look(self, path: Path) -> None:
        if self.blind:
            raise OSError(self.error, os.strerror(self.error), str(path))

    def _change(
        self, name: str, path: Path, effect: Callable[[], None], half: Callable[[], None] | None = None
    ) -> None:
        self.operations.append(f"{name} {path.name}")
        number = len(self.operations)
        failing = self.fail_at is not None and (number == self.fail_at or (self.lasting and number > self.fail_at))
        if not failing:
            effect()
            return
        if self.takes_effect:
            effect()
        elif half is not None:
            half()
        raise OSError(self.error, os.strerror(self.error), str(path))


def _nothing() -> None:
    """The effect of a sync that nobody can see."""


class _FaultyFile:
    """An open file whose operations are counted with those of its file system."""

    def __init__(self, files: FaultyFiles, path: Path, real: WritableFile) -> None:
        self._files = files
        self._path = path
        self._real = real

    def write(self, content: bytes) -> None:
        self._files._change(
            "write",
            self._path,
            lambda: self._real.write(content),
            half=lambda: self._real.write(content[: len(content) // 2]),
        )

    def sync(self) -> None:
        self._files._change("sync", self._path, _nothing)

    def truncate(self, size: int) -> None:
        self._files._change("truncate", self._path, lambda: self._real.truncate(size))

    def close(self) -> None:
        self._real.close()
