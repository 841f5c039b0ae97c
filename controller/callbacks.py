"""What a program's own callback raises: never more than an exception for the loop that runs the transaction.

KeyboardInterrupt and SystemExit would end the loop with everybody closed, and a CancelledError the one writer. So they
come out of a callback as errors; a Ctrl-C that struck there is sent to the program again, where it aborts what runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from quiesce.fsm.errors import QuiesceError

__all__ = ["calling_back", "interrupt_again"]


@contextlib.contextmanager
def calling_back(name: str) -> Iterator[None]:
    """Run a callback of the program; a cancellation of the task in which it runs stays one.

    Raises:
        QuiesceError: it raised what is no Exception; that is the cause.
    """
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        if isinstance(error, KeyboardInterrupt):
            interrupt_again()
        raise QuiesceError(f"{name} raised {error!r}") from error


def interrupt_again() -> None:
    """Send the program the Ctrl-C that struck where nothing can end: once the loop has its turn back."""
    if callable(signal.getsignal(signal.SIGINT)):
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
