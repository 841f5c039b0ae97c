"""A counterexample replayed on what ships: the controller's runner, the dialect, and real servers, in virtual time.

The servers of ``quiesce.fuzz.stage`` are called in process through the transport that ships for it; the runner of
``quiesce.fuzz.directed`` walks the `transitions` engine. After each action core, fences and publication are compared
with those of the tables: a replay that comes to the end without a difference shows on real servers what the tables
show. What has no counterpart there ends the replay with a word that says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from quiesce.controller.api import Controller
from quiesce.controller.budgets import Budgets
from quiesce.controller.config import Config, parse_config
from quiesce.controller.cut_storage import CutStorage, RestoreStorage
from quiesce.controller.discovery import Discovered, DiscoveredParticipant, discover
from quiesce.controller.errands import RestoreSource
from quiesce.controller.files import LocalFiles
from quiesce.controller.journal import JournalFile
from quiesce.controller.journal_headings import opened_fields
from quiesce.controller.ledger import Ledger
from quiesce.controller.opening import Opening
from quiesce.controller.ports import CompletedResult, SnapshotPort
from quiesce.controller.runner import RunnerPorts
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.engine import Engine
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.explore_site import INTRUDER
from quiesce.fsm.fence import FenceState
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import ParticipantKey, Role
from quiesce.fuzz.counterexample import Counterexample, Taking
from quiesce.fuzz.directed import DirectedRecords, DirectedRunner, DirectedSnapshot, DirectedTransport
from quiesce.fuzz.errors import NoCounterpart
from quiesce.fuzz.kit import KIT_TOKEN
from quiesce.fuzz.replay_tables import Moment, Replayed
from quiesce.fuzz.script import Script
from quiesce.fuzz.stage import Actor
from quiesce.fuzz.takeovers import Life, TakeOver
from quiesce.fuzz.virtual_time import VirtualClock, run_virtual
from quiesce.participants.identity import asking_id, healing_id
from quiesce.participants.replies import CompletionReceipt
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

__all__ = ["Difference", "StackReplay", "replay_on_stack"]

_LABEL: Final = "replay"
_NONCE: Final = "00000000"
_BUDGETS: Final = Budgets(reach_timeout_s=3600, hold_timeout_s=3600, control_timeout_s=600, release_timeout_s=3600)
_FRESH_IDS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the real stack went another way. ``number`` counts actions from 1."""

    number: int
    action: str
    reason: str

    def __str__(self) -> str:
        return f"action {self.number}, '{self.action}': {self.reason}"


@dataclass(frozen=True, slots=True)
class StackReplay:
    """How far a replay on the real stack came with the tables.

    Attributes:
        taken: actions after which both stood alike.
        difference: where they first did not; None when they never did.
        no_counterpart: the action that a real stack has none for, and why; None where every one has.
    """

    taken: int
    difference: Difference | None = None
    no_counterpart: Difference | None = None

    @property
    def agrees(self) -> bool:
        """Whether every action was taken and led to the same."""
        return self.difference is None and self.no_counterpart is None


def replay_on_stack(found: Counterexample, replayed: Replayed) -> StackReplay:
    """Play the actions on real servers and compare with ``replayed``, what the tables came to.

    Raises:
        QuiesceError: the servers cannot be set up as the counterexample has them.
    """
    for place, change in enumerate(found.changes):
        if change.table.startswith("FENCE"):
            reason = "the servers run the fence that ships, not one that is changed"
            return StackReplay(0, no_counterpart=Difference(place + 1, f"change of {change.table}", reason))
    with tempfile.TemporaryDirectory(prefix="quiesce-replay-") as folder:
        return run_virtual(_Stage(found, Path(folder)).play(replayed))


