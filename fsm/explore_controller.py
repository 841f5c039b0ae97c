"""The controller, as the explorer sees it: the real core with what its runner owes it.

State is the core's own state, the timers that are armed, and the errands (consult, verify, publish, probe) that have
not been answered. Every step is ``advance`` on one event; a batch whose barrier cannot be made durable is played as the
runner's contract says (``quiesce.fsm.transaction``, 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from quiesce.fsm import messages as m
from quiesce.fsm.advance import advance
from quiesce.fsm.engine import Engine, TableEngine
from quiesce.fsm.explore_site import Fault, Flight
from quiesce.fsm.rows import Accepted
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.transaction import Plan, State, initial_state, opens_a_restore
from quiesce.fsm.vocabulary import ParticipantKey

__all__ = ["Controller", "ControllerAutomaton", "ControllerStep", "Moved"]

Errand = m.Consult | m.Verify | m.Publish | m.Probe
Armed = tuple[m.Timer, ParticipantKey | None]


class Controller(NamedTuple):
    """The core, its armed timers, what it waits for beside calls, and what the world knows better than it.

    ``published``: the snapshot stands in its place. ``told_to_abort``, ``told_to_release``: somebody asked for an abort
    of a restore by name, or for its release. ``hasty``: something was asked for before it was recorded.
    ``contradicted``: an export that is not what it was said to be did not end the cut. ``noted``: whom the durable
    records name as touched, where the controller may die; ``recovered``: it has; ``decided``: whether a durable record
    says that a restore was being released, or aborted; ``fresh_ids``: those that one names, by whom they are for.
    ``unread``: who was proven open while the rename's outcome could not be read, unless it is known not to have been.
    """

    core: State
    armed: frozenset[Armed] = frozenset()
    errands: frozenset[Errand] = frozenset()
    published: bool = False
    told_to_abort: bool = False
    told_to_release: bool = False
    hasty: bool = False
    contradicted: bool = False
    noted: frozenset[ParticipantKey] = frozenset()
    recovered: bool = False
    decided: TransactionState | None = None
    fresh_ids: frozenset[tuple[ParticipantKey, int]] = frozenset()
    unread: frozenset[ParticipantKey] = frozenset()


class Moved(NamedTuple):
    """Where an event led: the controller after it, and the calls that leave (place of the member, call)."""

    target: Controller
    calls: tuple[tuple[int, Flight], ...] = ()
    barrier: bool = False


class ControllerStep(NamedTuple):
    """One thing that the controller can meet by itself; ``waits_for`` is a place at which nothing may run any more."""

    action: str
    fault: Fault | None
    event: m.Event
    publishes: bool = False
    waits_for: int | None = None
    orphans: bool = False
    """Whether everything that was on its way has lost its client."""
    again: tuple[int, ...] = ()
    """Places of those who are tried again, whichever process answers there."""


_UNTOUCHED: Final = ParticipantState.IDLE
_ALWAYS_FIRE: Final = frozenset({m.Timer.POLL, m.Timer.RETRY, m.Timer.BACKOFF, m.Timer.PROBE})
_S = TransactionState
_OVER: Final = frozenset({_S.RESUMED, _S.ABORTED})
_HOLDING: Final = frozenset({_S.RESTORING, _S.RESTORED, _S.RESTORE_FAILED})
_DECIDED: Final = frozenset({_S.RESUMING, _S.ABORTING})
_TOWARDS_PUBLICATION: Final = frozenset({_S.COMMITTING, _S.COMMITTED, _S.PUBLISHING, _S.PUBLISHED, _S.RESUMING})
_KEEPS_UNREAD: Final = frozenset({_S.RESUMING, _S.RESUMED, _S.IN_DOUBT_PUBLISHED})
_ASKED: Final[Mapping[TransactionState, m.Event]] = {
    TransactionState.IDLE: m.Begin(),
    TransactionState.PAUSED: m.CommitRequested(),
    TransactionState.COMMITTED: m.PublishRequested(),
    TransactionState.RESTORED: m.ReleaseRequested(),
}


@dataclass(frozen=True)
class ControllerAutomaton:
    """Everything that can happen to the controller of one plan, on an engine; with ``dies`` it may die at any time."""

    plan: Plan
    engine: Engine = TableEngine()  # noqa: RUF009 - it has no state
    dies: bool = False

    def initial(self) -> Controller:
        """Before the transaction begins."""
        return Controller(initial_state(self.plan))

    @cached_property
    def _enumerated(self) -> dict[tuple[Controller, m.Event], tuple[Moved, ...]]:
        return {}

    def moves(self, controller: Controller, event: m.Event) -> tuple[Moved, ...]:
        """Where an event leads, and where it leads if its barrier record fails; enumerated once."""
        known = self._enumerated.get((controller, event))
        if known is None:
            moved = self._move(controller, event)
            failed = (self._move_unrecorded(controller, event),) if moved.barrier else ()
            known = self._enumerated[controller, event] = (moved, *failed)
        return known

    def _move(self, controller: Controller, event: m.Event) -> Moved:
        """Take one event in and note what it asks for."""
        if isinstance(event, m.Recover):
            kept = controller._replace(core=initial_state(self.plan), armed=frozenset(), errands=frozenset())
            controller = kept._replace(unread=frozenset())
        core, commands = advance(controller.core, event, self.engine)
        calls = tuple(
            (self.plan.index[command.key], Flight(command.leg, command.verb, command.id_index))
            for command in commands
            if isinstance(command, m.Call)
        )
        barrier = any(isinstance(command, m.Record) and command.barrier for command in commands)
        target = _noted(controller, core, event, commands)
        if not isinstance(event, m.Recover) and _is_hasty(controller.core, core, commands):
            target = target._replace(hasty=True)
        if self.dies and barrier:
            decided = core.transaction if self.plan.is_restore and core.transaction in _DECIDED else target.decided
            target = target._replace(noted=target.noted | _touched(core), decided=decided, fresh_ids=_fresh_ids(core))
        if isinstance(event, m.Recover):
            target = target._replace(recovered=True)
        return Moved(target, calls, barrier)

    def _move_unrecorded(self, controller: Controller, event: m.Event) -> Moved:
        """Take one event in whose barrier record fails.

        No call of its batch leaves, nothing is published, and both are told before the failure is, as by the runner.
        What releases a restore is not done at all.
        """
        core, commands = advance(controller.core, event, self.engine)
        if opens_a_restore(controller.core, core):
            return self._move(controller, m.RecordFailed())
        done = tuple(command for command in commands if not isinstance(command, m.Record | m.Call | m.Publish))
        moved = Moved(_noted(controller, core, event, done))
        calls: list[tuple[int, Flight]] = []
        for told in (*_undone(commands), m.RecordFailed()):
            moved = self._move(moved.target, told)
            calls += moved.calls
        return Moved(moved.target, tuple(calls))

    def steps(self, controller: Controller) -> Iterator[ControllerStep]:
        """Everything that can come to the controller from elsewhere than a participant."""
        yield from self._timers(controller)
        yield from self._requests(controller)
        if self.dies and controller.core.transaction not in _OVER and controller.core.transaction is not _S.IDLE:
            event = m.Recover(
                controller.published,
                controller.noted,
                released=controller.decided is _S.RESUMING,
                aborted=controller.decided is _S.ABORTING,
                fresh_ids=controller.fresh_ids,
            )
            yield ControllerStep("the controller dies, and another recovers", Fault.CONTROLLER, event, orphans=True)
        for errand in sorted(controller.errands, key=str):
            yield from _errand_ends(errand, published=controller.published)

    def _timers(self, controller: Controller) -> Iterator[ControllerStep]:
        for timer, key in sorted(controller.armed, key=str):
            event = m.TimerFired(timer, key)
            action = f"timer {timer}" + ("" if key is None else f" of {key}")
            if timer is m.Timer.OUTSTANDING and key is not None:
                yield ControllerStep(action, None, event, waits_for=self.plan.index[key])
            else:
                yield ControllerStep(action, None if timer in _ALWAYS_FIRE else Fault.DEADLINE, event)

    def _requests(self, controller: Controller) -> Iterator[ControllerStep]:
        state = controller.core.transaction
        if state in _ASKED:
            yield ControllerStep(f"asked to {type(_ASKED[state]).__name__}", None, _ASKED[state])
        if controller.core.rested and self._possible(state, TransactionEvent.RETRY_REQUESTED):
            again = _called_again(controller.core)
            yield ControllerStep("asked to retry", Fault.RETRY, m.RetryRequested(), again=again)
        held = state is TransactionState.RESTORE_FAILED
        if held or self._possible(state, TransactionEvent.ABORT_REQUESTED):
            yield ControllerStep("asked to abort", None if held else Fault.ABORT, m.AbortRequested())
        if not held and self._possible(state, TransactionEvent.CANCELLED):
            yield ControllerStep("the caller goes away", Fault.ABORT, m.Cancelled())
        if not controller.core.rested and state is not TransactionState.IDLE:
            yield ControllerStep("a record fails", Fault.STORE, m.RecordFailed())

    def _possible(self, state: TransactionState, event: TransactionEvent) -> bool:
        return isinstance(self.engine.step(TRANSACTION, state, event, {}), Accepted)


def _called_again(core: State) -> tuple[int, ...]:
    """Places of those whom a restore that is tried again calls: whoever is not restored."""
    if core.transaction is not _S.RESTORE_FAILED:
        return ()
    return tuple(place for place, member in enumerate(core.members) if member.state is not ParticipantState.RESTORED)


def _is_hasty(before: State, after: State, commands: tuple[m.Command, ...]) -> bool:
    """Whether the batch asks for what must be durable before, with no barrier in front of it (contract 4, 5, 6)."""
    opens = before.transaction in _HOLDING and after.transaction in _DECIDED
    recorded = False
    for command in commands:
        recorded = recorded or (isinstance(command, m.Record) and command.barrier)
        if recorded:
            return False
        if isinstance(command, m.Publish) or (opens and isinstance(command, m.Call)):
            return True
        if isinstance(command, m.Call) and command.leg is m.Leg.FORWARD:
            place = before.plan.index[command.key]
            if before.members[place].state is _UNTOUCHED and after.members[place].state is not _UNTOUCHED:
                return True
    return False


def _touched(core: State) -> frozenset[ParticipantKey]:
    members = zip(core.plan.members, core.members, strict=True)
    return frozenset(spec.key for spec, member in members if member.state is not _UNTOUCHED)


def _fresh_ids(core: State) -> frozenset[tuple[ParticipantKey, int]]:
    members = zip(core.plan.members, core.members, strict=True)
    return frozenset((spec.key, member.id_index) for spec, member in members if member.id_index)


def _noted(controller: Controller, core: State, event: m.Event, commands: tuple[m.Command, ...]) -> Controller:
    to_abort = controller.told_to_abort or (core.plan.is_restore and isinstance(event, m.AbortRequested))
    to_release = controller.told_to_release or (core.plan.is_restore and isinstance(event, m.ReleaseRequested))
    refused = isinstance(event, m.Verification) and not event.accepted and core.transaction in _TOWARDS_PUBLICATION
    kept = controller._replace(
        core=core,
        told_to_abort=to_abort,
        told_to_release=to_release,
        contradicted=controller.contradicted or (refused and not core.plan.is_restore),
        unread=_unread(controller, core),
    )
    if core.transaction in _OVER:
        # nothing that still fires or is answered can move it any more
        return kept._replace(armed=frozenset(), errands=frozenset(), noted=frozenset(), fresh_ids=frozenset())
    armed, errands = set(controller.armed), set(controller.errands)
    if isinstance(event, m.TimerFired):
        armed.discard((event.timer, event.key))
    errands -= {errand for errand in errands if _answers(event, errand)}
    for command in commands:
        if isinstance(command, m.Arm):
            armed.add((command.timer, command.key))
        elif isinstance(command, m.Disarm):
            armed.discard((command.timer, command.key))
        elif isinstance(command, m.Consult | m.Verify | m.Publish | m.Probe):
            errands.add(command)
    return kept._replace(armed=frozenset(armed), errands=frozenset(errands))


def _unread(controller: Controller, core: State) -> frozenset[ParticipantKey]:
    if core.transaction is not _S.PUBLISH_UNKNOWN:
        return controller.unread if core.transaction in _KEEPS_UNREAD else frozenset()
    members = zip(core.plan.members, core.members, strict=True)
    return frozenset(spec.key for spec, member in members if member.state is ParticipantState.ABORTED)


def _answers(event: m.Event, errand: Errand) -> bool:
    if isinstance(event, m.Publication):
        return isinstance(errand, m.Publish | m.Probe)
    if isinstance(event, m.Verification):
        return errand == m.Verify(event.key)
    return isinstance(event, m.ReceiptsReady | m.ConsultFailed) and errand == m.Consult(event.key)


def _undone(commands: tuple[m.Command, ...]) -> Iterator[m.Event]:
    for command in commands:
        if isinstance(command, m.Call):
            yield m.CallFailed(command.key, command.leg, command.verb, command.id_index, maybe_applied=False)
        elif isinstance(command, m.Publish):
            yield m.Publication.NOT_PUBLISHED


def _errand_ends(errand: Errand, *, published: bool) -> Iterator[ControllerStep]:
    if isinstance(errand, m.Verify):
        for accepted in (True, False):
            word = "holds" if accepted else "does not hold"
            fault = None if accepted else Fault.FAILURE
            event = m.Verification(errand.key, accepted)
            yield ControllerStep(f"the export of {errand.key} {word} what it said", fault, event)
    elif isinstance(errand, m.Consult):
        yield ControllerStep(f"the trainer owns the results of {errand.key}", None, m.ReceiptsReady(errand.key))
        yield ControllerStep(
            f"the trainer fails to own the results of {errand.key}", Fault.FAILURE, m.ConsultFailed(errand.key)
        )
    elif isinstance(errand, m.Publish):
        yield ControllerStep("the rename happens", None, m.Publication.PUBLISHED, publishes=True)
        yield ControllerStep("the rename fails", Fault.STORE, m.Publication.NOT_PUBLISHED)
        yield ControllerStep("the rename happens, unseen", Fault.STORE, m.Publication.UNKNOWN, publishes=True)
        yield ControllerStep("the rename fails, unseen", Fault.STORE, m.Publication.UNKNOWN)
    else:
        found = m.Publication.PUBLISHED if published else m.Publication.NOT_PUBLISHED
        yield ControllerStep(f"the snapshot is looked for: {found}", None, found)
        yield ControllerStep("the snapshot is looked for in vain", Fault.STORE, m.Publication.UNKNOWN)
