"""What an open controller still owes: transactions at rest that left something open, and the task that ends them.

No transaction begins while one of these is open. Whoever is owed a resume is looked for in the background, and resumed
once it answers; the journal remembers for the next controller (field cases F-22). A restore that is held closed waits
for a person.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Final

from quiesce.controller.budgets import Backoff
from quiesce.controller.clock import Clock
from quiesce.controller.errors import NothingOwed
from quiesce.controller.phased import Phased
from quiesce.controller.phases import PhasedRestore
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.transport.logs import log_named

__all__ = ["LOOKS", "LooseEnds", "named_among"]

LOOKS: Final = Backoff(first_s=0.5, most_s=10.0)
"""How long to wait before somebody who is owed a resume is looked for again."""
ATTEMPTS: Final = Backoff(first_s=1.0, most_s=300.0)
"""How long to wait before somebody who answers and cannot be opened is tried again."""
_log: Final = log_named("quiesce.controller")


def named_among(owed: Collection[ParticipantKey], name: str) -> ParticipantKey:
    """Whom a name means: deployment/name, or a name that only one of those has who are owed a resume.

    Raises:
        NothingOwed: none of them, or several.
    """
    found = sorted({key for key in owed if name in (str(key), key.name)})
    if len(found) != 1:
        raise NothingOwed(name, found or sorted(set(owed)), several=bool(found))
    return found[0]


class LooseEnds:
    """The transactions of one controller that are not settled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: list[Phased] = []
        self._one_at_a_time = asyncio.Lock()
        self._changed = asyncio.Event()
        self._reconciling: asyncio.Task[None] | None = None

    @property
    def first(self) -> Phased | None:
        """The oldest that is open; after every other, one of which only processes are to be restarted.

        One that another was to take the place of comes after that one.
        """
        restores = [one for one in self._open if isinstance(one, PhasedRestore)]
        replaced = {id(one) for restore in restores for one in restore.replaces}
        return min(self._open, key=lambda one: (bool(one.half_restored()), id(one) in replaced), default=None)

    @property
    def all(self) -> tuple[Phased, ...]:
        """Whatever is open, the oldest first."""
        return tuple(self._open)

    def needs(self) -> tuple[str, ...]:
        """Ids whose files are still needed."""
        return tuple(wire_id for phased in self._open for wire_id in phased.needs())

    def add(self, phased: Phased) -> None:
        """Keep a transaction that left something open."""
        self._open.append(phased)
        self._changed.set()

    async def let_go(self) -> None:
        """Forget what is not open any more."""
        async with self._one_at_a_time:
            for phased in [one for one in self._open if one.is_settled()]:
                self._open.remove(phased)
                await phased.close()

    async def forsaken(self) -> tuple[Phased, ...]:
        """The restores that are held although nobody holds anything of them any more: another may take their place."""
        return tuple([phased for phased in self._open if await phased.is_forsaken()])

    async def settle(self, give_up: Collection[ParticipantKey] = (), *, besides: Collection[Phased] = ()) -> None:
        """Try once more whoever is owed a resume, and let go of what has ended.

        ``give_up`` names participants that will never answer: they are owed nothing any more. What stands in
        ``besides`` may stay as it is.

        Raises:
            NothingOwed: one of ``give_up`` is owed nothing. Nothing was done.
            QuiesceError: something is still open: an error, or a group of several.
        """
        async with self._one_at_a_time:
            owed = {key for phased in self._open for key in phased.to_give_up()}
            for unknown in sorted(set(give_up) - owed):
                raise NothingOwed(str(unknown), sorted(owed))
            open_ones = [phased for phased in self._open if phased not in besides]
            errors = [error for phased in open_ones for error in await self._settle(phased, give_up)]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("several transactions are not settled", errors)

    async def _settle(self, phased: Phased, give_up: Collection[ParticipantKey]) -> list[Exception]:
        try:
            for key in set(give_up) & set(phased.to_give_up()):
                await phased.excuse(key, "it was given up by the operator")
            await phased.settle()
        except QuiesceError as error:
            return [error]
        self._open.remove(phased)
        await phased.close()
        return []

    # in the background

    def start(self) -> None:
        """Start to look after what is open."""
        if self._reconciling is None:
            self._reconciling = asyncio.create_task(self._reconcile(), name="reconciler")

    async def close(self) -> None:
        """Stop. What is open is given up and logged; its journal remembers it."""
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.gather(self._reconciling, return_exceptions=True)
        for phased in self._open:
            if not phased.is_settled():
                _log.error("closed_unsettled", wire_id=phased.wire_id, held=str(phased.held() or phased.state.value))
            await phased.close()
        self._open.clear()

    async def _reconcile(self) -> None:
        looks = attempts = 0
        while True:
            if not self._open:
                looks = attempts = 0
                self._changed.clear()
                await self._changed.wait()
            await self._clock.sleep(ATTEMPTS.delay_s(attempts) if attempts else LOOKS.delay_s(looks))
            looks += 1
            try:
                attempts = await self._look(attempts)
            except Exception as error:  # noqa: BLE001 - whoever is owed a resume is looked for as long as this lives
                _log.error("reconciler_fault", error=repr(error))
                attempts += 1

    async def _look(self, attempts: int) -> int:
        """Look after everything that is open, once; how often in a row somebody answered and could not be opened."""
        async with self._one_at_a_time:
            for phased in tuple(self._open):
                if phased.is_settled():
                    await self._settle(phased, ())
                elif phased.is_in_doubt() and await phased.anybody_answers():
                    attempts = 0 if await self._attempt(phased) else attempts + 1
        return attempts

    async def _attempt(self, phased: Phased) -> bool:
        """Whether a transaction could be settled now."""
        _log.info("reconciling", wire_id=phased.wire_id, owed=sorted(map(str, phased.owed())))
        with contextlib.suppress(ExceptionGroup):
            if not await self._settle(phased, ()):
                _log.info("reconciled", wire_id=phased.wire_id)
                return True
        return False
