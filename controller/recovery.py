"""What the journals under a root say of transactions that have not ended: pure reading, nothing is touched.

A journal that stops in the middle is no accident to be explained away: whoever wrote it is gone. What it owes is read
off its durable records alone. Everybody whom a record names as possibly paused is owed a resume until a record says
that it was proven open; whether a cut is published is not read here but in the folder (design 4).

What stands among the journals and says of nothing what it was about keeps nobody else from being recovered: it is told
apart (:class:`Unread`), and ``quiesce.controller.unread_journals`` asks whether its id holds somebody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileKind, FileSystem, is_there, storage_errors
from quiesce.controller.journal import JOURNAL_BYTES_MAX, JOURNAL_SUFFIX, JournalReading, read_journal
from quiesce.controller.journal_lines import (
    ExcusedLine,
    OpenedLine,
    OpenedParticipant,
    SavedRecord,
    TakenOverLine,
    is_whole,
    read_line,
)
from quiesce.controller.root_layout import RootLayout
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantState
from quiesce.fsm.tables.release import RELEASE
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.vocabulary import ParticipantKey, Phase
from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.identity import check_identity
from quiesce.participants.matrix import takes_part

__all__ = [
    "Account",
    "Journals",
    "Unread",
    "account_of",
    "find_unfinished",
    "has_ended",
    "journal_says",
    "read_journals",
]

_FINAL: Final = frozenset(state.value for state in TRANSACTION.final)
_RESTING_IN_DOUBT: Final = frozenset({TransactionState.IN_DOUBT_PUBLISHED, TransactionState.IN_DOUBT_UNPUBLISHED})
_NOTHING_OWED: Final = frozenset({ParticipantState.IDLE, ParticipantState.RESUMED, ParticipantState.ABORTED})
_FRESH_ID: Final = "take_fresh_id"
_KINDS: Final = {FileKind.DIRECTORY: "folder", FileKind.LINK: "link"}
_NEVER_BEGAN: Final = (
    "holds no whole line: its controller died before it called anybody, unless the storage lost what stood there"
)


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
        imported: of a restore: who may hold a part of the snapshot, each with the incarnation that does, where known.
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
    imported: Mapping[ParticipantKey, str | None] = field(default_factory=dict)

    @property
    def half_restored(self) -> Mapping[ParticipantKey, str | None]:
        """Of a restore that was aborted: whose process must be restarted, with the incarnation, where it is known."""
        if not self.aborted:
            return {}
        return {key: instance for key, instance in self.imported.items() if key not in self.excused}

    @property
    def kind(self) -> str | None:
        """``cut`` or ``restore``; None where that is not known."""
        return None if self.opened is None else "restore" if self.is_restore else "cut"

    @property
    def is_restore(self) -> bool:
        return self.opened is not None and self.opened.source_wire_id is not None

    @property
    def never_began(self) -> bool:
        """Whether it holds no whole line: nobody is called before the first ones are durable."""
        return not self.reading.lines and not self.damage

    @property
    def epoch(self) -> int | None:
        """The tenure that went on with it last; None where nobody said so."""
        tenures = [line.epoch for line in self.reading.lines if isinstance(line, OpenedLine | TakenOverLine)]
        return tenures[-1] if tenures else None

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is open: it ended, or whoever it left in doubt was excused, or it never began."""
        if self.never_began:
            return True
        if self.half_restored:
            return False
        is_excused = self.stood == TransactionState.RESTORE_FAILED and bool(self.excused)
        return self.stood in _FINAL or ((self.stood in _RESTING_IN_DOUBT or is_excused) and not self.touched)

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
            "kind": self.kind,
            "source_wire_id": opened.source_wire_id if opened is not None else None,
            "stood": self.stood,
            "touched": sorted(map(str, self.touched)),
            "to_restart": sorted(map(str, self.half_restored)),
            "damage": self.damage or None,
        }


@dataclass(frozen=True, slots=True)
class Unread:
    """What has the name of a journal and does not say what it was about.

    Attributes:
        path: where it stands.
        wire_id: the id that its name says.
        reason: why nothing is known of it, the rest of a sentence about it.
        is_file: whether it can be a journal at all: what is a folder or a link was never one of ours.
        never_began: whether it is what a controller leaves that died before its first record was durable.
    """

    path: Path
    wire_id: str
    reason: str
    is_file: bool = True
    never_began: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.path} {self.reason}"


