"""How every command speaks: results on standard output, everything else on standard error, and the exit codes.

Names, codes and bodies are whoever's they come from: what is printed goes through :func:`tell` or :func:`emit_json`, so
that no character of theirs moves a terminal's cursor, colours it or turns its text around, and no line has no end.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NoReturn

import typer

from quiesce.cli.standard_output import told_if_possible
from quiesce.participants.excerpts import printable

__all__ = ["ExitCode", "counted", "emit_json", "fail", "say", "tell", "tell_line"]

LINE_CHARS_MAX: Final = 10_000
LINES_MAX: Final = 20_000


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
    """Print ``result`` as one line, the last one of standard output; what a terminal obeys is escaped in it.

    Raises:
        TypeError: it holds what JSON cannot say.
        ValueError: it holds NaN or an infinity.
    """
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    typer.echo(text if text.isprintable() else "".join(map(_escaped, text)))


def _escaped(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def tell(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text, whoever's words are in it: characters that do not print are blanks, and a line has an end."""
    lines = text.split("\n", LINES_MAX)
    if len(lines) > LINES_MAX:
        lines[LINES_MAX:] = ["..."]
    typer.echo("\n".join(printable(line, LINE_CHARS_MAX) for line in lines), err=err, nl=nl)


def counted(number: int, what: str, several: str = "") -> str:
    """``1 snapshot``, ``2 snapshots``; ``several`` where an s is not enough."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def fail(message: str, code: int, *, as_json: bool = False, **details: object) -> NoReturn:
    """End the command: ``message`` on standard error and, if asked for, as an object with ``details`` on the output."""
    with told_if_possible():
        tell(f"quiesce: {message}", err=True)
    if as_json:
        with told_if_possible():
            emit_json({"ok": False, "error": message, **details})
    raise typer.Exit(code)


def tell_line(text: str, *, err: bool = False) -> None:
    """Print one line, whoever's words are in it: as :func:`tell`, and none of them begins a line of its own."""
    tell(text.replace("\n", " "), err=err)


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
    tell(line)
