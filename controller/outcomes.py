"""What a transaction that rests means to its caller: its error, its timings, who stood where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quiesce.controller.budgets import Budgets
from quiesce.controller.errors import CutAborted, DeadlineExceeded, InDoubt, RestoreFailed
from quiesce.controller.ledger import Answer, Entry, Ledger
from quiesce.controller.results import PhaseTiming, Timings
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.messages import Failed
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.release import ReleaseState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.transaction import State, is_owed
from quiesce.fsm.vocabulary import ParticipantKey

__all__ = ["error_of", "in_doubt", "restore_failed", "timings", "where_everybody_stands"]

_E = TransactionEvent
_REACHED: Final = frozenset({ParticipantState.PAUSED, ParticipantState.RESTORED, ParticipantState.COMMITTED})
_OWN_ERRORS: Final = frozenset({_E.CONSULT_FAILED, _E.RECORD_FAILED, _E.PUBLISH_FAILED, _E.PUBLISH_UNCERTAIN})
"""Causes whose error was met on this side and stands in the ledger."""


def error_of(
    wire_id: str, state: State, ledger: Ledger, budgets: Budgets, stood: Mapping[ParticipantKey, str]
) -> Exception:
    """The error that the caller of a transaction gets which did not end as asked: one, or a group of several.

    ``stood`` is where everybody stood when the first budget was spent or the first failure met.
    """
    errors: list[Exception] = []
    for failed, answer in ledger.failures:
        error = _cause(failed, answer, wire_id, budgets, stood)
        if error is not None:
            errors.append(error)
    errors += [error for error in ledger.errors if isinstance(error, Exception)]
    if any(is_owed(member) for member in state.members) and state.transaction is not TransactionState.RESTORE_FAILED:
        errors.append(in_doubt(wire_id, state, ledger))
    if state.transaction is TransactionState.RESTORE_FAILED:
        errors = [restore_failed(wire_id, state, ledger), *errors]
    unique = list({id(error): error for error in errors}.values())
    if not unique:
        return CutAborted(f"{wire_id} was aborted on request; everybody accepts work again, nothing was published")
    return unique[0] if len(unique) == 1 else ExceptionGroup(f"{wire_id} did not end as asked", unique)


def _cause(
    failed: Failed, answer: Answer | None, wire_id: str, budgets: Budgets, stood: Mapping[ParticipantKey, str]
) -> Exception | None:
    if failed.cause is _E.REACH_EXPIRED:
        return DeadlineExceeded("reach", budgets.reach_timeout_s, stood)
    if failed.cause is _E.HOLD_EXPIRED:
        return DeadlineExceeded("hold", budgets.hold_timeout_s, stood)
    if failed.cause in _OWN_ERRORS or failed.cause in (_E.ABORT_REQUESTED, _E.CANCELLED):
        return None
    if answer is not None and answer.error is not None:
        return answer.error
    outcome = failed.outcome.value if failed.outcome else failed.cause.value
    return QuiesceError(f"{wire_id}: {failed.key or 'the transaction'}: {outcome}")


def in_doubt(wire_id: str, state: State, ledger: Ledger) -> InDoubt:
    """Who is owed a resume, and the last that was heard of each."""
    published = {
        TransactionState.IN_DOUBT_PUBLISHED: True,
        TransactionState.IN_DOUBT_UNPUBLISHED: False,
    }.get(state.transaction)
    owed: dict[ParticipantKey, str] = {}
    for spec, member in zip(state.plan.members, state.members, strict=True):
        if is_owed(member):
            owed[spec.key] = (
                "it still owes a restore: restore it or restart it"
                if member.release is ReleaseState.OWES_RESTORE
                else _last_heard(ledger.entries[spec.key])
            )
    return InDoubt(wire_id, published=published, owed=owed)


def restore_failed(wire_id: str, state: State, ledger: Ledger) -> RestoreFailed:
    """Who is restored and closed, who was not touched, who failed and why."""
    restored: list[ParticipantKey] = []
    untouched: list[ParticipantKey] = []
    failed: dict[ParticipantKey, str] = {}
    for spec, member in zip(state.plan.members, state.members, strict=True):
        if member.state is ParticipantState.RESTORED:
            restored.append(spec.key)
        elif member.state is ParticipantState.IDLE:
            untouched.append(spec.key)
        else:
            failed[spec.key] = _last_heard(ledger.entries[spec.key])
    return RestoreFailed(wire_id, restored=restored, untouched=untouched, failed=failed)


def where_everybody_stands(state: State, ledger: Ledger, now_s: float) -> dict[ParticipantKey, str]:
    """For everybody who has not reached the cut: the state, since when, and what is in flight."""
    stood: dict[ParticipantKey, str] = {}
    for spec, member in zip(state.plan.members, state.members, strict=True):
        if member.state in _REACHED or not spec.phases:
            continue
        entry = ledger.entries[spec.key]
        open_work = entry.progress.sentence() if entry.progress is not None else ""
        in_flight = f", {open_work}" if open_work else ""
        stood[spec.key] = f"{member.state.value} for {now_s - entry.since_s:.1f} s{in_flight}{_named_work(entry)}"
    return stood


def _named_work(entry: Entry) -> str:
    progress = entry.progress
    if progress is None:
        return ""
    calls = [f"{call.rollout_id or 'a call'} ({call.age_s:.1f} s)" for call in progress.inflight[:5]]
    blocked = [f"{blocker.attempt} {blocker.state} ({blocker.age_s:.1f} s)" for blocker in progress.blockers[:5]]
    named = [*calls, *blocked]
    return f": {', '.join(named)}" if named else ""


def _last_heard(entry: Entry) -> str:
    answer = entry.answer
    if answer is None:
        return "nothing was heard of it"
    return str(answer.error) if answer.error is not None else f"{answer.verb.value} came to {answer.outcome.value}"


def timings(ledger: Ledger, now_s: float) -> Timings:
    """Where the time went, per phase and per participant, in seconds from the transaction's begin."""
    began_s = ledger.began_s
    phases = [PhaseTiming(name, "", start_s - began_s, end_s - start_s) for name, start_s, end_s in ledger.phase_spans]
    for key, entry in ledger.entries.items():
        phases += [
            PhaseTiming(name, str(key), start_s - began_s, end_s - start_s) for name, start_s, end_s in entry.spans
        ]
    touched_s = ledger.first_touch_s
    paused_s = max(0.0, now_s - touched_s) if touched_s is not None else 0.0
    return Timings(tuple(phases), now_s - began_s, paused_s)
