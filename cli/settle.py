"""``quiesce settle``: try once more whoever is owed a resume, or give up those who are gone for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from quiesce.cli.asked import asked
from quiesce.cli.left_at_once import left_at_once
from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile
from quiesce.cli.recovering import Recovery, account_of, emit_recovered, recovering
from quiesce.cli.running import fail_with, run
from quiesce.controller.config import Config, load_config
from quiesce.controller.errors import RootHeld
from quiesce.controller.loose_ends import named_among
from quiesce.controller.spool import AskedKind
from quiesce.participants.errors import ConfigurationError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("settle")(_settle)


def _settle(
    *,
    give_up: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A participant that is gone for good (its name, or deployment/name): it is owed nothing any more.",
        ),
    ] = None,
    config: ConfigFile = CONFIG_FILE,
    as_json: AsJson = False,
) -> None:
    """Resume whoever was left in doubt, whichever controller it was. Exits with 3 while somebody still is.

    Where a live controller holds the root, it is asked to.
    """
    try:
        settings = load_config(config)
    except ConfigurationError as error:
        fail_with(error, as_json=as_json)
    recovery = run(
        lambda: _settled(settings, give_up or []),
        as_json=as_json,
        when_left=lambda: left_at_once(settings.root),
        root=settings.root,
    )
    emit_recovered(recovery, as_json=as_json)


async def _settled(config: Config, give_up: Sequence[str]) -> Recovery:
    try:
        return await _settled_here(config, give_up)
    except RootHeld as held:
        await asked(config, held, AskedKind.SETTLE, give_up=tuple(give_up))
        return Recovery()


async def _settled_here(config: Config, give_up: Sequence[str]) -> Recovery:
    async with recovering(config, "settle") as controller:
        excused = [named_among(controller.owed, name) for name in give_up]
        if excused:
            await controller.settle(give_up=excused)
        return await account_of(controller, excused=excused)
