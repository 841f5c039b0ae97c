"""The parts of a composed system in plain numbers, for whoever composes them by other means than our search.

A search numbers the states of the controller and of each participant as it meets them, and keeps each part's steps by
those numbers. Here is what it keeps, and nothing of how the parts are put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from quiesce.fsm.explore_site import Flight, Sight
from quiesce.fsm.vocabulary import Phase

__all__ = ["ControllerMarks", "Local", "Move", "PartTables", "SiteMarks", "SystemTables", "Told", "Turn"]


class Local(NamedTuple):
    """A step of one site: what it needs of the budgets and costs, where the site goes, what the controller hears.

    ``event`` is -1 where the controller hears nothing.
    """

    action: str
    need: int
    cost: int
    target: int
    event: int
    sight: Sight | None


class Told(NamedTuple):
    """Something that the controller meets by itself; ``waits_for`` is the place that must be quiet, or -1.

    With ``orphans`` every call on its way loses its client first: each site goes where ``PartTables.orphaned`` says.
    The sites at ``again`` go where ``PartTables.tried_again`` says.
    """

    action: str
    need: int
    cost: int
    event: int
    publishes: bool
    waits_for: int
    orphans: bool
    again: tuple[int, ...] = ()


class Move(NamedTuple):
    """Where an event leads the controller, and the calls that leave; ``need`` and ``cost`` for a failing record."""

    suffix: str
    need: int
    cost: int
    target: int
    calls: tuple[tuple[int, Flight], ...]


class SiteMarks(NamedTuple):
    """Whether a participant is quiesced, how far it has come, whether nothing of ours can run on there.

    Whoever is another process by now counts as having come as far as its predecessor may have.
    """

    quiesced: bool
    closed: bool
    drained: bool
    exported: bool
    imported: bool
    quiet: bool


class Turn(NamedTuple):
    """The order of a phase: who must have come how far before its work begins elsewhere.

    ``mark`` is the one of ``SiteMarks`` that they must have, ``violation`` the bit where one of them has not;
    ``earlier`` are their places, for each place.
    """

    phase: Phase
    mark: str
    violation: int
    earlier: tuple[tuple[int, ...], ...]


class ControllerMarks(NamedTuple):
    """Bits of what a controller's state breaks and has, whether it may rest there, whether it is a goal."""

    broken: int
    reached: int
    rests: bool
    at_goal: bool


class PartTables(NamedTuple):
    """One participant: its steps, its calls, what it is seen as, and what it breaks beside a controller's state."""

    name: str
    steps: Mapping[int, tuple[Local, ...]]
    added: Mapping[tuple[int, Flight], int]
    marks: Mapping[int, SiteMarks]
    broken: Mapping[tuple[int, int], int]
    """By (controller, site), for each pair that was met in a state."""
    orphaned: Mapping[int, int]
    """By site, where the controller died while it stood so."""
    tried_again: Mapping[int, int]
    """By site, where a restore was tried again while it stood so."""


class SystemTables(NamedTuple):
    """Everything that a finished search has enumerated; bits of ``always`` and ``sometimes`` are by name."""

    always: Mapping[str, int]
    sometimes: Mapping[str, int]
    first: tuple[int, ...]
    told: Mapping[int, tuple[Told, ...]]
    moves: Mapping[tuple[int, int], tuple[Move, ...]]
    """By (controller, event); the first is what happens, further ones what happens if its record fails."""
    published: Mapping[int, int]
    """The controller's state once the world has the snapshot, where a step of it publishes."""
    running: Mapping[Phase, frozenset[int]]
    """States of the controller in which a phase runs whose order counts."""
    marks: Mapping[int, ControllerMarks]
    cut: tuple[int, ...]
    exporting: tuple[int, ...]
    turns: tuple[Turn, ...]
    parts: tuple[PartTables, ...]
