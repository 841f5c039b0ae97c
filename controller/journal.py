"""The journal of one transaction: an append-only file with one JSON record a line.

Each line carries a sequence number without gaps and a checksum over its own bytes, so that a reader can tell a torn
tail from a whole record. Writing and syncing happen in a thread of its own, never on the event loop and never behind
other work. Records without barrier are written in groups; a barrier is one sync for everything before it.
"""

from __future__ import annotations

import asyncio
import errno
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileSystem, LocalFiles, WritableFile, make_directories, storage_errors
from quiesce.controller.records import JournalRecord
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.strict_json import NotStrictJson, parse
from quiesce.participants.validation import first_problems

__all__ = ["JournalFile", "JournalReading", "SavedRecord", "read_journal"]

SCHEMA_VERSION: Final = 1
JOURNAL_BYTES_MAX: Final = 1 << 30
RECORDS_WAITING_MAX: Final = 200_000
"""Records that may wait for a storage that takes none; a thousand participants make some ten thousand a cut."""

_SEALED = re.compile(rb'(?P<body>\{.*),"checksum":"(?P<checksum>[0-9a-f]{8})"\}', re.DOTALL)


class SavedRecord(BaseModel):
    """One line of a journal. What is saved forbids what it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    schema_version: Literal[1]
    sequence: int = Field(ge=1)
    time_ts: float = Field(allow_inf_nan=False)
    wire_id: str
    machine: str
    subject: str
    source: str
    event: str
    target: str
    effects: list[str]
    verdicts: dict[str, bool]
    reason: str
    call: str | None
    reply: str | None
    checksum: str

    def trace(self) -> TraceRecord:
        """The step that was written down."""
        return TraceRecord(
            machine=self.machine,
            subject=self.subject,
            source=self.source,
            event=self.event,
            target=self.target,
            effects=tuple(self.effects),
            verdicts=tuple(self.verdicts.items()),
            reason=self.reason,
        )


@dataclass(frozen=True, slots=True)
class JournalReading:
    """What a journal holds: the records up to the first damage, and what the damage is (empty for none)."""

    records: tuple[SavedRecord, ...]
    damage: str = ""


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
    """

    def __init__(self, path: Path, *, files: FileSystem | None = None) -> None:
        self._path = path
        self._files: FileSystem = files or LocalFiles()
        self._tail = _Tail()
        self._queued: list[bytes] = []
        self._barriers: list[asyncio.Future[None]] = []
        self._sequence = 0
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
        if self._closing:
            raise RuntimeError(f"the journal {self._path} is closed")
        if len(self._queued) >= RECORDS_WAITING_MAX:
            full = OSError(errno.ENOBUFS, f"{RECORDS_WAITING_MAX} records wait already")
            raise StorageFailed("add to the journal", self._path, full)
        self._sequence += 1
        self._queued.append(_line(self._sequence, record))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name=f"journal {self._path.name}")
        self._wake.set()
        if barrier:
            await self._barrier()

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
                await asyncio.shield(self._writer)
            self._thread.shutdown(wait=False)

    async def _barrier(self) -> None:
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers.append(reached)
        await reached

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self._closing and not self._barriers and not self._wake.is_set()):
            await self._wake.wait()
            self._wake.clear()
            lines, self._queued = self._queued, []
            barriers, self._barriers = self._barriers, []
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
            tail.file = self._files.create(self._path)
        if not tail.is_named:
            self._files.sync_directory(self._path.parent)
            tail.is_named = True
        return tail.file

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
    records: list[SavedRecord] = []
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        found = _read_line(line, number)
        if isinstance(found, str):
            return JournalReading(tuple(records), f"line {number}: {found}")
        records.append(found)
    return JournalReading(tuple(records))


def _line(sequence: int, record: JournalRecord) -> bytes:
    fields = {"schema_version": SCHEMA_VERSION, "sequence": sequence, **record.to_json()}
    body = to_json(fields, inf_nan_mode="constants")
    return body[:-1] + b',"checksum":"%08x"}\n' % zlib.crc32(body)


def _read_line(line: bytes, number: int) -> SavedRecord | str:
    sealed = _SEALED.fullmatch(line.removesuffix(b"\n"))
    if sealed is None or not line.endswith(b"\n"):
        return "it is not a whole record"
    if f"{zlib.crc32(sealed['body'] + b'}'):08x}".encode() != sealed["checksum"]:
        return "its checksum does not match"
    try:
        saved = SavedRecord.model_validate(parse(line))
    except NotStrictJson as error:
        return str(error)
    except ValidationError as error:
        return first_problems(error)
    return saved if saved.sequence == number else f"its number is {saved.sequence}"


def _settle(barriers: list[asyncio.Future[None]], error: Exception | None) -> None:
    for reached in barriers:
        if reached.done():
            continue
        if error is None:
            reached.set_result(None)
        else:
            reached.set_exception(error)
