"""The controller's side of the request spool: looks for requests, carries each out once, and writes its answer down.

A cut is taken only where the program has said how its own part is saved (``on_asked_cut``): a snapshot that lacks the
trainer's part restores nothing. An abort is carried out at once, also while a cut runs; whatever else finds a
transaction running is refused, as any other caller is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from quiesce.controller.caller import Confirm
from quiesce.controller.cancellation import finish_first
from quiesce.controller.clock import Clock
from quiesce.controller.epoch import Tenure
from quiesce.controller.errors import (
    CutNotOffered,
    HalfRestored,
    InDoubt,
    NothingOwed,
    PublishUncertain,
    RestoreFailed,
    StorageFailed,
    Superseded,
    TransactionRunning,
)
from quiesce.controller.files import FileSystem
from quiesce.controller.last_cut import OnAskedCut, filled
from quiesce.controller.loose_ends import named_among
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.spool import AskedAnswer, AskedKind, AskedRequest, NotBelievable, Spool
from quiesce.participants.errors import ConfigurationError
from quiesce.transport.logs import log_named

if TYPE_CHECKING:
    from quiesce.controller.api import Controller

__all__ = ["LOOK_S", "RequestWatch"]

LOOK_S: Final = 0.5
"""How often the spool is looked at."""
_UNPROVEN: Final = (HalfRestored, InDoubt, PublishUncertain, RestoreFailed)
_log: Final = log_named("quiesce.controller")


class RequestWatch:
    """Carries out what other programs ask of one controller, while it is open."""

    def __init__(self, controller: Controller, clock: Clock, body: OnAskedCut | None) -> None:
        self._controller = controller
        self._clock = clock
        self._body = body
        self._spool: Spool | None = None
        self._confirm: Confirm = _nobody_else
        self._watching: asyncio.Task[None] | None = None
        self._begun: dict[str, asyncio.Task[None]] = {}
        self._named: set[str] = set()

    async def start(self, files: FileSystem, layout: RootLayout, tenure: Tenure) -> None:
        """Begin to look, as long as the tenure lasts.

        Raises:
            StorageFailed: the spool's folder cannot be made.
        """
        spool = Spool(files, layout, tenure.epoch)
        await asyncio.to_thread(spool.prepare)
        self._confirm = tenure.confirm
        self._spool = spool
        self._watching = asyncio.create_task(self._watch(spool), name="request spool")

    async def close(self) -> None:
        """Look no more; a cut that somebody asked for and that still runs is aborted."""
        tasks = list(self._begun.values())
        if self._watching is not None:
            tasks.append(self._watching)
        for task in tasks:
            task.cancel()
        await finish_first(_ended(tasks))

    async def _watch(self, spool: Spool) -> None:
        while True:
            try:
                await self._look(spool)
            except StorageFailed as error:
                if await self._is_over(error):
                    return
            await self._clock.sleep(LOOK_S)

    async def _is_over(self, error: StorageFailed) -> bool:
        """Whether the spool cannot be read since another controller has the root; else say once what is wrong."""
        try:
            await self._confirm()
        except Superseded:  # whatever this controller does next says so
            return True
        except StorageFailed as lost:
            error = lost
        self._name("spool", str(error))
        return False

    async def _look(self, spool: Spool) -> None:
        waiting, strangers = await asyncio.to_thread(spool.look)
        for stranger in strangers:
            self._name(stranger, "it is neither a request nor an answer")
        for request_id in waiting:
            if request_id in self._begun:
                continue
            try:
                request = await asyncio.to_thread(spool.request, request_id)
            except (NotBelievable, StorageFailed) as error:
                self._name(request_id, str(error))
            else:
                _log.info("asked", request_id=request_id, kind=request.kind.value, host=request.host, pid=request.pid)
                work = self._carry_out(spool, request)
                self._begun[request_id] = asyncio.create_task(work, name=f"request {request_id}")

    def _name(self, what: str, why: str) -> None:
        """Say once that something in the spool is ignored."""
        if what not in self._named:
            self._named.add(what)
            _log.warning("request_ignored", request=what, why=why)

    async def _carry_out(self, spool: Spool, request: AskedRequest) -> None:
        try:
            answer = AskedAnswer(request_id=request.request_id, ok=True, result=await self._done(request))
        except asyncio.CancelledError as error:
            await finish_first(self._reply(spool, _failed(request, error, "the controller was closed meanwhile")))
            raise
        except Exception as error:  # noqa: BLE001 - whoever asked gets the error; nobody else does
            answer = _failed(request, error)
        await self._reply(spool, answer)

    async def _reply(self, spool: Spool, answer: AskedAnswer) -> None:
        try:
            await asyncio.to_thread(spool.reply, answer)
        except StorageFailed as error:
            _log.error("request_unanswered", request_id=answer.request_id, error=str(error))

    async def _done(self, request: AskedRequest) -> dict[str, JsonValue]:
        controller = self._controller
        match request.kind:
            case AskedKind.CUT:
                return await self._cut(request)
            case AskedKind.ABORT:
                return _plain((await controller.abort(request.wire_id)).to_json())
            case AskedKind.SETTLE:
                await controller.settle(give_up=[named_among(controller.owed, name) for name in request.give_up])
                return {}

    async def _cut(self, request: AskedRequest) -> dict[str, JsonValue]:
        if self._body is None:
            running = self._controller.running
            raise TransactionRunning(running.wire_id) if running is not None else CutNotOffered()
        if request.label is None:
            raise ConfigurationError("a cut needs a label")
        async with self._controller.cut(request.label, metadata=request.metadata) as cut:
            await filled(cut, self._body)
        return _plain(cut.result.to_json())


def _failed(request: AskedRequest, error: BaseException, why: str = "") -> AskedAnswer:
    errors = list(_flat(error))
    return AskedAnswer(
        request_id=request.request_id,
        ok=False,
        errors=tuple((type(one).__name__, why or str(one)) for one in errors),
        unproven=any(isinstance(one, _UNPROVEN) or (isinstance(one, NothingOwed) and one.owed) for one in errors),
    )


def _flat(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _flat(one)
    else:
        yield error


def _plain(result: Mapping[str, object]) -> dict[str, JsonValue]:
    plain: dict[str, JsonValue] = json.loads(json.dumps(result))
    return plain


async def _nobody_else() -> None:
    """Before the root was taken there is nothing to lose."""


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
