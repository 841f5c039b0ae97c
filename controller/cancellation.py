"""Finishing what must be finished although the caller was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["finish_first"]

T = TypeVar("T")


async def finish_first(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end, whatever cancels the caller meanwhile, and however often; then raise the cancellation.

    ``work`` must be bounded by its own deadlines. Where both came, an error of ``work`` is the cancellation's cause.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001 - raised by task.result() below
            break
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()
