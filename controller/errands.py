"""The work that answers the core's commands: calls, verifications, consultations, publication.

Each errand ends in exactly one event, also when it fails in a way that nobody foresaw: then as a call that may have
been applied, a verification that was refused, a publication that is uncertain. What it learned is in the ledger.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quiesce.controller.budgets import BACKOFFS
from quiesce.controller.callbacks import calling_back
from quiesce.controller.caller import Caller, Reached, Request
from quiesce.controller.clock import Clock
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.errors import PublishUncertain, RestoreOwed, Superseded, Unacknowledged
from quiesce.controller.ledger import Answer, Ledger
from quiesce.controller.ports import CompletedResult, OnCompleted, SnapshotPort
from quiesce.controller.receipts import checked_receipts
from quiesce.controller.stragglers import Stragglers
from quiesce.fsm import messages as m
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.transaction import TRIES_MAX
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Role, Verb
from quiesce.participants.dialects.base import Reading
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.identity import AttemptId, asking_id, healing_id
from quiesce.participants.replies import (
    AcknowledgeReceipt,
    ArtefactReference,
    CompletionReceipt,
    DrainProgress,
    ExportReceipt,
    ImportReceipt,
    Inspection,
)

__all__ = ["ErrandPorts", "Errands", "RestoreSource"]

_CONSULT_PAUSE_S: Final = 0.5
_CONSULT_GRACE_S: Final = 0.5
"""By how much a consultation outlives the budget, whose own end is what is reported."""
_RECEIPTS_MAX: Final = 1000
"""Receipts that one call acknowledges at most; results that are left are asked about again."""


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """For a restore: the save that is restored, and what it recorded for each participant."""

    wire_id: str
    saved: Mapping[ParticipantKey, ExportReceipt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ErrandPorts:
    """The outside of errands."""

    wire_id: str
    fleet: Mapping[ParticipantKey, DiscoveredParticipant]
    caller: Caller
    clock: Clock
    snapshot: SnapshotPort | None
    on_completed: OnCompleted | None
    source: RestoreSource | None
    superseded: Callable[[Superseded], None]
    """Told when another controller has the root: nothing more is done, and nothing more is posted."""


class Errands:
    """Runs errands as tasks and posts the event that answers each."""

    def __init__(
        self,
        outside: ErrandPorts,
        ledger: Ledger,
        post: Callable[[m.Event], None],
        remaining_s: Callable[[m.Leg], float],
    ) -> None:
        self._wire_id = outside.wire_id
        self._fleet = outside.fleet
        self._caller = outside.caller
        self._clock = outside.clock
        self._snapshot = outside.snapshot
        self._on_completed = outside.on_completed
        self._source = outside.source
        self._superseded = outside.superseded
        self._ledger = ledger
        self._post = post
        self._remaining_s = remaining_s
        self._stragglers = Stragglers(self._fleet, self._caller, self._clock, ledger, self._request_for, remaining_s)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def call(self, command: m.Call) -> None:
        """Make a control call; answered by Replied or CallFailed."""
        name = f"{command.verb.value} {command.key}"
        self._run(self._call(command), name, lambda error: self._broke_off(command, error))

    async def ask(self, key: ParticipantKey, verb: Verb, attempt: AttemptId | None = None) -> Reading:
        """Ask beside the core, again where no answer comes. The one who asks waits for it; nothing is posted."""
        command = m.Call(key, m.Leg.FORWARD, verb, 0)
        request = replace(self._request_for(command), attempt=attempt)
        tries = 0
        while True:
            reached = await self._caller.call(self._fleet[key], command, request, self._remaining_s(m.Leg.FORWARD))
            tries += 1
            if reached.reading.outcome not in (Outcome.NEVER_SENT, Outcome.LOST) or tries > TRIES_MAX:
                return reached.reading
            await self._clock.sleep(BACKOFFS[m.Timer.RETRY].delay_s(tries))

    def verify(self, command: m.Verify) -> None:
        """Check an export; answered by Verification."""
        key = command.key
        self._run(self._verify(key), f"verify {key}", lambda _error: self._post(m.Verification(key, accepted=False)))

    def consult(self, command: m.Consult) -> None:
        """Ask the trainer to own an agent's results; answered by ReceiptsReady or ConsultFailed."""
        key = command.key
        self._run(self._consult(key), f"consult about {key}", lambda _error: self._post(m.ConsultFailed(key)))

    def publish(self, _command: m.Publish) -> None:
        """Publish the snapshot; answered by Publication."""
        self._run(self._publish(), "publish", lambda _error: self._post(m.Publication.UNKNOWN))

    def probe(self, _command: m.Probe) -> None:
        """Look whether the snapshot was published; answered by Publication."""
        self._run(self._probe(), "probe", lambda _error: self._post(m.Publication.UNKNOWN))

    async def ended(self, within_s: float) -> None:
        """Wait until nothing runs any more, for so long at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def stop(self) -> None:
        """Cancel what still runs and wait for it."""
        self._stopping = True
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, None], name: str, failed: Callable[[QuiesceError], None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = _failure_of(task, name)
            if error is not None and not self._stopping:
                self._ledger.errors.append(error)
                failed(QuiesceError(f"{name} failed unexpectedly: {error!r}; please report it"))

        task.add_done_callback(ended)

    async def _call(self, command: m.Call) -> None:
        try:
            reached = await self._reached(command)
        except Superseded as error:
            self._superseded(error)
            return
        except QuiesceError as error:  # the call could not even be put together
            self._answer(command, Outcome.NEVER_SENT, error)
            return
        self._keep(command, reached)
        self._answer(command, reached.reading.outcome, reached.reading.error)

    async def _reached(self, command: m.Call) -> Reached:
        target = self._fleet[command.key]
        if command.verb is Verb.RETIRE:
            return Reached(await self._stragglers.retire(command.key), self._clock.monotonic())
        if command.verb is Verb.EXPORT and target.role is Role.RESOURCES:
            freed = await self._stragglers.free_sessions(command.key)
            if freed.outcome is not Outcome.RETIRED:
                return Reached(freed, self._clock.monotonic())
        reached = await self._caller.call(target, command, self._request_for(command), self._remaining_s(command.leg))
        if command.verb is Verb.INSPECT and self._may_owe_a_restore(target, reached.reading):
            return await self._asked_for_a_debt(target, command, reached)
        return reached

    def _may_owe_a_restore(self, target: DiscoveredParticipant, reading: Reading) -> bool:
        """Whether a cut is about to close somebody who may wait for a restore: its capabilities look open then."""
        is_untouched = self._ledger.entries[target.key].state is ParticipantState.IDLE
        exports = target.role is Role.RESOURCES and Phase.COMMIT in target.phases
        return self._source is None and exports and is_untouched and reading.outcome is Outcome.OPEN

    async def _asked_for_a_debt(self, target: DiscoveredParticipant, command: m.Call, reached: Reached) -> Reached:
        """Ask by a resume, under an id of its own: whoever is idle and open stays so, whoever owes a restore says so.

        A recorded server that owes one can be prepared, and would export nothing at all (wire-protocol 4.6, F20).
        """
        call = m.Call(command.key, m.Leg.RELEASE, Verb.RELEASE, 0)
        request = replace(self._request_for(call), checkpoint_id=asking_id(self._wire_id))
        asked = await self._caller.call(target, call, request, self._remaining_s(command.leg))
        if asked.reading.outcome is Outcome.RELEASED:
            return reached
        if asked.reading.outcome is Outcome.OWES_RESTORE:
            owed = Reading(Outcome.OWES_RESTORE, reached.reading.payload, RestoreOwed(command.key))
            return replace(reached, reading=owed)
        return replace(asked, reading=replace(asked.reading, payload=reached.reading.payload))

    def _broke_off(self, command: m.Call, error: QuiesceError) -> None:
        """A call of which nothing is known: it may run on for as long as any call of this budget may."""
        entry = self._ledger.entries[command.key]
        until_s = self._clock.monotonic() + max(0.0, self._remaining_s(command.leg))
        entry.outstanding_until_s = max(entry.outstanding_until_s, until_s)
        self._answer(command, Outcome.LOST, error)

    def _answer(self, command: m.Call, outcome: Outcome, error: QuiesceError | None) -> None:
        self._ledger.entries[command.key].answer = Answer(command.verb, outcome, error)
        if outcome in (Outcome.NEVER_SENT, Outcome.LOST):
            applied = outcome is Outcome.LOST
            self._post(m.CallFailed(command.key, command.leg, command.verb, command.id_index, maybe_applied=applied))
        else:
            self._post(m.Replied(command.key, command.leg, command.verb, command.id_index, outcome))

    def _request_for(self, command: m.Call) -> Request:
        entry = self._ledger.entries[command.key]
        deployment = command.key.deployment
        # whoever is reopened may have been restarted meanwhile, and a participant restarted before the cut is as good
        compares = command.leg is not m.Leg.RELEASE
        # the server that commits and restores for a coordinator is another process, which was not asked for its name
        named = entry.inspection if compares and not self._fleet[command.key].is_elsewhere(command.verb) else None
        snapshot = self._snapshot if command.verb in (Verb.EXPORT, Verb.IMPORT) else None
        return Request(
            checkpoint_id=healing_id(self._wire_id, command.id_index) if command.id_index else self._wire_id,
            checkpoint_dir=snapshot.deployment_directory(deployment) if snapshot else None,
            continuation_indexes=self._continuation_indexes(deployment) if command.verb is Verb.EXPORT else (),
            source_checkpoint_id=self._source.wire_id if self._source else None,
            saved=self._source.saved.get(command.key) if self._source else None,
            receipts=entry.receipts,
            compares=compares,
            instance=named.instance if named is not None else None,
        )

    def _continuation_indexes(self, deployment: str) -> tuple[ArtefactReference, ...]:
        """The agents' indexes in topology order, whatever the order of their replies (wire-protocol 9 #46)."""
        exports = (
            self._ledger.entries[key].export
            for key, target in self._fleet.items()
            if target.role is Role.AGENT and key.deployment == deployment
        )
        return tuple(export.index for export in exports if export is not None and export.index is not None)

    def _keep(self, command: m.Call, reached: Reached) -> None:
        """Put a reply's payload into the ledger."""
        entry = self._ledger.entries[command.key]
        if reached.reading.outcome is Outcome.LOST:
            entry.outstanding_until_s = max(entry.outstanding_until_s, reached.until_s)
        payload = reached.reading.payload
        if isinstance(payload, DrainProgress):
            entry.progress = payload
        elif isinstance(payload, Inspection):
            entry.found = payload
            if command.leg is m.Leg.FORWARD:
                entry.inspection = payload
        elif isinstance(payload, ExportReceipt):
            entry.export = payload
        elif isinstance(payload, ImportReceipt):
            entry.imported = payload
        elif isinstance(payload, AcknowledgeReceipt):
            entry.acknowledged += payload.acknowledged

    async def _verify(self, key: ParticipantKey) -> None:
        entry = self._ledger.entries[key]
        snapshot, export = self._snapshot, entry.export
        try:
            if snapshot is None or export is None:
                raise SnapshotInvalid(subject=str(key), file="manifest.json", reason="there is no export to verify")
            entry.verified = await asyncio.to_thread(snapshot.verify, key, export)
        except QuiesceError as error:
            entry.answer = Answer(Verb.EXPORT, Outcome.LIED, error)
            self._post(m.Verification(key, accepted=False))
            return
        self._post(m.Verification(key, accepted=True))

    async def _consult(self, key: ParticipantKey) -> None:
        entry = self._ledger.entries[key]
        entry.consulted_s = self._clock.monotonic()
        budget = asyncio.timeout(max(0.0, self._remaining_s(m.Leg.FORWARD)) + _CONSULT_GRACE_S)
        try:
            async with budget:
                entry.receipts = await self._owned_receipts(key)
        except Exception as error:  # noqa: BLE001 - whatever the trainer's callback raises aborts the cut
            if not budget.expired():
                self._ledger.errors.append(error)
            self._post(m.ConsultFailed(key))
        else:
            self._post(m.ReceiptsReady(key))
        finally:
            entry.consulted_s = None

    async def _owned_receipts(self, key: ParticipantKey) -> tuple[CompletionReceipt, ...]:
        """Ask the trainer until it owns at least one result."""
        results = self._completed(key)
        if self._on_completed is None:
            raise Unacknowledged(results)
        while True:
            with calling_back("on_completed"):
                owned = self._on_completed(results)
                kept = await owned if inspect.isawaitable(owned) else owned
            receipts = checked_receipts(results, kept)
            if receipts:
                return receipts[:_RECEIPTS_MAX]
            await self._clock.sleep(_CONSULT_PAUSE_S)

    def _completed(self, key: ParticipantKey) -> tuple[CompletedResult, ...]:
        progress = self._ledger.entries[key].progress
        completions = progress.completions if progress is not None else ()
        unreceipted = progress.unreceipted if progress is not None else ()
        if not (completions or unreceipted):
            raise QuiesceError(f"{key} keeps finished results and lists none, so that nobody can acknowledge them")
        with_receipt = [CompletedResult(key, receipt.attempt, receipt) for receipt in completions]
        return (*with_receipt, *(CompletedResult(key, attempt, None) for attempt in unreceipted))

    async def _publish(self) -> None:
        try:
            if self._snapshot is None:
                raise SnapshotInvalid(subject="snapshot", file="MANIFEST.json", reason="this transaction has none")
            await asyncio.to_thread(self._snapshot.publish)
        except Superseded as error:
            self._superseded(error)
        except PublishUncertain as error:
            self._ledger.errors.append(error)
            self._post(m.Publication.UNKNOWN)
        except QuiesceError as error:
            self._ledger.errors.append(error)
            self._post(m.Publication.NOT_PUBLISHED)
        else:
            self._post(m.Publication.PUBLISHED)

    async def _probe(self) -> None:
        outcome = m.Publication.UNKNOWN
        if self._snapshot is not None:
            try:
                outcome = await asyncio.to_thread(self._snapshot.published)
            except Superseded as error:
                self._superseded(error)
                return
        self._post(outcome)


def _failure_of(task: asyncio.Task[None], name: str) -> BaseException | None:
    """What an errand ended with, where it did not end well. Its work may have been cancelled by somebody else."""
    return QuiesceError(f"{name} was cancelled from within") if task.cancelled() else task.exception()
