"""A counterexample replayed on an engine, without any server: each action is a step of the explored system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quiesce.fsm.engine import Engine
from quiesce.fsm.explore_controller import Controller
from quiesce.fsm.explore_follow import ActionImpossible, follow, shows
from quiesce.fsm.explore_site import Site
from quiesce.fuzz.counterexample import Counterexample, parse_counterexample
from quiesce.fuzz.errors import ReplayInvalid
from quiesce.fuzz.json_place import line_of

__all__ = ["Moment", "Replayed", "checked_text", "replay_on", "still_shown"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One action, and where controller and participants stand after it."""

    action: str
    controller: Controller
    sites: tuple[Site, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay.

    ``shown`` says whether its end shows what the counterexample is of; None: that takes too long to tell.
    """

    moments: tuple[Moment, ...]
    shown: bool | None


def replay_on(found: Counterexample, engine: Engine | None = None) -> Replayed:
    """Take every action on an engine (the table engine by default).

    Raises:
        ActionImpossible: an action cannot happen where it stands.
    """
    model = found.model(engine)
    steps = follow(model, found.actions)
    moments = tuple(Moment(step.action, *model.parts(step.state)) for step in steps)
    end = steps[-1].state if steps else next(iter(model.initial()))
    return Replayed(moments, shows(model, found.claim.kind, found.claim.name, end))


def checked_text(text: str, source: str = "counterexample") -> tuple[Counterexample, Replayed]:
    """Read a file and replay it on the tables.

    Raises:
        ReplayInvalid: it cannot be used, or an action is not possible where it stands; the text names the line.
    """
    found = parse_counterexample(text, source)
    try:
        return found, replay_on(found)
    except ActionImpossible as error:
        path: Sequence[str | int] = ("actions", error.number - 1)
        reason = f"line {line_of(text, path)}: {error}; write it anew with 'quiesce check --counterexample-dir'"
        raise ReplayInvalid(source, reason) from None


def still_shown(text: str) -> bool | None:
    """Whether the tables as they are now, changed since or not, still do what a file shows.

    False also where an action is not possible any more: they go another way. None: too long to tell.

    Raises:
        ReplayInvalid: it cannot be used; the text names the line.
    """
    try:
        return replay_on(parse_counterexample(text, any_tables=True)).shown
    except ActionImpossible:
        return False
