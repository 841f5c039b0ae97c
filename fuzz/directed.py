"""The controller's own runner with everything that comes to it in the hand of a script: replies, timers, errands.

Nothing of the runner is replaced but its timers, and nothing is held back but what the script decides: when a request
arrives, when an answer does, when a check, a consultation or the rename is done, and when a record fails.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final

from quiesce.controller.errors import PublishUncertain, StorageFailed
from quiesce.controller.journal import JournalFile
from quiesce.controller.ports import SnapshotPort
from quiesce.controller.records import Excuse, JournalRecord
from quiesce.controller.runner import TransactionRunner
from quiesce.controller.timers import Timers
from quiesce.fsm import messages as m
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.artefacts import VerifiedExport
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.replies import ExportReceipt
from quiesce.transport.delivery import maybe_applied, never_sent
from quiesce.transport.port import ControlReply, ControlRequest, Transport

__all__ = [
    "DirectedRecords",
    "DirectedRunner",
    "DirectedSnapshot",
    "DirectedTransport",
    "Journey",
    "Spoiling",
]

_FOREVER_S: Final = 1e9
_calling: ContextVar[m.Call | None] = ContextVar("calling", default=None)


class DirectedTimers(Timers):
    """Timers that fire when the script says so."""

    def __init__(self, post: Callable[[m.TimerFired], None]) -> None:
        super().__init__(post)
        self.waiting: set[tuple[m.Timer, ParticipantKey | None]] = set()

    def arm(self, timer: m.Timer, key: ParticipantKey | None, delay_s: float) -> None:
        """Note that it runs."""
        del delay_s
        self.waiting.add((timer, key))

    def disarm(self, timer: m.Timer, key: ParticipantKey | None) -> None:
        """Note that it does not."""
        self.waiting.discard((timer, key))

    def disarm_all(self) -> None:
        """Note that none does."""
        self.waiting.clear()

    def fire(self, timer: m.Timer, key: ParticipantKey | None) -> bool:
        """Let it run out; False when it does not run."""
        if (timer, key) not in self.waiting:
            return False
        self.waiting.discard((timer, key))
        self._fire(timer, key)
        return True


class DirectedRunner(TransactionRunner):
    """A runner whose errands wait for the script. Calls leave at once, and wait in the transport."""

    held: dict[m.Command, Callable[[], None]]
    clockwork: DirectedTimers

    def direct(self) -> None:
        """Take timers and errands over; before anything is posted."""
        self.held = {}
        self._timers = self.clockwork = DirectedTimers(self._post)
        for kind in (m.Verify, m.Consult, m.Publish, m.Probe):
            self._performers[kind] = self._holding(self._performers[kind])
        call = self._performers[m.Call]

        def send(command: m.Call) -> None:
            token = _calling.set(command)
            call(command)
            _calling.reset(token)

        self._performers[m.Call] = send

    def _holding(self, perform: Callable[[m.Command], None]) -> Callable[[m.Command], None]:
        def hold(command: m.Command) -> None:
            self.held[command] = lambda: perform(command)

        return hold

    def let_go(self, command: m.Command) -> bool:
        """Do what was held back; False when it was not asked for."""
        perform = self.held.pop(command, None)
        if perform is not None:
            perform()
        return perform is not None

    def tell(self, event: m.Event) -> None:
        """Post an event as the runner itself does."""
        self._post(event)


class Spoiling(Enum):
    """What becomes of the next file operation of a snapshot."""

    NOTHING = "nothing"
    FAILS = "fails"
    UNSEEN = "unseen"
    FAILS_UNSEEN = "fails unseen"


@dataclass(slots=True)
class DirectedSnapshot:
    """A snapshot whose next operation the script spoils."""

    inner: SnapshotPort
    spoils: Spoiling = Spoiling.NOTHING

    def deployment_directory(self, deployment: str) -> str:
        return self.inner.deployment_directory(deployment)

    def verify(self, key: ParticipantKey, receipt: ExportReceipt) -> VerifiedExport:
        if self._spoiled() is not Spoiling.NOTHING:
            raise SnapshotInvalid(subject=str(key), file=receipt.manifest_path, reason="spoiled, as the script has it")
        return self.inner.verify(key, receipt)

    def publish(self) -> None:
        spoiled = self._spoiled()
        if spoiled in {Spoiling.NOTHING, Spoiling.UNSEEN}:
            self.inner.publish()
        if spoiled is Spoiling.FAILS:
            raise StorageFailed("rename the snapshot", Path("snapshots"), _out_of_order())
        if spoiled in {Spoiling.UNSEEN, Spoiling.FAILS_UNSEEN}:
            raise PublishUncertain("rename the snapshot", Path("snapshots"), _out_of_order())

    def published(self) -> m.Publication:
        return self.inner.published() if self._spoiled() is Spoiling.NOTHING else m.Publication.UNKNOWN

    def _spoiled(self) -> Spoiling:
        spoiled, self.spoils = self.spoils, Spoiling.NOTHING
        return spoiled


@dataclass(slots=True)
class DirectedRecords:
    """Records whose next barrier the script lets fail; ``durable_bytes`` is what the last one that held has saved."""

    inner: JournalFile
    barrier_fails: bool = False
    durable_bytes: int = 0

    async def append(self, record: JournalRecord, *, barrier: bool) -> None:
        if barrier:
            self._fail_if_told()
        await self.inner.append(record, barrier=barrier)
        if barrier:
            self.durable_bytes = self.inner.path.stat().st_size

    async def decide(self, records: Sequence[JournalRecord]) -> None:
        self._fail_if_told()
        await self.inner.decide(records)
        self.durable_bytes = self.inner.path.stat().st_size

    def _fail_if_told(self) -> None:
        if self.barrier_fails:
            self.barrier_fails = False
            raise StorageFailed("write a record", Path("journal"), _out_of_order())

    async def excuse(self, excuse: Excuse) -> None:
        await self.inner.excuse(excuse)

    async def close(self) -> None:
        await self.inner.close()


def _out_of_order() -> OSError:
    return OSError(errno.EIO, "as the script has it")


class Journey:
    """One call on its way: a request that arrives when it is told to, and an answer that does."""

    def __init__(self, command: m.Call, request: ControlRequest) -> None:
        self.command = command
        self.request = replace(request, timeout_s=_FOREVER_S, query=_without_wait(request))
        self.delivered: asyncio.Task[ControlReply] | None = None
        self.is_broken = False
        """Whether the process that it was sent to has died before it answered."""
        self.client: asyncio.Future[ControlReply] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        """As the explorer names it."""
        verb, number = self.command.verb, self.command.id_index
        return f"{verb} #{number}" if number else verb.value

    def fail(self, *, left: bool) -> None:
        """The client hears nothing; ``left`` says whether anything may have left."""
        reason = "as the script has it"
        self.client.set_exception(maybe_applied(self.request, reason) if left else never_sent(self.request, reason))

    @property
    def is_answered(self) -> bool:
        """Whether the server has answered."""
        return self.delivered is not None and self.delivered.done()


def _without_wait(request: ControlRequest) -> dict[str, str] | None:
    """A status that is asked to wait is answered at once: when is the script's matter."""
    if request.query is None:
        return None
    return {name: "0" if name == "timeout_s" else value for name, value in request.query.items()}


class DirectedTransport:
    """Holds each call of the transaction until the script delivers it; everything else passes."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._begun: set[int] = set()
        self.journeys: dict[str, list[Journey]] = {}

    async def send(self, request: ControlRequest) -> ControlReply:
        """Hold the first request of a command; what a call asks beside it passes."""
        command = _calling.get()
        if command is None:
            return await self._inner.send(request)
        _calling.set(None)
        journey = Journey(command, request)
        self.journeys.setdefault(str(command.key), []).append(journey)
        return await journey.client

    def deliver(self, journey: Journey) -> asyncio.Task[ControlReply]:
        """Let the request arrive; may be done again, as a network may."""
        task = asyncio.ensure_future(self._inner.send(journey.request))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def forget_clients(self) -> None:
        """Let whoever still waits go; what has left goes on."""
        for journey in (journey for journeys in self.journeys.values() for journey in journeys):
            if not journey.client.done():
                journey.client.cancel()

    async def aclose(self) -> None:
        """Let whoever still waits go, and close what is underneath."""
        self.forget_clients()
        for journey in (journey for journeys in self.journeys.values() for journey in journeys):
            if journey.delivered is not None:
                journey.delivered.cancel()
        await self._inner.aclose()
