"""Opening a transaction: its plan, its ids, its records, its place on disk, and the runner over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from quiesce.controller.budgets import Budgets
from quiesce.controller.caller import Caller
from quiesce.controller.cancellation import finish_first
from quiesce.controller.clock import Clock
from quiesce.controller.config import Config, StragglerPolicy
from quiesce.controller.cut_storage import CutStorage, RestoreStorage
from quiesce.controller.discovery import Discovered, DiscoveredParticipant
from quiesce.controller.epoch import Tenure
from quiesce.controller.errands import RestoreSource
from quiesce.controller.files import FileSystem
from quiesce.controller.fitting import check_fits
from quiesce.controller.journal import JournalFile, JournalReading
from quiesce.controller.journal_headings import opened_fields
from quiesce.controller.leases import LeaseWatch
from quiesce.controller.ledger import Ledger
from quiesce.controller.phases import PhasedCut, PhasedRestore
from quiesce.controller.ports import OnCompleted, SnapshotPort
from quiesce.controller.records import RecordPort
from quiesce.controller.runner import RunnerPorts, TransactionRunner
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.staging import Staged
from quiesce.fsm.engine import Engine
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.transaction import MemberSpec, Plan
from quiesce.fsm.vocabulary import ParticipantKey, Role
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import restore_wire_id, wire_id
from quiesce.participants.manifest_models import SnapshotManifest
from quiesce.participants.replies import ExportReceipt
from quiesce.transport.port import Transport

__all__ = ["Opening", "saved_receipts"]


@dataclass(frozen=True, slots=True)
class Opening:
    """What every transaction of a controller is opened with."""

    config: Config
    discovered: Discovered | None
    transport: Transport | None
    clock: Clock
    engine: Engine
    files: FileSystem
    tenure: Tenure | None
    on_completed: OnCompleted | None
    observers: tuple[Callable[[TraceRecord], None], ...]

    @property
    def store(self) -> SnapshotStore:
        """The snapshots under the root."""
        return SnapshotStore(self.config.root, files=self.files, hash_trainer_files=self.config.hash_trainer_files)

    async def cut(self, label: str, nonce: str, metadata: Mapping[str, JsonValue]) -> PhasedCut:
        """Open a cut; nobody is called yet.

        Raises:
            StorageFailed: its folder cannot be made.
        """
        checkpoint_id = wire_id(label, nonce)
        fleet = self.fleet()
        topologies = self._found().topologies
        created_at = await asyncio.to_thread(self.store.instant_of_cut, self.clock.now_ts())
        staged = await self.stage(checkpoint_id, tuple(topologies))
        storage = CutStorage(
            store=self.store,
            staged=staged,
            label=label,
            created_at=created_at,
            fleet=fleet,
            topologies=topologies,
            ledger=Ledger.over(fleet),
            metadata=metadata,
            tenure=self.tenure,
        )
        heading = self.heading(checkpoint_id, label, fleet, None)
        runner = self.runner(self.plan(fleet, is_restore=False), fleet, checkpoint_id, storage, heading=heading)
        storage.ledger = runner.ledger
        runner.start()
        return PhasedCut(runner, self.budgets(), label, storage, self._leases(runner, fleet))

    async def restore(self, label: str, nonce: str) -> PhasedRestore:
        """Open a restore of a snapshot that was verified and fits the participants; nobody is called yet.

        Raises:
            SnapshotInvalid: no such snapshot, or a file of it differs.
            TopologyError: the participants are not those of the snapshot.
        """
        try:
            snapshot = await asyncio.to_thread(self.store.resolve, label)
            manifest = snapshot.manifest
            check_fits(manifest, self._found().topologies)
            await asyncio.to_thread(self.store.prove, snapshot)
        except QuiesceError as error:
            error.add_note("nobody was called for this restore; everything is as it was")
            raise
        fleet = self.fleet()
        storage = RestoreStorage(snapshot.directory, manifest)
        source = RestoreSource(manifest.checkpoint_id, saved_receipts(manifest))
        checkpoint_id = restore_wire_id(manifest.label, nonce)
        heading = self.heading(checkpoint_id, manifest.label, fleet, manifest.checkpoint_id)
        plan = self.plan(fleet, is_restore=True)
        runner = self.runner(plan, fleet, checkpoint_id, storage, source, heading=heading)
        runner.start()
        return PhasedRestore(runner, self.budgets(), storage, fleet)

    def _leases(self, runner: TransactionRunner, fleet: Mapping[ParticipantKey, DiscoveredParticipant]) -> LeaseWatch:
        confirm = self.tenure.confirm if self.tenure is not None else None
        caller = Caller(self.open_transport(), self.clock, self.budgets(), confirm)
        leases = LeaseWatch(runner, fleet, caller, self.clock)
        leases.start()
        return leases

    async def stage(self, checkpoint_id: str, deployments: Collection[str]) -> Staged:
        """Make the folder of a new snapshot; when cancelled meanwhile, remove it again: no thread can be stopped."""
        try:
            return await finish_first(asyncio.to_thread(self.store.stage, checkpoint_id, deployments))
        except asyncio.CancelledError:
            await finish_first(asyncio.to_thread(self.store.discard, checkpoint_id))
            raise

    def open_transport(self) -> Transport:
        """How control calls travel.

        Raises:
            ConfigurationError: the controller is not open.
        """
        if self.transport is None:
            raise ConfigurationError("the controller is not open; use it as 'async with Controller...'")
        return self.transport

    def _found(self) -> Discovered:
        if self.discovered is None:
            raise ConfigurationError("this configuration is not enabled; there is nobody to call")
        return self.discovered

    def fleet(self) -> Mapping[ParticipantKey, DiscoveredParticipant]:
        """Everybody who was found.

        Raises:
            ConfigurationError: the configuration is not enabled.
        """
        return {participant.key: participant for participant in self._found().participants}

    def heading(
        self,
        checkpoint_id: str,
        label: str,
        fleet: Mapping[ParticipantKey, DiscoveredParticipant],
        source_wire_id: str | None,
    ) -> Mapping[str, object]:
        """The first line of a transaction's journal."""
        return opened_fields(
            checkpoint_id,
            label,
            fleet,
            source_wire_id=source_wire_id,
            drain=self.config.drain,
            epoch=self.tenure.epoch if self.tenure is not None else None,
            now_ts=self.clock.now_ts(),
        )

    def plan(self, fleet: Mapping[ParticipantKey, DiscoveredParticipant], *, is_restore: bool) -> Plan:
        """What the core is to do, over whom."""
        members = tuple(
            MemberSpec(
                key=key,
                role=participant.role,
                phases=participant.phases,
                refuses_idle_resume=participant.coordinator and participant.role is Role.POLICY,
                exports_elsewhere=participant.checkpoint_url is not None,
            )
            for key, participant in fleet.items()
        )
        return Plan(
            members,
            is_restore=is_restore,
            drain=self.config.drain,
            watches_stragglers=self.config.straggler_after_s is not None,
            restarts_stragglers=self.config.straggler_policy is StragglerPolicy.RESTART,
        )

    def budgets(self) -> Budgets:
        """The times of the configuration."""
        config = self.config
        return Budgets(
            reach_timeout_s=config.reach_timeout_s,
            hold_timeout_s=config.hold_timeout_s,
            control_timeout_s=config.control_timeout_s,
            release_timeout_s=config.release_timeout_s,
            straggler_after_s=config.straggler_after_s,
        )

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
        """A runner over these participants, and the journal that it writes; ``before`` is what is taken over of it.

        Where no journal can be written under its id, ``records`` are what is written instead.

        Raises:
            ConfigurationError: the controller is not open.
        """
        ports = RunnerPorts(
            transport=self.open_transport(),
            records=records
            or JournalFile(
                self.store.layout.journal(checkpoint_id),
                files=self.files,
                heading=heading,
                guard=self.tenure.check if self.tenure is not None else None,
                before=before,
            ),
            clock=self.clock,
            engine=self.engine,
            snapshot=snapshot,
            on_completed=self.on_completed,
            observers=self.observers,
            confirm=self.tenure.confirm if self.tenure is not None else None,
        )
        return TransactionRunner(plan, fleet, checkpoint_id, self.budgets(), ports, source)


def saved_receipts(manifest: SnapshotManifest) -> dict[ParticipantKey, ExportReceipt]:
    """What a snapshot recorded of each participant's export."""
    return {ParticipantKey(entry.deployment, entry.name): entry.receipt() for entry in manifest.participants}