@dataclass(frozen=True, slots=True)
class Journals:
    """What the journals under a root say: transactions that have not ended, and what says nothing."""

    unfinished: tuple[Account, ...]
    unread: tuple[Unread, ...]


def read_journals(files: FileSystem, layout: RootLayout) -> Journals:
    """Look through the journals, by wire id. What cannot be read is told apart and keeps nothing else.

    A file among the journals whose name is no id is none of ours and is left alone.

    Raises:
        StorageFailed: the folder of the journals cannot be read.
    """
    found = [journal_says(files, path) for path in _journals(files, layout)]
    return Journals(
        tuple(one for one in found if isinstance(one, Account)), tuple(one for one in found if isinstance(one, Unread))
    )


def find_unfinished(files: FileSystem, layout: RootLayout) -> tuple[Account, ...]:
    """Every transaction under a root that has not ended, by wire id.

    Raises:
        StorageFailed: the folder of the journals cannot be read.
    """
    return read_journals(files, layout).unfinished


def journal_says(files: FileSystem, path: Path) -> Account | Unread | None:
    """What a journal says that has not ended; None where it has, or is not there."""
    wire_id = path.name.removesuffix(JOURNAL_SUFFIX)
    try:
        with storage_errors("look at the journal", path):
            found = files.status(path)
        if found is not None and found.kind is not FileKind.FILE:
            what = _KINDS.get(found.kind, "thing of another kind")
            return Unread(path, wire_id, f"is no file but a {what}", is_file=False)
        account = _not_ended(files, path) if found is not None else None
    except StorageFailed as error:
        return Unread(path, wire_id, f"cannot be read: {error.why}")
    if account is not None and account.never_began:
        return Unread(path, wire_id, _NEVER_BEGAN, never_began=True)
    if account is not None and not account.is_over and account.opened is None:
        return Unread(path, wire_id, f"does not say what it was about: {account.damage or 'it begins with a step'}")
    return None if account is None or account.is_over else account


def has_ended(files: FileSystem, path: Path) -> bool:
    """Whether a journal says that its transaction owes nobody anything; see :attr:`Account.is_over`.

    Raises:
        StorageFailed: it cannot be read.
    """
    account = _not_ended(files, path)
    return account is None or account.is_over


def _not_ended(files: FileSystem, path: Path) -> Account | None:
    """What a journal says whose last step is not one that ends it."""
    if _ends_well(files, path):
        return None
    return account_of(path.name.removesuffix(JOURNAL_SUFFIX), read_journal(path, files=files))


def _ends_well(files: FileSystem, path: Path) -> bool:
    """Whether the last step of the transaction is one that ends it. Reads no more than that: most journals are so.

    Not that of a restore that was aborted: what it had begun to restore may not have been restarted.
    """
    with storage_errors("read the journal", path):
        content = files.read(path, JOURNAL_BYTES_MAX)
    place = content.rfind(b'"machine":"%b"' % TRANSACTION.name.encode())
    start = content.rfind(b"\n", 0, max(place, 0)) + 1
    lines = content[start:].splitlines(keepends=True) if place >= 0 else []
    if not lines or not all(map(is_whole, lines)):
        return False
    last = read_line(lines[0])
    if not isinstance(last, SavedRecord) or last.target not in _FINAL:
        return False
    return last.target != TransactionState.ABORTED or not _is_restore(content)


def _is_restore(content: bytes) -> bool:
    first = read_line(content[: content.find(b"\n") + 1])
    return isinstance(first, OpenedLine) and first.source_wire_id is not None


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
        imported=_imported(fold, opened),
    )


def _imported(fold: _Fold, opened: OpenedLine | None) -> dict[ParticipantKey, str | None]:
    if opened is None or opened.source_wire_id is None:
        return {}
    # a retry may have been made of another process than the first line tells of
    return {
        one.key: one.instance if not fold.retried else None
        for one in opened.participants
        if str(one.key) in fold.imported and takes_part(one.contract.contract().declaration, Phase.RESTORE)
    }


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
    imported: set[str] = field(default_factory=set)
    retried: bool = False

    def step(self, record: SavedRecord) -> None:
        if record.machine == PARTICIPANT.name:
            self.states[record.subject] = record.target
            if record.target == ParticipantState.IDLE:
                self.imported.discard(record.subject)
            elif not {record.source, record.target} <= _NOTHING_OWED:
                self.imported.add(record.subject)
        if record.machine == TRANSACTION.name:
            self.stood = record.target
            self.retried = self.retried or record.event == TransactionEvent.RETRY_REQUESTED
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
        if not is_there(files, layout.journals):
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
