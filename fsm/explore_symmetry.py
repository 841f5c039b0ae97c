"""Participants that are alike: of all states that differ by who is who among them, one stands for the others.

Two participants are alike if they have the same role, phases and fence. To exchange them, with all that the controller
knows of them, changes nothing about what can happen; so it is enough to search one state of each such orbit. The
properties speak of somebody or of everybody, never of one participant by name, and are the same all over an orbit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, permutations, product
from typing import Final

from quiesce.fsm import messages as m
from quiesce.fsm.explore_controller import Controller, Errand
from quiesce.fsm.explore_packing import Packing
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_parts import Numbered
from quiesce.fsm.vocabulary import ParticipantKey

__all__ = ["Symmetry", "alike", "exchanged"]

Order = tuple[int, ...]
"""Who stands where: the participant at place i afterwards is the one who was at place ``order[i]``."""


def alike(sites: Sequence[SiteAutomaton]) -> tuple[tuple[int, ...], ...]:
    """The places of participants that are alike, each group that has more than one."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, site in enumerate(sites):
        spec = site.spec
        kind = (spec.role, spec.phases, spec.refuses_idle_resume, spec.exports_elsewhere)
        groups.setdefault((*kind, site.variant, site.keeps_results, site.restarts, id(site.engine)), []).append(place)
    return tuple(tuple(places) for places in groups.values() if len(places) > 1)


def exchanged(controller: Controller, order: Order) -> Controller:
    """What the controller would be, had its participants stood in this order from the beginning."""
    core = controller.core
    keys = [spec.key for spec in core.plan.members]
    now = {keys[before]: keys[after] for after, before in enumerate(order)}
    return controller._replace(
        core=replace(core, members=tuple(core.members[before] for before in order), scan=0),
        armed=frozenset((timer, None if key is None else now[key]) for timer, key in controller.armed),
        errands=frozenset(_renamed(errand, now) for errand in controller.errands),
        noted=frozenset(now[key] for key in controller.noted),
        fresh_ids=frozenset((now[key], last) for key, last in controller.fresh_ids),
        unread=frozenset(now[key] for key in controller.unread),
    )


def _renamed(errand: Errand, now: dict[ParticipantKey, ParticipantKey]) -> Errand:
    return replace(errand, key=now[errand.key]) if isinstance(errand, m.Consult | m.Verify) else errand


class Symmetry:
    """The state that stands for all that are equal to it but for who is who."""

    def __init__(
        self, packing: Packing, controllers: Numbered[Controller], groups: tuple[tuple[int, ...], ...]
    ) -> None:
        self._packing: Final = packing
        self._controllers = controllers
        self._groups = groups
        self._neighbours = tuple(pair for group in groups for pair in pairwise(group))
        self._exchanged: dict[tuple[int, Order], int] = {}

    def canonical(self, state: int) -> int:
        """Who is alike stands in the order of its site's number; where these are equal, the controller's decides."""
        site = self._packing.site
        if all(site(state, before) < site(state, after) for before, after in self._neighbours):
            return state
        controller, *sites, budget, violations = self._packing.unpack(state)
        best = min((self._exchange(controller, order), order) for order in self._orders(sites))
        return self._packing.pack((best[0], *(sites[place] for place in best[1]), budget, violations))

    def _orders(self, sites: Sequence[int]) -> Iterator[Order]:
        """Every order in which the numbers of each group rise."""
        choices = [list(_rising(group, sites)) for group in self._groups]
        for chosen in product(*choices):
            order = list(range(len(sites)))
            for group, places in zip(self._groups, chosen, strict=True):
                for after, before in zip(group, places, strict=True):
                    order[after] = before
            yield tuple(order)

    def _exchange(self, controller: int, order: Order) -> int:
        known = self._exchanged.get((controller, order))
        if known is None:
            found = exchanged(self._controllers.values[controller], order)
            known = self._exchanged[controller, order] = self._controllers.number(found)
        return known


def _rising(group: Sequence[int], sites: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The places of a group by the number that stands there, in every order that its ties allow."""
    places = sorted(group, key=lambda place: sites[place])
    ties = [list(permutations(tied)) for _, tied in groupby(places, key=lambda place: sites[place])]
    for parts in product(*ties):
        yield tuple(place for part in parts for place in part)
