"""One controller a root: who holds it, and how a later one takes over from one that is gone.

Each tenure has a folder of its own below ``.quiesce/epoch``, named by its number; making it is the claim, and of two
that claim one number exactly one succeeds. The highest number holds the root. Its holder changes the file in its folder
with each beat. Whoever comes later watches it: a content that changed within three beats of the watcher's own clock
belongs to a live controller, and the root is refused; one that stood still is taken over with the next number. No
clock of the former holder is believed, and a former holder that wakes up writes into its own folder alone.

The holder's file is written before anything is done under a number, and only then the folders of former tenures are
removed. A claim that fails before removes its folder again; it is left only where its file may stand there, so that a
number under which somebody was seen is never used twice. Whoever only wants to make room on a full file system may do
without the file: its number fences others off as any does, and until the file stands there it may be taken over.

Beside the numbers stands a mark, which the first tenure makes and all others find: numbers can be compared only under
one mark. Where it is gone, the folder was removed or moved away, and another one may have begun at 1 again in its
place; that is a storage which failed, and no take-over.

Before anything that lasts a controller looks whether it still has the highest number, and gives up if not (design 4).
What cannot be looked away is the one operation that was under way at that moment; recovery makes each such operation
harmless (``quiesce.controller.recovery``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import socket
from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from quiesce.controller.clock import Clock
from quiesce.controller.errors import RootHeld, StorageFailed, Superseded
from quiesce.controller.files import FileSystem, make_directories, remove_tree, storage_errors, write_durably
from quiesce.controller.root_layout import RootLayout
from quiesce.participants.strict_json import NotStrictJson, parse

__all__ = [
    "BEATS_MISSED_MAX",
    "BEAT_S",
    "OUT_OF_SPACE",
    "Holder",
    "Tenure",
    "begun_epoch",
    "highest_epoch",
    "live_tenure",
    "read_holder",
]

BEAT_S: Final = 1.0
"""How often the holder changes its file."""
BEATS_MISSED_MAX: Final = 3
"""After so many beats without a change the holder is taken for gone."""
HOLDER_BYTES_MAX: Final = 4096
CLAIMS_MAX: Final = 10
MARK: Final = "of-"
"""How the mark begins; eight hex digits follow."""
_MARK_SIZE: Final = 4

OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

Count = Annotated[StrictInt, Field(ge=0)]


class Holder(BaseModel):
    """What a holder's file says. ``host`` and ``pid`` are for people; nothing is decided by them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    beat: Count = 0
    released: StrictBool = False
    host: StrictStr
    pid: Count


def highest_epoch(files: FileSystem, layout: RootLayout) -> int:
    """The number of the present tenure; 0 where there never was one.

    Raises:
        StorageFailed: the folder cannot be read.
    """
    with storage_errors("read the epoch", layout.epochs):
        if files.status(layout.epochs) is None:
            return 0
        return _highest(files.names(layout.epochs))


def begun_epoch(files: FileSystem, layout: RootLayout) -> int:
    """The number of the last tenure that may have done something; 0 where there never was one.

    A claim without a holder's file did nothing yet, and the folders before it still stand. Where they are gone, its
    file was there once.

    Raises:
        StorageFailed: the folder cannot be read.
    """
    with storage_errors("read the epoch", layout.epochs):
        if files.status(layout.epochs) is None:
            return 0
        numbers = sorted((int(name) for name in files.names(layout.epochs) if name.isdecimal()), reverse=True)
        written = (number for number in numbers if files.status(layout.holder(number)) is not None)
        return next(written, max(numbers, default=0))


def read_holder(files: FileSystem, layout: RootLayout, epoch: int) -> Holder | None:
    """Who holds an epoch; None where that does not stand there yet, or cannot be believed.

    Raises:
        StorageFailed: the file cannot be read.
    """
    path = layout.holder(epoch)
    with storage_errors("read the epoch", path):
        if files.status(path) is None:
            return None
        content = files.read(path, HOLDER_BYTES_MAX)
    try:
        parse(content)
        return Holder.model_validate_json(content)
    except (NotStrictJson, ValidationError):
        return None


