"""The runner's ledger: everything about a running transaction that the core does not carry.

Payloads of replies, errors as they came, when a participant reached which state, and what the caller is to be told.
Touched by the runner's one task alone; read by whoever makes results and progress reports of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.messages import Failed
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.transaction import State
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Verb
from quiesce.participants.artefacts import VerifiedExport
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt, DrainProgress, ExportReceipt, ImportReceipt, Inspection

__all__ = ["Answer", "Entry", "Failure", "Ledger", "Standing"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The last word on one call: what was asked, what it came to, and why, where it failed."""

    verb: Verb
    outcome: Outcome
    error: QuiesceError | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transaction left its way: the core's word for it, what it was doing, and the answer that was the reason."""

    failed: Failed
    phase: str
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a recovery found a participant: restored and closed, or what is said of it, a sentence without its name."""

    is_restored: bool
    sentence: str = ""


@dataclass(slots=True)
class Entry:
    """What is known of one participant.

    ``since_s`` is the instant (monotonic) of its last change of state, ``consulted_s`` the one at which the trainer was
    asked about its results, while the trainer has not answered. ``inspection`` is what it was on the way to the cut,
    ``found`` the last reading of all. ``standing`` is
    where a recovery found it, as long as nothing was done about it.
    """

    state: ParticipantState = ParticipantState.IDLE
    since_s: float = 0.0
    answer: Answer | None = None
    inspection: Inspection | None = None
    found: Inspection | None = None
    progress: DrainProgress | None = None
    export: ExportReceipt | None = None
    verified: VerifiedExport | None = None
    imported: ImportReceipt | None = None
    receipts: tuple[CompletionReceipt, ...] = ()
    acknowledged: tuple[CompletionReceipt, ...] = ()
    restarted: tuple[AttemptId, ...] = ()
    outstanding_until_s: float = float("-inf")
    consulted_s: float | None = None
    standing: Standing | None = None
    spans: list[tuple[str, float, float]] = field(default_factory=list)


@dataclass(slots=True)
class Ledger:
    """The ledger of one transaction. All instants are monotonic seconds."""

    entries: dict[ParticipantKey, Entry]
    failures: list[Failure] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    began_s: float = 0.0
    first_touch_s: float | None = None
    last_change_s: float = 0.0
    phase_spans: list[tuple[str, float, float]] = field(default_factory=list)
    by_subject: dict[str, Entry] = field(default_factory=dict)
    advice: str = ""
    """What to do about a restore that is held, where that is not the usual."""

    @classmethod
    def over(cls, keys: Iterable[ParticipantKey]) -> Ledger:
        """An empty ledger over these participants."""
        entries = {key: Entry() for key in keys}
        return cls(entries, by_subject={str(key): entry for key, entry in entries.items()})

    def begin(self, now_s: float) -> None:
        """The transaction starts now."""
        self.began_s = self.last_change_s = now_s
        for entry in self.entries.values():
            entry.since_s = now_s

    def note(self, sentence: str) -> None:
        """Keep a sentence for the caller, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def note_failure(self, failed: Failed) -> None:
        """Keep why the transaction left its way, with the answer that was the reason."""
        answer = self.entries[failed.key].answer if failed.key is not None else None
        self.failures.append(Failure(failed, self.left, answer))

    def begin_again(self) -> None:
        """The transaction is tried again: what went wrong before is not why it fails, if it does.

        Whoever is called anew may have been restarted for that very reason.
        """
        self.failures.clear()
        self.errors.clear()
        self.advice = ""
        for entry in self.entries.values():
            entry.standing = None
            if entry.state is not ParticipantState.RESTORED:
                entry.inspection = None

    @property
    def left(self) -> str:
        """The state of the transaction before the present one."""
        return self.phase_spans[-1][0] if self.phase_spans else ""

    def last_exchange(self, subject: str) -> tuple[str | None, str | None]:
        """The verb and the outcome of the last call to a participant, for its records."""
        entry = self.by_subject.get(subject)
        answer = entry.answer if entry is not None else None
        return (answer.verb.value, answer.outcome.value) if answer is not None else (None, None)

    def note_step(self, trace: TraceRecord, now_s: float) -> None:
        """Keep when a participant changed its state."""
        entry = self.by_subject.get(trace.subject)
        if entry is None or trace.machine != PARTICIPANT.name or trace.source == trace.target:
            return
        entry.spans.append((trace.source, entry.since_s, now_s))
        entry.state, entry.since_s = ParticipantState(trace.target), now_s
        if self.first_touch_s is None:
            self.first_touch_s = now_s

    def note_phase(self, before: State, after: State, now_s: float) -> None:
        """Keep when the transaction changed its state."""
        if before.transaction is not after.transaction:
            self.phase_spans.append((before.transaction.value, self.last_change_s, now_s))
            self.last_change_s = now_s
