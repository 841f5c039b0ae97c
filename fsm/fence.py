"""The fence automaton: FENCE together with what it remembers. Pure; the kit's servers and the explorer step this one.

    fence_step(table, state, signal)  ->  FenceStep(state', row)

``FenceState`` is the whole memory of one participant's fence, frozen and hashable: phase, active id, whether admission
is closed, used-up ids, recorded replies, and the handlers that still run (a handler outlives its client, F17). Ids,
operations and bodies are opaque: text in the kit, small integers in the explorer. A ``FenceSignal`` is an event with
its id and the facts that only the outside knows. What a driver must do with a step:

1. Put ``step.state`` in place of the old one before anything else happens.
2. Perform ``step.effects`` in order, as far as they reach outside: ``close_admission``, ``open_admission``,
   ``end_waiting_prepare``. The others are already in the state.
3. Answer the call as ``step.answer`` says (``ANSWERS`` in ``quiesce.fsm.tables.fence_vocabulary``).
   ``start_operation``: run it and deliver its end as a signal with the same id and operation, exactly once, whatever
   became of the caller. ``wait_for_running``: deliver the same arrival again as the very next signal once
   ``state.awake`` has its id, so that no other id comes between.
4. ``FenceEvent.DRAINED`` is delivered when ``closed`` and nothing is in flight, to tables that have it in this phase;
   ``GRACE_PASSED`` when nobody polled an ``unattended`` preparing fence for long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from quiesce.fsm.engine import Engine
from quiesce.fsm.errors import IllegalTransition
from quiesce.fsm.rows import Accepted, Row
from quiesce.fsm.tables.fence import ANSWERS, ENDS, REFUSALS, FenceEvent, FencePhase, FenceTable

__all__ = ["FenceSignal", "FenceState", "FenceStep", "Handler", "Record", "fence_step"]

_OPERATION_OF_END: Final = {
    FenceEvent.PREPARE_READY: FenceEvent.PREPARE,
    FenceEvent.PREPARE_DRAINING: FenceEvent.PREPARE,
    FenceEvent.PREPARE_INCOMPLETE: FenceEvent.PREPARE,
    FenceEvent.PREPARE_FAILED: FenceEvent.PREPARE,
    FenceEvent.COMMIT_DONE: FenceEvent.COMMIT,
    FenceEvent.COMMIT_FAILED: FenceEvent.COMMIT,
    FenceEvent.RESTORE_DONE: FenceEvent.RESTORE,
    FenceEvent.RESTORE_FAILED: FenceEvent.RESTORE,
    FenceEvent.RESUME_DONE: FenceEvent.RESUME,
    FenceEvent.RESUME_FAILED: FenceEvent.RESUME,
}
_ENDS: Final = frozenset(ENDS)
_ANSWERS: Final = frozenset(ANSWERS)
_WRITING: Final = frozenset({FencePhase.COMMITTING, FencePhase.RESTORING})


@dataclass(frozen=True, slots=True)
class Handler:
    """An operation that runs: for which id, asked for by which body.

    ``entered`` is the phase in which it began, remembered only where a failure of it writes that phase back.
    """

    id: Hashable
    operation: Hashable
    body: Hashable
    entered: FencePhase | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A reply that a repetition gets; ``ready`` when it says that the cut is reached."""

    id: Hashable
    operation: Hashable
    body: Hashable
    ready: bool


@dataclass(frozen=True, slots=True)
class FenceState:
    """All that a fence remembers. ``active`` is None when no id holds it; ids are anything but None.

    ``waiting`` are the ids whose resume waits for a commit or restore that runs.
    """

    phase: FencePhase = FencePhase.IDLE
    active: Hashable = None
    closed: bool = False
    finished: frozenset[Hashable] = frozenset()
    recorded: frozenset[Record] = frozenset()
    running: frozenset[Handler] = frozenset()
    waiting: frozenset[Hashable] = frozenset()

    @property
    def awake(self) -> frozenset[Hashable]:
        """Ids whose resume waited and may now be delivered again."""
        return frozenset() if self.phase in _WRITING else self.waiting

    @property
    def unattended(self) -> bool:
        """Whether an id holds the fence and none of its operations runs."""
        return self.active is not None and not any(handler.id == self.active for handler in self.running)

    def handler(self, id_: Hashable, operation: Hashable) -> Handler | None:
        """The running handler of this operation, if there is one."""
        return next((found for found in self.running if found.id == id_ and found.operation == operation), None)

    def record(self, id_: Hashable, operation: Hashable) -> Record | None:
        """The recorded reply of this operation, if there is one."""
        return next((found for found in self.recorded if found.id == id_ and found.operation == operation), None)


@dataclass(frozen=True, slots=True)
class FenceSignal:
    """One event of a fence, with its id and what only the outside knows.

    ``operation`` keys records and handlers; it defaults to the event that asks for it. Two calls are the same when
    their id and operation are; an ``abort_inflight`` therefore names its attempt in it (wire-protocol 2.6). ``body`` is
    whatever makes two bodies differ, ``deadline_ts`` left out. An end carries the id and operation that it ends.
    """

    event: FenceEvent
    id: Hashable = None
    operation: Hashable = None
    body: Hashable = None
    deadline_passed: bool = False
    drained: bool = False
    owes_restore: bool = False
    members_connected: bool = True

    @property
    def key(self) -> Hashable:
        """The operation that is asked for or has ended."""
        return _OPERATION_OF_END.get(self.event, self.event) if self.operation is None else self.operation


