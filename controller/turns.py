"""Whose turn it is: one transaction of a controller at a time, and none before what earlier ones left is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from quiesce.controller.errors import TransactionRunning
from quiesce.controller.loose_ends import LooseEnds
from quiesce.controller.phases import PhasedCut, PhasedRestore
from quiesce.controller.trainer_only import TrainerOnlyCut, TrainerOnlyRestore

__all__ = ["Transaction", "Turns"]

Transaction = PhasedCut | PhasedRestore | TrainerOnlyCut | TrainerOnlyRestore
T = TypeVar("T", bound=Transaction)


class Turns:
    """The one turn of a controller, the transaction that has it, and what earlier ones left open."""

    def __init__(self, loose: LooseEnds) -> None:
        self._loose = loose
        self._busy = asyncio.Lock()
        self.running: Transaction | None = None
        """The transaction that has the turn, from when it was opened until it is ended."""

    @property
    def is_taken(self) -> bool:
        """Whether a transaction runs, or is being opened or settled."""
        return self._busy.locked()

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The ids of the transaction that has the turn and of those that left something open."""
        return tuple(one.wire_id for one in (self.running, *self._loose.all) if one is not None)

    async def idle(self) -> None:
        """Wait until nobody has the turn."""
        async with self._busy:
            pass

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Have the turn for something that is no transaction of its own.

        Raises:
            TransactionRunning: somebody else has it.
        """
        await self._take()
        try:
            yield
        finally:
            self._busy.release()

    async def begin(self, opened: Callable[[], Awaitable[T]], *, calls: bool, replaces: bool) -> T:
        """Take the turn and open a transaction, which has the turn until :meth:`rest` and :meth:`give_back`.

        Where it ``calls`` nobody, what earlier ones left open is only noted. With ``replaces`` it may take the place of
        held restores of which nobody holds anything any more.

        Raises:
            TransactionRunning: somebody else has the turn.
            QuiesceError: an earlier transaction is not settled; or as ``opened`` says.
        """
        await self._take()
        try:
            forsaken = await self._loose.forsaken() if replaces else ()
            left = forsaken if calls else self._loose.all
            await self._loose.settle(besides=left)
            transaction = await opened()
            if isinstance(transaction, PhasedRestore):
                transaction.replaces = forsaken
            if not calls:
                for one in left:
                    transaction.note(f"an earlier run is not settled: {one.held()}")
        except BaseException:
            self._busy.release()
            raise
        self.running = transaction
        return transaction

    async def rest(self, transaction: Transaction) -> bool:
        """Close a transaction that is over, or keep it until it is settled; whether it is closed."""
        if isinstance(transaction, PhasedCut | PhasedRestore) and not transaction.is_settled():
            self._loose.add(transaction)
            return False
        await transaction.close()
        if isinstance(transaction, PhasedRestore) and transaction.replaces:
            await self._loose.let_go()
        return True

    def give_back(self) -> None:
        """Leave the turn to the next transaction."""
        self.running = None
        self._busy.release()

    async def _take(self) -> None:
        if self._busy.locked():
            raise TransactionRunning(self.running.wire_id if self.running is not None else None)
        await self._busy.acquire()
