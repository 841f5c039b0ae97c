"""What enters the transaction core (events) and what leaves it (commands).

Both are small frozen values without instants, ids or payloads: a participant is named by its key, an id by its
index (0 the transaction's own, 1 and 2 the fresh ones that healing may use up), a reply by its outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Verb

__all__ = [
    "AbortRequested",
    "Arm",
    "Begin",
    "Call",
    "CallFailed",
    "Cancelled",
    "Command",
    "CommitRequested",
    "Consult",
    "ConsultFailed",
    "Disarm",
    "Event",
    "Failed",
    "Finished",
    "Leg",
    "Note",
    "Probe",
    "Publication",
    "Publish",
    "PublishRequested",
    "ReceiptsReady",
    "Record",
    "RecordFailed",
    "Recover",
    "ReleaseRequested",
    "Replied",
    "RetryRequested",
    "Timer",
    "TimerFired",
    "Verification",
    "Verify",
]


class Timer(StrEnum):
    """Timers that the core knows by name; the runner owns their instants."""

    REACH = "reach"
    HOLD = "hold"
    RELEASE = "release"
    WAVE = "wave"
    PROBE = "probe"
    POLL = "poll"
    RETRY = "retry"
    BACKOFF = "backoff"
    OUTSTANDING = "outstanding"
    STRAGGLER = "straggler"


class Leg(StrEnum):
    """On which of a participant's conversations a call is; each has at most one call that is waited for."""

    FORWARD = "forward"
    RELEASE = "release"
    STRAGGLER = "straggler"


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the cut or restore."""


@dataclass(frozen=True, slots=True)
class Recover:
    """Take over what another controller left of a transaction, under the same id and with the same plan.

    ``published`` is of a cut: whether its folder stands in its place, which alone decides. ``released`` and
    ``aborted`` are of a restore: whether a durable record of TRANSACTION leads to ``resuming``, or to ``aborting``.
    ``touched`` are those whom a durable record, or an earlier recovery, names as possibly paused. A restore of which
    somebody was touched and nothing more is recorded ends held closed, in ``restore_failed``. ``fresh_ids`` has those
    of ``touched`` for whom a durable record says that a fresh id was taken, each with the index of the last one.
    """

    published: bool
    touched: frozenset[ParticipantKey]
    released: bool = False
    aborted: bool = False
    fresh_ids: frozenset[tuple[ParticipantKey, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """The caller wants the exports now."""


@dataclass(frozen=True, slots=True)
class PublishRequested:
    """The trainer's part is in place; publish."""


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    """The trainer has loaded its part of a restore; resume."""


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """Somebody asked for an abort."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller went away: Ctrl-C, SIGTERM, a timeout, an exception in its body."""


@dataclass(frozen=True, slots=True)
class RetryRequested:
    """Try again: a failed restore under the same id, or whoever is in doubt."""


@dataclass(frozen=True, slots=True)
class Replied:
    """A participant answered a call."""

    key: ParticipantKey
    leg: Leg
    verb: Verb
    id_index: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CallFailed:
    """No answer to a call. ``maybe_applied`` is false only where it is certain that nothing left."""

    key: ParticipantKey
    leg: Leg
    verb: Verb
    id_index: int
    maybe_applied: bool


@dataclass(frozen=True, slots=True)
class ReceiptsReady:
    """The trainer owns this agent's finished results durably."""

    key: ParticipantKey


@dataclass(frozen=True, slots=True)
class ConsultFailed:
    """Nobody owns this agent's finished results."""

    key: ParticipantKey


@dataclass(frozen=True, slots=True)
class Verification:
    """An export's files were checked against what the participant said."""

    key: ParticipantKey
    accepted: bool


class Publication(StrEnum):
    """What became of the rename that publishes."""

    PUBLISHED = "published"
    NOT_PUBLISHED = "not_published"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that was armed has run out."""

    timer: Timer
    key: ParticipantKey | None = None


@dataclass(frozen=True, slots=True)
class RecordFailed:
    """A record could not be made durable; the calls behind a barrier were not made."""


Event = (
    Begin
    | Recover
    | CommitRequested
    | PublishRequested
    | ReleaseRequested
    | AbortRequested
    | Cancelled
    | RetryRequested
    | Replied
    | CallFailed
    | ReceiptsReady
    | ConsultFailed
    | Verification
    | Publication
    | TimerFired
    | RecordFailed
)


@dataclass(frozen=True, slots=True)
class Record:
    """Write the step down. With ``barrier`` it is durable before anything after it is done."""

    trace: TraceRecord
    barrier: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Make this call; answer with Replied or CallFailed, always, within its time-out."""

    key: ParticipantKey
    leg: Leg
    verb: Verb
    id_index: int


@dataclass(frozen=True, slots=True)
class Arm:
    """Start this timer, or start it anew."""

    timer: Timer
    key: ParticipantKey | None = None


@dataclass(frozen=True, slots=True)
class Disarm:
    """Stop this timer if it runs."""

    timer: Timer
    key: ParticipantKey | None = None


@dataclass(frozen=True, slots=True)
class Consult:
    """Ask the trainer to own this agent's finished results; answer with ReceiptsReady or ConsultFailed."""

    key: ParticipantKey


@dataclass(frozen=True, slots=True)
class Verify:
    """Check this participant's export; answer with Verification."""

    key: ParticipantKey


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the manifest and rename the snapshot into its place; answer with Publication."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Look whether the snapshot stands in its place; answer with Publication."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why the transaction left its way, for the caller's error: the event, and who and what caused it."""

    cause: TransactionEvent
    key: ParticipantKey | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something the caller is to be told that changes nothing: the effect's name and whom it concerns."""

    effect: str
    key: ParticipantKey | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The transaction rests in this state: every waiting caller gets its result or error."""

    state: TransactionState


Command = Record | Call | Arm | Disarm | Consult | Verify | Publish | Probe | Failed | Note | Finished
