"""How every command speaks: results on standard output, everything else on standard error, and the exit codes."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from enum import IntEnum
from typing import NoReturn

import typer

from quiesce.cli.standard_output import told_if_possible

__all__ = ["ExitCode", "counted", "emit_json", "fail", "say"]


class ExitCode(IntEnum):
    """What a command's exit code means."""

    WORKED = 0
    FAILED = 1
    """It did not work, but everybody accepts work."""
    USAGE = 2
    """It was called wrongly and did nothing."""
    IN_DOUBT = 3
    """Somebody could not be proven to accept work, or is held closed, by us or by somebody else."""
    SEEN_ONCE = 4
    """A test saw something go wrong once, and not again when it did the same once more."""


def emit_json(result: Mapping[str, object]) -> None:
    """Print ``result`` as one line, the last one of standard output.

    Raises:
        TypeError: it holds what JSON cannot say.
        ValueError: it holds NaN or an infinity.
    """
    typer.echo(json.dumps(result, ensure_ascii=False, allow_nan=False))


def counted(number: int, what: str, several: str = "") -> str:
    """``1 snapshot``, ``2 snapshots``; ``several`` where an s is not enough."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def fail(message: str, code: int, *, as_json: bool = False, **details: object) -> NoReturn:
    """End the command: ``message`` on standard error and, if asked for, as an object with ``details`` on the output."""
    with told_if_possible():
        typer.echo(f"quiesce: {message}", err=True)
    if as_json:
        with told_if_possible():
            emit_json({"ok": False, "error": message, **details})
    raise typer.Exit(code)


def say(line: str, *, indent: int = 4) -> None:
    """Print a line; on a terminal that is narrower, broken between words, with ``indent`` columns before the rest."""
    if sys.stdout.isatty():
        line = textwrap.fill(
            line,
            shutil.get_terminal_size().columns,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
    typer.echo(line)
