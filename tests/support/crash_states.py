"""What a controller leaves that ends at an instant, as one value: two instants that leave the same are one to recovery.

Of everything that outlives a controller: every file below its root, what the servers know, their tasks and the calls
that are on their way (as far as each has come), what the trainer owns, and how far off is what is still due. Of a
journal what a recovery takes from it, which is its account, and where every machine stands; not the way there. Of the
holder of the root how it stands, not how often it had shown that it lives; of a temporary file that it is there.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import hashlib
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from types import FunctionType, MethodType
from typing import Any, Final

from support.crashes import Scene
from support.ground import CoordinatedFleet
from support.mortal import Doom, Moment, Point, is_mortal

from quiesce.controller.files import LocalFiles
from quiesce.controller.journal import read_journal
from quiesce.controller.journal_lines import SavedRecord
from quiesce.controller.recovery import account_of
from quiesce.fsm.fence import FenceState
from quiesce.fsm.tables.fence import FencePhase
from quiesce.fsm.vocabulary import ParticipantKey

__all__ = ["Census", "left_behind"]

_PLAIN: Final = (enum.Enum, str, bytes, int, float, bool, type(None), type, PurePath)
_OF_SERVERS: Final = "quiesce.participants"
_BEATS: Final = re.compile(rb'"beat":\d+,')
_NOT_STATE: Final = {"time_ts", "sequence", "checksum"}
"""Of a line of a journal: when it was written and how it is sealed."""


@dataclass
class Census(Doom):
    """A life that goes on, and what each of its points would have left."""

    left: dict[Point, bytes] = field(default_factory=dict)

    def passes(self, point: Point, half: tuple[Path, bytes] | None = None) -> None:
        """Note a point."""
        assert isinstance(self.scene, Scene)
        self.left[point] = left_behind(self.scene, self, point, half)


def left_behind(scene: Scene, doom: Doom, point: Point, half: tuple[Path, bytes] | None = None) -> bytes:
    """A digest of what is left if this life ends now; ``half`` is what is then at the end of a file in addition."""
    fleet = scene.fleet
    beside = (fleet.workers, fleet.model_server) if isinstance(fleet, CoordinatedFleet) else ()
    lost: dict[str, list[int]] = {}
    if point[2] is Moment.POWER_LOSS:
        for file in doom.written:
            lost.setdefault(str(file.path), []).append(file.synced)
    outliving = [task for task in asyncio.all_tasks() - doom.owned if not _changes_nothing(task)]
    return _digest(
        _due(scene, outliving),
        tuple(_files(scene.root, lost, half)),
        _Walk().of((fleet.apps, fleet.ledger, fleet.runs, fleet.states, beside)),
        sorted(repr(_task(task)) for task in outliving),
        tuple(scene.trainer.owned),
    )


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def _due(scene: Scene, outliving: list[asyncio.Task[Any]]) -> object:
    """What the time means for those who live on: the instant itself while a call with a deadline is on its way."""
    now_s, now_ts = asyncio.get_running_loop().time(), scene.fleet.clock.now_ts()
    if any(" http" in task.get_name() for task in outliving):
        return now_s
    timers: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]  # of no interface
    left = [timer.when() - now_s for timer in timers if not (timer.cancelled() or is_mortal(timer))]
    # of whoever is prepared already nothing happens at the deadline
    preparing = [app.fence for app in scene.fleet.apps.values() if app.fence.state.phase is FencePhase.PREPARING]
    deadlines = [(fence.deadline_ts or now_ts) - now_ts for fence in preparing]
    return sorted(round(one, 6) for one in left), [round(max(0.0, one), 6) for one in deadlines]


def _files(root: Path, lost: Mapping[str, list[int]], half: tuple[Path, bytes] | None) -> Iterator[tuple[str, object]]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        yield folder[len(str(root)) :], "a folder"
        for name in sorted(names):
            path = f"{folder}/{name}"
            content = Path(path).read_bytes()
            for size in lost.get(path, ()):
                content = content[:size].ljust(size, b"\0")
            if half is not None and str(half[0]) == path:
                content += half[1]
            yield path[len(str(root)) :], _said(name, content)


def _said(name: str, content: bytes) -> object:
    if name.endswith(".ndjson"):
        return _journal(content)
    if name == "holder.json":
        return _BEATS.sub(b"", content)
    return "a temporary file" if name.endswith(".tmp") else _digest(content)


@dataclass
class _Content(LocalFiles):
    """The file system of one file that is not there."""

    content: bytes

    def read(self, path: Path, limit: int) -> bytes:
        return self.content[:limit] if path.name == "journal" else super().read(path, limit)


@functools.lru_cache(maxsize=10_000)
def _journal(content: bytes) -> bytes:
    reading = read_journal(Path("journal"), files=_Content(content))
    account = account_of("any", reading)
    said = {one.name: getattr(account, one.name) for one in fields(account) if one.name not in ("reading", "opened")}
    stand = {(record.machine, record.subject): record.target for record in reading.records}
    others = [line.model_dump(exclude=_NOT_STATE) for line in reading.lines if not isinstance(line, SavedRecord)]
    whole = (said, stand, others, reading.damage.partition(": ")[2], reading.is_torn, bool(content))
    return _digest(_Walk().of(whole))


def _changes_nothing(task: asyncio.Task[Any]) -> bool:
    """A question on its way that has no effect wherever it arrives; other questions can complete a drain."""
    return task.get_name().startswith("GET ") and "/capabilities " in task.get_name()


def _task(task: asyncio.Task[Any]) -> tuple[object, ...]:
    """A task, and how far it has come: a call that is on its way has what it carries in its name."""
    name = task.get_name()
    return ("" if name.startswith("Task-") else name, task.done(), () if task.done() else _frames(task.get_coro()))


def _frames(work: Any) -> tuple[object, ...]:  # noqa: ANN401 - coroutines, generators, futures: whatever is awaited
    found: list[object] = []
    while (frame := getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)) is not None:
        found.append((work.__qualname__, frame.f_lasti))
        work = work.cr_await if hasattr(work, "cr_await") else work.gi_yieldfrom
    return (*found, type(work).__name__)


class _Walk:
    """Objects of servers as plain values: what they hold, however deep; code and tables are named."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, object]] = {}

    def of(self, one: object) -> object:
        """The value of an object; where it was met before, which one it was."""
        if isinstance(one, _PLAIN):
            return str(one)
        if id(one) in self._met:
            return "met", self._met[id(one)][0]
        self._met[id(one)] = (len(self._met), one)
        if isinstance(one, Mapping):
            return "map", sorted(((self.of(key), self.of(value)) for key, value in one.items()), key=repr)
        if isinstance(one, set | frozenset):
            return "set", sorted(map(self.of, one), key=repr)
        if isinstance(one, list | tuple | deque):
            return tuple(map(self.of, one))
        return self._waited_for(one) or self._held(one)

    def _waited_for(self, one: object) -> object:
        match one:
            case asyncio.Task():
                return _task(one)
            case asyncio.Future():
                ended = one.done() and not one.cancelled() and one.exception() is None
                return "future", one.done(), self.of(one.result()) if ended else None
            case asyncio.TimerHandle():
                return "timer", one.when(), one.cancelled()
            case asyncio.Event():
                return "event", one.is_set()
            case asyncio.Lock():
                return "lock", one.locked()
        return None

    def _held(self, one: object) -> object:
        if isinstance(one, MethodType):
            return one.__func__.__qualname__, self.of(one.__self__)
        if isinstance(one, FunctionType):
            cells = (one.__closure__ or ()) if one.__module__.startswith(_OF_SERVERS) else ()
            return one.__qualname__, [self.of(cell.cell_contents) for cell in cells]
        kind = type(one)
        if not kind.__module__.startswith(_OF_SERVERS) and kind not in (FenceState, ParticipantKey):
            return kind.__qualname__
        slots = [getattr(base, "__slots__", ()) for base in kind.__mro__]
        names = [*getattr(one, "__dict__", ()), *(name for some in slots for name in some)]
        return kind.__qualname__, [(name, self.of(getattr(one, name))) for name in names if hasattr(one, name)]
