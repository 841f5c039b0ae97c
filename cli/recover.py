"""``quiesce recover``: finish what a controller that is gone left behind."""

from __future__ import annotations

from typing import Annotated

import typer

from quiesce.cli.journals import looked_at, show_journals
from quiesce.cli.left_at_once import left_at_once
from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile
from quiesce.cli.output import ExitCode, fail
from quiesce.cli.recovering import Recovery, account_of, emit_recovered, recovering
from quiesce.cli.running import fail_with, run
from quiesce.controller.config import Config, load_config
from quiesce.controller.errors import RestoreFailed
from quiesce.controller.phased import Phased
from quiesce.controller.phases import PhasedRestore
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.transaction import TransactionState

__all__ = ["register"]


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
    broken off and repeated at any time. Exits with 3 while somebody is in doubt or held closed; --dry-run, while
    somebody may be.
    """
    if dry_run and retry:
        fail("--dry-run only reads and --retry acts: take one of them", ExitCode.USAGE, as_json=as_json)
    try:
        settings = load_config(config)
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    if dry_run:
        show_journals(run(lambda: looked_at(settings.root), as_json=as_json), as_json=as_json)
    recovery = run(
        lambda: _finished(settings, retries=retry),
        as_json=as_json,
        when_left=lambda: left_at_once(settings.root),
        root=settings.root,
    )
    emit_recovered(recovery, as_json=as_json)


async def _finished(config: Config, *, retries: bool) -> Recovery:
    async with recovering(config, "recover") as controller:
        for one in controller.recovered if retries else ():
            restore = one.phased
            if restore is not None and restore.state is TransactionState.RESTORE_FAILED:
                await _retried(restore)
        return await account_of(controller)


async def _retried(restore: Phased) -> None:
    """Retry a restore that is held, and resume it; where it stays held, that is told as of all that was found."""
    try:
        await restore.retry()
        if isinstance(restore, PhasedRestore):
            await restore.resume()
    except QuiesceError as error:
        if restore.is_settled():
            raise
        if not isinstance(error, RestoreFailed):
            restore.note(f"the retry: {error}")