@dataclass(frozen=True, slots=True)
class FenceStep:
    """What a signal led to: the new state, and the row that says why."""

    state: FenceState
    row: Row[FencePhase, FenceEvent]

    @property
    def effects(self) -> tuple[str, ...]:
        """Effects of the row, in order."""
        return self.row.effects

    @property
    def answer(self) -> str | None:
        """How the call is answered: a member of ``ANSWERS``; None for an event from within."""
        return next((effect for effect in self.row.effects if effect in _ANSWERS), None)

    @property
    def refusal(self) -> str | None:
        """The ``error.code`` with which the fence itself refuses, None when it does not."""
        answer = self.answer
        return None if answer is None else REFUSALS.get(answer)


def fence_step(table: FenceTable, state: FenceState, signal: FenceSignal, engine: Engine | None = None) -> FenceStep:
    """Step a fence by one signal. Pure: the same input gives the same step, and the old state stays as it was.

    ``engine`` chooses the row where it is not the table itself that does.

    Raises:
        IllegalTransition: the table has no row for this (a defect of the driver), or an end names no handler that runs.
    """
    handler = state.handler(signal.id, signal.key)
    if handler is None and signal.event in _ENDS:
        reason = f"{table.name}: '{signal.event.value}' ends an operation of {signal.id!r} that does not run"
        raise IllegalTransition(table.name, state.phase.value, signal.event.value, reason)
    facts = _facts(state, signal, handler)
    chosen = table.step if engine is None else partial(engine.step, table)
    result = chosen(state.phase, signal.event, facts)
    if not isinstance(result, Accepted):
        raise IllegalTransition(table.name, state.phase.value, signal.event.value, result.reason)
    if result.row.refusal:
        return FenceStep(state, result.row)
    return FenceStep(_after(state, signal, handler, result.row), result.row)


def _facts(state: FenceState, signal: FenceSignal, handler: Handler | None) -> dict[str, object]:
    record = state.record(signal.id, signal.key)
    seen = record or handler
    return {
        "id_finished": signal.id in state.finished,
        "id_active": state.active is not None and state.active == signal.id,
        "other_active": state.active is not None and state.active != signal.id,
        "body_differs": seen is not None and seen.body != signal.body,
        "recorded": record is not None,
        "recorded_ready": record is not None and record.ready,
        "running": handler is not None,
        "idle_handlers": state.unattended,
        "entered_prepared": handler is not None and handler.entered is FencePhase.PREPARED,
        "deadline_passed": signal.deadline_passed,
        "drained": signal.drained,
        "owes_restore": signal.owes_restore,
        "members_connected": signal.members_connected,
    }


@dataclass(slots=True)
class _Change:
    """A fence's memory while the effects of one row are applied to it."""

    signal: FenceSignal
    handler: Handler | None
    phase: FencePhase
    active: Hashable
    closed: bool
    finished: frozenset[Hashable]
    recorded: frozenset[Record]
    running: frozenset[Handler]
    waiting: frozenset[Hashable]
    entered: FencePhase | None = None

    def close(self) -> None:
        self.closed = True

    def open(self) -> None:
        self.closed = False

    def hold(self) -> None:
        self.active = self.signal.id

    def free(self) -> None:
        self.active = None

    def finish(self) -> None:
        used_up = self.signal.id
        self.finished |= {used_up}
        self.waiting -= {used_up}
        self.recorded = frozenset(record for record in self.recorded if record.id != used_up)

    def record_ready(self) -> None:
        self._record(ready=True)

    def record_draining(self) -> None:
        self._record(ready=False)

    def _record(self, *, ready: bool) -> None:
        body = self.signal.body if self.handler is None else self.handler.body
        self.recorded |= {Record(self.signal.id, self.signal.key, body, ready)}

    def remember(self) -> None:
        self.entered = self.phase

    def start(self) -> None:
        self.running |= {Handler(self.signal.id, self.signal.key, self.signal.body, self.entered)}

    def drop(self) -> None:
        self.running -= {self.handler}

    def wait(self) -> None:
        self.waiting |= {self.signal.id}


_APPLIED: Final[Mapping[str, Callable[[_Change], None]]] = {
    "close_admission": _Change.close,
    "open_admission": _Change.open,
    "set_active": _Change.hold,
    "clear_active": _Change.free,
    "finish_id": _Change.finish,
    "record_reply": _Change.record_ready,
    "record_draining_reply": _Change.record_draining,
    "remember_phase": _Change.remember,
    "start_operation": _Change.start,
    "drop_handler": _Change.drop,
    "wait_for_running": _Change.wait,
}
"""The effects that change the memory; the others tell the driver what to do or how to answer."""


def _after(
    state: FenceState, signal: FenceSignal, handler: Handler | None, row: Row[FencePhase, FenceEvent]
) -> FenceState:
    change = _Change(
        signal,
        handler,
        state.phase,
        state.active,
        state.closed,
        state.finished,
        state.recorded,
        state.running,
        state.waiting,
    )
    for effect in row.effects:
        if apply := _APPLIED.get(effect):
            apply(change)
    return FenceState(
        row.target, change.active, change.closed, change.finished, change.recorded, change.running, change.waiting
    )
