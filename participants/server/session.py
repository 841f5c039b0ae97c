"""One session of a resource server, the calls that visit it, and the hooks that know its state."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.identity import AttemptId

__all__ = ["ExportHook", "RestoreHook", "RestoreHookFailed", "RetireHook", "Session", "SessionHooks", "Ticket", "Visit"]

T = TypeVar("T")

ExportHook = Callable[[AttemptId], Mapping[str, object] | Awaitable[Mapping[str, object]]]
"""Gives the state of a session as a JSON object. The session does not change meanwhile."""

RestoreHook = Callable[[AttemptId, Mapping[str, object]], Awaitable[None] | None]
"""Makes the session of an attempt from a saved state."""

RetireHook = Callable[[AttemptId], Awaitable[None] | None]
"""Frees what a session holds, also one that a restore has made in part. Not called for a session that ``/verify``
has ended: its own code knows that."""

_ROUTES: Final = {"seed": "/seed_session", "end": "/verify"}
SUCCESS_BELOW: Final = 400


class RestoreHookFailed(QuiesceError):
    """The restore hook could not make the session of ``attempt``."""

    def __init__(self, attempt: AttemptId, reason: Exception) -> None:
        super().__init__(f"the state of {attempt} could not be brought back: {reason!r}")
        self.attempt = attempt


@dataclass(frozen=True, slots=True)
class SessionHooks:
    """The three hooks of a resource server; each may be a coroutine function."""

    export: ExportHook
    restore: RestoreHook
    retire: RetireHook

    async def export_state(self, attempt: AttemptId) -> Mapping[str, object]:
        return await _outcome(self.export(attempt))

    async def restore_state(self, attempt: AttemptId, state: Mapping[str, object]) -> None:
        await _outcome(self.restore(attempt, state))

    async def retire_state(self, attempt: AttemptId) -> None:
        await _outcome(self.retire(attempt))

    async def restore_all(self, states: Mapping[AttemptId, Mapping[str, object]]) -> None:
        """Make all sessions or none: where one fails, or this is cancelled, those made are freed, newest first.

        Raises:
            RestoreHookFailed: which session could not be made, and why.
        """
        made: list[AttemptId] = []
        try:
            for attempt, state in states.items():
                made.append(attempt)
                await self.restore_state(attempt, state)
        except BaseException as error:
            await self._free_all(reversed(made))
            if isinstance(error, Exception):
                raise RestoreHookFailed(made[-1], error) from error
            raise

    async def _free_all(self, attempts: Iterable[AttemptId]) -> None:
        for attempt in attempts:
            # the error that makes us free them is the one to be seen
            with contextlib.suppress(Exception):
                await self.retire_state(attempt)


async def _outcome(found: T | Awaitable[T]) -> T:
    if inspect.isawaitable(found):
        awaited: T = await found
        return awaited
    return found


class Visit:
    """What a data call does to its session."""

    SEED: Final = "seed"
    MUTATE: Final = "mutate"
    END: Final = "end"

    @staticmethod
    def of(route: str) -> str:
        """The kind of a route, by its path: ``/seed_session`` seeds, ``/verify`` ends, others mutate."""
        return next((kind for kind, path in _ROUTES.items() if route.endswith(path)), Visit.MUTATE)


@dataclass(slots=True, eq=False)
class Session:
    """One session. ``bound``: its seed has succeeded. ``visitors``: calls that are in it or wait for it."""

    attempt: AttemptId
    revision: int = 0
    bound: bool = False
    visitors: int = 0
    _lock: asyncio.Lock | None = None

    @property
    def lock(self) -> asyncio.Lock:
        """Held by whoever looks at the state or changes it; made when it is first wanted."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    @property
    def has_lock(self) -> bool:
        return self._lock is not None

    @property
    def locked(self) -> bool:
        return self._lock is not None and self._lock.locked()


@dataclass(slots=True, eq=False)
class Ticket:
    """One data call that was let in; ``session`` is None where the call named no attempt."""

    kind: str
    session: Session | None
    inside: bool = False
