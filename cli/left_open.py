"""What a command has found or left open, in words; where there is anything, it ends with the exit code for it.

So it does where a storage does not let it know: that nobody is held is what was to be found out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import typer

from quiesce.cli.output import ExitCode, emit_json
from quiesce.controller.errors import StorageFailed
from quiesce.fsm.errors import QuiesceError

if TYPE_CHECKING:
    from quiesce.controller.takeover import Recovered
    from quiesce.controller.unread_journals import LookedAfter

__all__ = ["NotKnown", "Unsettled", "end", "knowing", "naming_unsettled", "not_settled"]


class Found(Protocol):
    """Whoever has taken a root, or an account of it: what was found there, and what became of it."""

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """The transactions that had not ended."""
        ...

    @property
    def unread(self) -> tuple[LookedAfter, ...]:
        """What has the name of a journal and cannot be read."""
        ...


class NotKnown(QuiesceError):
    """The storage does not let it be known who is held, or be ended."""

    exit_code: Final = ExitCode.IN_DOUBT

    def __init__(self, error: StorageFailed) -> None:
        super().__init__(f"whether somebody is held is not known, and nobody was reopened: {error}")


class Unsettled(QuiesceError):
    """A command ended by an error, and besides, something that it had found under the root is not settled.

    Attributes:
        error: why it ended.
        left_open: what is not settled, each a sentence.
    """

    exit_code: Final = ExitCode.IN_DOUBT

    def __init__(self, error: QuiesceError | ExceptionGroup[Exception], left_open: Sequence[str]) -> None:
        self.error = error
        self.left_open = tuple(left_open)
        super().__init__(str(error))


@contextlib.contextmanager
def naming_unsettled(found: Found) -> Iterator[None]:
    """Around what a command does with a controller: whatever ends it, what was found and is not settled is named.

    Raises:
        Unsettled: for an error of ours, or a cancellation.
    """
    try:
        yield
    except (QuiesceError, ExceptionGroup) as error:
        left_open = not_settled(found)
        if not left_open:
            raise
        raise Unsettled(error, left_open) from error
    except asyncio.CancelledError as error:
        left_open = not_settled(found)
        if not left_open:
            raise
        raise Unsettled(QuiesceError("interrupted"), left_open) from error


def not_settled(found: Found) -> list[str]:
    """What was found under the root when it was taken and is not settled, each a sentence."""
    left_open = [one.sentence for one in found.unread if not one.is_settled]
    left_open += [f"{one.account.wire_id} is not settled: {one.what}" for one in found.recovered if not one.is_settled]
    return left_open


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
