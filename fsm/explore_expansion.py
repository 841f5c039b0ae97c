"""The steps of a packed state as additions.

What one part can do beside a state of the controller does not depend on the other parts, but for the calls that leave
to them and for a few steps that look at everybody. It is worked out once for each such pair, from the composition's own
tables, and is from then on a handful of integers to add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from quiesce.fsm.explore import Expansion
from quiesce.fsm.explore_composition import Composition
from quiesce.fsm.explore_packing import VIOLATION_BITS, Packing
from quiesce.fsm.explore_parts import NOTHING
from quiesce.fsm.explore_site import Flight
from quiesce.fsm.explore_tables import ControllerMarks, Local, Told

__all__ = ["Expansions"]

Calls = tuple[tuple[int, Flight], ...]
Sends = tuple[tuple[int, Calls], ...]
"""What a step adds to a state, and the calls that it sends to places whose states it does not know."""
Wide = tuple[tuple[int, Local] | Told, ...]
"""Steps that look at more than one part, as they are declared; those of a site with its place."""

_Ready = tuple[tuple[int, ...], Sends, Wide, int]
"""What can happen by one part beside a state of the controller and of the budgets, and bits of what the two break.

A plain tuple of plain tuples, which the collector of garbage does not look at again.
"""
_ReadyController = tuple[tuple[int, ...], Sends, Wide, int, int, bool, bool]
"""Likewise by the controller alone, and what its state is: ``broken``, ``reached``, ``rests``, ``at_goal``."""

_VIOLATIONS: Final = (1 << VIOLATION_BITS) - 1


class _SiteStep(NamedTuple):
    """A step of a site: what it needs and costs, what it adds to a state, and the event that it is to the controller.

    ``wide`` where it looks at more than that.
    """

    need: int
    cost: int
    more: int
    event: int
    target: int
    wide: tuple[int, Local] | None


class _Move(NamedTuple):
    """What the controller does about an event: what that needs, what it adds to a state, the calls that leave."""

    need: int
    more: int
    calls: Calls


class Expansions:
    """Expands packed states.

    ``judge`` says what the controller's state is, by its number; ``claims`` turns bits by the places of the properties
    into bits by the places of those that are claimed.
    """

    def __init__(
        self,
        composition: Composition,
        packing: Packing,
        judge: Callable[[int], ControllerMarks],
        claims: Callable[[int], int],
    ) -> None:
        self._composition: Final = composition
        self._packing: Final = packing
        self._judge = judge
        self._claims = claims
        self._controllers: dict[int, _ReadyController] = {}
        places = range(len(composition.parts))
        memories: tuple[dict[int, _Ready], ...] = tuple({} for _ in places)
        self._sites: Final = tuple((place, packing.site_mask(place), memories[place]) for place in places)
        self._steps: tuple[dict[int, tuple[_SiteStep, ...]], ...] = tuple({} for _ in places)
        self._moves: dict[tuple[int, int], tuple[_Move, ...]] = {}
        self._added: tuple[dict[Flight, dict[int, int]], ...] = tuple({} for _ in places)
        self._sums: dict[int, int] = {}
        self._all_sums: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._all_ready: dict[_Ready, _Ready] = {}
        self._seen: Final = [claims(bits) for bits in range(_VIOLATIONS + 1)]

    def expanded(self, state: int) -> Expansion[int]:
        """Everything that a search asks of a state."""
        key = state & self._packing.controller_mask
        known = self._controllers.get(key)
        if known is None:
            known = self._controllers[key] = self._ready_controller(key)
        sums, sends, wide, broken, reached, rests, at_goal = known
        broken |= self._seen[state & _VIOLATIONS]
        found = [state + more for more in sums]
        if sends:
            self._send(state, sends, found)
        if wide:
            self._widen(state, wide, found)
        for place, mask, memory in self._sites:
            key = state & mask
            ready = memory.get(key)
            if ready is None:
                ready = memory[key] = self._ready_site(place, key)
            sums, sends, wide, bits = ready
            found += [state + more for more in sums]
            if sends:
                self._send(state, sends, found)
            if wide:
                self._widen(state, wide, found)
            broken |= bits
        return found, broken, reached, rests, at_goal

    def _send(self, state: int, sends: Sends, found: list[int]) -> None:
        site = self._packing.site
        for more, calls in sends:
            target = state + more
            for place, flight in calls:
                number = site(target, place)
                added = self._added[place].get(flight)
                if added is None:
                    added = self._added[place][flight] = {}
                change = added.get(number)
                if change is None:
                    after = self._composition.parts[place].add(number, flight)
                    change = added[number] = self._packing.moved(place, number, after)
                target += change
            found.append(target)

    def _widen(self, state: int, wide: Wide, found: list[int]) -> None:
        fields = self._packing.unpack(state)
        for step in wide:
            if isinstance(step, Told):
                taken = self._composition.tell(fields, step)
            else:
                taken = self._composition.take(fields, *step)
            found += [self._packing.pack(after) for _, after in taken]

    # working out what can happen

    def _ready_controller(self, key: int) -> _ReadyController:
        number = self._packing.controller(key)
        found = _Found(self._sums, self._all_sums)
        self._told(key, number, NOTHING, 0, found)
        marks = self._judge(number)
        return *found.ready(), self._claims(marks.broken), marks.reached, marks.rests, marks.at_goal

    def _ready_site(self, place: int, key: int) -> _Ready:
        controller, number = self._packing.controller(key), self._packing.site(key, place)
        part = self._composition.parts[place]
        found = _Found(self._sums, self._all_sums)
        for need, cost, more, event, target, wide in self._steps_of(place, number):
            if need and not key & need:
                continue
            if wide is not None:
                found.wide.append(wide)
            elif event == NOTHING:
                found.add(more, ())
            else:
                self._moved(key - cost, controller, event, place, target, more, found)
        if part.marks(number).quiet:
            self._told(key, controller, place, number, found)
        bits = part.broken(number, self._composition.controllers.values[controller], controller)
        ready = (*found.ready(), self._claims(bits))
        return self._all_ready.setdefault(ready, ready)

    def _steps_of(self, place: int, number: int) -> tuple[_SiteStep, ...]:
        """Steps of a site that the budgets that there are can ever pay for."""
        known = self._steps[place].get(number)
        if known is None:
            packing = self._packing
            known = self._steps[place][number] = tuple(
                _SiteStep(
                    packing.budget(step.need),
                    cost := packing.budget(step.cost),
                    packing.moved(place, number, step.target) - cost,
                    step.event,
                    step.target,
                    (place, step) if self._composition.is_judged(step, place) else None,
                )
                for step in self._composition.parts[place].steps(number)
                if not step.need or packing.budget(step.need)
            )
        return known

    def _told(self, key: int, controller: int, place: int, number: int, found: _Found) -> None:
        """What the controller meets by itself and that waits for ``place`` to be quiet, or for nobody."""
        for told in self._composition.told_to(controller):
            if told.waits_for != place or (told.need and not key & self._packing.budget(told.need)):
                continue
            cost = self._packing.budget(told.cost)
            if told.orphans or told.publishes or told.again:
                found.wide.append(told)
            else:
                self._moved(key - cost, controller, told.event, place, number, -cost, found)

    def _moved(self, left: int, controller: int, event: int, place: int, number: int, more: int, found: _Found) -> None:
        """What the controller does about an event of ``place``, whose site stands at ``number`` by now."""
        for need, change, calls in self._moves_of(controller, event):
            if need and not left & need:
                continue
            total, here = more + change, number
            elsewhere: list[tuple[int, Flight]] = []
            for to, flight in calls:
                if to == place:
                    here = self._composition.parts[place].add(here, flight)
                else:
                    elsewhere.append((to, flight))
            if here != number:
                total += self._packing.moved(place, number, here)
            found.add(total, tuple(elsewhere))

    def _moves_of(self, controller: int, event: int) -> tuple[_Move, ...]:
        known = self._moves.get((controller, event))
        if known is None:
            packing = self._packing
            known = self._moves[controller, event] = tuple(
                _Move(
                    packing.budget(need),
                    packing.controller_moved(controller, target) - packing.budget(cost),
                    calls,
                )
                for _, need, cost, target, calls in self._composition.moves_of(controller, event)
                if not need or packing.budget(need)
            )
        return known


class _Found:
    """The steps of one part while they are collected. What is equal is one object: there are few, and many states."""

    def __init__(self, shared: dict[int, int], shared_all: dict[tuple[int, ...], tuple[int, ...]]) -> None:
        self._share = shared.setdefault
        self._share_all = shared_all.setdefault
        self._sums: list[int] = []
        self._sends: list[tuple[int, Calls]] = []
        self.wide: list[tuple[int, Local] | Told] = []

    def add(self, more: int, calls: Calls) -> None:
        """A step that adds ``more`` to a state and sends these calls."""
        if calls:
            self._sends.append((more, calls))
        else:
            self._sums.append(self._share(more, more))

    def ready(self) -> tuple[tuple[int, ...], Sends, Wide]:
        """All of them."""
        sums = tuple(self._sums)
        return self._share_all(sums, sums), tuple(self._sends), tuple(self.wide)
