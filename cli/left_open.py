"""What a command has found or left open, in words; where there is anything, it ends with the exit code for it.

So it does where a storage does not let it know: that nobody is held is what was to be found out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NoReturn

import typer

from quiesce.cli.output import ExitCode, emit_json
from quiesce.controller.errors import StorageFailed
from quiesce.fsm.errors import QuiesceError

__all__ = ["NotKnown", "end", "knowing"]


class NotKnown(QuiesceError):
    """The storage does not let it be known who is held, or be ended."""

    exit_code: Final = ExitCode.IN_DOUBT

    def __init__(self, error: StorageFailed) -> None:
        super().__init__(f"whether somebody is held is not known, and nobody was reopened: {error}")


@contextlib.contextmanager
def knowing() -> Iterator[None]:
    """Around what finds out who is held.

    Raises:
        NotKnown: for a StorageFailed.
    """
    try:
        yield
    except StorageFailed as error:
        raise NotKnown(error) from error


def end(result: Mapping[str, object], *, left_open: Sequence[str], as_json: bool) -> NoReturn:
    """End a command that has shown its result: with 3 where something is left open, each a sentence, else with 0."""
    for sentence in left_open:
        typer.echo(f"quiesce: {sentence}", err=True)
    if as_json:
        error = {"error": "; ".join(left_open)} if left_open else {}
        emit_json({"ok": not left_open, **error, **result})
    raise typer.Exit(ExitCode.IN_DOUBT if left_open else ExitCode.WORKED)
