"""``quiesce abort``: end what is open, here, in another program, or as the participants say."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from quiesce.cli.asked import asked
from quiesce.cli.left_at_once import left_at_once
from quiesce.cli.left_open import NotKnown, end
from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile, Root
from quiesce.cli.recovering import recovering
from quiesce.cli.running import fail_with, run
from quiesce.controller.config import Config, load_config
from quiesce.controller.errors import RootHeld, waits_for_a_restore
from quiesce.controller.files import LocalFiles
from quiesce.controller.recovery import find_unfinished
from quiesce.controller.spool import AskedKind
from quiesce.fsm.errors import QuiesceError
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
    root: Root = None,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Reopen everybody whom a cut or a restore holds closed.

    Where a live controller holds the root, it is asked to abort. Else what its journals left open is finished, and
    with an ID whoever says that this id holds it is reopened, also where nothing is known of it. With an ID nothing
    else is touched; whatever else is open is named, and then the exit code is 3.

    Where the root cannot be used, --root names another one: an empty folder that this user may write to will do.
    """
    try:
        if wire_id is not None:
            check_identity(wire_id, field="checkpoint id")
        settings = load_config(config)
        if root is not None:
            settings = settings.model_copy(update={"root": root.absolute()})
    except QuiesceError as error:
        fail_with(error, as_json=as_json)
    result = run(
        lambda: _aborted(settings, wire_id, config),
        as_json=as_json,
        when_left=lambda: left_at_once(settings.root),
        root=settings.root,
    )
    left_open = [*_left_open(result, wire_id)]
    if not as_json:
        _show(result, wire_id, is_open=bool(left_open))
    end(result, left_open=left_open, as_json=as_json)


async def _aborted(config: Config, wire_id: str | None, source: Path) -> Mapping[str, Any]:
    try:
        return await _aborted_here(config, wire_id)
    except NotKnown as error:
        error.add_note(_without_the_root(wire_id, source))
        raise
    except RootHeld as held:
        return await asked(config, held, AskedKind.ABORT, wire_id=wire_id)


async def _aborted_here(config: Config, wire_id: str | None) -> Mapping[str, Any]:
    async with recovering(config, "abort", only=wire_id) as controller:
        recovered = controller.recovered
        aborted = await controller.abort(wire_id)
        answered = await controller.holders() if config.enabled else None
        others = await asyncio.to_thread(find_unfinished, LocalFiles(), controller.store.layout)
    holding = answered.holding if answered is not None else {}
    # whom a transaction is about, its journal says; of an id without one the participants do
    is_known = any(one.account.wire_id == wire_id for one in recovered)
    return {
        **aborted.to_json(),
        "recovered": [one.to_json() for one in recovered],
        "unread": [one.to_json() for one in controller.unread],
        "still_open": [one.wire_id for one in others if one.touched and one.wire_id != wire_id],
        "silent": {} if is_known or answered is None else dict(answered.silent),
        "held": {one: [str(key) for key in who] for one, who in holding.items()},
    }


def _without_the_root(wire_id: str | None, source: Path) -> str:
    """What to do where nothing can be learnt from the root: the participants say who is held."""
    told = ["quiesce", "abort"]
    told += [wire_id] if wire_id else []
    told += ["--config", str(source)] if source != CONFIG_FILE else []
    does = f"reopens whoever {wire_id} holds" if wire_id else "names every id that holds somebody, to be aborted so"
    return (
        f'`{shlex.join(told)} --root "$(mktemp -d)"` {does}, as the participants say it and without this root. '
        "Only where the controller that had it is gone: one that is alive loses what it was doing"
    )


def _left_open(result: Mapping[str, Any], wire_id: str | None) -> Iterator[str]:
    """What is open besides, each a sentence. A live controller's answer has not all of it."""
    held = result.get("held") or {}
    named = [*dict.fromkeys([*result.get("still_open", ()), *held])]
    for one in named:
        whom = f" and holds {', '.join(held[one])}" if one in held else ""
        yield f"{one} is open{whom}: name that id to abort it"
    if result.get("to_restart"):
        yield f"{', '.join(result['to_restart'])} may not be used, and no cut begins, until they are restarted"
    unread = [one for one in result.get("unread", ()) if not one["settled"]]
    yield from (one["problem"] for one in unread if one["wire_id"] not in named)
    waiting = [*result.get("waiting", ()), *(key for one in result.get("recovered", ()) for key in one["waiting"])]
    if waiting:
        yield waits_for_a_restore([*dict.fromkeys(waiting)])
    silent = result.get("silent") or {}
    if silent:
        by = wire_id or "a checkpoint"
        yield f"{', '.join(silent)} did not answer, and may be held by {by}: try again once it does"


def _show(result: Mapping[str, Any], wire_id: str | None, *, is_open: bool) -> None:
    for one in result.get("recovered", ()):
        typer.echo(f"{one['wire_id']} was left by another controller; it is {one['state']}")
    if result["wire_id"] is not None:
        everybody = "" if is_open else "; everybody accepts work"
        typer.echo(f"{result['wire_id']} is {result['state']}{everybody}")
    elif not result.get("recovered") and wire_id is not None:
        typer.echo(f"nothing is open under {wire_id}")
    elif not (result.get("recovered") or is_open):
        typer.echo("nothing is open; nobody is held by a checkpoint")
    for name, text in (("reopened", "was held and is open now"), ("to_restart", "must be restarted")):
        for key in result[name]:
            typer.echo(f"  {key} {text}")
    if result.get("moved_to"):
        typer.echo(f"what had the name of its journal and could not be read is {result['moved_to']} now")
    settled = [one["problem"] for one in result.get("unread", ()) if one["settled"]]
    for note in [*settled, *result["notes"]]:
        typer.echo(f"note: {note}")
