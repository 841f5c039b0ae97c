"""The journal of one transaction: an append-only file with one JSON record a line.

Each line carries a sequence number without gaps and a checksum over its own bytes, so that a reader can tell a torn
tail from a whole record. Writing and syncing happen in a thread of its own, never on the event loop and never behind
other work. Records without barrier are written in groups; a barrier is one sync for everything before it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import (
    FileSystem,
    LocalFiles,
    WritableFile,
    make_directories,
    storage_errors,
    write_durably,
)
from quiesce.controller.journal_lines import Line, OpenedLine, SavedRecord, is_whole, read_line, sealed
from quiesce.controller.records import Excuse, JournalRecord

__all__ = ["DAMAGED_SUFFIX", "JOURNAL_SUFFIX", "JournalFile", "JournalReading", "read_journal"]

JOURNAL_SUFFIX: Final = ".ndjson"
DAMAGED_SUFFIX: Final = ".damaged"
"""What is added to the name under which a journal that was damaged in its middle is kept to be looked at."""
JOURNAL_BYTES_MAX: Final = 1 << 30
RECORDS_WAITING_MAX: Final = 200_000
"""Records that may wait for a storage that takes none; a thousand participants make some ten thousand a cut."""


@dataclass(frozen=True, slots=True)
class JournalReading:
    """What a journal holds: its lines up to the first damage.

    Attributes:
        lines: every line that can be believed.
        damage: which line is the first that cannot, and why; empty for none.
        is_torn: whether the damage is that of a tail which was being written: no whole line comes after it.
        length: bytes of the lines.
    """

    lines: tuple[Line, ...]
    damage: str = ""
    is_torn: bool = False
    length: int = 0

    @property
    def records(self) -> tuple[SavedRecord, ...]:
        """The steps."""
        return tuple(line for line in self.lines if isinstance(line, SavedRecord))

    @property
    def opened(self) -> OpenedLine | None:
        """What the transaction is about; None where the first line cannot be believed or was never written."""
        first = self.lines[0] if self.lines else None
        return first if isinstance(first, OpenedLine) else None


@dataclass(slots=True)
class _Tail:
    """The end of the file that is not proven durable: its lines, and how many of them were written without error.

    Touched by the writing thread alone while it flushes.
    """

    file: WritableFile | None = None
    is_named: bool = False
    durable_bytes: int = 0
    lines: list[bytes] = field(default_factory=list)
    written: int = 0
    is_torn: bool = False


class JournalFile:
    """A journal being written. It belongs to the event loop in which it is first appended to.

    Nothing is created before the first record. See :class:`~quiesce.controller.records.RecordPort` for the contract.

    A journal that is taken over is not appended to but put in the place of the old one, with everything in it that can
    be believed: whoever wrote the old one and still has it open, writes where nobody reads.

    Args:
        path: where it is.
        files: the file port.
        heading: the line that comes before the first record: what the transaction is about, or who takes it over.
        guard: asked in the writing thread before each write; what it raises ends the write.
        before: what was read of the journal that is taken over; None for a new one.
    """

    def __init__(
        self,
        path: Path,
        *,
        files: FileSystem | None = None,
        heading: Mapping[str, object] | None = None,
        guard: Callable[[], None] | None = None,
        before: JournalReading | None = None,
    ) -> None:
        self._path = path
        self._files: FileSystem = files or LocalFiles()
        self._guard = guard
        self._before = before
        self._tail = _Tail()
        self._queued: list[bytes] = []
        self._barriers: list[asyncio.Future[None]] = []
        self._written: list[asyncio.Future[None]] = []
        self._sequence = len(before.lines) if before is not None else 0
        self._heading = heading
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quiesce-journal")

    @property
    def path(self) -> Path:
        """Where the journal is."""
        return self._path

    async def append(self, record: JournalRecord, *, barrier: bool) -> None:
        """Write a record down (see RecordPort).

        Raises:
            StorageFailed: it could not be made durable (barrier only), or too many records wait already.
        """
        await self._append(record.to_json(), barrier=barrier)

    async def decide(self, records: Sequence[JournalRecord]) -> None:
        """Write records down, or take them back (see RecordPort). Nobody else appends meanwhile.

        Raises:
            StorageFailed: they could not be made durable.
        """
        before = self._sequence + (self._heading is not None)
        try:
            for place, record in enumerate(records, start=1):
                await self.append(record, barrier=place == len(records))
        except StorageFailed:
            self._take_back(self._sequence - before)
            raise

    def _take_back(self, count: int) -> None:
        """Forget the last lines, none of which is durable; what stands of them in the file is cut by the next write."""
        for lines in (self._queued, self._tail.lines):
            taken = min(count, len(lines))
            del lines[len(lines) - taken :]
            self._sequence -= taken
            count -= taken

    async def excuse(self, excuse: Excuse) -> None:
        """Write an excuse down (see RecordPort).

        Raises:
            StorageFailed: it could not be made durable.
        """
        await self._append(excuse.to_json(), barrier=True)

    async def _append(self, fields: Mapping[str, object], *, barrier: bool) -> None:
        if self._closing:
            raise RuntimeError(f"the journal {self._path} is closed")
        if len(self._queued) >= RECORDS_WAITING_MAX:
            full = OSError(errno.ENOBUFS, f"{RECORDS_WAITING_MAX} records wait already")
            raise StorageFailed("add to the journal", self._path, full)
        if self._heading is not None:
            heading, self._heading = self._heading, None
            self._queue(heading)
        self._queue(fields)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name=f"journal {self._path.name}")
            self._writer.add_done_callback(self._writer_ended)
        self._wake.set()
        if barrier:
            await self._barrier()

    def _queue(self, fields: Mapping[str, object]) -> None:
        self._sequence += 1
        self._queued.append(sealed(self._sequence, fields))

    async def close(self) -> None:
        """Make everything durable and release the file (see RecordPort).

        Raises:
            StorageFailed: some records could not be written.
        """
        if self._closing:
            return
        self._closing = True
        try:
            if self._writer is not None:
                self._wake.set()
                await self._barrier()
        finally:
            if self._writer is not None:
                await asyncio.wait([self._writer])
            self._thread.shutdown(wait=False)

    async def _barrier(self) -> None:
        if self._writer is not None and self._writer.done():
            raise self._stopped()
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers.append(reached)
        await reached

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        """Let nobody wait for ever where the event loop ended all of its tasks; nobody of ours cancels the writer."""
        if writer.cancelled():
            _settle([*self._written, *self._barriers], self._stopped())
            self._thread.submit(self._release)

    def _stopped(self) -> StorageFailed:
        stopped = OSError(errno.ECANCELED, "the event loop was stopped meanwhile")
        return StorageFailed("write the journal", self._path, stopped)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self._closing and not self._barriers and not self._wake.is_set()):
            await self._wake.wait()
            self._wake.clear()
            lines, self._queued = self._queued, []
            barriers, self._barriers = self._barriers, []
            self._written = barriers
            try:
                await loop.run_in_executor(self._thread, self._flush, lines, bool(barriers))
            except Exception as error:  # noqa: BLE001 - whoever waits for a barrier must hear of any failure
                _settle(barriers, error)
            else:
                _settle(barriers, None)
        await loop.run_in_executor(self._thread, self._release)

    def _flush(self, lines: list[bytes], sync: bool) -> None:  # noqa: FBT001 - run by an executor, which has no keywords
        tail = self._tail
        tail.lines += lines
        if self._guard is not None:
            self._guard()
        with storage_errors("write the journal", self._path):
            file = self._opened()
            if tail.is_torn:
                # what an error left of a line, or what a failed sync may have dropped, is written anew
                file.truncate(tail.durable_bytes)
                tail.written, tail.is_torn = 0, False
            tail.is_torn = True
            file.write(b"".join(tail.lines[tail.written :]))
            tail.written = len(tail.lines)
            if sync:
                file.sync()
                tail.durable_bytes += sum(map(len, tail.lines))
                tail.lines, tail.written = [], 0
            tail.is_torn = False

    def _opened(self) -> WritableFile:
        tail = self._tail
        if tail.file is None:
            make_directories(self._files, self._path.parent)
            tail.file = self._files.create(self._path) if self._before is None else self._taken_over(self._before)
        if not tail.is_named:
            self._files.sync_directory(self._path.parent)
            tail.is_named = True
        return tail.file

    def _taken_over(self, before: JournalReading) -> WritableFile:
        """A file in the place of the old one that holds what can be believed of it."""
        content = self._files.read(self._path, JOURNAL_BYTES_MAX)
        if before.damage and not before.is_torn:
            write_durably(self._files, self._path.with_name(f"{self._path.name}{DAMAGED_SUFFIX}"), content)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        if self._files.status(temporary) is not None:
            self._files.remove_file(temporary)
        file = self._files.create(temporary)
        try:
            file.write(content[: before.length])
            file.sync()
            self._files.rename(temporary, self._path)
        except OSError:
            file.close()
            raise
        self._tail.durable_bytes = before.length
        return file

    def _release(self) -> None:
        if self._tail.file is not None:
            with storage_errors("close the journal", self._path):
                self._tail.file.close()


def read_journal(path: Path, *, files: FileSystem | None = None) -> JournalReading:
    """Read a journal up to its end or to the first line that cannot be believed, and say which that is.

    Raises:
        StorageFailed: the file cannot be read.
    """
    with storage_errors("read the journal", path):
        content = (files or LocalFiles()).read(path, JOURNAL_BYTES_MAX)
    lines: list[Line] = []
    length = 0
    raw = content.splitlines(keepends=True)
    for number, line in enumerate(raw, start=1):
        found = read_line(line, number)
        if isinstance(found, str):
            # where nothing at all can be believed, only a single line can be one that was being written
            is_torn = not any(map(is_whole, raw[number:])) and (bool(lines) or len(raw) == 1)
            return JournalReading(tuple(lines), f"line {number}: {found}", is_torn, length)
        lines.append(found)
        length += len(line)
    return JournalReading(tuple(lines), length=length)


def _settle(barriers: list[asyncio.Future[None]], error: Exception | None) -> None:
    for reached in barriers:
        if reached.done():
            continue
        if error is None:
            reached.set_result(None)
        else:
            reached.set_exception(error)
