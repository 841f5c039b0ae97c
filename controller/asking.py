"""Asking the controller that holds a root for something, from another program, and waiting for its answer."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from quiesce.controller.clock import Clock, SystemClock
from quiesce.controller.epoch import BEAT_S, BEATS_MISSED_MAX, Holder, highest_epoch, read_holder
from quiesce.controller.errors import ControllerGone
from quiesce.controller.files import FileSystem, LocalFiles
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.spool import AskedAnswer, AskedKind, AskedRequest, NotBelievable, Spool
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.validation import first_problems

__all__ = ["Asker", "new_request_id"]

LOOK_S: Final = 0.25


def new_request_id() -> str:
    """An id for whoever has none of its own."""
    return f"ask-{secrets.token_hex(8)}"


class Asker:
    """Asks whoever holds a root at the moment."""

    def __init__(self, root: Path, *, files: FileSystem | None = None, clock: Clock | None = None) -> None:
        self._files = files or LocalFiles()
        self._layout = RootLayout(root)
        self._clock = clock or SystemClock()

    async def ask(self, kind: AskedKind, request_id: str, **fields: object) -> AskedAnswer:
        """Ask, and wait for the answer for as long as that controller lives. Cancelling takes nothing back.

        Raises:
            ConfigurationError: a field cannot be used.
            RequestConflict: under this id something else was asked.
            ControllerGone: it died, or nobody holds the root; nobody carries the request out any more.
            StorageFailed: the root cannot be read or written.
        """
        try:
            request = AskedRequest.of_this_program(kind, request_id, **fields)
        except ValidationError as error:
            raise ConfigurationError(f"the request cannot be made: {first_problems(error)}") from None
        epoch = await asyncio.to_thread(highest_epoch, self._files, self._layout)
        spool = Spool(self._files, self._layout, epoch)
        await asyncio.to_thread(spool.submit, request)
        return await self._answer(spool, epoch, request_id)

    async def _answer(self, spool: Spool, epoch: int, request_id: str) -> AskedAnswer:
        seen: Holder | None = None
        seen_s = self._clock.monotonic()
        while True:
            try:
                answer = await asyncio.to_thread(spool.answer, request_id)
            except NotBelievable as error:
                raise ConfigurationError(f"the answer to request {request_id} cannot be read: {error}") from None
            if answer is not None:
                return answer
            holder = await asyncio.to_thread(read_holder, self._files, self._layout, epoch)
            if holder is not None and holder != seen and not holder.released:
                seen, seen_s = holder, self._clock.monotonic()
            # one beat more than the next controller waits, so that whoever is taken over is not asked for
            if self._clock.monotonic() - seen_s > (BEATS_MISSED_MAX + 1) * BEAT_S:
                raise ControllerGone(self._layout.root, request_id)
            await self._clock.sleep(LOOK_S)
