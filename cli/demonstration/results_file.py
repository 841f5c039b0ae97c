"""The trainer's own file: finished results, append-only, each durable before anybody is told that it is kept."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

__all__ = ["ResultsFile"]

NAME: Final = "results.jsonl"


class ResultsFile:
    """One JSON object a line in ``directory``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / NAME
        self.path.touch()
        self._turn = asyncio.Lock()
        self._kept = {str(result["rollout_id"]) for result in self.lines()}

    def __contains__(self, rollout_id: str) -> bool:
        return rollout_id in self._kept

    def lines(self) -> Iterator[dict[str, object]]:
        """Every line, whatever stands in it twice."""
        for line in self.path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)

    async def append(self, result: Mapping[str, object]) -> None:
        """Add a result; it is on the disk when this returns."""
        async with self._turn:
            await asyncio.to_thread(_append, self.path, json.dumps(result, sort_keys=True) + "\n")
            self._kept.add(str(result["rollout_id"]))

    async def copy_into(self, directory: Path) -> None:
        """Put a copy of the file into a folder, which is made if needed."""
        async with self._turn:
            await asyncio.to_thread(_copy, self.path, directory)

    @classmethod
    async def loaded(cls, saved: Path, directory: Path) -> ResultsFile:
        """A file in ``directory`` that begins with what was saved in the folder ``saved``."""
        await asyncio.to_thread(_copy, saved / NAME, directory)
        return cls(directory)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _copy(path: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, directory / NAME)
