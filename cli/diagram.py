"""``quiesce diagram``: state machines in every format, and whether what was generated from them is current."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from quiesce.cli.output import ExitCode, counted, emit_json, fail
from quiesce.diagrams import (
    SUFFIXES,
    BlockFault,
    DotFailed,
    DotMissing,
    Focus,
    Format,
    Sheet,
    check,
    render_named,
    replace_file,
    sheets,
    update_blocks,
    write_all,
)
from quiesce.fsm.errors import QuiesceError

__all__ = ["register"]

_GENERATED = Path("diagrams/generated")
_DOCUMENT_BYTES_MAX = 16 << 20
_NO_BLOCK = (
    "there is no marked block in it; outside of fenced code, one begins with a line "
    "<!-- quiesce:diagram MACHINE FORMAT -->"
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("diagram")(_diagram)


def _diagram(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MACHINE|FILE...]",
            help="One machine, list or sequence, or a table of your own as module:NAME; without it, all are named. "
            "With --update or --check: Markdown documents.",
        ),
    ] = None,
    *,
    form: Annotated[Format | None, typer.Option("--format", help="How to show MACHINE [default: mermaid].")] = None,
    focus: Annotated[
        str | None, typer.Option(metavar="STATE[:N]", help="Only STATE and what is at most N steps away [default: 1].")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Without MACHINE: write all pages into this folder. With it: write this file."),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--check",
            help=f"Compare the pages in --output (or {_GENERATED}), or the marked blocks of FILE..., with the tables.",
        ),
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Make the marked blocks of FILE... anew.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on the last line.")] = False,
) -> None:
    """Show a state machine exactly as it runs, and keep what was drawn from it current.

    A Markdown document holds a marked block so: <!-- quiesce:diagram MACHINE FORMAT --> ... <!-- /quiesce -->
    where focus=STATE:N may follow FORMAT.
    """
    given = names or []
    _refuse_misuse(given, form, focus, output, compare=compare, update=update, as_json=as_json)
    if update or (compare and given):
        _documents([Path(name) for name in given], compare=compare, as_json=as_json)
    elif compare:
        _compare(output or _GENERATED, as_json=as_json)
    elif given:
        _show(given[0], form or Format.MERMAID, focus, output, as_json=as_json)
    elif output is not None:
        _write(output, as_json=as_json)
    else:
        _name_all(as_json=as_json)


def _refuse_misuse(
    given: list[str],
    form: Format | None,
    focus: str | None,
    output: Path | None,
    *,
    compare: bool,
    update: bool,
    as_json: bool,
) -> None:
    documents = update or (compare and given)
    shown = bool(form or focus)
    rules = (
        (compare and update, "--check compares and --update writes: take one of them"),
        (update and not given, "--update needs Markdown documents: quiesce diagram --update FILE..."),
        (documents and (shown or output), "a document's own marks say what is drawn: leave out --format and --output"),
        (compare and shown, "--check is about all machines: leave out --format and --focus"),
        (shown and not given, "--format and --focus need a MACHINE; `quiesce diagram` names them"),
        (
            not documents and len(given) > 1,
            "one MACHINE at a time; several names are documents, for --update or --check",
        ),
    )
    for broken, message in rules:
        if broken:
            fail(message, ExitCode.USAGE, as_json=as_json)


def _documents(paths: list[Path], *, compare: bool, as_json: bool) -> None:
    stale: dict[Path, str] = {}
    blocks = 0
    for path in paths:
        before = _read(path, as_json=as_json)
        try:
            after, count = update_blocks(before)
        except BlockFault as error:
            fail(f"{path}: {error}", ExitCode.USAGE, as_json=as_json)
        if not count:
            fail(f"{path}: {_NO_BLOCK}", ExitCode.USAGE, as_json=as_json)
        blocks += count
        if after != before:
            stale[path] = after
    if compare and stale:
        listed = " ".join(map(str, stale))
        message = f"not what the tables say: {listed}; run `quiesce diagram --update {listed}`"
        fail(message, ExitCode.FAILED, as_json=as_json, stale=[str(path) for path in stale])
    for path, after in stale.items():
        _guarded(path, partial(replace_file, path, after.encode()), as_json=as_json)
    if as_json:
        emit_json({"ok": True, "blocks": blocks, "changed": [str(path) for path in stale]})
    else:
        done = f"{counted(len(stale), 'document')} changed" if stale else "all current"
        typer.echo(f"{counted(blocks, 'block')} in {counted(len(paths), 'document')}, {done}")


def _read(path: Path, *, as_json: bool) -> str:
    try:
        content = path.read_bytes()
        if len(content) > _DOCUMENT_BYTES_MAX:
            fail(f"{path} has more than {_DOCUMENT_BYTES_MAX} bytes", ExitCode.USAGE, as_json=as_json)
        return content.decode()
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", ExitCode.USAGE, as_json=as_json)
    except UnicodeDecodeError:
        fail(f"{path} is no UTF-8 text", ExitCode.USAGE, as_json=as_json)


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
    written: tuple[Path, ...] = ()

    def write() -> None:
        nonlocal written
        written = write_all(directory)

    try:
        _guarded(directory, write, as_json=as_json)
    except (DotMissing, DotFailed) as error:
        fail(f"all is written but the SVG pictures of state machines: {error}", ExitCode.FAILED, as_json=as_json)
    if as_json:
        emit_json({"ok": True, "directory": str(directory), "files": [path.name for path in written]})
    else:
        typer.echo(f"{counted(len(written), 'file')} in {directory}")


def _guarded(path: Path, write: Callable[[], object], *, as_json: bool) -> None:
    try:
        write()
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}", ExitCode.FAILED, as_json=as_json)


def _show(name: str, form: Format, focus: str | None, output: Path | None, *, as_json: bool) -> None:
    try:
        found = render_named(name, form, Focus.parse(focus) if focus else None)
    except (DotMissing, DotFailed) as error:
        fail(str(error), ExitCode.FAILED, as_json=as_json)
    except QuiesceError as error:
        fail(str(error), ExitCode.USAGE, as_json=as_json)
    if output is not None:
        path = output / f"{name.replace(':', '.')}{SUFFIXES[form]}" if output.is_dir() else output
        content = found if isinstance(found, bytes) else found.encode()
        _guarded(path, partial(replace_file, path, content), as_json=as_json)
        _tell_written(name, form, path, as_json=as_json)
    elif isinstance(found, bytes):
        _print_bytes(found, as_json=as_json)
    elif as_json:
        emit_json({"ok": True, "machine": name, "format": form.value, "text": found})
    else:
        typer.echo(found, nl=False)


def _tell_written(name: str, form: Format, path: Path, *, as_json: bool) -> None:
    if as_json:
        emit_json({"ok": True, "machine": name, "format": form.value, "file": str(path)})
    else:
        typer.echo(f"{path}")


def _print_bytes(content: bytes, *, as_json: bool) -> None:
    stream = typer.get_binary_stream("stdout")
    if as_json or stream.isatty():
        fail("PNG is no text: write it into a file with --output FILE", ExitCode.USAGE, as_json=as_json)
    stream.write(content)


def _name_all(*, as_json: bool) -> None:
    found = sheets()
    if as_json:
        emit_json({"ok": True, "machines": [_described(sheet) for sheet in found]})
        return
    width = max(len(sheet.name) for sheet in found)
    for sheet in found:
        typer.echo(f"{sheet.name:<{width}}  {sheet.title}")


def _described(sheet: Sheet) -> dict[str, object]:
    return {"name": sheet.name, "title": sheet.title, "formats": [form.value for form in sheet.formats]}
