"""Standard output that says so when it cannot be written: a full disk behind a redirection, for example."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["OutputLost", "TellingOutput", "give_up_output"]


class OutputLost(Exception):
    """Standard output could not be written. ``reason`` is the system's word for why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"standard output cannot be written ({reason})")


class TellingOutput:
    """A text stream that raises OutputLost where the one under it raises OSError.

    A reader that has gone (``| head``) stays what it is: that is no failure, and the command line library knows it.
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


def give_up_output() -> None:
    """Let what is buffered go nowhere, so that the interpreter does not stumble over it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    os.close(nowhere)


def _refuse(error: OSError) -> NoReturn:
    if error.errno == errno.EPIPE:
        raise error
    raise OutputLost(error.strerror or type(error).__name__) from None
