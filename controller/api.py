"""What a training controller embeds: take a cut, restore from one.

::

    async with Controller.from_config("quiesce.toml", on_completed=trainer.keep) as controller:
        async with controller.cut("step-40", metadata={"step": 40}) as cut:  # drained, paused, exported
            await trainer.save(cut.directory / "trainer")                    # inside the cut
        # leaving: verified, published, resumed; an exception inside: aborted, resumed, nothing published

        async with controller.restore("step-40") as restored:                # everything restored and still paused
            await trainer.load(restored.directory / "trainer")
        # leaving: resumed

A cancelled caller (Ctrl-C, SIGTERM, a time-out) is an abort request: before the snapshot is published everybody is
reopened, afterwards the resume is finished; then the cancellation goes on its way.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import JsonValue

from quiesce.controller.clock import Clock, SystemClock
from quiesce.controller.config import Config, load_config
from quiesce.controller.contexts import Cut, Restored
from quiesce.controller.discovery import Discovered
from quiesce.controller.files import FileSystem, LocalFiles
from quiesce.controller.gym_source import discover_configured
from quiesce.controller.opening import Opening
from quiesce.controller.phases import PhasedCut, PhasedRestore
from quiesce.controller.ports import OnCompleted
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.engine import Engine
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import check_label
from quiesce.transport.http import HttpTransport
from quiesce.transport.port import Transport
from quiesce.transport.token import EnvironmentTokenProvider, TokenProvider

__all__ = ["Controller"]


class Controller:
    """Takes cuts over one set of participants and restores from them; one transaction at a time.

    Args:
        config: what is to be cut, where the snapshots go, how long it may take.
        on_completed: makes finished results durable during the drain (see OnCompleted). Without it, finished results
            that nobody has acknowledged end a cut.
        transport: how control calls travel; HTTP by default.
        tokens: where the bearer token comes from; the variable that the configuration names by default.
        observers: told every step of every machine after it was recorded. What they raise is logged and changes
            nothing.
        clock, engine, files: the ports that tests exchange.
    """

    def __init__(
        self,
        config: Config,
        *,
        on_completed: OnCompleted | None = None,
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
        self._busy = asyncio.Lock()
        self._unsettled: PhasedCut | PhasedRestore | None = None

    @classmethod
    def from_config(
        cls,
        source: Config | Path | str,
        *,
        on_completed: OnCompleted | None = None,
        observers: tuple[Callable[[TraceRecord], None], ...] = (),
    ) -> Self:
        """A controller for a configuration file (or a configuration that was read already).

        Raises:
            ConfigurationError: the file cannot be used; every problem is named.
        """
        config = source if isinstance(source, Config) else load_config(source)
        return cls(config, on_completed=on_completed, observers=observers)

    # life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Prepare the root, discover the participants and validate them. Pauses nobody.

        Where the configuration names a resolved configuration of NeMo Gym, that is read first.

        Raises:
            StorageFailed: the root cannot be used.
            ConfigurationError: Gym's configuration cannot be read.
            TopologyError: the participants do not make a deployment that can be cut; all problems are named.
        """
        await asyncio.to_thread(self.store.prepare)
        if not self.config.enabled:
            return
        self._transport = self._given_transport or HttpTransport(self._tokens, proxy=self.config.proxy)
        try:
            self._listed, self._discovered = await discover_configured(self.config, self._transport, self._clock)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Release everything. A transaction that is in doubt is given up; its participants stay as they are."""
        if self._unsettled is not None:
            await self._unsettled.close()
            self._unsettled = None
        if self._transport is not None and self._given_transport is None:
            await self._transport.aclose()
        self._transport = None

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

        Raises (on entering):
            InvalidIdentity: the label may not be used.
            InDoubt: somebody is still owed a resume from before.
            QuiesceError: the cut could not be reached; everybody accepts work again.
        """
        return Cut(self, check_label(label), dict(metadata or {}))

    def restore(self, label: str) -> Restored:
        """A restore of the newest valid snapshot with this label (or wire id, or ``latest``), as a context manager.

        Raises (on entering):
            SnapshotInvalid: there is no such snapshot, or a file of it is not what it says.
            TopologyError: the participants are not those of the snapshot.
            RestoreFailed: it failed and is held closed: see :meth:`failed_restore`.
        """
        return Restored(self, label)

    @property
    def unsettled(self) -> PhasedCut | PhasedRestore | None:
        """The transaction that left somebody in doubt or that is held closed, if any: retry it or abort it."""
        return self._unsettled

    async def settle(self) -> None:
        """Try once more whoever is owed a resume from an earlier transaction.

        Raises:
            InDoubt: somebody still is. No transaction begins before that is settled.
            RestoreFailed: a failed restore is held closed; retry it or abort it.
        """
        if self._unsettled is None:
            return
        await self._unsettled.settle()
        await self._unsettled.close()
        self._unsettled = None

    # used by the contexts

    def nonce(self) -> str:
        """Eight hex digits: what makes a wire id unique, since participants use ids up."""
        return secrets.token_hex(4)

    def opening(self) -> Opening:
        """What a transaction is opened with.

        Raises:
            ConfigurationError: the controller is not open.
        """
        if self.config.enabled and (self._transport is None or self._discovered is None):
            raise ConfigurationError("the controller is not open; use it as 'async with Controller...'")
        return Opening(
            config=self._listed,
            discovered=self._discovered,
            transport=self._transport,
            clock=self._clock,
            engine=self._engine,
            files=self._files,
            on_completed=self._on_completed,
            observers=self._observers,
        )

    async def begin(self) -> None:
        """Take the turn to run a transaction.

        Raises:
            ConfigurationError: another transaction is running.
            InDoubt, RestoreFailed: an earlier one is not settled.
        """
        if self._busy.locked():
            raise ConfigurationError("another cut or restore of this controller is running; wait for it to end")
        await self._busy.acquire()
        try:
            await self.settle()
        except BaseException:
            self._busy.release()
            raise

    async def end(self, transaction: PhasedCut | PhasedRestore | None) -> None:
        """Give the turn back. A transaction that is owed something is kept until it is settled."""
        try:
            if transaction is not None and transaction.owed():
                self._unsettled = transaction
            elif transaction is not None:
                await transaction.close()
        finally:
            self._busy.release()
