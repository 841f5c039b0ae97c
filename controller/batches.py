"""The commands of one step, done in their order under the contract that is numbered in ``quiesce.fsm.transaction``.

Records come first, and what stands behind a barrier record that fails is answered as not done. The same goes for what
a fault of ours, or a Ctrl-C that strikes in between, keeps from being begun: nobody waits for ever for its answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quiesce.controller.callbacks import calling_back, interrupt_again
from quiesce.controller.clock import Clock
from quiesce.controller.errors import StorageFailed
from quiesce.controller.ledger import Ledger
from quiesce.controller.records import JournalRecord, RecordPort
from quiesce.fsm import messages as m
from quiesce.fsm.trace import TraceRecord
from quiesce.transport.logs import Log

__all__ = ["Batches"]


@dataclass(frozen=True, slots=True)
class Batches:
    """Performs batches for a runner, whose mailbox gets what they come to.

    ``performers`` begin what is no record, by the class of the command; ``observers`` are told each step after it was
    recorded.
    """

    wire_id: str
    records: RecordPort
    clock: Clock
    ledger: Ledger
    observers: tuple[Callable[[TraceRecord], None], ...]
    performers: Mapping[type[Any], Callable[[Any], None]]
    post: Callable[[m.Event], None]
    log: Log

    async def decide(self, commands: Sequence[m.Command]) -> bool:
        """Contract 3: write down what is not done unless it is written down; False when it could not be."""
        records = [self._written(command) for command in commands if isinstance(command, m.Record)]
        try:
            await self.records.decide(records)
        except StorageFailed as error:
            self.ledger.errors.append(error)
            return False
        return True

    async def perform(self, commands: Sequence[m.Command], *, is_recorded: bool) -> None:
        """Do them all. With ``is_recorded`` the records stand in the journal already."""
        rest = deque(commands)
        is_done = True
        try:
            while rest and is_done:
                is_done = await self._perform(rest.popleft(), is_recorded=is_recorded)
        except (Exception, KeyboardInterrupt):
            self.fail(rest)
            raise
        if not is_done:
            self.fail(rest)
            self.post(m.RecordFailed())

    def fail(self, commands: Iterable[m.Command]) -> None:
        """Contract 3: answer calls and publishing as not done, before anything follows; do what only we see.

        So nobody is sent a resume whose first call never left. After a fault of ours records may be among the rest;
        they are lost.
        """
        for command in commands:
            if isinstance(command, m.Call):
                self.post(m.CallFailed(command.key, command.leg, command.verb, command.id_index, maybe_applied=False))
            elif isinstance(command, m.Publish):
                self.post(m.Publication.NOT_PUBLISHED)
            elif not isinstance(command, m.Record):
                self.performers[type(command)](command)

    async def _perform(self, command: m.Command, *, is_recorded: bool) -> bool:
        """Do one; False where its barrier record failed, after which nothing more of the batch leaves."""
        if not isinstance(command, m.Record):
            self._begin(command)
        elif is_recorded:
            self._note(command)
            self._tell(command.trace)
        elif not await self._record(command) and command.barrier:
            return False
        return True

    def _begin(self, command: m.Command) -> None:
        """Do what is no record; struck by a Ctrl-C, a call is answered as perhaps begun, and all else is done again."""
        try:
            self.performers[type(command)](command)
        except KeyboardInterrupt:
            interrupt_again()
            if isinstance(command, m.Call):
                self.post(m.CallFailed(command.key, command.leg, command.verb, command.id_index, maybe_applied=True))
            elif isinstance(command, m.Publish):
                self.post(m.Publication.UNKNOWN)
            else:
                self.performers[type(command)](command)

    async def _record(self, command: m.Record) -> bool:
        """Write a record down and tell the step; False when it could not be written, and so waits for the next one."""
        self._note(command)
        is_written = True
        try:
            await self.records.append(self._written(command), barrier=command.barrier)
        except (StorageFailed, KeyboardInterrupt) as error:
            self.ledger.errors.append(error)
            is_written = False
            if not command.barrier:
                self.post(m.RecordFailed())
            if isinstance(error, KeyboardInterrupt):
                interrupt_again()
        self._tell(command.trace)
        return is_written

    def _written(self, command: m.Record) -> JournalRecord:
        call, reply = self.ledger.last_exchange(command.trace.subject)
        return JournalRecord(self.clock.now_ts(), self.wire_id, command.trace, call, reply)

    def _note(self, command: m.Record) -> None:
        self.ledger.note_step(command.trace, self.clock.monotonic())

    def _tell(self, trace: TraceRecord) -> None:
        self.log.info(
            "transition",
            machine=trace.machine,
            participant=trace.subject or None,
            source=trace.source,
            trigger=trace.event,
            target=trace.target,
            reason=trace.reason,
        )
        for observer in self.observers:
            try:
                with calling_back("an observer"):
                    observer(trace)
            except Exception as error:  # noqa: BLE001 - what an embedder's callback raises changes nothing
                self.log.warning("observer_failed", error=repr(error))
