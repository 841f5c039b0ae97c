"""``quiesce list``: which snapshots there are, and what else stands among them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import typer
from rich.console import Console
from rich.table import Table

from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile, Root, root_of
from quiesce.cli.output import counted, emit_json, tell
from quiesce.cli.running import fail_with
from quiesce.controller.catalog import SnapshotEntry, SnapshotState
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.excerpts import printable

__all__ = ["register"]

WIDTH_MAX: Final = 500


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("list")(_list)


def _list(
    *,
    root: Root = None,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """List the snapshots, the newest first, then what is none and why. Calls nobody and changes nothing."""
    try:
        store = SnapshotStore(root_of(config, root))
        entries = store.list()
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    if as_json:
        emit_json({"ok": True, "snapshots": [entry.to_json() for entry in entries]})
    elif entries:
        _show(entries)
    else:
        tell(f"there is no snapshot in {store.layout.snapshots}")


def _show(entries: tuple[SnapshotEntry, ...]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("label", "snapshot", "taken (UTC)", "size", "rollouts"):
        table.add_column(column, header_style="dim", no_wrap=True)
    valid = [entry for entry in entries if entry.state is SnapshotState.VALID]
    for entry in valid:
        cells = (entry.label, entry.wire_id, _instant(entry), _size(entry), _rollouts(entry))
        table.add_row(*(printable(cell or "") for cell in cells))
    if valid:
        # as wide as it needs to be: an id that is cut off can be used for nothing
        Console(width=WIDTH_MAX, markup=False, highlight=False).print(table)
    for entry in entries:
        if entry not in valid:
            tell(f"{printable(entry.wire_id)} is {entry.state.value}: {printable(entry.reason)}")


def _instant(entry: SnapshotEntry) -> str:
    if entry.created_at is None:
        return ""
    return datetime.fromtimestamp(entry.created_at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _size(entry: SnapshotEntry) -> str:
    return "" if entry.size_bytes is None else counted(entry.size_bytes, "byte")


def _rollouts(entry: SnapshotEntry) -> str:
    return "" if entry.manifest is None else str(len(entry.manifest.rollouts))
