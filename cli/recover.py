"""``quiesce recover``: finish what a controller that is gone left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile
from quiesce.cli.output import ExitCode, emit_json
from quiesce.cli.running import fail_with, run
from quiesce.controller.api import Controller
from quiesce.controller.config import Config, load_config
from quiesce.controller.files import LocalFiles
from quiesce.controller.phases import PhasedRestore
from quiesce.controller.recovery import Account, find_unfinished
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.takeover import Recovered
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.transaction import TransactionState

__all__ = ["emit_recovered", "register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("recover")(_recover)


def _recover(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read the journals; call and change nothing.")
    ] = False,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry",
            help="Go on with a restore that was broken off, under its own id, and let everybody go on. Without it the "
            "restore stays closed; `quiesce abort` gives it up.",
        ),
    ] = False,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Resume whoever a controller that is gone left paused: after a published cut, or to undo an unpublished one.

    A restore that was broken off is held closed; retry it, or give it up with `quiesce abort`. All of this may be
    broken off and repeated at any time. Exits with 3 while somebody is in doubt or held closed.
    """
    try:
        settings = load_config(config)
        found = find_unfinished(LocalFiles(), RootLayout(settings.root)) if dry_run else ()
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    if dry_run:
        _show_accounts(found, as_json=as_json)
        return
    emit_recovered(run(lambda: _finished(settings, retries=retry), as_json=as_json), as_json=as_json)


async def _finished(config: Config, *, retries: bool) -> tuple[Recovered, ...]:
    controller = Controller(config)
    try:
        recovered = await controller.recover()
        for one in recovered if retries else ():
            restore = one.phased
            if restore is not None and restore.state is TransactionState.RESTORE_FAILED:
                await restore.retry()
                if isinstance(restore, PhasedRestore):
                    await restore.resume()
    finally:
        await controller.close()
    return recovered


def emit_recovered(recovered: Sequence[Recovered], *, as_json: bool) -> None:
    """Tell what became of everything that was found unfinished, and end the command."""
    is_settled = all(one.is_settled for one in recovered)
    for one in () if as_json else recovered:
        typer.echo(_sentence(one))
    if not (recovered or as_json):
        typer.echo("nothing was left unfinished; everybody accepts work as far as this root knows")
    if as_json:
        emit_json({"ok": is_settled, "dry_run": False, "transactions": [one.to_json() for one in recovered]})
    raise typer.Exit(ExitCode.WORKED if is_settled else ExitCode.IN_DOUBT)


def _sentence(one: Recovered) -> str:
    told = one.to_json()
    name = f"{told['kind'] or 'transaction'} {one.account.wire_id}"
    what = "ended in doubt, and whoever that was about is excused" if "doubt" in one.state else one.state
    first = f"{name}: it stood at {one.account.stood}; now {what if one.is_settled else one.state}"
    problem = told["problem"]
    notes = one.phased.notes() if one.phased is not None else ()
    return "\n".join([first, *([f"  {problem}"] if problem else []), *(f"  note: {note}" for note in notes)])


def _show_accounts(found: Sequence[Account], *, as_json: bool) -> None:
    if as_json:
        emit_json({"ok": True, "dry_run": True, "transactions": [account.to_json() for account in found]})
        return
    for account in found:
        who = ", ".join(sorted(map(str, account.touched))) or "nobody"
        kind = "transaction" if account.opened is None else "restore" if account.is_restore else "cut"
        typer.echo(f"{kind} {account.wire_id} stands at {account.stood}; may be paused: {who}")
        if account.damage:
            typer.echo(f"  its journal is damaged: {account.damage}")
    if not found:
        typer.echo("nothing was left unfinished")
