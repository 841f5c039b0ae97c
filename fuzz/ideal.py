"""A participant that does everything right, as a pure automaton: where a sequence leads, without sending anything.

It is the strict fence together with the little of its surroundings that decides what happens: whether work is in
flight, which directories were written. Sequences are planned on it, and deep states reached by its shortest paths.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from quiesce.fsm.fence import FenceSignal, FenceState, FenceStep, fence_step
from quiesce.fsm.tables.fence import FenceEvent, FencePhase, FenceTable
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.steps import CallStep, Deadline, Operation, Roots, Send, Step, Until, WaitStep, WorkKind, WorkStep
from quiesce.fuzz.subject import EVENT_OF
from quiesce.fuzz.worlds import FenceRow

__all__ = ["Ideal", "Outcome", "apply", "prefixes"]

NODES_MAX: Final = 400
_PASSED: Final = frozenset({Deadline.PAST, Deadline.ZERO})
_FRESH: Final = FenceState()
_E = FenceEvent


@dataclass(frozen=True, slots=True)
class Ideal:
    """Where the ideal participant stands.

    Attributes:
        fence: its fence.
        busy: whether work is in flight.
        seeded: whether a resource server has the session in which work is begun.
        written: directory and id of each export that was made.
    """

    fence: FenceState = _FRESH
    busy: bool = False
    seeded: bool = False
    written: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a step leads, and the rows that were taken on the way."""

    after: Ideal
    rows: tuple[FenceRow, ...] = ()


def apply(table: FenceTable, role: Role, before: Ideal, step: Step) -> Outcome | None:
    """What a step does. None: it makes no sense there (no such work to wait for, a call that nothing answers)."""
    if isinstance(step, WaitStep):
        return _waited(table, before, step)
    if isinstance(step, WorkStep):
        return _on_work(before, step, role)
    return _called(table, role, before, step)


@lru_cache(maxsize=64)
def prefixes(
    table: FenceTable, role: Role, moves: tuple[Step, ...], *, depth: int
) -> tuple[tuple[Ideal, tuple[Step, ...]], ...]:
    """Every state that is reached within ``depth`` moves, each with a shortest way to it, breadth first."""
    return tuple(_breadth_first(table, role, moves, depth))


def _breadth_first(
    table: FenceTable, role: Role, moves: tuple[Step, ...], depth: int
) -> Iterator[tuple[Ideal, tuple[Step, ...]]]:
    seen: set[Ideal] = {Ideal()}
    frontier: deque[tuple[Ideal, tuple[Step, ...]]] = deque([(Ideal(), ())])
    while frontier and len(seen) <= NODES_MAX:
        state, path = frontier.popleft()
        yield state, path
        for move in moves if len(path) < depth else ():
            outcome = apply(table, role, state, move)
            if outcome is not None and outcome.after not in seen:
                seen.add(outcome.after)
                frontier.append((outcome.after, (*path, move)))


@lru_cache(maxsize=32)
def _pairs(table: FenceTable) -> frozenset[tuple[FencePhase, FenceEvent]]:
    return frozenset((row.source, row.event) for row in table.rows)


def _waited(table: FenceTable, before: Ideal, step: WaitStep) -> Outcome | None:
    if step.until is not Until.WORK or not before.busy:
        return None
    after = replace(before, busy=False)
    drains = before.fence.closed and (before.fence.phase, _E.DRAINED) in _pairs(table)
    if not drains:
        return Outcome(after)
    drained = fence_step(table, before.fence, FenceSignal(_E.DRAINED, before.fence.active))
    return Outcome(replace(after, fence=drained.state), (drained.row,))


def _on_work(before: Ideal, step: WorkStep, role: Role) -> Outcome | None:
    is_open = not before.fence.closed
    match step.kind:
        case WorkKind.SEED if is_open and not before.seeded:
            return Outcome(replace(before, seeded=True))
        case WorkKind.BEGIN if is_open and not before.busy and (before.seeded or role is not Role.RESOURCES):
            return Outcome(replace(before, busy=True))
    return None


def _called(table: FenceTable, role: Role, before: Ideal, step: CallStep) -> Outcome | None:
    event = EVENT_OF.get(step.operation)
    if event is None or (before.fence.phase, event) not in _pairs(table):
        return None
    if role is not Role.POLICY and step.roots is not Roots.NONE:
        return None  # only a policy is told of roots
    first = fence_step(table, before.fence, _signal(event, before, step))
    ending = _ending(table, role, before, step, first)
    rows = (first.row, *(end.row for end in ending))
    fence = ending[-1].state if ending else first.state
    after = replace(before, fence=fence, busy=before.busy and not _frees(step, first, role))
    if ending and rows[-1].event is _E.COMMIT_DONE:
        after = replace(after, written=after.written | {(step.directory, step.id)})
    if step.send is Send.TWICE and _moves(first):
        again = fence_step(table, fence, _signal(event, after, step))
        rows = (*rows, again.row)
    return Outcome(after, rows)


def _signal(event: FenceEvent, before: Ideal, step: CallStep) -> FenceSignal:
    return FenceSignal(
        event,
        step.id,
        operation=(event, step.attempt) if event is _E.ABORT_INFLIGHT else None,
        body=(step.directory, step.roots) if event in {_E.COMMIT, _E.RESTORE} else None,
        deadline_passed=step.deadline in _PASSED,
        drained=not before.busy,
    )


def _ending(table: FenceTable, role: Role, before: Ideal, step: CallStep, first: FenceStep) -> list[FenceStep]:
    """How what the call started ends; nothing where it started nothing, or is left running."""
    if first.answer != "start_operation" or step.send in {Send.START, Send.AT_ONCE, Send.LEAVE}:
        return []
    end = _end_event(role, before, step)
    return [fence_step(table, first.state, FenceSignal(end, step.id))]


def _end_event(role: Role, before: Ideal, step: CallStep) -> FenceEvent:
    written = dict(before.written)
    match step.operation:
        case Operation.PREPARE if before.busy and step.deadline is Deadline.SHORT:
            return _E.PREPARE_INCOMPLETE if role is Role.AGENT else _E.PREPARE_FAILED
        case Operation.PREPARE:
            return _E.PREPARE_READY
        case Operation.COMMIT:
            usable = step.roots is Roots.NONE and step.directory != "file"
            return _E.COMMIT_DONE if usable and written.get(step.directory, step.id) == step.id else _E.COMMIT_FAILED
    return _E.RESTORE_DONE if step.directory in written else _E.RESTORE_FAILED


def _frees(step: CallStep, first: FenceStep, role: Role) -> bool:
    """Whether the call ends the work that is in flight."""
    if first.row.refusal:
        return False
    return step.operation is Operation.RETIRE and role is Role.AGENT


def _moves(step: FenceStep) -> bool:
    return not step.row.refusal and step.row.target is not FencePhase.IDLE
