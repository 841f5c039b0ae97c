"""What the journals under a root say of transactions that have not ended: pure reading, nothing is touched.

A journal that stops in the middle is no accident to be explained away: whoever wrote it is gone. What it owes is read
off its durable records alone. Everybody whom a record names as possibly paused is owed a resume until a record says
that it was proven open; whether a cut is published is not read here but in the folder (design 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quiesce.controller.files import FileSystem, storage_errors
from quiesce.controller.journal import JOURNAL_BYTES_MAX, JOURNAL_SUFFIX, JournalReading, read_journal
from quiesce.controller.journal_lines import (
    ExcusedLine,
    OpenedLine,
    OpenedParticipant,
    SavedRecord,
    is_whole,
    read_line,
)
from quiesce.controller.root_layout import RootLayout
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantState
from quiesce.fsm.tables.release import RELEASE
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.vocabulary import ParticipantKey, Phase
from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.identity import check_identity
from quiesce.participants.matrix import takes_part

__all__ = ["Account", "account_of", "find_unfinished", "has_ended"]

_FINAL: Final = frozenset(state.value for state in TRANSACTION.final)
_RESTING_IN_DOUBT: Final = frozenset({TransactionState.IN_DOUBT_PUBLISHED, TransactionState.IN_DOUBT_UNPUBLISHED})
_NOTHING_OWED: Final = frozenset({ParticipantState.IDLE, ParticipantState.RESUMED, ParticipantState.ABORTED})
_FRESH_ID: Final = "take_fresh_id"


@dataclass(frozen=True, slots=True)
class Account:
    """What a journal says of its transaction.

    Attributes:
        wire_id: the id under which a resume is owed.
        reading: the journal.
        opened: what the transaction is about; None where that line cannot be believed.
        stood: where the transaction stood, as far as it is recorded.
        touched: who may be paused on its account, without those who were excused.
        states: the last that is recorded of everybody's state.
        fresh_ids: how many fresh ids healing has used up at whom.
        released, aborted: of a restore: a record says that it was being released, or aborted.
        excused: who is owed nothing any more although nothing proved it open, with the reason.
    """

    wire_id: str
    reading: JournalReading
    opened: OpenedLine | None = None
    stood: str = str(TRANSACTION.initial.value)
    touched: frozenset[ParticipantKey] = frozenset()
    states: Mapping[ParticipantKey, str] = field(default_factory=dict)
    fresh_ids: Mapping[ParticipantKey, int] = field(default_factory=dict)
    released: bool = False
    aborted: bool = False
    excused: Mapping[ParticipantKey, str] = field(default_factory=dict)

    @property
    def is_restore(self) -> bool:
        return self.opened is not None and self.opened.source_wire_id is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is open: it ended, or whoever it left in doubt was excused, or it never began."""
        if self.opened is None and not self.reading.lines and not self.damage:
            return True
        return self.stood in _FINAL or (self.stood in _RESTING_IN_DOUBT and not self.touched)

    @property
    def damage(self) -> str:
        """What is wrong with the journal, where it is more than a tail that was being written."""
        return "" if self.reading.is_torn else self.reading.damage

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        opened = self.opened
        return {
            "wire_id": self.wire_id,
            "label": opened.label if opened is not None else None,
            "kind": None if opened is None else "restore" if self.is_restore else "cut",
            "source_wire_id": opened.source_wire_id if opened is not None else None,
            "stood": self.stood,
            "touched": sorted(map(str, self.touched)),
            "damage": self.damage or None,
        }


def find_unfinished(files: FileSystem, layout: RootLayout) -> tuple[Account, ...]:
    """Every transaction under a root that has not ended, by wire id.

    A file among the journals whose name is no id is none of ours and is left alone.

    Raises:
        StorageFailed: the journals cannot be read.
    """
    found = (_unfinished(files, path) for path in _journals(files, layout))
    return tuple(account for account in found if account is not None)


def has_ended(files: FileSystem, path: Path) -> bool:
    """Whether a journal says that its transaction owes nobody anything; see :attr:`Account.is_over`.

    Raises:
        StorageFailed: it cannot be read.
    """
    return _unfinished(files, path) is None


