"""``quiesce diagram``: the state machines as pictures and tables, and whether the generated ones are current."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from quiesce.cli.output import ExitCode, emit_json, fail
from quiesce.diagrams import Sheet, UnknownMachine, check, find_sheet, sheets, write_all

__all__ = ["register"]

_GENERATED = Path("diagrams/generated")


class _Format(StrEnum):
    MERMAID = "mermaid"
    MARKDOWN = "markdown"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("diagram")(_diagram)


def _diagram(
    machine: Annotated[str | None, typer.Argument(help="One machine or list; without it, all are named.")] = None,
    *,
    form: Annotated[_Format | None, typer.Option("--format", help="How to show MACHINE [default: mermaid].")] = None,
    output: Annotated[Path | None, typer.Option(help="Write all pages into this folder.", file_okay=False)] = None,
    compare: Annotated[
        bool, typer.Option("--check", help=f"Compare the pages in --output (or {_GENERATED}) with the tables.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on the last line.")] = False,
) -> None:
    """Show a state machine as a Mermaid diagram or as Markdown tables, exactly as it runs."""
    everything = compare or output is not None
    if everything and (machine or form):
        fail(
            "--check and --output are about all machines: leave out MACHINE and --format",
            ExitCode.USAGE,
            as_json=as_json,
        )
    if form and not machine:
        fail("--format needs a MACHINE; `quiesce diagram` names them", ExitCode.USAGE, as_json=as_json)
    if compare:
        _compare(output or _GENERATED, as_json=as_json)
    elif output is not None:
        _write(output, as_json=as_json)
    elif machine:
        _show(machine, form or _Format.MERMAID, as_json=as_json)
    else:
        _name_all(as_json=as_json)


def _compare(directory: Path, *, as_json: bool) -> None:
    if not directory.is_dir():
        fail(f"there is no folder {directory}; name one with --output", ExitCode.USAGE, as_json=as_json)
    differences = check(directory)
    if differences:
        listed = "\n  ".join(str(difference) for difference in differences)
        details = {"differences": {difference.file: difference.kind.value for difference in differences}}
        remedy = f"run `quiesce diagram --output {directory}`"
        fail(
            f"{directory} is not what the tables say; {remedy}\n  {listed}", ExitCode.FAILED, as_json=as_json, **details
        )
    if as_json:
        emit_json({"ok": True, "directory": str(directory)})
    else:
        typer.echo(f"{directory} is current")


def _write(directory: Path, *, as_json: bool) -> None:
    try:
        written = write_all(directory)
    except OSError as error:
        fail(f"cannot write {directory}: {error.strerror or error}", ExitCode.FAILED, as_json=as_json)
    if as_json:
        emit_json({"ok": True, "directory": str(directory), "files": [path.name for path in written]})
    else:
        typer.echo(f"{len(written)} files in {directory}")


def _show(name: str, form: _Format, *, as_json: bool) -> None:
    try:
        sheet = find_sheet(name)
        text = sheet.mermaid() if form is _Format.MERMAID else sheet.markdown()
    except UnknownMachine as error:
        fail(str(error), ExitCode.USAGE, as_json=as_json)
    if as_json:
        emit_json({"ok": True, "machine": sheet.name, "title": sheet.title, "format": form.value, "text": text})
    else:
        typer.echo(text, nl=False)


def _name_all(*, as_json: bool) -> None:
    found = sheets()
    if as_json:
        emit_json({"ok": True, "machines": [_described(sheet) for sheet in found]})
        return
    width = max(len(sheet.name) for sheet in found)
    for sheet in found:
        typer.echo(f"{sheet.name:<{width}}  {sheet.title}")


def _described(sheet: Sheet) -> dict[str, object]:
    return {
        "name": sheet.name,
        "title": sheet.title,
        "formats": ["mermaid", "markdown"] if sheet.table else ["markdown"],
    }
