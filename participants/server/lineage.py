"""Where a model server keeps its lineage: one file of JSON rows a capture key, in memory or in a directory.

The rows are the model server's own; the kit copies them byte for byte into an export (wire-protocol 6.2, 6.4).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.excerpts import escaped
from quiesce.participants.identity import IDENTITY_PATTERN
from quiesce.participants.server.publication import write_atomically
from quiesce.participants.server.storage import FilePort, OsFiles

__all__ = ["DirectoryLineage", "LineageStore", "MemoryLineage"]

SUFFIX: Final = ".lineage.jsonl"
KEY_LENGTH_MAX: Final = 255 - len(SUFFIX)


class LineageStore(Protocol):
    """Lineage by capture key. ``keys`` and ``read`` are also called from a worker thread while nothing is appended."""

    def keys(self) -> frozenset[str]:
        """The capture keys that have a lineage."""
        ...

    def read(self, capture_key: str) -> bytes | None:
        """The lineage of this key, None where there is none."""
        ...

    def append(self, capture_key: str, row: bytes) -> None:
        """Add one row; ``row`` is a JSON object and ends in a line feed."""
        ...

    async def install(self, lineages: Mapping[str, bytes]) -> None:
        """Put restored lineages in, over those of the same keys."""
        ...


class MemoryLineage:
    """Lineage that lives as long as the process."""

    def __init__(self) -> None:
        self._rows: dict[str, list[bytes]] = {}

    def keys(self) -> frozenset[str]:
        return frozenset(self._rows)

    def read(self, capture_key: str) -> bytes | None:
        rows = self._rows.get(capture_key)
        return None if rows is None else b"".join(rows)

    def append(self, capture_key: str, row: bytes) -> None:
        self._rows.setdefault(capture_key, []).append(row)

    async def install(self, lineages: Mapping[str, bytes]) -> None:
        self._rows.update({key: [content] for key, content in lineages.items()})


class DirectoryLineage:
    """Lineage in one directory, a file a capture key; several rows never share a write.

    ``root`` is created when the first row comes. A process that is to be restored needs a directory of its own that
    is empty: a store with other lineage in it is refused (wire-protocol 6.7, 9 number 58).
    """

    def __init__(self, root: Path, *, files: FilePort | None = None) -> None:
        self._root = root
        self._files: FilePort = OsFiles() if files is None else files

    def keys(self) -> frozenset[str]:
        names = self._files.names(self._root)
        return frozenset(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))

    def read(self, capture_key: str) -> bytes | None:
        try:
            return self._files.read(self._path(capture_key))
        except FileNotFoundError:
            return None

    def append(self, capture_key: str, row: bytes) -> None:
        path = self._path(capture_key)
        try:
            self._files.append(path, row)
        except FileNotFoundError:
            self._files.make_directories(self._root)
            self._files.append(path, row)

    async def install(self, lineages: Mapping[str, bytes]) -> None:
        await asyncio.to_thread(self._install, lineages)

    def _install(self, lineages: Mapping[str, bytes]) -> None:
        self._files.make_directories(self._root)
        for key, content in lineages.items():
            write_atomically(self._files, self._path(key), content)
        self._files.sync_directory(self._root)

    def _path(self, capture_key: str) -> Path:
        if len(capture_key) > KEY_LENGTH_MAX or not re.fullmatch(IDENTITY_PATTERN, capture_key):
            raise InvalidIdentity("capture key", f"{escaped(capture_key)} cannot name a file")
        return self._root / f"{capture_key}{SUFFIX}"
