"""``quiesce restore``: bring a snapshot back into fresh servers."""

from __future__ import annotations

import asyncio
import contextlib
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Console

from quiesce.cli.left_at_once import left_at_once
from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile, opened
from quiesce.cli.output import emit_json
from quiesce.cli.progress import shown
from quiesce.cli.running import fail_with, run
from quiesce.controller.config import Config, load_config
from quiesce.controller.errors import HalfRestored, RestoreFailed
from quiesce.controller.phases import PhasedRestore
from quiesce.controller.results import RestoreResult
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.participants.identity import check_identity

__all__ = ["IfFailed", "register"]

RETRIES_MAX: Final = 20
RETRY_PAUSE_S: Final = 1.0


class IfFailed(StrEnum):
    """What becomes of a restore that failed half way."""

    HOLD = "hold"
    ABORT = "abort"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("restore")(_restore)


def _restore(
    name: Annotated[str, typer.Argument(metavar="LABEL", help="A label, a snapshot's id, or latest.")],
    *,
    retries: Annotated[int, typer.Option(help="How often to retry a failed restore.", min=0, max=RETRIES_MAX)] = 0,
    if_failed: Annotated[
        IfFailed,
        typer.Option(help="hold: leave everybody closed; abort: reopen them, and restart who was restored or failed."),
    ] = IfFailed.HOLD,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Restore everybody from the newest valid snapshot with this label, then let them go on.

    The servers must be fresh processes. What was attempt n then goes on as attempt n + 1.
    """
    try:
        check_identity(name, field="snapshot")
        settings = load_config(config)
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    try:
        SnapshotStore(settings.root).resolve(name)  # before anybody is called
    except QuiesceError as error:
        fail_with(error, as_json=as_json, root=settings.root)
    result = run(
        lambda: _restored(settings, name, retries, if_failed),
        as_json=as_json,
        when_left=lambda: left_at_once(settings.root),
        root=settings.root,
    )
    if as_json:
        emit_json({"ok": True, **result.to_json()})
    else:
        _show(result)


async def _restored(config: Config, name: str, retries: int, if_failed: IfFailed) -> RestoreResult:
    async with opened(config) as controller:
        restored = controller.restore(name)
        try:
            async with shown(Console(stderr=True), f"restore {name}", restored.progress), restored:
                pass  # there is no trainer here that could discard what it does not want
        except Exception:
            held = controller.unsettled
            if not isinstance(held, PhasedRestore) or held.state is not TransactionState.RESTORE_FAILED:
                raise
            if held.wire_id in (one.account.wire_id for one in controller.recovered):
                raise  # this one was refused, and what is held is one that was found
            return await _mend(held, retries, if_failed)
        return restored.result


async def _mend(held: PhasedRestore, retries: int, if_failed: IfFailed) -> RestoreResult:
    """Retry a restore that is held closed, under its own id; then leave it so, or abort it."""
    for _ in range(retries):
        await asyncio.sleep(RETRY_PAUSE_S)
        with contextlib.suppress(RestoreFailed):
            await held.retry()
        if held.state is TransactionState.RESTORED:
            return await held.resume()
    failed = held.held()
    if if_failed is IfFailed.ABORT:
        await held.abort()
        await held.excuse_restarted_since()
        doubt = held.held()
        if doubt is not None and not isinstance(doubt, HalfRestored):
            raise doubt from failed
        raise _aborted(held, failed)
    raise failed or held.error()


def _aborted(held: PhasedRestore, failed: QuiesceError | None) -> QuiesceError:
    reasons = failed.failed if isinstance(failed, RestoreFailed) else {}
    why = "; ".join(f"{key}: {reason}" for key, reason in reasons.items()) or "it was broken off"
    if held.half_restored():
        return HalfRestored(held.wire_id, held.half_restored(), why)
    return QuiesceError(f"restore {held.wire_id} failed ({why}) and was aborted; everybody accepts work")


def _show(result: RestoreResult) -> None:
    typer.echo(f"restored {result.source_wire_id} as {result.wire_id}; everybody accepts work")
    for attempt in result.rollouts:
        typer.echo(f"  {attempt} goes on as attempt {attempt.attempt_index + 1}")
    for attempt in result.restarting:
        typer.echo(f"  {attempt} starts over from its input")
    for note in result.notes:
        typer.echo(f"note: {note}")
