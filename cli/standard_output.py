"""Standard output that says so when it cannot be written: a full disk behind a redirection, for example."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["READER_GONE", "OutputLost", "TellingOutput", "give_up_output", "told_if_possible"]

READER_GONE: Final = 141
"""128 and the number of SIGPIPE, as shells count it: whoever read the output has gone (``| head``) before its end."""


class OutputLost(Exception):
    """Standard output could not be written. ``reason`` is the system's word for why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"standard output cannot be written ({reason})")


class TellingOutput:
    """A text stream that raises OutputLost where the one under it raises OSError.

    A reader that has gone (``| head``) stays what it is: that is no failure, and ends the command in silence.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is the stream's own
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, as the stream does."""
        try:
            return self._stream.write(text)
        except OSError as error:
            _refuse(error)

    def flush(self) -> None:
        """Flush, as the stream does."""
        try:
            self._stream.flush()
        except OSError as error:
            _refuse(error)


@contextmanager
def told_if_possible() -> Iterator[None]:
    """Go on where whoever would be told has gone: the exit code says more than that."""
    try:
        yield
    except BrokenPipeError:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # it is this one, and not standard error alone
            give_up_output()


def give_up_output() -> None:
    """Let what is buffered go nowhere, so that the interpreter does not stumble over it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    os.close(nowhere)


def _refuse(error: OSError) -> NoReturn:
    if error.errno == errno.EPIPE:
        raise error
    raise OutputLost(error.strerror or type(error).__name__) from None
