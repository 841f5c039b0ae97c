"""What a training controller embeds: take a cut, restore from one.

::

    async with Controller.from_config("quiesce.toml", on_completed=trainer.keep) as controller:
        async with controller.cut("step-40", metadata={"step": 40}) as cut:  # drained, paused, exported
            await trainer.save(cut.directory / "trainer")                    # inside the cut
        # leaving: verified, published, resumed; an exception inside: aborted, resumed, nothing published

        async with controller.restore("step-40") as restored:                # everything restored and still paused
            await trainer.load(restored.directory / "trainer")
            await restored.discard(unwanted)                                 # continuations that are not to go on
        # leaving: resumed

A cancelled caller (Ctrl-C, SIGTERM, a time-out) is an abort request: before the snapshot is published everybody is
reopened, afterwards the resume is finished; then the cancellation goes on its way.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from pydantic import JsonValue

from quiesce.controller.aborting import Aborted, abort_one, release_held
from quiesce.controller.cancellation import finish_first
from quiesce.controller.catalog import SnapshotEntry
from quiesce.controller.clock import Clock, SystemClock
from quiesce.controller.config import Config, load_config
from quiesce.controller.contexts import Cut, Restored
from quiesce.controller.discovery import Answered, Discovered, DiscoveryFailed
from quiesce.controller.epoch import Tenure
from quiesce.controller.files import FileSystem, LocalFiles
from quiesce.controller.gym_source import discover_configured, read_gym_sources
from quiesce.controller.housekeeping import applied_retention
from quiesce.controller.last_cut import LastCut, OnAskedCut
from quiesce.controller.loose_ends import LooseEnds
from quiesce.controller.metadata import checked_metadata
from quiesce.controller.opening import Opening
from quiesce.controller.phased import Phased
from quiesce.controller.phases import PhasedCut, PhasedRestore
from quiesce.controller.ports import OnCompleted
from quiesce.controller.recovery import find_unfinished
from quiesce.controller.request_watch import RequestWatch
from quiesce.controller.results import CutResult
from quiesce.controller.retention import Pruned
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.takeover import Recovered, recover_all
from quiesce.controller.trainer_only import TrainerOnlyCut, TrainerOnlyRestore
from quiesce.controller.turns import Transaction, Turns
from quiesce.controller.unread_journals import LookedAfter, who_answers
from quiesce.fsm.engine import Engine
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import check_label
from quiesce.transport.http import HttpTransport
from quiesce.transport.logs import log_named
from quiesce.transport.port import Transport
from quiesce.transport.token import EnvironmentTokenProvider, TokenProvider, note_without_token

__all__ = ["Controller"]

T = TypeVar("T", bound=Transaction)

_log: Final = log_named("quiesce.controller")
_NONCE_SIZE: Final = 4
"""Bytes of what makes a wire id unique, since participants use ids up: eight hex digits."""


class Controller:
    """Takes cuts over one set of participants and restores from them; one transaction at a time.

    Args:
        config: what is to be cut, where the snapshots go, how long it may take.
        on_completed: makes finished results durable during the drain (see OnCompleted). Without it, finished results
            that nobody has acknowledged end a cut.
        on_asked_cut: the body of a cut that a signal or another program asks for; see OnAskedCut.
        transport: how control calls travel; HTTP by default.
        tokens: where the bearer token comes from; the variable that the configuration names by default.
        observers: told every step of every machine after it was recorded. What they raise is logged and changes
            nothing; KeyboardInterrupt is sent to the program again.
        clock, engine, files: the ports that tests exchange.
    """

    def __init__(  # noqa: PLR0913 - all but one are optional, and go by name
        self,
        config: Config,
        *,
        on_completed: OnCompleted | None = None,
        on_asked_cut: OnAskedCut | None = None,
        transport: Transport | None = None,
        tokens: TokenProvider | None = None,
        observers: tuple[Callable[[TraceRecord], None], ...] = (),
        clock: Clock | None = None,
        engine: Engine | None = None,
        files: FileSystem | None = None,
    ) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._files = files or LocalFiles()
        self._tokens = tokens or EnvironmentTokenProvider(config.token_variable)
        self._given_transport = transport
        self._transport: Transport | None = None
        self._on_completed = on_completed
        self._observers = observers
        self._engine = engine or TransitionsEngine()
        self._discovered: Discovered | None = None
        self._listed = config  # with the participants of Gym's configuration, once that was read
        self._on_asked_cut = on_asked_cut
        self._tenure: Tenure | None = None
        self._recovered: tuple[Recovered, ...] = ()
        self._unread: tuple[LookedAfter, ...] = ()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """What lives from one opening to its end, which may be in another event loop than the one before."""
        self._last_cut = LastCut(self, self._clock, self._on_asked_cut)
        self._requests = RequestWatch(self, self._clock, self._on_asked_cut)
        self._loose = LooseEnds(self._clock)
        self._turns = Turns(self._loose)

    @classmethod
    def from_config(
        cls,
        source: Config | Path | str,
        *,
        on_completed: OnCompleted | None = None,
        on_asked_cut: OnAskedCut | None = None,
        observers: tuple[Callable[[TraceRecord], None], ...] = (),
    ) -> Self:
        """A controller for a configuration file (or a configuration that was read already).

        Raises:
            ConfigurationError: the file cannot be used; every problem is named.
        """
        config = source if isinstance(source, Config) else load_config(source)
        return cls(config, on_completed=on_completed, on_asked_cut=on_asked_cut, observers=observers)

    # life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._last_cut.leave()
        await self.close()
        self._last_cut.end(error)

    async def open(self) -> None:
        """Take the root, finish what another controller left, discover the participants and validate them.

        Pauses nobody. What was found unfinished is in :attr:`recovered`; what cannot be finished now is
        :attr:`unsettled` until it can. Where the configuration names a resolved configuration of NeMo Gym, that is read
        first.

        Raises:
            StorageFailed: the root cannot be used.
            RootHeld: another controller is alive on it.
            ConfigurationError: this one is open already, Gym's configuration cannot be read, or signals cannot be
                listened for here.
            TopologyError: the participants do not make a deployment that can be cut; all problems are named.
        """
        await self._take_root()
        try:
            await self._discover()
            self._last_cut.install()
            if self._tenure is not None:
                await self._requests.start(self._files, self.store.layout, self._tenure)
        except BaseException as error:
            if self.unsettled is not None:
                error.add_note(f"besides, {self.unsettled.wire_id} is not settled: {self.unsettled.held()}")
            await finish_first(self.close())
            raise
        self._loose.start()

    async def recover(self, *, only: str | None = None) -> tuple[Recovered, ...]:
        """Take the root and finish what another controller left there; nobody else is asked anything.

        For whoever cannot or will not :meth:`open`: some participants may be gone. End it with :meth:`close`. With
        ``only`` nothing but the transaction of this id is finished, and whatever else is open stays so.

        Raises:
            StorageFailed, RootHeld, Superseded: as :meth:`open`.
        """
        await self._take_root(only)
        return self._recovered

    async def _take_root(self, only: str | None = None) -> None:
        if self._tenure is not None:
            raise ConfigurationError("the controller is open already")
        self._begin_anew()
        self._recovered, self._unread = (), ()
        if self.config.enabled and self._given_transport is None:
            await note_without_token(self._tokens)  # what is no token is refused before anything else is tried
        await asyncio.to_thread(self.store.prepare)
        self._tenure = await Tenure.acquire(self._files, self.store.layout, self._clock)
        try:
            if self.config.enabled or await asyncio.to_thread(self._holds_somebody):
                self._connect()
                await finish_first(self._finish_what_was_left(only))
        except BaseException:
            await finish_first(self.close())
            raise

    async def _finish_what_was_left(self, only: str | None) -> None:
        """To its end, also for a caller who is gone: whoever is told that it was interrupted must hear what is open."""
        self._recovered, self._unread = await recover_all(self._opening(), self._addresses, only=only)
        for recovered in self._recovered:
            await self._keep(recovered.phased)

    def _holds_somebody(self) -> bool:
        """Whether an earlier run may have left somebody paused: whoever switches it off does not mean those."""
        held = [one for one in find_unfinished(self._files, self.store.layout) if one.touched]
        for one in held:
            _log.warning("recovering_though_not_enabled", wire_id=one.wire_id, touched=sorted(map(str, one.touched)))
        return bool(held)

    async def _keep(self, left: Phased | None) -> None:
        if left is not None and left.is_settled():
            await left.close()
        elif left is not None:
            self._loose.add(left)

    async def _addresses(self) -> Config:
        """The configuration with everybody's address, as far as it can be had: recovery needs them, not all of them."""
        try:
            return (await read_gym_sources(self.config, self._connect())).config
        except QuiesceError as error:
            _log.warning("addresses_unknown", error=str(error))
            return self.config

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """What was found unfinished when the root was taken, and what became of it."""
        return self._recovered

    @property
    def unread(self) -> tuple[LookedAfter, ...]:
        """What had the name of a journal when the root was taken and could not be read, and who is held by its id."""
        return self._unread

    async def look(self) -> Discovered:
        """Discover the participants and validate them without taking the root, which is not touched. Pauses nobody.

        For whoever only wants to know; another controller may be at work meanwhile. End it with :meth:`close`.

        Raises:
            ConfigurationError, TopologyError: as :meth:`open`.
        """
        try:
            await self._discover()
        except BaseException:
            await finish_first(self.close())
            raise
        return self._discovered or Discovered((), {}, ("the configuration is not enabled; nobody was asked",))

    async def _discover(self) -> None:
        if not self.config.enabled:
            return
        without_token = await note_without_token(self._tokens) if self._given_transport is None else ""
        try:
            self._listed, self._discovered = await discover_configured(self.config, self._connect(), self._clock)
        except DiscoveryFailed as error:
            if without_token:
                error.add_note(without_token)
            raise

    def _connect(self) -> Transport:
        if self._transport is None:
            self._transport = self._given_transport or HttpTransport(self._tokens, proxy=self.config.proxy)
        return self._transport

    async def close(self) -> None:
        """Release everything. What is not settled is given up and logged; the next controller takes it up again."""
        await self._last_cut.close()
        await self._requests.close()
        if self.running is not None:  # of a task that nobody waited for
            await self.running.abort(cancelled=True)
        await self._loose.close()
        if self._transport is not None and self._given_transport is None:
            await self._transport.aclose()
        self._transport = None
        if self._tenure is not None:
            await self._tenure.release()
            self._tenure = None
        self._last_cut.closed()

    @property
    def store(self) -> SnapshotStore:
        """The snapshots under the root."""
        return SnapshotStore(self.config.root, files=self._files, hash_trainer_files=self.config.hash_trainer_files)

    @property
    def discovered(self) -> Discovered | None:
        """Who was found; None before :meth:`open` and where the configuration is not enabled."""
        return self._discovered

    # transactions

    def cut(self, label: str, *, metadata: Mapping[str, JsonValue] | None = None) -> Cut:
        """A cut, as a context manager; see the module's example.

        ``metadata`` is a JSON object of at most 64 KiB that is kept in the manifest.

        Raises:
            InvalidIdentity, ConfigurationError: the label may not be used, or the metadata cannot be kept.

        Raises (on entering):
            TransactionRunning: another one is running.
            InDoubt, RestoreFailed, PublishUncertain: an earlier one is not settled.
            QuiesceError: the cut could not be reached; everybody accepts work again.
        """
        return Cut(self, check_label(label), checked_metadata(metadata))

    def restore(self, label: str) -> Restored:
        """A restore of the newest valid snapshot with this label (or wire id, or ``latest``), as a context manager.

        Raises (on entering):
            SnapshotInvalid: there is no such snapshot, or a file of it is not what it says.
            TopologyError: the participants are not those of the snapshot.
            RestoreFailed: it failed and is held closed: see :attr:`unsettled`.
        """
        return Restored(self, label)

    @property
    def is_busy(self) -> bool:
        """Whether a transaction runs, or is being opened or settled."""
        return self._turns.is_taken

    @property
    def running(self) -> Transaction | None:
        """The transaction that runs, from when it was opened until it is ended."""
        return self._turns.running

    async def idle(self) -> None:
        """Wait until no transaction runs."""
        await self._turns.idle()

    def take_last_cut(self, why: str) -> None:
        """Take a last cut in what is left of ``grace_s``, as a configured signal does; then cancel whoever opened this.

        Returns at once; asked again, nothing changes. For a signal handler of one's own.
        """
        self._last_cut.ask(why)

    async def last_cut_over(self) -> None:
        """Wait until a last cut that was asked for has ended, well or not."""
        await self._last_cut.over()

    @property
    def last_cut(self) -> CutResult | None:
        """The cut that was taken because the end was announced, if there was one."""
        return self._last_cut.result

    @property
    def unsettled(self) -> Phased | None:
        """The transaction that left something open, if any: no other one begins before it is settled.

        It may be one of a controller before this one. A restore that is held closed is to be retried
        (:meth:`PhasedRestore.retry`, then ``resume``) or aborted;
        whoever is owed a resume is tried again by :meth:`settle`.
        """
        return self._loose.first

    async def settle(self, *, give_up: Collection[ParticipantKey] = ()) -> None:
        """Try once more whoever is owed a resume from an earlier transaction; look again what became of its snapshot.

        ``give_up`` names participants that are gone for good: they are owed nothing any more, which is written down.

        Raises:
            InDoubt: somebody still is. No transaction begins before that is settled.
            RestoreFailed: a failed restore is held closed; retry it or abort it.
            PublishUncertain: whether its snapshot is published still cannot be read.
            ConfigurationError: a transaction is running.
        """
        async with self._turns.taken():
            await self._loose.settle(give_up)

    @property
    def owed(self) -> tuple[ParticipantKey, ...]:
        """Whoever is owed a resume, or must be restarted, of all transactions that are not settled."""
        return tuple(dict.fromkeys(key for phased in self._loose.all for key in phased.to_give_up()))

    async def abort(self, wire_id: str | None = None) -> Aborted:
        """Abort what runs or rests here: everybody is reopened, also of a restore that is held closed.

        With ``wire_id`` that transaction and no other; one of which nothing is known here is looked for at the
        participants, unless another one runs, and whoever says that this id holds it is reopened. A cut that is
        published already is finished instead. Where there is nothing to abort, the result says so.

        Raises:
            InDoubt: somebody could not be proven open.
            QuiesceError: the participants could not be asked.
        """
        # what only waits for processes to be restarted was aborted already
        loose = sorted(self._loose.all, key=lambda one: bool(one.half_restored()))
        for transaction in (self.running, *loose):
            if transaction is not None and wire_id in (None, transaction.wire_id):
                aborted = await abort_one(transaction)
                await self._loose.let_go()
                return aborted
        if wire_id is None or not self.config.enabled:
            return Aborted()
        if self.running is not None:  # whoever is held by another id, its preflight names
            return Aborted(still_open=self._turns.open_ids)
        async with self._turns.taken():
            aborted, leftover = await release_held(self._opening(await self._addresses()), wire_id)
            if leftover is not None:
                self._loose.add(leftover)
                await self._loose.let_go()
                if not leftover.is_settled() and not leftover.half_restored():
                    raise leftover.held() or leftover.error()
        return replace(aborted, still_open=self._turns.open_ids)

    async def holders(self) -> Answered:
        """Which checkpoint ids hold whom, as the participants say it, and who says nothing. Only reads."""
        return await who_answers(self._opening(await self._addresses()))

    # snapshots

    async def snapshots(self) -> tuple[SnapshotEntry, ...]:
        """Every snapshot, the newest first, then whatever else stands among them and why it is none.

        Raises:
            StorageFailed: the folder cannot be read.
        """
        return await asyncio.to_thread(self.store.list)

    async def prune(self, *, keep: int | None = None, dry_run: bool = False) -> Pruned:
        """Keep the newest ``keep`` snapshots (by default ``keep_latest_k``, else all), and sweep what nobody needs.

        The newest valid one is never removed, one that is not valid never counts as kept, and nothing of a transaction
        that is not settled is touched. With ``dry_run`` nothing changes and the result says what would.

        Raises:
            ConfigurationError: ``keep`` is no positive number, the controller is not open, or a transaction is running.
            Superseded: another controller took over the root.
            StorageFailed: the root cannot be read. What cannot be removed is in the result, and keeps nothing else.
        """
        if self._tenure is None:
            raise ConfigurationError("the controller is not open; use it as 'async with Controller...'")
        async with self._turns.taken():
            return await finish_first(
                asyncio.to_thread(
                    self.store.prune,
                    keep=self.config.keep_latest_k if keep is None else keep,
                    guard=self._tenure.check,
                    protected=self._loose.needs(),
                    dry_run=dry_run,
                )
            )

    # the low-level interface, of which the contexts are made

    async def begin_cut(self, label: str, *, metadata: Mapping[str, JsonValue] | None = None) -> PhasedCut:
        """Take the turn and open a cut, whose phases are then the caller's; nobody is called yet.

        See ``quiesce.controller.phases``. End it with :meth:`end`, whatever became of it.

        Raises:
            InvalidIdentity: the label may not be used.
            ConfigurationError: the metadata cannot be kept, another transaction is running, or the configuration is
                not enabled.
            InDoubt, RestoreFailed, PublishUncertain: an earlier one is not settled.
            StorageFailed: the snapshot's folder cannot be made.
        """
        check_label(label)
        kept = checked_metadata(metadata)
        return await self._begin(lambda opening: opening.cut(label, secrets.token_hex(_NONCE_SIZE), kept))

    async def begin_restore(self, name: str) -> PhasedRestore:
        """Take the turn and open a restore, after the snapshot was verified; nobody is called yet.

        Raises:
            SnapshotInvalid, TopologyError: as :meth:`restore`.
            ConfigurationError, InDoubt, RestoreFailed, PublishUncertain: as :meth:`begin_cut`.
        """
        nonce = secrets.token_hex(_NONCE_SIZE)
        return await self._begin(lambda opening: opening.restore(name, nonce), replaces=True)

    async def begin_trainer_only(self, label: str, metadata: Mapping[str, JsonValue]) -> TrainerOnlyCut:
        """Take the turn and open a cut that calls nobody, where the configuration is not enabled."""
        nonce = secrets.token_hex(_NONCE_SIZE)
        return await self._begin(lambda opening: TrainerOnlyCut.open(opening, label, nonce, metadata))

    async def begin_trainer_only_restore(self, name: str) -> TrainerOnlyRestore:
        """Take the turn and open a restore that calls nobody, where the configuration is not enabled."""
        return await self._begin(lambda opening: TrainerOnlyRestore.open(opening, name))

    async def end(self, transaction: Transaction) -> None:
        """Give the turn back. A transaction that left something open is kept until it is settled."""
        try:
            if await self._turns.rest(transaction):
                await self._retain(transaction)
        finally:
            self._turns.give_back()

    async def _retain(self, transaction: Transaction) -> None:
        """After a cut that stands, remove what ``keep_latest_k`` leaves over and left-overs; what fails is noted."""
        if isinstance(transaction, PhasedCut | TrainerOnlyCut) and transaction.is_published:
            keep = self.config.keep_latest_k
            for note in await applied_retention(self.store, transaction.wire_id, keep, self._tenure):
                transaction.note(note)

    async def _begin(self, opened: Callable[[Opening], Awaitable[T]], *, replaces: bool = False) -> T:
        if self.config.enabled and (self._transport is None or self._discovered is None):
            raise ConfigurationError("the controller is not open; use it as 'async with Controller...'")

        async def checked() -> T:
            if self._tenure is not None:
                await asyncio.to_thread(self._tenure.check)
            return await opened(self._opening())

        return await self._turns.begin(checked, calls=self.config.enabled, replaces=replaces)

    def _opening(self, listed: Config | None = None) -> Opening:
        return Opening(
            config=listed or self._listed,
            discovered=self._discovered,
            transport=self._transport,
            clock=self._clock,
            engine=self._engine,
            files=self._files,
            tenure=self._tenure,
            on_completed=self._on_completed,
            observers=self._observers,
        )
