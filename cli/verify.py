"""``quiesce verify``: read a snapshot again, every byte of it, and compare it with its manifest."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress

from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile, Root, root_of
from quiesce.cli.output import ExitCode, counted, emit_json, fail, tell
from quiesce.cli.running import fail_with
from quiesce.cli.stopping import Stopped, Stopping, stoppable
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.verification import SnapshotVerification
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.identity import check_identity

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("verify")(_verify)


def _verify(
    name: Annotated[str, typer.Argument(metavar="LABEL", help="A label, a snapshot's id, or latest.")],
    *,
    root: Root = None,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Verify the newest snapshot with this label. Calls nobody and changes nothing."""
    try:
        check_identity(name, field="snapshot")
        store = SnapshotStore(root_of(config, root))
        directory = store.resolve(name).directory if name == "latest" else None
        with stoppable() as stopping:
            found = _verified(store, directory.name if directory else name, stopping)
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    except Stopped as stopped:
        undecided = f"interrupted by {stopped.number.name}; whether {name} is good is not known"
        fail(undecided, stopped.exit_code, as_json=as_json, type="Interrupted", interrupted=stopped.number.name)
    if not found.is_good:
        listed = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(found.problems, start=1))
        message = f"snapshot {found.wire_id} is damaged; restore another one:\n{listed}"
        fail(message, ExitCode.FAILED, as_json=as_json, type="SnapshotInvalid", **found.to_json())
    if as_json:
        emit_json({"ok": True, **found.to_json()})
    else:
        unhashed = f"; {found.unhashed} files of the trainer have no digest" if found.unhashed else ""
        tell(f"{found.wire_id} is good: {counted(found.files, 'file')}, {counted(found.size_bytes, 'byte')}{unhashed}")


def _verified(store: SnapshotStore, name: str, stopping: Stopping) -> SnapshotVerification:
    console = Console(stderr=True)
    if not console.is_terminal:
        return store.verify(name)
    bars = Progress(BarColumn(), DownloadColumn(), console=console, transient=True)
    bar = bars.add_task("verify", total=None)

    def told(done: int, total: int) -> None:
        bars.update(bar, completed=done, total=total)

    try:
        with stopping.whole():
            bars.start()
        return store.verify(name, progress=told)
    finally:
        with stopping.whole():
            bars.stop()
