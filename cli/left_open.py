"""What a command has found or left open, in words; where there is anything, it ends with the exit code for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import typer

from quiesce.cli.output import ExitCode, emit_json

__all__ = ["end"]


def end(result: Mapping[str, object], *, left_open: Sequence[str], as_json: bool) -> NoReturn:
    """End a command that has shown its result: with 3 where something is left open, each a sentence, else with 0."""
    for sentence in left_open:
        typer.echo(f"quiesce: {sentence}", err=True)
    if as_json:
        error = {"error": "; ".join(left_open)} if left_open else {}
        emit_json({"ok": not left_open, **error, **result})
    raise typer.Exit(ExitCode.IN_DOUBT if left_open else ExitCode.WORKED)