class Tenure:
    """One controller's hold on a root, from :meth:`acquire` to :meth:`release`."""

    def __init__(self, files: FileSystem, layout: RootLayout, clock: Clock, epoch: int) -> None:
        self.epoch = epoch
        self._mark = ""
        self._is_written = False
        self._files = files
        self._layout = layout
        self._clock = clock
        self._holder = Holder(host=socket.gethostname(), pid=os.getpid())
        self._beating: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._to_look: asyncio.Task[None] | None = None

    @classmethod
    async def acquire(
        cls,
        files: FileSystem,
        layout: RootLayout,
        clock: Clock,
        *,
        beat_s: float = BEAT_S,
        to_make_room: bool = False,
    ) -> Self:
        """Take the root, or take it over from a holder that stands still for three beats.

        With ``to_make_room`` also where its file cannot be written for want of space; the beats write it later.

        Raises:
            RootHeld: another controller is alive on this root.
            StorageFailed: the epoch cannot be read or written.
        """
        for _ in range(CLAIMS_MAX):
            before = await asyncio.to_thread(highest_epoch, files, layout)
            alive = await _watch(files, layout, clock, before, beat_s)
            if alive is not None:
                raise RootHeld(layout.root, alive.host, alive.pid)
            tenure = cls(files, layout, clock, before + 1)
            if await asyncio.to_thread(tenure._claim, to_make_room=to_make_room):
                tenure._beating = asyncio.create_task(tenure._beat(beat_s), name=f"epoch {tenure.epoch}")
                return tenure
        raise RootHeld(layout.root, "several controllers that start at once", None)

    def check(self) -> None:
        """Look whether this is still the highest number. Called before whatever lasts.

        Raises:
            Superseded: another controller took over.
            StorageFailed: that cannot be read, or what this controller took is not there any more.
        """
        found = self._found()
        if found > self.epoch:
            raise Superseded(self._layout.root, self.epoch, found)

    def _found(self) -> int:
        """The highest number beside our mark."""
        with storage_errors("find the root that this controller took", self._layout.epochs):
            names = self._files.names(self._layout.epochs)
            highest = _highest(names)
            if self._mark not in names or highest < self.epoch:
                raise OSError(errno.ENOENT, "it is not there any more")
        return highest

    async def confirm(self) -> None:
        """:meth:`check` off the event loop. Whoever asks while a look is under way shares the next one.

        So a wave of a thousand calls costs two looks, and none of them rests on one that began before it was asked for.

        Raises:
            Superseded, StorageFailed: as :meth:`check`.
        """
        # done: it was cancelled before it began, by an event loop that ends all of its tasks
        if self._to_look is None or self._to_look.done():
            self._to_look = asyncio.create_task(self._look_after(self._looking), name="look at the epoch")
        await asyncio.shield(self._to_look)

    async def _look_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._looking, self._to_look = self._to_look, None
        await asyncio.to_thread(self.check)

    async def release(self) -> None:
        """Give the root back, so that the next controller need not wait."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        with contextlib.suppress(StorageFailed):
            await asyncio.to_thread(self._give_back)

    def _give_back(self) -> None:
        self._found()
        try:
            self._write(released=True)
        except StorageFailed:
            self._unclaim()
            raise

    def _claim(self, *, to_make_room: bool = False) -> bool:
        """Make the folder of this number; False when another was first."""
        with storage_errors("claim the root", self._layout.epochs):
            make_directories(self._files, self._layout.epochs)
            try:
                self._files.make_directory(self._layout.holder(self.epoch).parent)
            except OSError as error:
                if error.errno == errno.EEXIST:
                    return False
                raise
        try:
            self._begin()
        except StorageFailed as error:
            if to_make_room and self._mark and error.errno in OUT_OF_SPACE:
                return True
            self._unclaim()
            raise
        self._sweep()
        return True

    def _begin(self) -> None:
        with storage_errors("claim the root", self._layout.epochs):
            self._mark = self._marked()
            self._files.sync_directory(self._layout.epochs)
        self._write()

    def _unclaim(self) -> None:
        """Remove the folder of a claim that came to nothing; never one in which a holder may have been seen."""
        holder = self._layout.holder(self.epoch)
        with contextlib.suppress(OSError):
            if not self._is_written and self._files.status(holder) is None:
                self._files.remove_directory(holder.parent)

    def _marked(self) -> str:
        """The mark of this root, made where there is none yet."""
        marks = (name for name in self._files.names(self._layout.epochs) if name.startswith(MARK))
        mark = next(marks, None)
        if mark is None:
            mark = f"{MARK}{secrets.token_hex(_MARK_SIZE)}"
            self._files.make_directory(self._layout.epochs / mark)
        return mark

    def _sweep(self) -> None:
        """Remove the folders of former tenures; what cannot be removed does no harm."""
        with contextlib.suppress(OSError):
            for name in self._files.names(self._layout.epochs):
                if name.isdecimal() and int(name) < self.epoch:
                    remove_tree(self._files, self._layout.epochs / name)

    async def _beat(self, beat_s: float) -> None:
        while True:
            await self._clock.sleep(beat_s)
            # a storage that fails for a while is met again by the check before something that lasts
            with contextlib.suppress(StorageFailed):
                await asyncio.to_thread(self._sign)

    def _sign(self, *, released: bool = False) -> None:
        """Change the holder's file, unless it is that of somebody who began anew in the place of our root."""
        self._found()
        self._write(released=released)

    def _write(self, *, released: bool = False) -> None:
        self._holder = self._holder.model_copy(update={"beat": self._holder.beat + 1, "released": released})
        path = self._layout.holder(self.epoch)
        with storage_errors("write the epoch", path):
            write_durably(self._files, path, self._holder.model_dump_json().encode())
        self._is_written = True


def _highest(names: Iterable[str]) -> int:
    return max((int(name) for name in names if name.isdecimal()), default=0)


async def live_tenure(files: FileSystem, layout: RootLayout, clock: Clock) -> tuple[int, Holder] | None:
    """The number of the present tenure and who has it, where it is alive. Only reads, for three beats at most.

    Raises:
        StorageFailed: the epoch cannot be read.
    """
    epoch = await asyncio.to_thread(highest_epoch, files, layout)
    alive = await _watch(files, layout, clock, epoch, BEAT_S)
    return (epoch, alive) if alive is not None else None


async def _watch(files: FileSystem, layout: RootLayout, clock: Clock, epoch: int, beat_s: float) -> Holder | None:
    """The holder of ``epoch`` once it moves; None once it has gone or stood still for three beats."""
    if epoch == 0:
        return None
    seen = await asyncio.to_thread(read_holder, files, layout, epoch)
    for _ in range(BEATS_MISSED_MAX):
        if seen is not None and seen.released:
            return None
        await clock.sleep(beat_s)
        found = await asyncio.to_thread(read_holder, files, layout, epoch)
        if found is not None and not found.released and found != seen:
            return found
        seen = found
    return None
