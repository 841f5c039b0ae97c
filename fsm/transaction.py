"""The transaction core: ``advance(state, event, engine) -> (state', commands)``, pure and without a clock.

Every transition is a row of TRANSACTION, PARTICIPANT or RELEASE, chosen by the engine; this module only keeps
the facts that their guards read and turns their effects into commands. The state is frozen and hashable, knows
timers by name and calls by key, and never sees an instant, a payload or a wire id.

The contract of a runner, in this order for each batch of commands:

1. Post events one at a time, each to the state that the last one returned. One task does this, nobody else.
2. Perform the commands of a batch in their order. Nothing after a ``Record`` with ``barrier`` is done before that
   record, and every record before it, is durable.
3. If a barrier record fails, make no call of the batch and publish nothing; post the event by which each of them
   fails, ``CallFailed(maybe_applied=False)`` or ``NOT_PUBLISHED``, and then ``RecordFailed``. A record without
   barrier that fails is posted as ``RecordFailed`` too and holds nothing back. The release of a restore
   (``opens_a_restore``) is the exception: where its records cannot be made durable they are taken back, that step was
   never taken, and ``RecordFailed`` is posted to the state before it, which holds the restore closed.
4. A participant is recorded as possibly paused *before* its first call leaves: that record and the call are in one
   batch, with the barrier between them.
5. The decision is durable before the rename: ``Record(barrier=True)`` precedes ``Publish``.
6. Publish before resume: release calls come only in batches after ``PUBLISHED`` was posted. That a restore is released,
   or aborted by request, is durable before its first release call, and so is a fresh id before its first call:
   ``Recover`` is told of both.
7. Answer every ``Call`` exactly once, within its time-out: ``Replied`` with the outcome of what was read, or
   ``CallFailed``. ``maybe_applied=False`` is said only where it is certain that nothing left.
8. ``Arm`` starts a timer or starts it anew; ``Disarm`` stops it. A firing is posted once. A timer that fires late
   is harmless. ``OUTSTANDING`` may fire only when no handler of a lost call can still run: at the latest deadline
   that such a call was given, plus the clock skew that is reckoned with.
9. Answer ``Verify``, ``Consult``, ``Publish`` and ``Probe`` with one event each, also on failure. A ``Publish``
   whose outcome cannot be read is ``UNKNOWN``, never a guess.
10. A fresh id (index 1 or 2) is never used for anything but the call that names it. No other transaction calls a
    participant before this one is finished with it.
11. ``Finished`` may come more than once for a state that rests: after a retry it comes again.
12. Cancelling a caller posts ``Cancelled`` (for a cut, as good as an abort) and waits for ``Finished``; only then
    does the cancellation propagate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.release import ReleaseState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role, Verb

__all__ = [
    "FRESH_IDS_MAX",
    "HEALS_MAX",
    "TRIES_MAX",
    "Member",
    "MemberSpec",
    "Plan",
    "State",
    "initial_state",
    "is_owed",
    "opens_a_restore",
]

TRIES_MAX: Final = 2
"""How often a call on the way forward is repeated when no answer came."""
HEALS_MAX: Final = 2
"""How often the IDLE resume is healed by a pause."""
FRESH_IDS_MAX: Final = 2
"""How many ids beside its own a transaction may use up at one participant."""
PARTICIPANTS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What does not change about a member during a transaction.

    ``phases`` are those it takes part in (wire-protocol 1.4). ``refuses_idle_resume`` marks a policy in
    coordinator mode (4.4), the only one that is healed by pausing it. ``exports_elsewhere`` marks one whose commit and
    restore another server serves (F23), which its own fence knows nothing of.
    """

    key: ParticipantKey
    role: Role
    phases: frozenset[Phase]
    refuses_idle_resume: bool = False
    exports_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a transaction is to do, over whom.

    Raises:
        DefinitionError: no members, two with one key, or more than can be kept track of.
    """

    members: tuple[MemberSpec, ...]
    is_restore: bool = False
    drain: DrainMode = DrainMode.OVERLAPPED
    watches_stragglers: bool = False
    restarts_stragglers: bool = False
    index: Mapping[ParticipantKey, int] = field(init=False, repr=False, compare=False)
    """Participant key to its place in ``members``."""

    def __post_init__(self) -> None:
        keys = [spec.key for spec in self.members]
        if not keys:
            raise DefinitionError("a transaction over no participants proves nothing; discover some first")
        if len(set(keys)) < len(keys):
            twice = sorted({str(key) for key in keys if keys.count(key) > 1})
            raise DefinitionError(f"participants named twice in one transaction: {', '.join(twice)}")
        if len(keys) > PARTICIPANTS_MAX:
            raise DefinitionError(f"{len(keys)} participants; at most {PARTICIPANTS_MAX} are supported")
        object.__setattr__(self, "index", {key: place for place, key in enumerate(keys)})


class Member(NamedTuple):
    """What the core knows of one participant.

    ``pending`` and ``release_pending`` are the calls waited for; ``lingering`` is a call without an answer that
    may still run over there; ``seen`` that an earlier call may have been applied; ``overlapped`` that a resume was
    sent while one could run.
    """

    state: ParticipantState = ParticipantState.IDLE
    release: ReleaseState = ReleaseState.NOT_DUE
    pending: Verb | None = None
    release_pending: Verb | None = None
    repeat: Verb | None = None
    retiring: bool = False
    lingering: Verb | None = None
    seen: bool = False
    overlapped: bool = False
    confirmed: bool = False
    verified: bool = False
    tries: int = 0
    heals: int = 0
    id_index: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The whole state of a transaction.

    ``waves`` is the set (as bits) of the present phase's waves that have been sent; ``lagging`` counts the waves of
    reopening that are no longer waited for. ``scan`` is where to look first for whoever is not there yet: a memory
    that saves time and is no part of what the state is.
    """

    plan: Plan = field(hash=False)
    transaction: TransactionState
    members: tuple[Member, ...]
    decided: bool = False
    rested: bool = False
    lagging: int = 0
    waves: int = 0
    scan: int = field(default=0, compare=False, repr=False)

    def in_doubt(self) -> tuple[ParticipantKey, ...]:
        """Participants that are owed a resume which is not proven, in the plan's order."""
        return tuple(spec.key for spec, member in zip(self.plan.members, self.members, strict=True) if is_owed(member))

    def with_member(self, index: int, member: Member) -> State:
        """This state with one member exchanged."""
        return replace(self, members=(*self.members[:index], member, *self.members[index + 1 :]))


def initial_state(plan: Plan) -> State:
    """The state of a transaction that has not begun."""
    return State(plan, TransactionState.IDLE, (Member(),) * len(plan.members))


def is_owed(member: Member) -> bool:
    """Whether the participant may be closed on our account: it may have seen a call and was not proven open."""
    return member.state not in _NOTHING_OWED


def opens_a_restore(before: State, after: State) -> bool:
    """Whether a step releases a restore, which is not taken unless it is durable: nobody who takes over knew of it."""
    return (before.transaction, after.transaction) == (TransactionState.RESTORED, TransactionState.RESUMING)


_NOTHING_OWED: Final = frozenset({ParticipantState.IDLE, ParticipantState.RESUMED, ParticipantState.ABORTED})
