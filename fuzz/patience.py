"""Giving calls time to be answered, without taking one's own slowness for the participant's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["given_time"]

TURNS_MAX: Final = 50
"""Of the event loop: what an answer that has arrived may need until its task has ended."""


async def given_time(tasks: Iterable[asyncio.Task[Any]], seconds: float | None) -> None:
    """Wait until all of these have ended, but no longer than that (None: however long it takes).

    A loop that was kept from running wakes up with the timer and with answers that have long been there; they are
    read before this returns.
    """
    waiting = {task for task in tasks if not task.done()}
    if not waiting:
        return
    _, waiting = await asyncio.wait(waiting, timeout=seconds)
    for _ in range(TURNS_MAX):
        if all(task.done() for task in waiting):
            return
        await asyncio.sleep(0)
