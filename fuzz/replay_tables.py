"""A counterexample replayed on an engine, without any server: each action is a step of the explored system."""

from __future__ import annotations

from dataclasses import dataclass

from quiesce.fsm.engine import Engine
from quiesce.fsm.explore import Kind
from quiesce.fsm.explore_controller import Controller
from quiesce.fsm.explore_follow import ActionImpossible, follow, shows
from quiesce.fsm.explore_site import Site
from quiesce.fuzz.counterexample import Counterexample, parse_counterexample

__all__ = ["Moment", "Replayed", "replay_on", "still_shown"]

_ON_THE_WAY = frozenset({Kind.ALWAYS, Kind.SOMETIMES})
"""Kinds of which any state of the way can be the one; of the others it is the one where the way ends."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One action, and where controller and participants stand after it."""

    action: str
    controller: Controller
    sites: tuple[Site, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay.

    Attributes:
        moments: the actions that were taken.
        shown: whether it shows what the counterexample is of; None: that takes too long to tell.
        stopped: the action that is not possible any more, and what is; empty where all were taken. What runs has
            changed since the file was written.
    """

    moments: tuple[Moment, ...]
    shown: bool | None
    stopped: str = ""


def replay_on(found: Counterexample, engine: Engine | None = None) -> Replayed:
    """Take every action on an engine (the table engine by default), as far as they are possible."""
    model = found.model(engine)
    stopped = ""
    try:
        steps = follow(model, found.actions)
    except ActionImpossible as error:
        steps = follow(model, found.actions[: error.number - 1])
        stopped = str(error)
    moments = tuple(Moment(step.action, *model.parts(step.state)) for step in steps)
    way = (next(iter(model.initial())), *(step.state for step in steps))
    claim = found.claim
    if claim.kind in _ON_THE_WAY:
        shown: bool | None = any(shows(model, claim.kind, claim.name, state) for state in way)
    else:
        shown = False if stopped else shows(model, claim.kind, claim.name, way[-1])
    return Replayed(moments, shown, stopped)


def still_shown(text: str) -> bool | None:
    """Whether the tables as they are now, changed since or not, still do what a file shows.

    False also where an action is not possible any more: they go another way. None: too long to tell.

    Raises:
        ReplayInvalid: it cannot be used; the text names the line.
    """
    return replay_on(parse_counterexample(text)).shown
