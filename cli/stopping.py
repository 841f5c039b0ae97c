"""Work without an event loop that a signal ends: what it has come to is still told, and the screen is left in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

__all__ = ["Stopped", "Stopping", "stoppable"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal has come. Like KeyboardInterrupt it is no error: it passes through all that is taken for one."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as shells count it."""
        return 128 + self.number


class Stopping:
    """Raises Stopped when a signal comes, but not in the middle of what must be whole."""

    def __init__(self) -> None:
        self._whole = 0
        self._came: signal.Signals | None = None

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Let a signal wait until the body is done."""
        self._whole += 1
        try:
            yield
        finally:
            self._whole -= 1
        self._raise_if_due()

    def come(self, number: signal.Signals) -> None:
        """A signal has come.

        Raises:
            Stopped: at once, unless something must be whole.
        """
        self._came = number
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self._came is not None and not self._whole:
            raise Stopped(self._came)


@contextmanager
def stoppable() -> Iterator[Stopping]:
    """Let the first Ctrl-C or SIGTERM raise Stopped in the body; the next one does what it did before.

    Outside the main thread, which alone is told of signals, nothing changes.
    """
    stopping = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, _frame: FrameType | None) -> None:
        restore()
        stopping.come(signal.Signals(number))

    for number in _SIGNALS:
        signal.signal(number, stop)
    try:
        yield stopping
    except Stopped as stopped:
        typer.echo(f"quiesce: {stopped.number.name}: ending well; once more to leave at once", err=True)
        raise
    finally:
        restore()
