"""The runner: the one writer of a transaction.

One task owns the core's state. Calls, timers, verifications and callers post events to its mailbox; it advances the
core, performs the commands in their order, and tells whoever waits. The contract that it keeps is numbered in
``quiesce.fsm.transaction``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quiesce.controller.batches import Batches
from quiesce.controller.budgets import PROBE_S, SKEW_S, WAVE_PATIENCE_S, Budgets
from quiesce.controller.callbacks import interrupt_again
from quiesce.controller.caller import Caller, Confirm
from quiesce.controller.clock import Clock
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.errands import ErrandPorts, Errands, RestoreSource
from quiesce.controller.errors import StorageFailed, Superseded
from quiesce.controller.ledger import Entry, Ledger
from quiesce.controller.outcomes import holder, named_work, where_everybody_stands
from quiesce.controller.ports import OnCompleted, SnapshotPort
from quiesce.controller.records import Excuse, RecordPort
from quiesce.controller.timers import Timers
from quiesce.fsm import messages as m
from quiesce.fsm.advance import advance
from quiesce.fsm.engine import Engine
from quiesce.fsm.errors import IllegalTransition, QuiesceError
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.transaction import Plan, State, initial_state, opens_a_restore
from quiesce.fsm.vocabulary import ParticipantKey, Verb
from quiesce.participants.dialects.base import Reading
from quiesce.participants.identity import AttemptId
from quiesce.transport.logs import log_named
from quiesce.transport.port import Transport

__all__ = ["RunnerPorts", "TransactionRunner"]


_LATE_ABORT: Final = "note_late_abort"
_FAULTS_MAX: Final = 3
"""So many faults of ours end a transaction instead of going round."""


@dataclass(frozen=True, slots=True)
class RunnerPorts:
    """The outside of a runner.

    ``observers`` are told each step after it was recorded. ``confirm`` is awaited before each call that may change
    something; see :class:`~quiesce.controller.caller.Caller`.
    """

    transport: Transport
    records: RecordPort
    clock: Clock
    engine: Engine
    snapshot: SnapshotPort | None = None
    on_completed: OnCompleted | None = None
    observers: tuple[Callable[[TraceRecord], None], ...] = ()
    confirm: Confirm | None = None


class TransactionRunner:
    """Runs one transaction from begin to a state in which nobody is owed anything, or to one that rests."""

    def __init__(
        self,
        plan: Plan,
        fleet: Mapping[ParticipantKey, DiscoveredParticipant],
        wire_id: str,
        budgets: Budgets,
        ports: RunnerPorts,
        source: RestoreSource | None = None,
    ) -> None:
        self.wire_id = wire_id
        self.fleet = fleet
        """Everybody whom the transaction is over."""
        self.state: State = initial_state(plan)
        self.ledger = Ledger.over(spec.key for spec in plan.members)
        self.stood: dict[ParticipantKey, str] = {}
        """Where everybody stood when the transaction first left its way."""
        self._budgets = budgets
        self._ports = ports
        self._log = log_named("quiesce.controller").bind(wire_id=wire_id)
        self._timers = Timers(self._post)
        outside = ErrandPorts(
            wire_id=wire_id,
            fleet=fleet,
            caller=Caller(ports.transport, ports.clock, budgets, ports.confirm),
            clock=ports.clock,
            snapshot=ports.snapshot,
            on_completed=ports.on_completed,
            source=source,
            superseded=self._give_way,
        )
        self._errands = Errands(outside, self.ledger, self._post, self._remaining_s)
        self._faults = 0
        self._is_closed = False
        self.superseded: Superseded | None = None
        """Set once another controller has the root: nothing more is done here."""
        self._mailbox: asyncio.Queue[tuple[m.Event, asyncio.Future[None] | None]] = asyncio.Queue()
        self._deadlines: dict[m.Timer, float] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._driver: asyncio.Task[None] | None = None
        self._taken: asyncio.Future[None] | None = None
        self._performers: dict[type[Any], Callable[[Any], None]] = {
            m.Call: self._errands.call,
            m.Arm: self._arm,
            m.Disarm: self._disarm,
            m.Consult: self._errands.consult,
            m.Verify: self._errands.verify,
            m.Publish: self._errands.publish,
            m.Probe: self._errands.probe,
            m.Failed: self._failed,
            m.Note: self._note,
            m.Finished: self._finished,
        }
        self._batches = Batches(
            wire_id=wire_id,
            records=ports.records,
            clock=ports.clock,
            ledger=self.ledger,
            observers=ports.observers,
            performers=self._performers,
            post=self._post,
            log=self._log,
        )

    # what callers use

    def now_s(self) -> float:
        """The monotonic clock that this transaction's times are on."""
        return self._ports.clock.monotonic()

    def start(self) -> None:
        """Start the one writer."""
        self.ledger.begin(self.now_s())
        self._driver = asyncio.create_task(self._drive(), name=f"transaction {self.wire_id}")
        self._driver.add_done_callback(self._driver_ended)

    async def request(self, event: m.Event) -> None:
        """Post a request and wait until the core has taken it.

        Raises:
            IllegalTransition: the tables forbid it in the present state. Nothing changed.
        """
        if self._is_broken:
            raise self._broken()
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._mailbox.put_nowait((event, taken))
        await taken

    async def reached(self, *states: TransactionState) -> TransactionState:
        """Wait until the transaction is in one of ``states``, or rests, and say in which it is."""
        while not (self.state.transaction in states or self._is_at_rest()):
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed
        if self.state.transaction not in states:
            await self._look_who_has_the_root()
        return self.state.transaction

    async def _look_who_has_the_root(self) -> None:
        """Before anybody is told of a failure: one that another controller has met, too, or has mended, is not ours."""
        if self._ports.confirm is None or self.superseded is not None:
            return
        try:
            await self._ports.confirm()
        except Superseded as error:
            self._give_way(error)
        except StorageFailed as error:
            self._log.warning("epoch_unknown", error=str(error))

    async def ask(self, key: ParticipantKey, verb: Verb, attempt: AttemptId | None = None) -> Reading:
        """Ask a participant for something that moves no machine: a reading, or to discard a continuation."""
        return await self._errands.ask(key, verb, attempt)

    async def calls_ended(self, within_s: float) -> None:
        """Wait until no call is under way any more and every answer is in the ledger, for so long at most."""
        await self._errands.ended(within_s)

    async def excuse(self, key: ParticipantKey, reason: str) -> None:
        """Write down that a participant is owed nothing any more.

        Raises:
            StorageFailed: it could not be made durable.
        """
        await self._ports.records.excuse(Excuse(self._ports.clock.now_ts(), self.wire_id, str(key), reason))

    async def close(self) -> None:
        """Stop the writer and everything that still runs here; make the records durable, as far as that is possible."""
        self._timers.disarm_all()
        await self._errands.stop()
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.gather(self._driver, return_exceptions=True)
        self._is_closed = True
        self._refuse_the_rest(None)
        try:
            await self._ports.records.close()
        except (StorageFailed, Superseded) as error:
            self.ledger.note(f"the journal is not complete: {error}")
            if self.superseded is None:  # else that was logged, and the successor has the journal
                self._log.error("journal_incomplete", error=str(error))

    # the one writer

    @property
    def _is_broken(self) -> bool:
        return self._faults >= _FAULTS_MAX or self.superseded is not None or self._is_closed

    def _refuse_the_rest(self, taken: asyncio.Future[None] | None) -> None:
        """Nobody takes another event: whoever waits is told."""
        requests = [taken, *(self._mailbox.get_nowait()[1] for _ in range(self._mailbox.qsize()))]
        for request in requests:
            if request is not None and not request.done():
                request.set_exception(self._broken())
        self._wake()

    def _broken(self) -> QuiesceError:
        if self._is_closed and self.superseded is None:
            return QuiesceError(f"{self.wire_id} is closed; whoever recovers finishes it")
        return self.superseded or QuiesceError(
            f"{self.wire_id} broke off after {self._faults} faults of ours; see the errors before"
        )

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)

    def _is_at_rest(self) -> bool:
        if self._is_broken:
            return True
        if not self.state.rested:
            return False
        # a failed restore is reported once every import that was under way has said what became of it
        waits = self.state.transaction is TransactionState.RESTORE_FAILED
        return not (waits and any(member.pending for member in self.state.members))

    def _post(self, event: m.Event) -> None:
        self._mailbox.put_nowait((event, None))

    def _driver_ended(self, driver: asyncio.Task[None]) -> None:
        """Let nobody wait for ever where close, or a loop that ends all of its tasks (a second Ctrl-C), ended it."""
        if driver.cancelled() or driver.exception() is not None:
            self._is_closed = True
            self._refuse_the_rest(self._taken)

    async def _drive(self) -> None:
        while True:
            event, taken = await self._mailbox.get()
            self._taken = taken
            try:
                if not self._is_broken:
                    await self._take(event)
            except Superseded as error:
                self._give_way(error)
            except IllegalTransition as refusal:
                if taken is not None and not taken.done():
                    taken.set_exception(refusal)
                continue
            except KeyboardInterrupt as interruption:  # a second Ctrl-C is raised wherever the loop is
                self._give_up(interruption)
                interrupt_again()
            except Exception as error:  # noqa: BLE001 - a fault of ours must not leave anybody paused
                self._give_up(error)
            if self._is_broken:
                self._refuse_the_rest(taken)
                return
            if taken is not None and not taken.done():
                taken.set_result(None)
            self._wake()

    def _give_up(self, error: BaseException) -> None:
        """A fault of ours: take it for a failure to record, which turns every forward state into an abort.

        A fault in undoing what a fault broke off ends the transaction: whoever may be closed is then named in doubt.
        """
        self._log.error("transaction_fault", error=repr(error))
        fault = QuiesceError(f"{self.wire_id}: an unforeseen fault: {error!r}; please report it")
        fault.__cause__ = error
        self.ledger.errors.append(fault)
        self._faults += 1
        if self._faults < _FAULTS_MAX:
            self._post(m.RecordFailed())

    def _give_way(self, error: Superseded) -> None:
        """Another controller has the root and finishes this: stop, whatever is still to be done."""
        if self.superseded is None:
            self.superseded = error
            self.ledger.errors.append(error)
            self._log.error("transaction_superseded", error=str(error))
            self._timers.disarm_all()
            self._post(m.RecordFailed())  # wakes the writer, which takes nothing any more

    async def _take(self, event: m.Event) -> None:
        before = self.state
        after, commands = advance(before, event, self._ports.engine)
        is_recorded = opens_a_restore(before, after)
        if is_recorded and not await self._batches.decide(commands):
            is_recorded = False
            after, commands = advance(before, m.RecordFailed(), self._ports.engine)
        self.state = after
        try:
            if isinstance(event, m.RetryRequested):
                self.ledger.begin_again()
            self.ledger.note_phase(before, self.state, self.now_s())
        except KeyboardInterrupt:
            self._batches.fail(commands)
            raise
        await self._batches.perform(commands, is_recorded=is_recorded)

    # times

    def _remaining_s(self, leg: m.Leg) -> float:
        timers = (m.Timer.RELEASE,) if leg is m.Leg.RELEASE else (m.Timer.HOLD, m.Timer.REACH)
        deadlines = [self._deadlines[timer] for timer in timers if timer in self._deadlines]
        now_s = self.now_s()
        return min(deadlines) - now_s if deadlines else self._budgets.control_timeout_s

    def _arm(self, command: m.Arm) -> None:
        delay_s = self._delay_s(command)
        if command.key is None:
            self._deadlines[command.timer] = self.now_s() + delay_s
        self._timers.arm(command.timer, command.key, delay_s)

    def _delay_s(self, command: m.Arm) -> float:
        timer, key = command.timer, command.key
        if timer is m.Timer.OUTSTANDING and key is not None:
            until_s = self.ledger.entries[key].outstanding_until_s
            return max(0.0, until_s - self.now_s()) + SKEW_S
        if timer in (m.Timer.POLL, m.Timer.RETRY, m.Timer.BACKOFF):
            return self._timers.backed_off_s(timer, key)
        if timer is m.Timer.RELEASE:
            return self._release_s()
        return {
            m.Timer.REACH: self._budgets.reach_timeout_s,
            m.Timer.HOLD: self._budgets.hold_timeout_s,
            m.Timer.WAVE: min(WAVE_PATIENCE_S, self._budgets.release_timeout_s / 4),
            m.Timer.PROBE: PROBE_S,
            m.Timer.STRAGGLER: self._budgets.straggler_after_s or self._budgets.reach_timeout_s,
        }[timer]

    def _release_s(self) -> float:
        now_s = self.now_s()
        left = {key: entry.outstanding_until_s - now_s for key, entry in self.ledger.entries.items()}
        needed = (
            self._budgets.release_s(
                max(0.0, left[spec.key]) if left[spec.key] > -SKEW_S else None, coordinator=spec.refuses_idle_resume
            )
            for spec in self.state.plan.members
        )
        return max(needed, default=self._budgets.release_timeout_s)

    def _disarm(self, command: m.Disarm) -> None:
        self._timers.disarm(command.timer, command.key)
        if command.key is None:
            self._deadlines.pop(command.timer, None)

    # the other commands

    def _failed(self, command: m.Failed) -> None:
        if not self.ledger.failures:
            self.stood = where_everybody_stands(self.state, self.ledger, self.now_s())
        self.ledger.note_failure(command)
        self._log.warning(
            "transaction_failing",
            cause=command.cause.value,
            participant=str(command.key) if command.key else None,
            outcome=command.outcome.value if command.outcome else None,
        )

    def _note(self, command: m.Note) -> None:
        if command.effect == _LATE_ABORT and self.state.transaction is TransactionState.ABORTING:
            return  # asked twice, undone once: nothing came too late
        entry = self.ledger.entries[command.key] if command.key is not None else Entry()
        fate = "retired" if self.state.plan.restarts_stragglers else "waited for"
        sentence = _NOTES[command.effect].format(
            who=command.key,
            wire_id=self.wire_id,
            work=named_work(entry) or "an execution",
            holder=holder(entry),
            fate=fate,
        )
        self.ledger.note(sentence)
        self._log.warning("transaction_note", effect=command.effect, note=sentence)

    def _finished(self, command: m.Finished) -> None:
        self._log.info("transaction_rests", state=command.state.value)
        if command.state in TRANSACTION.final:
            self._timers.disarm_all()


_NOTES: Final = {
    "note_holder": "{who}: another checkpoint id holds it; it was left as it is ({holder})",
    "note_open_unfenced": "{who}: it accepts work, but the id {wire_id} could not be used up there",
    _LATE_ABORT: "an abort came when {wire_id} could no longer be undone; it is finished instead",
    "name_stragglers": "{who}: {work}: longer on its way to the cut than straggler_after_s; it is {fate}",
}
