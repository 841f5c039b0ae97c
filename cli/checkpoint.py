"""``quiesce checkpoint``: one cut over a running deployment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from pydantic import JsonValue
from rich.console import Console

from quiesce.cli.asked import asked
from quiesce.cli.left_at_once import left_at_once
from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile, opened, patience_with_a_cut
from quiesce.cli.output import counted, emit_json
from quiesce.cli.progress import shown
from quiesce.cli.running import Interrupted, fail_with, run
from quiesce.controller.config import Config, load_config
from quiesce.controller.errors import RootHeld
from quiesce.controller.ports import CompletedResult
from quiesce.controller.results import CutResult
from quiesce.controller.spool import AskedKind
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import check_identity, check_label
from quiesce.participants.replies import CompletionReceipt

__all__ = ["register"]

NAMED_MAX: Final = 20


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("checkpoint")(_checkpoint)


def _checkpoint(
    *,
    label: Annotated[str | None, typer.Option(help="What to call it (by default the time).")] = None,
    acknowledge_completed: Annotated[
        bool,
        typer.Option(
            "--acknowledge-completed",
            help="Acknowledge finished results. Only if whoever trains has them: the agents forget them.",
        ),
    ] = False,
    metadata: Annotated[str | None, typer.Option(metavar="JSON", help="An object that the manifest keeps.")] = None,
    request_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Of your own: where a controller is asked, asking twice is asking once."),
    ] = None,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Drain and pause everybody, have them export, publish one snapshot, and let them go on.

    Finished results that nobody has acknowledged are listed and end the attempt, unless --acknowledge-completed.
    Where a live controller holds the root, it is asked for the cut; what it acknowledges is its own affair.
    """
    try:
        if request_id is not None:
            check_identity(request_id, field="request id")
        # a request that is made twice must say the same twice
        unnamed = datetime.now(UTC).strftime("cut-%Y%m%d-%H%M%S") if request_id is None else f"cut-{request_id}"
        named = check_label(unnamed if label is None else label)
        kept = _metadata(metadata)
        settings = load_config(config)
    except ConfigurationError as error:
        fail_with(error, as_json=as_json)
    result = run(
        lambda: _cut_or_asked(settings, named, kept, request_id, acknowledges=acknowledge_completed),
        as_json=as_json,
        when_left=lambda: left_at_once(settings.root),
        root=settings.root,
        patience=patience_with_a_cut(settings),
    )
    if as_json:
        emit_json({"ok": True, **result})
    else:
        _show(result)


async def _cut_or_asked(
    config: Config, label: str, metadata: dict[str, JsonValue], request_id: str | None, *, acknowledges: bool
) -> Mapping[str, Any]:
    try:
        return (await _cut(config, label, metadata, acknowledges=acknowledges)).to_json()
    except RootHeld as held:
        return await asked(config, held, AskedKind.CUT, request_id=request_id, label=label, metadata=metadata)


async def _cut(config: Config, label: str, metadata: dict[str, JsonValue], *, acknowledges: bool) -> CutResult:
    console = Console(stderr=True)
    async with opened(config, on_completed=_receipts if acknowledges else None) as controller:
        cut = controller.cut(label, metadata=metadata)
        try:
            async with shown(console, f"cut {label}", cut.progress), cut:
                pass  # there is no trainer here; what the participants export is all
        except asyncio.CancelledError:
            if controller.unsettled is not None:
                raise
            published = f"{cut.wire_id} was published before" if cut.is_published else "nothing was published"
            raise Interrupted(f"interrupted; everybody accepts work; {published}") from None
        return cut.result


def _receipts(results: tuple[CompletedResult, ...]) -> tuple[CompletionReceipt, ...]:
    unreceipted = [f"{result.agent}: {result.attempt}" for result in results if result.receipt is None]
    if unreceipted:
        raise QuiesceError(
            f"finished results cannot be acknowledged from here, since the agent names no receipt for them: "
            f"{'; '.join(unreceipted[:NAMED_MAX])}. Whoever ran them knows the receipt; let it acknowledge them."
        )
    return tuple(result.receipt for result in results if result.receipt is not None)


def _metadata(text: str | None) -> dict[str, JsonValue]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--metadata is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError("--metadata must be a JSON object, for example '{\"step\": 40}'")
    return value


def _show(result: Mapping[str, Any]) -> None:
    typer.echo(f"published {result['wire_id']} in {result['directory']}")
    again = len(result["restarting"])
    restarting = f", {again} {'restarts from its' if again == 1 else 'restart from their'} input" if again else ""
    timings = result["timings"]
    typer.echo(
        f"{counted(len(result['rollouts']), 'rollout')} at a boundary{restarting}; "
        f"paused for {timings['paused_s']:.2f} s, {timings['total_s']:.2f} s in all"
    )
    for note in result["notes"]:
        typer.echo(f"note: {note}")
