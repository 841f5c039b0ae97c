"""Running the asynchronous part of a command: signals ask it to end well, errors become messages and exit codes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from quiesce.cli.output import ExitCode, emit_json, fail
from quiesce.cli.standard_output import told_if_possible
from quiesce.fsm.errors import QuiesceError

if TYPE_CHECKING:
    from quiesce.cli.left_at_once import LeftAtOnce

__all__ = ["Interrupted", "Patience", "fail_with", "run"]

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(QuiesceError):
    """The command was asked to end and has ended well; the text says how things are now."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Signals that announce the end instead of asking for it, and how long after one the work may go on."""

    signals: tuple[signal.Signals, ...] = ()
    go_on_s: float = 0.0


def run(
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    as_json: bool,
    when_ended: str = "everybody accepts work",
    when_left: str | Callable[[], LeftAtOnce] = "left at once; somebody may still be closed: run `quiesce recover`",
    patience: Patience = Patience(),
    root: Path | None = None,
) -> T:
    """Run ``work`` to its end and give its result.

    ``when_ended`` says how things are when it was interrupted and has ended well; work that knows more of that raises
    Interrupted instead. ``when_left`` says so where it was left without its end, or finds it out then. ``root`` is that
    on which it acts; see :func:`fail_with`.

    The first Ctrl-C or SIGTERM cancels it, which it answers by leaving everybody accepting work; the second ends the
    command at once. A signal of ``patience`` cancels it only if it has not ended by itself in that time, however often
    it comes. Every error of ours ends the command with its message and its exit code.
    """
    try:
        return asyncio.run(_cancellable(work, patience))
    except asyncio.CancelledError:
        fail_with(Interrupted(f"interrupted; {when_ended}"), as_json=as_json, root=root)
    except KeyboardInterrupt:
        if isinstance(when_left, str):
            fail(when_left, ExitCode.IN_DOUBT, as_json=as_json, type="Interrupted")
        left = when_left()
        fail(left.text, left.exit_code, as_json=as_json, type="Interrupted", unsettled=left.unsettled)
    except QuiesceError as error:
        fail_with(error, as_json=as_json, root=root)
    except ExceptionGroup as group:
        ours, others = group.split(QuiesceError)
        if others is not None or ours is None:
            raise
        fail_with(group, as_json=as_json, root=root)


def fail_with(error: QuiesceError | ExceptionGroup[Exception], *, as_json: bool, root: Path | None = None) -> NoReturn:
    """End the command with an error's message, its notes, no traceback, and its exit code.

    With the ``root`` on which the command acts, whoever may be held under it is named besides: with 3 instead of 1.
    """
    from quiesce.cli.failures import described, exit_code_of, notes_of, text_of  # noqa: PLC0415 - loads the controller
    from quiesce.cli.still_held import naming_held  # noqa: PLC0415 - as above

    error = error if root is None else naming_held(error, root)
    text, notes = text_of(error), notes_of(error)
    with told_if_possible():
        typer.echo("\n".join([f"quiesce: {text}", *notes]), err=True)
    if as_json:
        with told_if_possible():
            emit_json({"ok": False, "error": text, **described(error), "notes": notes})
    raise typer.Exit(exit_code_of(error))


def _quiet_about_the_end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What ends a task of a loop that is left at once is no fault of the program; everything else is told as ever."""
    if not str(context.get("message", "")).startswith("unhandled exception during asyncio.run() shutdown"):
        loop.default_exception_handler(context)


async def _cancellable(work: Callable[[], Coroutine[Any, Any, T]], patience: Patience) -> T:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_quiet_about_the_end)
    task = asyncio.current_task()
    ask_at_once = tuple(number for number in _SIGNALS if number not in patience.signals)

    def cancel() -> None:
        if task is not None:
            task.cancel()

    def ask(number: signal.Signals) -> None:
        # the next signal of either kind does what it does by default: it ends the command at once
        for each in ask_at_once:
            loop.remove_signal_handler(each)
        typer.echo(f"quiesce: {number.name}: ending well; once more to leave at once", err=True)
        cancel()

    def announce(number: signal.Signals) -> None:
        for each in patience.signals:
            loop.add_signal_handler(each, lambda: None)
        typer.echo(f"quiesce: {number.name}: going on for {patience.go_on_s:g} s at most", err=True)
        loop.call_later(patience.go_on_s, cancel)

    for each in ask_at_once:
        loop.add_signal_handler(each, ask, each)
    for each in patience.signals:
        loop.add_signal_handler(each, announce, each)
    try:
        return await work()
    finally:
        for each in (*ask_at_once, *patience.signals):
            loop.remove_signal_handler(each)
