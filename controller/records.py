"""What is written down of a transaction, and the port through which it is: one record for each step of a machine.

The core says which step was taken (:class:`~quiesce.fsm.trace.TraceRecord`); the runner adds when, under which id, and
what was called and answered. A record with ``barrier`` is durable before anything after it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from quiesce.fsm.trace import TraceRecord

__all__ = ["Excuse", "JournalRecord", "MemoryRecords", "RecordPort"]


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One step of one machine, as it is written down.

    Attributes:
        time_ts: Unix seconds at which the step was taken.
        wire_id: the transaction.
        trace: which machine and participant, from where to where, why, and the guards' verdicts.
        call: the control call that the step answers, for example ``POST /ng-control/v1/model-admission/pause``.
        reply: a summary of what was answered, without payload, for example ``409 checkpoint_conflict``.
    """

    time_ts: float
    wire_id: str
    trace: TraceRecord
    call: str | None = None
    reply: str | None = None

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys; the number of the record and its checksum are the journal's."""
        return {
            "time_ts": self.time_ts,
            "wire_id": self.wire_id,
            **self.trace.to_json(),
            "call": self.call,
            "reply": self.reply,
        }


@dataclass(frozen=True, slots=True)
class Excuse:
    """A participant is owed nothing any more, for a reason that is no answer of its own to a resume.

    Attributes:
        time_ts: Unix seconds.
        wire_id: the transaction.
        subject: the participant (``deployment/name``).
        reason: a sentence for people.
    """

    time_ts: float
    wire_id: str
    subject: str
    reason: str

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        fields = {"time_ts": self.time_ts, "wire_id": self.wire_id, "subject": self.subject, "reason": self.reason}
        return {"kind": "excused", **fields}


class RecordPort(Protocol):
    """Where the records of one transaction go, in the order of the calls."""

    async def append(self, record: JournalRecord, *, barrier: bool) -> None:
        """Write a record down; with ``barrier`` return only when it and every record before it are durable.

        Cancelling the caller does not take the record back.

        Raises:
            StorageFailed: barrier only: it could not be made durable. The record stays in line and is written with
                the next one, so that the journal has no gap.
        """
        ...

    async def decide(self, records: Sequence[JournalRecord]) -> None:
        """Write down what is done only if it is written down; return when all of it is durable.

        Raises:
            StorageFailed: it could not be made durable. The records are taken back, as if they had never been: what
                they tell of is not done.
        """
        ...

    async def excuse(self, excuse: Excuse) -> None:
        """Write down that somebody is owed nothing any more; return when that is durable.

        Raises:
            StorageFailed: it could not be made durable.
        """
        ...

    async def close(self) -> None:
        """Make everything durable and release the file; may be called twice.

        Raises:
            StorageFailed: some records could not be written.
        """
        ...


class MemoryRecords:
    """Keeps the records in a list, durable as long as the program: for tests, and where no control call is made."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.excuses: list[Excuse] = []

    async def append(self, record: JournalRecord, *, barrier: bool) -> None:
        del barrier
        self.records.append(record)

    async def decide(self, records: Sequence[JournalRecord]) -> None:
        self.records += records

    async def excuse(self, excuse: Excuse) -> None:
        self.excuses.append(excuse)

    async def close(self) -> None:
        return
