"""What a transaction that rests means to its caller: its error, its timings, who stood where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quiesce.controller.budgets import Budgets
from quiesce.controller.errors import CutAborted, DeadlineExceeded, InDoubt, RestoreFailed, UnexpectedFence
from quiesce.controller.ledger import Answer, Entry, Failure, Ledger
from quiesce.controller.results import PhaseTiming, Timings
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.release import ReleaseState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.transaction import Member, MemberSpec, State, is_owed
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Verb

__all__ = ["error_of", "holder", "in_doubt", "named_work", "restore_failed", "timings", "where_everybody_stands"]

_E = TransactionEvent
_S = TransactionState
_OWN_ERRORS: Final = frozenset({_E.CONSULT_FAILED, _E.RECORD_FAILED, _E.PUBLISH_FAILED, _E.PUBLISH_UNCERTAIN})
"""Causes whose error was met on this side and stands in the ledger."""
_NAMED_MAX: Final = 5


def error_of(
    wire_id: str, state: State, ledger: Ledger, budgets: Budgets, stood: Mapping[ParticipantKey, str]
) -> Exception:
    """The error that the caller of a transaction gets which did not end as asked: one, or a group of several.

    ``stood`` is where everybody stood when the first budget was spent or the first failure met. What was noticed on the
    way stands in the error's notes.
    """
    error = _error_of(wire_id, state, ledger, budgets, stood)
    for note in [*ledger.notes, *_how_it_was_left(state, ledger, error)]:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
    return error


def _how_it_was_left(state: State, ledger: Ledger, error: Exception) -> list[str]:
    """Whoever reads why a transaction failed wants to know next whether anything is left of it."""
    if state.transaction is not _S.ABORTED or isinstance(error, CutAborted):
        return []
    published = "" if state.plan.is_restore else "nothing was published, and "
    if ledger.left == _S.PREFLIGHT:
        return [f"{published}nobody was paused for it"]
    return [f"{published}everybody accepts work again"]


def _error_of(
    wire_id: str, state: State, ledger: Ledger, budgets: Budgets, stood: Mapping[ParticipantKey, str]
) -> Exception:
    errors: list[Exception] = []
    for failure in ledger.failures:
        errors += _causes(failure, ledger, wire_id, budgets, stood)
    errors += [error for error in ledger.errors if isinstance(error, Exception)]
    if any(is_owed(member) for member in state.members) and state.transaction is not _S.RESTORE_FAILED:
        errors.append(in_doubt(wire_id, state, ledger))
    if state.transaction is _S.RESTORE_FAILED:
        errors = [restore_failed(wire_id, state, ledger), *errors]
    unique = list({id(error): error for error in errors}.values())
    if not unique:
        return CutAborted(f"{wire_id} was aborted on request; everybody accepts work again, nothing was published")
    return unique[0] if len(unique) == 1 else ExceptionGroup(f"{wire_id} did not end as asked", unique)


def _causes(
    failure: Failure, ledger: Ledger, wire_id: str, budgets: Budgets, stood: Mapping[ParticipantKey, str]
) -> list[Exception]:
    cause, key = failure.failed.cause, failure.failed.key
    if cause is _E.REACH_EXPIRED:
        return [DeadlineExceeded("reach", budgets.reach_timeout_s, stood, failure.phase)]
    if cause is _E.HOLD_EXPIRED:
        return [DeadlineExceeded("hold", budgets.hold_timeout_s, stood, failure.phase)]
    if cause in _OWN_ERRORS or cause in (_E.ABORT_REQUESTED, _E.CANCELLED):
        return []
    first = _refusal(key, failure.answer, ledger, failure.phase) if key is not None else None
    others = _other_refusals(key, ledger) if failure.phase == _S.PREFLIGHT else []
    outcome = failure.failed.outcome.value if failure.failed.outcome else cause.value
    return [first or QuiesceError(f"{wire_id}: {key or 'the transaction'}: {outcome}"), *others]


def _other_refusals(first: ParticipantKey | None, ledger: Ledger) -> list[Exception]:
    """Whoever else cannot take part, as far as it is known by now: all are named at once (field cases F-12)."""
    refusals = (
        _refusal(key, entry.answer, ledger, _S.PREFLIGHT) for key, entry in ledger.entries.items() if key != first
    )
    return [refusal for refusal in refusals if refusal is not None]


def _refusal(key: ParticipantKey, answer: Answer | None, ledger: Ledger, phase: str) -> Exception | None:
    """Why an answer is no success; None where it is one."""
    if answer is None or answer.error is not None:
        return answer.error if answer is not None else None
    found = ledger.entries[key].found
    expected = Outcome.OPEN if phase == _S.PREFLIGHT else Outcome.HELD_PREPARED
    if answer.verb is not Verb.INSPECT or answer.outcome is expected or found is None:
        return None
    live = found.capabilities
    return UnexpectedFence(
        str(key),
        phase=live.phase.value,
        holder=live.active_checkpoint_id,
        advice=_advice(answer.outcome, before_the_cut=phase == _S.PREFLIGHT),
        is_left_closed=phase == _S.PREFLIGHT or answer.outcome is Outcome.HELD_BY_OTHER,
    )


def _advice(outcome: Outcome, *, before_the_cut: bool) -> str:
    if outcome is Outcome.ORPHAN_FENCE:
        return "a resume under an unused id opens it, or a restart"
    if before_the_cut:
        return (
            "that is not ours and was left as it is; wait for it to end, or reopen it with `quiesce abort` and that id"
        )
    if outcome is Outcome.OPEN:
        return "it no longer stands at the cut; the participant was restarted, or somebody else resumed it"
    if outcome is Outcome.HELD_BY_OTHER:
        return "it no longer stands at our cut; somebody else resumed it and took it"
    return "it fell back from the cut"


def in_doubt(wire_id: str, state: State, ledger: Ledger) -> InDoubt:
    """Who is owed a resume, and the last that was heard of each."""
    published = {
        _S.IN_DOUBT_PUBLISHED: True,
        _S.IN_DOUBT_UNPUBLISHED: False,
    }.get(state.transaction)
    owed: dict[ParticipantKey, str] = {}
    for spec, member in zip(state.plan.members, state.members, strict=True):
        if is_owed(member):
            owed[spec.key] = (
                "it still owes a restore: restore it or restart it"
                if member.release is ReleaseState.OWES_RESTORE
                else _last_heard(spec.key, ledger.entries[spec.key])
            )
    return InDoubt(wire_id, published=published, owed=owed)


def holder(entry: Entry) -> str:
    """Who holds a participant that is not ours, as far as it said so: a phrase."""
    answer, found = entry.answer, entry.found
    if answer is not None and answer.error is not None:
        return str(answer.error)
    named = found.capabilities.active_checkpoint_id if found is not None else None
    return f"another id, {named}" if named is not None else "another id"


def restore_failed(wire_id: str, state: State, ledger: Ledger) -> RestoreFailed:
    """Who is restored and closed, who was not touched, who failed and why, of those that have something to restore."""
    restored: list[ParticipantKey] = []
    untouched: list[ParticipantKey] = []
    failed: dict[ParticipantKey, str] = {}
    for spec, member in zip(state.plan.members, state.members, strict=True):
        if Phase.RESTORE not in spec.phases:
            continue
        entry = ledger.entries[spec.key]
        if member.state is ParticipantState.RESTORED or (entry.standing is not None and entry.standing.is_restored):
            restored.append(spec.key)
        elif member.state is ParticipantState.IDLE:
            untouched.append(spec.key)
        else:
            failed[spec.key] = entry.standing.sentence if entry.standing is not None else _last_heard(spec.key, entry)
    return RestoreFailed(wire_id, restored=restored, untouched=untouched, failed=failed, advice=ledger.advice)


def where_everybody_stands(state: State, ledger: Ledger, now_s: float) -> dict[ParticipantKey, str]:
    """For everybody who had not done its part when the transaction left its way: the state, since when, what is open.

    Whoever had not been asked yet, since its turn comes later, is left out. Empty where the caller was waited for.
    """
    done = _DONE.get(ledger.left)
    if done is None:
        return {}
    return {
        spec.key: _standing(ledger.entries[spec.key], now_s)
        for spec, member in zip(state.plan.members, state.members, strict=True)
        if not done(spec, member, ledger.entries[spec.key])
        and _was_asked(member, ledger.entries[spec.key], ledger.left)
    }


def _was_asked(member: Member, entry: Entry, phase: str) -> bool:
    """Whether it was called for more than a reading in this phase."""
    only_read = entry.answer is None or entry.answer.verb is Verb.INSPECT
    return phase == _S.PREFLIGHT or member.pending not in (None, Verb.INSPECT) or not only_read


def _was_open(_spec: MemberSpec, _member: Member, entry: Entry) -> bool:
    return entry.answer is not None and entry.answer.outcome is Outcome.OPEN


def _has_paused(spec: MemberSpec, member: Member, _entry: Entry) -> bool:
    return Phase.PREPARE not in spec.phases or member.state is ParticipantState.PAUSED


def _has_exported(spec: MemberSpec, member: Member, _entry: Entry) -> bool:
    return Phase.COMMIT not in spec.phases or (member.state is ParticipantState.COMMITTED and member.verified)


def _has_restored(spec: MemberSpec, member: Member, _entry: Entry) -> bool:
    return Phase.RESTORE not in spec.phases or member.state is ParticipantState.RESTORED


_DONE: Final[Mapping[str, Callable[[MemberSpec, Member, Entry], bool]]] = {
    _S.PREFLIGHT: _was_open,
    _S.DRAINING: _has_paused,
    _S.COMMITTING: _has_exported,
    _S.RESTORING: _has_restored,
}
"""Who has done its part, in the states in which participants are waited for."""


def _standing(entry: Entry, now_s: float) -> str:
    open_work = entry.progress.sentence() if entry.progress is not None else ""
    in_flight = f", {open_work}" if open_work else ""
    error = entry.answer.error if entry.answer is not None and not open_work else None
    said = f", last: {error}" if error is not None else ""
    asked = f", on_completed runs for {now_s - entry.consulted_s:.1f} s" if entry.consulted_s is not None else ""
    named = named_work(entry)
    return (
        f"{entry.state.value} for {now_s - entry.since_s:.1f} s{in_flight}{f': {named}' if named else ''}{asked}{said}"
    )


def named_work(entry: Entry) -> str:
    """The calls and executions that hold a participant up, by name and age; empty where none are known."""
    progress = entry.progress
    if progress is None:
        return ""
    calls = [f"{call.rollout_id or 'a call'} ({call.age_s:.1f} s)" for call in progress.inflight[:_NAMED_MAX]]
    blocked = [f"{one.attempt} {one.state} ({one.age_s:.1f} s)" for one in progress.blockers[:_NAMED_MAX]]
    return ", ".join([*calls, *blocked])


def _last_heard(key: ParticipantKey, entry: Entry) -> str:
    answer = entry.answer
    if answer is None:
        return "nothing was heard of it"
    if answer.error is None:
        return f"{answer.verb.value} came to {answer.outcome.value}"
    return str(answer.error).removeprefix(f"{key}: ")


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
