"""The transaction core's promises, checked at every step: what it may ask of a runner, and when.

``ContractChecker.saw`` takes one call of ``advance``: the state before, the event, the state after and the commands. It
raises ``AssertionError`` at the first promise that is broken. Scenarios and random tests share it.
"""

from __future__ import annotations

from collections.abc import Sequence

from quiesce.fsm import messages as m
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.transaction import Member, MemberSpec, State
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Verb

__all__ = ["ContractChecker"]

# calls that change nothing over there and so need no mark before them
_READS = frozenset({Verb.INSPECT})
# an export or import that is still unanswered cannot have begun, or has ended, where a resume succeeded
_CLOSING = frozenset({Verb.CLOSE, Verb.AWAIT_CUT})
_REOPENING = frozenset({TransactionState.RESUMING, TransactionState.ABORTING, TransactionState.PUBLISH_UNKNOWN})
_AT_THE_CUT = frozenset({ParticipantState.PAUSED, ParticipantState.COMMITTED})
_FINAL = frozenset({TransactionState.RESUMED, TransactionState.ABORTED})


class ContractChecker:
    """Holds one run of the core against the contract that stands in ``quiesce.fsm.transaction``."""

    def __init__(self) -> None:
        self.marked: set[ParticipantKey] = set()
        self.published: m.Publication | None = None
        self.publishes = 0

    def saw(self, before: State, event: m.Event, after: State, commands: Sequence[m.Command]) -> None:
        """Check one step."""
        if isinstance(event, m.Publication):
            self.published = event
        if isinstance(event, m.Recover):
            self.marked |= event.touched
            self.published = m.Publication.PUBLISHED if event.published else m.Publication.NOT_PUBLISHED
        self._records_first(commands)
        for command in commands:
            if isinstance(command, m.Call):
                assert _is_free(before, event, command), f"{command} while another call of its leg is waited for"
                self._call(after, command, commands)
            elif isinstance(command, m.Publish):
                self._publish(before, commands)
            elif isinstance(command, m.Finished):
                self._finished(after)

    def _records_first(self, commands: Sequence[m.Command]) -> None:
        kinds = [isinstance(command, m.Record) for command in commands]
        assert kinds == sorted(kinds, reverse=True), "every record stands before everything else"
        barriers = [command.barrier for command in commands if isinstance(command, m.Record)]
        assert not any(barriers[:-1]), "one barrier, at the last record, serves a batch"

    def _call(self, after: State, call: m.Call, commands: Sequence[m.Command]) -> None:
        spec, member = _of(after, call.key)
        if call.verb not in _READS and call.key not in self.marked:
            assert _has_barrier(commands), f"{call} leaves before it is durable that {call.key} may be paused"
            self.marked.add(call.key)
        if call.leg is m.Leg.FORWARD:
            assert member.pending is call.verb
        elif call.leg is m.Leg.RELEASE:
            assert member.release_pending is call.verb
            self._release(after, spec, call)
        if call.verb is Verb.EXPORT:
            self._everyone_stands_at_the_cut(after)

    def _release(self, after: State, spec: MemberSpec, call: m.Call) -> None:
        assert after.transaction in _REOPENING, f"{call} while the transaction is {after.transaction}"
        if after.transaction is TransactionState.RESUMING and not after.plan.is_restore:
            assert self.published is m.Publication.PUBLISHED, f"{call} before the snapshot is published"
        if call.verb is Verb.CLOSE:
            assert spec.refuses_idle_resume, f"{call} pauses a participant that is to be reopened"
        _, member = _of(after, call.key)
        assert call.id_index == member.id_index

    def _everyone_stands_at_the_cut(self, after: State) -> None:
        for spec, member in zip(after.plan.members, after.members, strict=True):
            if Phase.PREPARE in spec.phases:
                assert member.state in _AT_THE_CUT, f"an export while {spec.key} is {member.state}"
                assert member.confirmed, f"an export before {spec.key} was read again"

    def _publish(self, before: State, commands: Sequence[m.Command]) -> None:
        self.publishes += 1
        assert self.publishes == 1, "a transaction publishes once"
        assert _has_barrier(commands), "the decision is durable before the rename"
        for spec, member in zip(before.plan.members, before.members, strict=True):
            if Phase.COMMIT in spec.phases:
                assert member.state is ParticipantState.COMMITTED, f"published without the export of {spec.key}"
                assert member.verified, f"published before the export of {spec.key} was verified"
            elif Phase.PREPARE in spec.phases:
                assert member.confirmed

    def _finished(self, after: State) -> None:
        assert after.rested
        if after.transaction in _FINAL:
            assert after.in_doubt() == (), f"{after.transaction}, but {after.in_doubt()} are owed a resume"
            for spec, member in zip(after.plan.members, after.members, strict=True):
                assert not member.lingering, f"{spec.key} is let go while a lost call of ours may run there"
                assert member.pending not in _CLOSING, f"{spec.key} is let go while a {member.pending} may close it"
        elif after.transaction in {TransactionState.IN_DOUBT_PUBLISHED, TransactionState.IN_DOUBT_UNPUBLISHED}:
            assert after.in_doubt(), "in doubt about nobody"
        if after.transaction is TransactionState.RESUMED and not after.plan.is_restore:
            assert self.published is m.Publication.PUBLISHED
        if after.transaction is TransactionState.ABORTED:
            assert self.published is not m.Publication.PUBLISHED


def _of(state: State, key: ParticipantKey) -> tuple[MemberSpec, Member]:
    index = state.plan.index[key]
    return state.plan.members[index], state.members[index]


def _is_free(before: State, event: m.Event, call: m.Call) -> bool:
    """Whether nothing was waited for on the call's leg, or this event is what was waited for."""
    _, member = _of(before, call.key)
    waited = {
        m.Leg.FORWARD: member.pending,
        m.Leg.RELEASE: member.release_pending,
        m.Leg.STRAGGLER: Verb.RETIRE if member.retiring else None,
    }[call.leg]
    if waited is None:
        return True
    return (
        isinstance(event, m.Replied | m.CallFailed)
        and (event.key, event.leg) == (call.key, call.leg)
        and event.verb is waited
    )


def _has_barrier(commands: Sequence[m.Command]) -> bool:
    return any(isinstance(command, m.Record) and command.barrier for command in commands)
