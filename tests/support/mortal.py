"""A controller that dies at a chosen instant: decorators of its ports, and the end of everything that it had under way.

From that instant none of its calls leaves and none of its file operations takes effect, whatever its code still does;
then its tasks are ended. What was on its way arrives where it was sent to. Nothing in the product knows of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from quiesce.controller.files import FileStatus, LocalFiles, WritableFile
from quiesce.fsm.trace import TraceRecord
from quiesce.transport.port import ControlReply, ControlRequest, Transport

__all__ = [
    "MOMENTS",
    "Doom",
    "Kind",
    "Moment",
    "MortalFiles",
    "MortalRecords",
    "MortalTransport",
    "Point",
    "StoppableTransport",
    "is_mortal",
    "run_mortal",
]

_ROUNDS_MAX = 200
_OWNER: ContextVar[object | None] = ContextVar("owner", default=None)


class Kind(StrEnum):
    """At what a controller can die."""

    RECORD = "record"
    CALL = "call"
    FILE = "file operation"


class Moment(StrEnum):
    """When it dies, relative to that."""

    BEFORE = "before"
    DURING = "during"
    """The call is on its way and will be served; of what is written a half is there."""
    AFTER = "after"
    POWER_LOSS = "after, and with it what was not synced"


MOMENTS: Final = {
    Kind.RECORD: (Moment.AFTER, Moment.POWER_LOSS),
    Kind.CALL: (Moment.BEFORE, Moment.DURING, Moment.AFTER),
    Kind.FILE: (Moment.BEFORE, Moment.DURING, Moment.AFTER, Moment.POWER_LOSS),
}
Point = tuple[Kind, int, Moment]


@dataclass
class Doom:
    """The instant: the nth record, call or file operation (from 1; 0 for never), and what was counted so far."""

    kind: Kind = Kind.RECORD
    nth: int = 0
    moment: Moment = Moment.AFTER
    dead: bool = False
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    names: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    written: list[_MortalFile] = field(default_factory=list)
    """Files that were opened, each with how much of it is proven durable."""
    scene: object = None
    """Where it is lived."""
    owned: set[asyncio.Task[Any]] = field(default_factory=set)
    """What this life has under way; all the rest outlives it."""

    def __post_init__(self) -> None:
        self.struck = asyncio.Event()

    def __str__(self) -> str:
        return f"{self.moment} {self.kind} {self.nth}"

    def due(self, kind: Kind, name: str) -> bool:
        """Count something that happens, and say whether it is the one at which death comes."""
        if self.dead:
            return False
        self.counts[kind] += 1
        self.names[kind].append(name)
        return kind is self.kind and self.counts[kind] == self.nth

    def passes(self, point: Point, half: tuple[Path, bytes] | None = None) -> None:
        """The life could end at this point, for whoever wants to look; ``half`` is what that would leave of a write."""

    def strike(self) -> None:
        """Now."""
        self.dead = True
        self.struck.set()
        if self.moment is Moment.POWER_LOSS:
            for file in self.written:
                if file.path.exists():
                    os.truncate(file.path, file.synced)


class MortalTransport:
    """Calls of a controller that may die at one of them. Those that left are served to their end."""

    def __init__(self, inner: Transport, doom: Doom) -> None:
        self._inner = inner
        self._doom = doom

    async def send(self, request: ControlRequest) -> ControlReply:
        doom = self._doom
        is_due = doom.due(Kind.CALL, f"{request.participant} {request.call}")
        nth = doom.counts[Kind.CALL]
        doom.passes((Kind.CALL, nth, Moment.BEFORE))
        if is_due and doom.moment is Moment.BEFORE:
            doom.strike()
        if doom.dead:
            return await _for_ever()
        # a task of nobody: a call that has left outlives its caller
        name = f"{request.method} {request.url} {request.query} {request.body!r}"
        call = asyncio.get_running_loop().create_task(self._inner.send(request), name=name, context=Context())
        doom.passes((Kind.CALL, nth, Moment.DURING))
        if is_due and doom.moment is Moment.DURING:
            doom.strike()
        await asyncio.wait({call})
        doom.passes((Kind.CALL, nth, Moment.AFTER))
        if is_due:
            doom.strike()
        return await (_for_ever() if doom.struck.is_set() else call)

    async def aclose(self) -> None:
        return


async def _for_ever() -> ControlReply:
    never: asyncio.Future[ControlReply] = asyncio.get_running_loop().create_future()
    return await never


class MortalRecords:
    """An observer that dies right after a record was handed to the journal, before anything that follows from it."""

    def __init__(self, doom: Doom, told: Callable[[TraceRecord], None]) -> None:
        self._doom = doom
        self._told = told

    def __call__(self, trace: TraceRecord) -> None:
        is_due = self._doom.due(Kind.RECORD, f"{trace.machine} {trace.subject} {trace.event}")
        if not self._doom.dead:
            self._told(trace)
        for moment in MOMENTS[Kind.RECORD]:
            self._doom.passes((Kind.RECORD, self._doom.counts[Kind.RECORD], moment))
        if is_due:
            self._doom.strike()


class MortalFiles:
    """The real files of a controller that may die at a changing operation; afterwards no operation has any effect."""

    def __init__(self, doom: Doom) -> None:
        self._doom = doom
        self._real = LocalFiles()

    def status(self, path: Path) -> FileStatus | None:
        self._look()
        return self._real.status(path)

    def names(self, path: Path) -> tuple[str, ...]:
        self._look()
        return self._real.names(path)

    def read(self, path: Path, limit: int) -> bytes:
        self._look()
        return self._real.read(path, limit)

    def chunks(self, path: Path) -> Iterator[bytes]:
        self._look()
        return self._real.chunks(path)

    def make_directory(self, path: Path) -> None:
        self._change(f"make_directory {path.name}", lambda: self._real.make_directory(path))

    def create(self, path: Path) -> WritableFile:
        created: list[WritableFile] = []
        self._change(f"create {path.name}", lambda: created.append(self._real.create(path)))
        self._doom.written.append(_MortalFile(self, path, created[0]))
        return self._doom.written[-1]

    def rename(self, source: Path, target: Path) -> None:
        self._change(f"rename {target.name}", lambda: self._real.rename(source, target))
        for file in self._doom.written:
            if file.path.is_relative_to(source):
                file.path = target / file.path.relative_to(source)

    def sync_file(self, path: Path) -> None:  # noqa: ARG002 - as the port has it
        self._look()

    def sync_directory(self, path: Path) -> None:  # noqa: ARG002 - as the port has it
        self._look()

    def remove_file(self, path: Path) -> None:
        self._change(f"remove_file {path.name}", lambda: self._real.remove_file(path))

    def remove_directory(self, path: Path) -> None:
        self._change(f"remove_directory {path.name}", lambda: self._real.remove_directory(path))

    def _look(self) -> None:
        if self._doom.dead:
            raise OSError(errno.EIO, "the controller is dead")

    def _change(self, name: str, effect: Callable[[], object], half: tuple[Path, bytes] | None = None) -> None:
        doom = self._doom
        is_due = doom.due(Kind.FILE, name)
        nth = doom.counts[Kind.FILE]
        for moment in (Moment.BEFORE, Moment.DURING, Moment.POWER_LOSS):
            doom.passes((Kind.FILE, nth, moment), half if moment is Moment.DURING else None)
        if is_due and doom.moment is not Moment.AFTER:
            if doom.moment is Moment.DURING and half is not None:
                with half[0].open("ab") as file:
                    file.write(half[1])
            doom.strike()
        self._look()
        effect()
        doom.passes((Kind.FILE, nth, Moment.AFTER))
        if is_due:
            doom.strike()
            self._look()


class _MortalFile:
    """An open file of it."""

    def __init__(self, files: MortalFiles, path: Path, real: WritableFile) -> None:
        self.path = path
        self.synced = 0
        self._files = files
        self._real = real

    def write(self, content: bytes) -> None:
        self._files._change(
            f"write {self.path.name}",
            lambda: self._real.write(content),
            half=(self.path, content[: len(content) // 2]),
        )

    def sync(self) -> None:
        self._files._look()
        self.synced = self.path.stat().st_size

    def truncate(self, size: int) -> None:
        self._files._change(f"truncate {self.path.name}", lambda: self._real.truncate(size))

    def close(self) -> None:
        self._real.close()


def is_mortal(timer: asyncio.TimerHandle) -> bool:
    """Whether a timer belongs to a life, this one or one that is over: to whoever comes later it is nothing."""
    return timer._context.get(_OWNER) is not None  # type: ignore[attr-defined]  # of no interface


async def run_mortal(life: Callable[[], Awaitable[object]], doom: Doom) -> bool:
    """Live until the end or until death; whether it came to the end.

    Whatever the life raises by itself is raised here.
    """
    loop = asyncio.get_running_loop()
    owned = doom.owned
    before = loop.get_task_factory()

    def owning(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        # whose task it is stands in the context in which it was begun; servers are called in an empty one
        task = asyncio.Task(work, loop=loop, context=context)
        # an empty context is false
        if (copy_context() if context is None else context).get(_OWNER) is doom:
            owned.add(task)
            task.add_done_callback(owned.discard)
        return task

    loop.set_task_factory(owning)  # type: ignore[arg-type]  # the stub's protocol names a wider type of work
    try:
        context = copy_context()
        context.run(_OWNER.set, doom)

        async def living() -> None:
            await life()

        main = loop.create_task(living(), context=context)
        dying = asyncio.ensure_future(doom.struck.wait())
        await asyncio.wait({main, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not doom.dead:
            await main
            return True
        await _end(owned)
        with contextlib.suppress(BaseException):  # whatever a dead controller has to say, nobody hears
            main.exception()
        return False
    finally:
        loop.set_task_factory(before)


async def _end(owned: set[asyncio.Task[Any]]) -> None:
    for _ in range(_ROUNDS_MAX):
        if not owned:
            return
        for task in tuple(owned):
            task.cancel()
        await asyncio.sleep(0)
    raise AssertionError(f"these tasks of a dead controller do not end: {owned}")


class StoppableTransport:
    """Calls of a controller that is stopped at its nth one that changes something, until ``go`` is set.

    That call had left its last look at the epoch behind. While it is stopped nothing that it sends leaves, and nothing
    that it is answered arrives. ``late`` are the calls that changed something and left afterwards.
    """

    def __init__(self, inner: Transport, nth: int) -> None:
        self._inner = inner
        self._nth = nth
        self.calls = 0
        self.late: list[str] = []
        self.stopped = asyncio.Event()
        self.go = asyncio.Event()

    async def send(self, request: ControlRequest) -> ControlReply:
        changes = request.method == "POST" and request.body != b"{}"
        self.calls += changes
        if changes and self.calls == self._nth:
            self.stopped.set()
        if self.stopped.is_set():
            await self.go.wait()
            if changes:
                self.late.append(f"{request.participant} {request.call}")
        reply = await self._inner.send(request)
        if self.stopped.is_set():
            await self.go.wait()
        return reply

    async def aclose(self) -> None:
        return
