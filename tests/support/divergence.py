"""Where the recorded servers' tables and the strict ones part: derived from the tables, not listed by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from quiesce.fsm.fence import FenceSignal, FenceState, FenceStep, fence_step
from quiesce.fsm.tables.fence import ARRIVALS, FENCE, FenceEvent, FencePhase, FenceTable, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.rulebook import rule_of_row

E = FenceEvent
STATES_MAX = 5000
ENDS = {
    E.PREPARE: (E.PREPARE_READY, E.PREPARE_DRAINING, E.PREPARE_INCOMPLETE, E.PREPARE_FAILED),
    E.COMMIT: (E.COMMIT_DONE, E.COMMIT_FAILED),
    E.RESTORE: (E.RESTORE_DONE, E.RESTORE_FAILED),
    E.RESUME: (E.RESUME_DONE, E.RESUME_FAILED),
}
SAME_TO_THE_CLIENT = {"start_operation": "answer_now", "join_running": "answer_now", "replay_reply": "answer_now"}
"""Answers that a client cannot tell apart by themselves: all of them are 200 in the end."""


@dataclass(frozen=True)
class Divergence:
    """The same signal in the same state, and what each table makes of it. ``rule`` is that of the strict row."""

    rule: str
    event: FenceEvent
    source: FencePhase
    strict: str | None
    recorded: str | None
    recorded_ref: str


def divergences(role: Role, variant: FenceVariant, *, owes_restore: bool = False) -> frozenset[Divergence]:
    """Every first difference on the ways through both tables at once, from their common beginning."""
    strict, recorded = FENCE[FenceVariant.STRICT, role], FENCE[variant, role]
    begin = FenceState(closed=owes_restore)
    seen = {(begin, begin)}
    frontier = deque(seen)
    found: set[Divergence] = set()
    while frontier and len(seen) < STATES_MAX:
        pair = frontier.popleft()
        for signal in _signals(*pair, owes_restore=owes_restore):
            steps = _step(strict, pair[0], signal), _step(recorded, pair[1], signal)
            if variant is FenceVariant.GYM_A_COORDINATOR:
                steps = steps[0], _acknowledged(recorded, signal, steps[1])
            after = (_after(steps[0], pair[0]), _after(steps[1], pair[1]))
            if steps == (None, None):
                continue
            if _answer(steps[0]) != _answer(steps[1]) or _view(after[0]) != _view(after[1]):
                missing = not any(row.event is signal.event for row in recorded.rows)
                found.add(_divergence(role, pair[0], signal, *steps, missing=missing))
            elif after not in seen:
                seen.add(after)
                frontier.append(after)
    return frozenset(found)


def _signals(strict: FenceState, recorded: FenceState, *, owes_restore: bool) -> Iterator[FenceSignal]:
    for event in ARRIVALS:
        for id_ in "ab":
            for body in ("d1", "d2") if event in {E.COMMIT, E.RESTORE} else ("",):
                for past, drained in ((False, True), (False, False), (True, True)):
                    yield FenceSignal(
                        event,
                        id_,
                        body=body,
                        deadline_passed=past,
                        drained=drained,
                        owes_restore=owes_restore and FencePhase.RESTORED_PAUSED not in {strict.phase, recorded.phase},
                    )
    if strict.closed:
        yield FenceSignal(E.DRAINED, strict.active)
    if strict.unattended:
        yield FenceSignal(E.GRACE_PASSED, strict.active)
    for handler in strict.running & recorded.running:
        for end in ENDS.get(FenceEvent(str(handler.operation)), ()):
            owes = owes_restore and end is not E.RESTORE_DONE
            yield FenceSignal(end, handler.id, operation=handler.operation, owes_restore=owes)


def _step(table: FenceTable, state: FenceState, signal: FenceSignal) -> FenceStep | None:
    if not any(row.source is state.phase and row.event is signal.event for row in table.rows):
        return None
    return fence_step(table, state, signal)


def _acknowledged(table: FenceTable, signal: FenceSignal, step: FenceStep | None) -> FenceStep | None:
    """The step of a coordinator together with its workers' acknowledgement, which a single worker does not wait for."""
    if step is None or step.answer != "start_operation":
        return step
    ends = {E.PREPARE: E.PREPARE_READY if signal.drained else E.PREPARE_DRAINING, E.RESUME: E.RESUME_DONE}
    ended = fence_step(table, step.state, FenceSignal(ends[signal.event], signal.id))
    return FenceStep(ended.state, step.row)


def _after(step: FenceStep | None, before: FenceState) -> FenceState:
    return before if step is None else step.state


def _answer(step: FenceStep | None) -> str | None:
    answer = None if step is None else step.answer
    return answer if answer is None else SAME_TO_THE_CLIENT.get(answer, answer)


def _view(state: FenceState) -> tuple[FencePhase, object, bool]:
    return state.phase, state.active, state.closed


def _divergence(
    role: Role,
    state: FenceState,
    signal: FenceSignal,
    strict: FenceStep | None,
    recorded: FenceStep | None,
    *,
    missing: bool,
) -> Divergence:
    from_strict = "" if strict is None else rule_of_row(role, strict.row).id
    return Divergence(
        rule="routes.present" if missing and signal.event in ARRIVALS else from_strict,
        event=signal.event,
        source=state.phase,
        strict=_answer(strict),
        recorded=_answer(recorded),
        recorded_ref="" if recorded is None else recorded.row.source_ref,
    )
