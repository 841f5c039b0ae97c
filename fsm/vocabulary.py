"""The words that every room of Quiesce shares: roles, phases, verbs and the closed set of outcomes of a call.

Verbs are abstract: which route and body one of them is on the wire is known to a dialect alone. An outcome is
all that the transaction core ever learns of a reply; the payload stays with whoever runs the core.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["DeadlineClass", "Outcome", "ParticipantKey", "Phase", "Role", "Verb"]


class ParticipantKey(NamedTuple):
    """Names one participant of a transaction: its deployment and its routing name within it."""

    deployment: str
    name: str

    def __str__(self) -> str:
        return f"{self.deployment}/{self.name}"


class Role(StrEnum):
    """What a participant is to a cut (wire-protocol 1.1)."""

    POLICY = "policy"
    AUXILIARY = "auxiliary"
    AGENT = "agent"
    RESOURCES = "resources"


class Phase(StrEnum):
    """A stretch of a transaction in which one verb goes to the participants in a fixed order of roles."""

    PREFLIGHT = "preflight"
    PREPARE = "prepare"
    COMMIT = "commit"
    RESTORE = "restore"
    RESUME = "resume"
    ABORT = "abort"
    ROLLBACK = "rollback"


class Verb(StrEnum):
    """What the controller can ask of a participant, whatever its wire generation."""

    INSPECT = "inspect"
    CLOSE = "close"
    AWAIT_CUT = "await_cut"
    EXPORT = "export"
    IMPORT = "import"
    RELEASE = "release"
    ACKNOWLEDGE = "acknowledge"
    RETIRE = "retire"
    DISCARD = "discard"
    RENEW = "renew"


class DeadlineClass(StrEnum):
    """Which budget bounds the wait in a state. The instants are the runner's; the tables only name the class."""

    NONE = "none"
    REACH = "reach"
    HOLD = "hold"
    RELEASE = "release"
    OUTSTANDING = "outstanding"
    DRAIN = "drain"
    LEASE = "lease"


class Outcome(StrEnum):
    """Everything that a call to a participant can have come to."""

    # readings of INSPECT
    OPEN = "open"
    HELD_PREPARING = "held_preparing"
    HELD_PREPARED = "held_prepared"
    HELD_BUSY = "held_busy"
    HELD_COMMITTED = "held_committed"
    HELD_RESTORED = "held_restored"
    HELD_RESTORE_FAILED = "held_restore_failed"
    HELD_BY_OTHER = "held_by_other"
    ORPHAN_FENCE = "orphan_fence"
    CHANGED = "changed"
    """Another incarnation, identity or declaration answers than the one that was discovered."""

    # successes of the mutating verbs
    DRAINING = "draining"
    PAUSED = "paused"
    EXPORTED = "exported"
    IMPORTED = "imported"
    RELEASED = "released"
    ACKNOWLEDGED = "acknowledged"
    RETIRED = "retired"
    DISCARDED = "discarded"
    RENEWED = "renewed"

    # refusals: the participant answered, and nothing changed on it
    INCOMPLETE = "incomplete"
    UNACKNOWLEDGED = "unacknowledged"
    """Incomplete, and finished results wait for their acknowledgement."""
    STALE_ID = "stale_id"
    CONFLICT = "conflict"
    WRONG_PHASE = "wrong_phase"
    WORKERS_MISSING = "workers_missing"
    OWES_RESTORE = "owes_restore"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    REFUSED = "refused"
    UNAUTHORIZED = "unauthorized"
    ROUTE_MISSING = "route_missing"
    MALFORMED = "malformed"

    # the participant answered, and what it did cannot be known or believed
    CRASHED = "crashed"
    LIED = "lied"

    # no answer
    NEVER_SENT = "never_sent"
    LOST = "lost"
