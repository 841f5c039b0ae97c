"""``quiesce abort``: end what is open, here, in another program, or as the participants say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from quiesce.cli.asked import asked
from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile
from quiesce.cli.output import ExitCode, emit_json, fail
from quiesce.cli.running import fail_with, run
from quiesce.controller.aborting import Aborted
from quiesce.controller.api import Controller
from quiesce.controller.config import Config, load_config
from quiesce.controller.errors import RootHeld
from quiesce.controller.spool import AskedKind
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.identity import check_identity

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("abort")(_abort)


def _abort(
    wire_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The checkpoint id; whatever is open, where it is not given.")
    ] = None,
    *,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Reopen everybody whom a cut or a restore holds closed.

    Where a live controller holds the root, it is asked to abort. Else what its journals left open is finished, and
    with an ID whoever says that this id holds it is reopened, also where nothing is known of it.
    """
    try:
        if wire_id is not None:
            check_identity(wire_id, field="checkpoint id")
        settings = load_config(config)
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    result = run(lambda: _aborted(settings, wire_id), as_json=as_json)
    held = result.get("held")
    if isinstance(held, dict) and held:
        who = "; ".join(f"{one} holds {', '.join(keys)}" for one, keys in held.items())
        fail(f"{who}: name an id to abort it", ExitCode.IN_DOUBT, as_json=as_json, **result)
    if as_json:
        emit_json({"ok": True, **result})
    else:
        _show(result)


async def _aborted(config: Config, wire_id: str | None) -> Mapping[str, object]:
    try:
        return await _aborted_here(config, wire_id)
    except RootHeld:
        return await asked(config, AskedKind.ABORT, wire_id=wire_id)


async def _aborted_here(config: Config, wire_id: str | None) -> Mapping[str, object]:
    controller = Controller(config)
    try:
        recovered = [one.to_json() for one in await controller.recover()]
        aborted = await controller.abort() if wire_id is None else Aborted()
        held: Mapping[str, Sequence[ParticipantKey]] = {}
        if config.enabled:
            await controller.look()
            aborted = await controller.abort(wire_id) if wire_id is not None else aborted
            held = await controller.holders()  # by ids of which nothing is known here
    finally:
        await controller.close()
    named = {one: [str(key) for key in who] for one, who in held.items()}
    return {**aborted.to_json(), "recovered": recovered, "held": named}


def _show(result: Mapping[str, object]) -> None:
    recovered = result.get("recovered")
    for one in recovered if isinstance(recovered, list) else []:
        typer.echo(f"{one['wire_id']} was left by another controller; it is {one['state']}")
    if result["wire_id"] is not None:
        typer.echo(f"{result['wire_id']} is {result['state']}; everybody accepts work")
    elif not recovered:
        typer.echo("nothing is open; nobody is held by a checkpoint")
    for name, text in (("reopened", "was held and is open now"), ("to_restart", "must be restarted")):
        listed = result[name]
        for key in listed if isinstance(listed, list) else []:
            typer.echo(f"  {key} {text}")
    notes = result["notes"]
    for note in notes if isinstance(notes, list) else []:
        typer.echo(f"note: {note}")