class _Stage:
    """The servers, the way to them, and the transaction."""

    def __init__(self, found: Counterexample, root: Path) -> None:
        self._found = found
        self._root = root
        self._clock = VirtualClock()
        self._inner = AsgiTransport(tokens=StaticTokenProvider(KIT_TOKEN))
        self._transport = DirectedTransport(self._inner)
        self._actors: dict[str, Actor] = {}
        self._owns = True

    async def play(self, replayed: Replayed) -> StackReplay:
        if self._found.setup.is_restore:
            await self._save()
        self._enter(fresh=self._found.setup.fresh_processes)
        try:
            return await self._played(replayed)
        finally:
            for actor in self._actors.values():
                await actor.leave()
            await self._transport.aclose()

    async def _played(self, replayed: Replayed) -> StackReplay:
        discovered = await discover(self._config(), self._inner, self._clock)
        script = Script(
            self._opened(discovered),
            self._transport,
            self._inner,
            self._actors,
            self._clock,
            self._own,
            self._restart,
            self._takeover(),
        )
        try:
            for number, moment in enumerate(replayed.moments, start=1):
                try:
                    await script.take(moment.action)
                except NoCounterpart as word:
                    there_is_none = Difference(number, moment.action, str(word))
                    return StackReplay(number - 1, no_counterpart=there_is_none)
                reason = self._difference(script.life.runner, moment)
                if reason:
                    return StackReplay(number - 1, Difference(number, moment.action, reason))
            return StackReplay(len(replayed.moments))
        finally:
            await script.life.runner.close()

    # the servers

    def _enter(self, *, fresh: bool) -> None:
        takings = self._found.setup.participants
        if not any(taking.role is Role.POLICY for taking in takings):
            takings = (*takings, _bystander(takings[0]))
        for taking in takings:
            self._mount(Actor(taking, self._clock, restore_expected=fresh and taking.role is Role.RESOURCES))

    def _mount(self, actor: Actor) -> None:
        name = actor.taking.name
        self._actors[name] = actor
        self._inner.mount(f"http://{name}", actor.as_served())
        if actor.model_server is not None:
            self._inner.mount(_beside(name), actor.model_server)

    async def _restart(self, name: str) -> None:
        """Another process answers from now on; what the old one still does is its own."""
        old = self._actors[name]
        self._mount(Actor(old.taking, self._clock))
        await old.leave()

    async def _save(self) -> None:
        """What a restore restores: an undirected cut of such servers, whose processes are gone afterwards."""
        self._enter(fresh=False)
        for actor in self._actors.values():
            actor.let_operations_run()
        controller = Controller(self._config(), transport=self._inner, clock=self._clock)
        await controller.open()
        async with controller.cut(_LABEL):
            pass
        for actor in self._actors.values():
            await actor.leave()

    def _config(self) -> Config:
        servers = ", ".join(
            f'{{ name = "{name}", url = "http://{name}"'
            + (f', checkpoint_url = "{_beside(name)}" }}' if actor.model_server is not None else " }")
            for name, actor in self._actors.items()
        )
        deployment = self._found.setup.participants[0].deployment
        text = f'root = "{self._root}"\n[deployment.{deployment}]\nparticipants = [{servers}]\n'
        return parse_config(text, source="replay", directory=self._root, environment={})

    # the transaction

    def _opened(self, discovered: Discovered) -> Life:
        plan = self._found.setup.plan()
        known = {participant.key: participant for participant in discovered.participants}
        fleet = {spec.key: replace(known[spec.key], phases=spec.phases) for spec in plan.members}
        store = SnapshotStore(self._root, recheck_pauses_s=())
        store.prepare()
        wire_id = f"{_LABEL}-{_NONCE}"
        source: RestoreSource | None = None
        storage: SnapshotPort
        if plan.is_restore:
            storage, source, wire_id = self._restored(store)
        else:
            storage = self._staged(store, wire_id, fleet, discovered)
        snapshot = DirectedSnapshot(storage)
        heading = opened_fields(
            wire_id,
            _LABEL,
            fleet,
            source_wire_id=source.wire_id if source is not None else None,
            drain=plan.drain,
            epoch=None,
            now_ts=self._clock.now_ts(),
        )
        records = DirectedRecords(JournalFile(store.layout.journal(wire_id), heading=heading))
        ports = RunnerPorts(self._transport, records, self._clock, self._engine(), snapshot, self._own_results)
        runner = DirectedRunner(plan, fleet, wire_id, _BUDGETS, ports, source)
        if isinstance(storage, CutStorage):
            storage.ledger = runner.ledger
        runner.direct()
        runner.start()
        return Life(runner, records, snapshot)

    def _takeover(self) -> TakeOver:
        opening = Opening(
            config=self._config(),
            discovered=None,
            transport=self._transport,
            clock=self._clock,
            engine=self._engine(),
            files=LocalFiles(),
            tenure=None,
            on_completed=self._own_results,
            observers=(),
        )
        return TakeOver(opening, self._found.setup.plan())

    def _engine(self) -> Engine:
        return self._found.engine(TransitionsEngine())

    def _staged(
        self,
        store: SnapshotStore,
        wire_id: str,
        fleet: Mapping[ParticipantKey, DiscoveredParticipant],
        discovered: Discovered,
    ) -> CutStorage:
        return CutStorage(
            store=store,
            staged=store.stage(wire_id, tuple(discovered.topologies)),
            label=_LABEL,
            created_at=self._clock.now_ts(),
            fleet=fleet,
            topologies=discovered.topologies,
            ledger=Ledger.over(fleet),
        )

    def _restored(self, store: SnapshotStore) -> tuple[RestoreStorage, RestoreSource, str]:
        snapshot = store.resolve(_LABEL)
        manifest = snapshot.manifest
        saved = {ParticipantKey(entry.deployment, entry.name): entry.receipt() for entry in manifest.participants}
        source = RestoreSource(manifest.checkpoint_id, saved)
        return RestoreStorage(snapshot.directory, manifest), source, f"restore-{_LABEL}-{_NONCE}"

    def _own(self, owns: bool) -> None:  # noqa: FBT001 - the script's one word to the trainer
        self._owns = owns

    def _own_results(self, results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        if not self._owns:
            raise QuiesceError("the trainer fails, as the script has it")
        return [result.receipt for result in results if result.receipt is not None]

    # the comparison

    def _difference(self, runner: DirectedRunner, moment: Moment) -> str:
        """What differs between the tables and the stack, or nothing."""
        core = moment.controller.core
        if runner.state.transaction is not core.transaction:
            return f"the transaction is '{runner.state.transaction}', by the tables '{core.transaction}'"
        for spec, real, told in zip(core.plan.members, runner.state.members, core.members, strict=True):
            if real != told:
                differing = [
                    f"{name} is {mine!r}, by the tables {theirs!r}"
                    for name, mine, theirs in zip(real._fields, real, told, strict=True)
                    if mine != theirs
                ]
                return f"{spec.key}: {'; '.join(differing)}"
        for taking, site in zip(self._found.setup.participants, moment.sites, strict=True):
            real_fence = self._seen(self._actors[taking.name].fence, runner.wire_id)
            if real_fence != _seen_of(site.fence):
                return f"the fence of {taking.name} stands at {real_fence}, by the tables at {_seen_of(site.fence)}"
        return ""

    def _seen(self, fence: FenceState, wire_id: str) -> tuple[str, object, bool, frozenset[object]]:
        """A real fence in the explorer's words."""
        ids: dict[object, object] = {wire_id: 0, Script.intruder_id: INTRUDER}
        ids |= {healing_id(wire_id, number): number for number in _FRESH_IDS}
        # the preflight's question to a resource server, a resume under an id of its own, is no part of the core
        finished = frozenset(ids.get(one, one) for one in fence.finished if one != asking_id(wire_id))
        return fence.phase.value, ids.get(fence.active, fence.active), fence.closed, finished


def _bystander(taking: Taking) -> Taking:
    """A policy that nothing is asked of: no deployment is one without it."""
    return taking.model_copy(update={"name": "bystander", "role": Role.POLICY, "fence": FenceVariant.STRICT})


def _beside(name: str) -> str:
    return f"http://{name}-model-server"


def _seen_of(fence: FenceState) -> tuple[str, object, bool, frozenset[object]]:
    return fence.phase.value, fence.active, fence.closed, frozenset(fence.finished)
