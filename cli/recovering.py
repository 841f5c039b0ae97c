"""What ``recover``, ``settle`` and ``abort`` share: a controller that finishes what was left, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import typer
from rich.console import Console

from quiesce.cli.left_open import end, knowing, naming_unsettled, not_settled
from quiesce.cli.progress import Steps, shown
from quiesce.controller.api import Controller
from quiesce.controller.config import Config
from quiesce.controller.takeover import Recovered
from quiesce.controller.unread_journals import LookedAfter
from quiesce.fsm.vocabulary import ParticipantKey

__all__ = ["Recovery", "account_of", "emit_recovered", "recovering"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found unfinished and became of it, and what had the name of a journal and could not be read.

    ``held`` are the ids of which nothing is known under the root, and whom they hold, as the participants say it.
    ``silent`` are those who say nothing, and of whom nothing else is told here, with the reason.
    """

    recovered: tuple[Recovered, ...] = ()
    unread: tuple[LookedAfter, ...] = ()
    held: Mapping[str, tuple[ParticipantKey, ...]] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)


async def account_of(controller: Controller, *, excused: Collection[ParticipantKey] = ()) -> Recovery:
    """What a controller has found, and who is held besides: a journal that is gone names nobody.

    Of those who are ``excused``, since they are gone for good, no answer is missed.
    """
    known = tuple(one.account.wire_id for one in controller.recovered)
    known += tuple(one.unread.wire_id for one in controller.unread)
    answered = await controller.holders() if controller.config.enabled else None
    holding = answered.holding if answered is not None else {}
    # those under which somebody is healed begin with the id of their transaction
    held = {one: who for one, who in holding.items() if not (known and one.startswith(known))}
    told = {str(key) for key in (*excused, *controller.owed)}
    told |= {name for one in controller.unread for name in one.silent}
    silent = {name: why for name, why in (answered.silent if answered is not None else {}).items() if name not in told}
    return Recovery(controller.recovered, controller.unread, held, silent)


@contextlib.asynccontextmanager
async def recovering(config: Config, title: str, *, only: str | None = None) -> AsyncIterator[Controller]:
    """A controller that has finished what could be finished, or ``only`` that. A terminal shows who is waited for.

    Raises:
        NotKnown: the root cannot be used.
        QuiesceError: as Controller.recover.
    """
    steps = Steps()
    controller = Controller(config, observers=(steps,))
    try:
        async with shown(Console(stderr=True), title, steps.progress):
            with naming_unsettled(controller):
                with knowing():
                    await controller.recover(only=only)
                yield controller
    finally:
        await controller.close()


def emit_recovered(recovery: Recovery, *, as_json: bool) -> NoReturn:
    """Tell what became of everything that was found, and end the command."""
    transactions, unread = recovery.recovered, recovery.unread
    left_open = not_settled(recovery)
    left_open += [
        f"{one} holds {', '.join(sorted(map(str, who)))}, and nothing is known of it under this root: "
        f"`quiesce abort {one}` reopens them"
        for one, who in recovery.held.items()
    ]
    if recovery.silent:
        left_open.append(
            f"whether a checkpoint holds {', '.join(recovery.silent)} is not known, since they do not answer: try "
            "again once they do, or take out of the configuration whoever is gone for good"
        )
    for one in () if as_json else transactions:
        typer.echo(_sentence(one))
    for looked in () if as_json else unread:
        if looked.is_settled:
            typer.echo(f"note: {looked.sentence}")
    if not (transactions or unread or left_open or as_json):
        typer.echo("nothing was left unfinished; everybody accepts work as far as this root knows")
    result = {
        "dry_run": False,
        "transactions": [one.to_json() for one in transactions],
        "unread": [one.to_json() for one in unread],
        "silent": dict(recovery.silent),
    }
    end(result, left_open=left_open, as_json=as_json)


def _sentence(one: Recovered) -> str:
    name = f"{one.account.kind or 'transaction'} {one.account.wire_id}"
    what = "ended in doubt, and whoever that was about is excused" if "doubt" in one.state else one.state
    first = f"{name}: it stood at {one.account.stood}; now {what if one.is_settled else one.state}"
    notes = one.phased.notes() if one.phased is not None else ()
    return "\n".join([first, *([f"  {one.what}"] if one.what else []), *(f"  note: {note}" for note in notes)])
