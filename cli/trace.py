"""``quiesce trace``: what one cut or restore did, from its journal: as text, sequence, timeline or one HTML page."""

from __future__ import annotations

import re
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile, Root, root_of
from quiesce.cli.output import ExitCode, emit_json, fail
from quiesce.cli.running import fail_with
from quiesce.controller.errors import StorageFailed
from quiesce.controller.journal import JournalReading, read_journal
from quiesce.controller.journal_lines import SavedRecord
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.snapshots import SnapshotStore
from quiesce.diagrams import (
    DotFailed,
    RunRecord,
    Timeline,
    replace_file,
    run_page,
    run_sequence,
    sequence_mermaid,
    sequence_svg,
    timeline_of,
    timeline_svg,
    timeline_text,
)
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.errors import ConfigurationError, SnapshotInvalid
from quiesce.participants.identity import check_identity

__all__ = ["register"]

_NONCE: Final = re.compile(r"[0-9a-f]{8}")
_SUFFIX: Final = ".ndjson"
_NAMED_MAX: Final = 10
_LANES_MAX: Final = 40


class _Shape(StrEnum):
    """How a run is shown."""

    TEXT = "text"
    HTML = "html"
    TIMELINE = "timeline"
    SEQUENCE = "sequence"
    MERMAID = "mermaid"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("trace")(_trace)


def _trace(
    name: Annotated[str, typer.Argument(metavar="LABEL_OR_ID", help="A label, a transaction's id, or latest.")],
    *,
    shape: Annotated[
        _Shape,
        typer.Option("--format", help="text; html: one page; timeline, sequence: as SVG; mermaid: the sequence."),
    ] = _Shape.TEXT,
    output: Annotated[Path | None, typer.Option(help="Write into this file.", dir_okay=False)] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help=f"In text: all participants, not the {_LANES_MAX} slowest.")
    ] = (False),
    root: Root = None,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Show what a cut or restore did: who was paused when, and whom the others waited for. Calls nobody.

    A label means the newest cut that has it, whether it was published or not; restore-LABEL its newest restore.
    """
    if everybody and shape is not _Shape.TEXT:
        fail(f"--all has no effect on {shape.value}, which shows everybody anyway", ExitCode.USAGE, as_json=as_json)
    try:
        layout = RootLayout(root_of(config, root))
        wire_id = _found(layout, name)
        reading = read_journal(layout.journal(wire_id))
        if not reading.records:
            raise StorageFailed(
                "read the journal", layout.journal(wire_id), OSError(0, reading.damage or "it is empty")
            )
        records = [_record(saved) for saved in reading.records]
        roles = _roles(layout, wire_id)
        timeline = timeline_of(wire_id, records, roles=roles)
        text = _shown(shape, timeline, records, roles, reading, everybody=everybody, to_file=output is not None)
    except DotFailed as error:
        fail(str(error), ExitCode.FAILED, as_json=as_json)
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    if output is not None:
        _write(output, text, as_json=as_json)
    if as_json:
        emit_json({"ok": True, **_described(timeline, reading, shape, None if output else text, output)})
    elif output is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(str(output))
    if reading.damage and not as_json:
        typer.echo(f"quiesce: {_note(reading)}", err=True)


def _found(layout: RootLayout, name: str) -> str:
    """The id of the transaction that a name means.

    Raises:
        InvalidIdentity: the name could be no id and no label.
        ConfigurationError: there is no such journal; the text names those that there are.
    """
    check_identity(name, field="transaction")
    journals = sorted(layout.journals.glob(f"*{_SUFFIX}"), key=_written, reverse=True)
    known = [path.name.removesuffix(_SUFFIX) for path in journals]
    if name in known:
        return name
    if name == "latest" and known:
        return known[0]
    labeled = [one for one in known if one.startswith(f"{name}-") and _NONCE.fullmatch(one[len(name) + 1 :])]
    if labeled:
        return labeled[0]
    listed = ", ".join(known[:_NAMED_MAX]) + (f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else "")
    there = f"there are: {listed}" if known else "there is none"
    raise ConfigurationError(f"no journal of '{name}' below {layout.root}; {there}")


def _written(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime, path.name
    except OSError:
        return 0.0, path.name


def _record(saved: SavedRecord) -> RunRecord:
    return RunRecord(saved.time_ts, saved.trace(), saved.call, saved.reply)


def _roles(layout: RootLayout, wire_id: str) -> dict[str, str]:
    """Roles stand in the manifest of what was published; a run that published nothing has none to tell."""
    try:
        manifest = SnapshotStore(layout.root).load(wire_id)
    except (SnapshotInvalid, StorageFailed):
        return {}
    return {f"{entry.deployment}/{entry.name}": entry.role.value for entry in manifest.participants}


def _shown(
    shape: _Shape,
    timeline: Timeline,
    records: list[RunRecord],
    roles: dict[str, str],
    reading: JournalReading,
    *,
    everybody: bool,
    to_file: bool,
) -> str:
    if shape is _Shape.HTML:
        return run_page(timeline.name, records, roles=roles, note=_note(reading))
    if shape is _Shape.TIMELINE:
        return timeline_svg(timeline)
    if shape is _Shape.TEXT:
        lanes_max = len(timeline.lanes) if everybody else _LANES_MAX
        width = 100 if to_file or not sys.stdout.isatty() else shutil.get_terminal_size().columns
        return timeline_text(timeline, width=width, lanes_max=lanes_max, ascii_only=not to_file and not _has_blocks())
    sequence = run_sequence(timeline.name, records, roles=roles)
    return sequence_svg(sequence) if shape is _Shape.SEQUENCE else sequence_mermaid(sequence)


def _has_blocks() -> bool:
    try:
        "░▒▓█·…".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _note(reading: JournalReading) -> str:
    return f"the journal is damaged, only what stands before is shown: {reading.damage}" if reading.damage else ""


def _write(path: Path, text: str, *, as_json: bool) -> None:
    try:
        replace_file(path, text.encode())
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}", ExitCode.FAILED, as_json=as_json)


def _described(
    timeline: Timeline, reading: JournalReading, shape: _Shape, text: str | None, output: Path | None
) -> dict[str, object]:
    return {
        "wire_id": timeline.name,
        "state": timeline.state,
        "duration_s": round(timeline.duration_s, 6),
        "records": len(reading.records),
        "damage": reading.damage,
        "phases": [
            {
                "state": phase.state,
                "begin_s": round(phase.begin_s, 6),
                "duration_s": round(phase.duration_s, 6),
                "waited_for": phase.held_by or None,
                "waited_s": round(phase.held_for_s, 6),
                "missing": list(phase.missing),
            }
            for phase in timeline.phases
        ],
        "participants": [
            {
                "participant": lane.subject,
                "role": lane.role or None,
                "state": lane.state,
                "calls": lane.calls,
                "spans": [[span.stage.value, round(span.begin_s, 6), round(span.end_s, 6)] for span in lane.spans],
            }
            for lane in timeline.lanes
        ],
        "format": shape.value,
        **({"text": text} if text is not None else {"file": str(output)}),
    }
