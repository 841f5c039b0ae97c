"""Another controller that takes over what one left that has died: the recovery that ships, in the hand of a script.

The dead one keeps what a lost machine keeps: the journal up to its last barrier. What recovers reads it, withdraws what
was staged, looks into the folder, and calls by itself; only its replies, timers and errands wait for the script.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.errands import RestoreSource
from quiesce.controller.journal import JournalFile, JournalReading
from quiesce.controller.opening import Opening
from quiesce.controller.ports import SnapshotPort
from quiesce.controller.records import RecordPort
from quiesce.controller.recovery import Account, journal_says
from quiesce.controller.runner import RunnerPorts, TransactionRunner
from quiesce.controller.takeover import recover_one
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.transaction import Plan
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.fuzz.directed import DirectedRecords, DirectedRunner, DirectedSnapshot
from quiesce.fuzz.errors import NoCounterpart

__all__ = ["Life", "TakeOver", "end"]

_NEVER_S: Final = 1e9


class Life(NamedTuple):
    """A controller at one transaction, and what of it a script directs."""

    runner: DirectedRunner
    records: DirectedRecords
    snapshot: DirectedSnapshot | None


async def end(life: Life) -> None:
    """Let a controller die: nothing more of it leaves, and what it wrote behind its last barrier is lost.

    Before the first barrier nobody was called, and nothing that was lost would have to be recovered: it is kept.
    """
    await life.runner.close()
    if life.records.durable_bytes:
        os.truncate(life.records.inner.path, life.records.durable_bytes)


class _Recovering(DirectedRunner):
    """A runner that nobody waits for: what a recovery does once it rests is to say so."""

    begun: asyncio.Future[None]

    async def reached(self, *states: TransactionState) -> TransactionState:
        del states
        self.begun.set_result(None)
        await asyncio.sleep(_NEVER_S)
        return self.state.transaction


@dataclass(frozen=True, slots=True)
class _Directed(Opening):
    """What the second controller opens: the same plan, directed from its first event on."""

    known: Plan
    record_fails: bool
    begun: asyncio.Future[Life]

    def plan(self, fleet: Mapping[ParticipantKey, DiscoveredParticipant], *, is_restore: bool) -> Plan:
        del fleet, is_restore
        return self.known

    def runner(
        self,
        plan: Plan,
        fleet: Mapping[ParticipantKey, DiscoveredParticipant],
        checkpoint_id: str,
        snapshot: SnapshotPort | None,
        source: RestoreSource | None = None,
        *,
        heading: Mapping[str, object],
        before: JournalReading | None = None,
        records: RecordPort | None = None,
    ) -> TransactionRunner:
        del records
        path = self.store.layout.journal(checkpoint_id)
        journal = DirectedRecords(JournalFile(path, heading=heading, before=before), self.record_fails)
        directed = DirectedSnapshot(snapshot) if snapshot is not None else None
        ports = RunnerPorts(self.open_transport(), journal, self.clock, self.engine, directed, self.on_completed)
        runner = _Recovering(plan, fleet, checkpoint_id, self.budgets(), ports, source)
        runner.direct()
        runner.begun = asyncio.get_running_loop().create_future()
        runner.begun.add_done_callback(lambda _: self.begun.set_result(Life(runner, journal, directed)))
        return runner


@dataclass(frozen=True, slots=True)
class TakeOver:
    """How another controller goes on with what a dead one left."""

    opening: Opening
    plan: Plan

    async def go_on(self, wire_id: str, *, record_fails: bool) -> Life:
        """Recover it; back as soon as the recovery has begun and waits for its calls.

        Raises:
            NoCounterpart: its journal knows of nothing to recover.
        """
        left = journal_says(self.opening.files, self.opening.store.layout.journal(wire_id))
        if not isinstance(left, Account):
            raise NoCounterpart("the journal has ended" if left is None else left.sentence)
        begun: asyncio.Future[Life] = asyncio.get_running_loop().create_future()
        fields = {name: getattr(self.opening, name) for name in Opening.__dataclass_fields__}
        directed = _Directed(**fields, known=self.plan, record_fails=record_fails, begun=begun)
        recovery = asyncio.ensure_future(recover_one(left, directed))
        either: set[asyncio.Future[Any]] = {recovery, begun}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            raise NoCounterpart(f"nothing of it can be recovered: {recovery.result().problem}")
        recovery.cancel()
        return begun.result()