def _unfinished(files: FileSystem, path: Path) -> Account | None:
    if _ends_well(files, path):
        return None
    account = account_of(path.name.removesuffix(JOURNAL_SUFFIX), read_journal(path, files=files))
    return None if account.is_over else account


def _ends_well(files: FileSystem, path: Path) -> bool:
    """Whether the last step of the transaction is one that ends it. Reads no more than that: most journals are so.

    A journal without a whole line never began: nobody is called before the first record is durable.
    """
    with storage_errors("read the journal", path):
        content = files.read(path, JOURNAL_BYTES_MAX)
    if b"\n" not in content:
        return True
    place = content.rfind(b'"machine":"%b"' % TRANSACTION.name.encode())
    start = content.rfind(b"\n", 0, max(place, 0)) + 1
    lines = content[start:].splitlines(keepends=True) if place >= 0 else []
    if not lines or not all(map(is_whole, lines)):
        return False
    last = read_line(lines[0])
    return isinstance(last, SavedRecord) and last.target in _FINAL


def account_of(wire_id: str, reading: JournalReading) -> Account:
    """What a journal says.

    Where its middle is damaged, what stands behind the damage is not read: everybody who could have been called is then
    taken for touched, since a resume for nothing does no harm and a missing one does.
    """
    fold = _Fold()
    for line in reading.lines:
        if isinstance(line, ExcusedLine):
            fold.excuse(line)
        elif isinstance(line, SavedRecord):
            fold.step(line)
    opened = reading.opened
    members = {str(one.key): one.key for one in opened.participants} if opened is not None else {}
    touched = set(fold.touched)
    if reading.damage and not reading.is_torn and opened is not None:
        touched |= {str(one.key) for one in opened.participants if _may_be_called(one)}
    excused = {members[name]: why for name, why in fold.excused.items() if name in members}
    return Account(
        wire_id=wire_id,
        reading=reading,
        opened=opened,
        stood=fold.stood,
        touched=frozenset(members[name] for name in touched - set(fold.excused) if name in members),
        states={members[name]: state for name, state in fold.states.items() if name in members},
        fresh_ids={members[name]: count for name, count in fold.fresh_ids.items() if name in members},
        released=fold.released,
        aborted=fold.aborted and not fold.released,
        excused=excused,
    )


@dataclass(slots=True)
class _Fold:
    """Where everything stands after the lines so far."""

    stood: str = str(TRANSACTION.initial.value)
    touched: set[str] = field(default_factory=set)
    states: dict[str, str] = field(default_factory=dict)
    fresh_ids: dict[str, int] = field(default_factory=dict)
    released: bool = False
    aborted: bool = False
    excused: dict[str, str] = field(default_factory=dict)

    def step(self, record: SavedRecord) -> None:
        if record.machine == PARTICIPANT.name:
            self.states[record.subject] = record.target
        if record.machine == TRANSACTION.name:
            self.stood = record.target
            self.released = self.released or record.target == TransactionState.RESUMING
            self.aborted = self.aborted or record.target == TransactionState.ABORTING
        elif record.machine == PARTICIPANT.name and record.target in _NOTHING_OWED:
            self.touched.discard(record.subject)
        elif record.machine == PARTICIPANT.name:
            self.touched.add(record.subject)
            # it was called anew since, by a retry
            self.excused.pop(record.subject, None)
        elif record.machine == RELEASE.name and _FRESH_ID in record.effects:
            self.fresh_ids[record.subject] = self.fresh_ids.get(record.subject, 0) + 1

    def excuse(self, line: ExcusedLine) -> None:
        self.excused[line.subject] = line.reason


def _may_be_called(one: OpenedParticipant) -> bool:
    declared = one.contract.contract().declaration
    return any(takes_part(declared, phase) for phase in (Phase.PREPARE, Phase.RESTORE))


def _journals(files: FileSystem, layout: RootLayout) -> Iterator[Path]:
    with storage_errors("look for journals", layout.journals):
        if files.status(layout.journals) is None:
            return
        names = files.names(layout.journals)
    for name in names:
        if name.endswith(JOURNAL_SUFFIX) and _is_id(name.removesuffix(JOURNAL_SUFFIX)):
            yield layout.journals / name


def _is_id(name: str) -> bool:
    try:
        check_identity(name, field="checkpoint id")
    except InvalidIdentity:
        return False
    return True
