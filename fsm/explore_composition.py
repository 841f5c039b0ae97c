"""How the parts of a system step together: one part moves, and the controller does something about it.

A step is worked out here on the fields of a state, as it is declared; ``quiesce.fsm.explore_expansion`` keeps what it
comes to, and a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quiesce.fsm import messages as m
from quiesce.fsm.explore_controller import Controller, Moved
from quiesce.fsm.explore_packing import Fields, price
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_parts import NOTHING, Numbered, SitePart
from quiesce.fsm.explore_properties import PUBLISHED_WHOLE, QUIESCED_BEFORE_EXPORT, USED_UP_IDS_STAY_SO, turns
from quiesce.fsm.explore_setup import Setup
from quiesce.fsm.explore_site import Fault, Past, Sight, Site
from quiesce.fsm.explore_symmetry import alike
from quiesce.fsm.explore_tables import Local, Move, Told
from quiesce.fsm.fence import FenceState
from quiesce.fsm.tables.phases import PHASE_OF
from quiesce.fsm.vocabulary import Phase, Role

__all__ = ["Composition", "Taken"]


class Taken(NamedTuple):
    """A step of the whole: what happens, and the fields of the state that it leads to."""

    action: str
    fields: Fields


class Composition:
    """The parts of a set-up, and every step of the whole.

    Attributes:
        controllers: the controller's states by number.
        parts: the participants, in the plan's order.
        cut, exporting: places of those who are closed for a cut, and of those who export.
        turns: the order of each phase that has one beside that of reopening.
        groups: places of participants that are alike.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.controllers: Numbered[Controller] = Numbered()
        self._events: Numbered[m.Event] = Numbered()
        self.groups = alike(setup.sites)
        shared: dict[int, Numbered[Site]] = {}
        for group in self.groups:
            shared.update(dict.fromkeys(group, Numbered()))
        self.parts = tuple(
            SitePart(site, place, self._events, shared.get(place)) for place, site in enumerate(setup.sites)
        )
        specs = setup.controller.plan.members
        self.cut = tuple(place for place, spec in enumerate(specs) if Phase.PREPARE in spec.phases)
        self.exporting = tuple(place for place, spec in enumerate(specs) if Phase.COMMIT in spec.phases)
        self.turns = turns(setup.controller.plan)
        self.told: dict[int, tuple[Told, ...]] = {}
        self.moves: dict[tuple[int, int], tuple[Move, ...]] = {}

    def first(self) -> Fields:
        """Nobody was called; the budgets are whole."""
        budget = sum(price(fault)[1] * times for fault, times in self.setup.budgets.items())
        controller = self.controllers.number(self.setup.controller.initial())
        return [controller, *(part.sites.number(self._first(part.automaton)) for part in self.parts), budget, 0]

    def steps(self, fields: Fields) -> Iterator[Taken]:
        """Every step of a site or of the controller that the budgets allow."""
        for place, part in enumerate(self.parts):
            for step in part.steps(fields[place + 1]):
                if not step.need or fields[-2] & step.need:
                    yield from self.take(fields, place, step)
        for told in self.told_to(fields[0]):
            if (not told.need or fields[-2] & told.need) and self.is_quiet(fields, told.waits_for):
                yield from self.tell(fields, told)

    def take(self, fields: Fields, place: int, step: Local) -> Iterator[Taken]:
        """A step of the site at ``place``, and what the controller does about it."""
        after = list(fields)
        after[place + 1] = step.target
        after[-2] -= step.cost
        if step.sight is not None:
            after[-1] |= self._judged(step.sight, fields, place)
        if step.event == NOTHING:
            yield Taken(step.action, after)
        else:
            yield from self._moved(step.action, after, step.event)

    def tell(self, fields: Fields, told: Told) -> Iterator[Taken]:
        """A step of the controller by itself."""
        after = list(fields)
        after[-2] -= told.cost
        if told.orphans:
            after[1:-2] = [part.orphaned(number) for part, number in zip(self.parts, fields[1:-2], strict=True)]
        for place in told.again:
            after[place + 1] = self.parts[place].tried_again(fields[place + 1])
        if told.publishes:
            after[0] = self.published(fields[0])
            after[-1] |= 0 if self._is_whole(fields) else PUBLISHED_WHOLE
        yield from self._moved(told.action, after, told.event)

    def _moved(self, action: str, before: Fields, event: int) -> Iterator[Taken]:
        for suffix, need, cost, target, calls in self.moves_of(before[0], event):
            if need and not before[-2] & need:
                continue
            after = list(before)
            after[0] = target
            after[-2] -= cost
            for place, flight in calls:
                after[place + 1] = self.parts[place].add(after[place + 1], flight)
            yield Taken(action + suffix if suffix else action, after)

    def moves_of(self, number: int, event: int) -> tuple[Move, ...]:
        """Where an event leads the controller; the first is what happens, another one what if its record fails."""
        known = self.moves.get((number, event))
        if known is None:
            moved, *unrecorded = self.setup.controller.moves(
                self.controllers.values[number], self._events.values[event]
            )
            known = self.moves[number, event] = (
                self._prepared("", None, moved),
                *(self._prepared("; its record fails", Fault.STORE, failed) for failed in unrecorded),
            )
        return known

    def _prepared(self, suffix: str, fault: Fault | None, moved: Moved) -> Move:
        return Move(suffix, *price(fault), self.controllers.number(moved.target), moved.calls)

    def told_to(self, number: int) -> tuple[Told, ...]:
        """What the controller can meet by itself."""
        known = self.told.get(number)
        if known is None:
            known = self.told[number] = tuple(
                Told(
                    step.action,
                    *price(step.fault),
                    self._events.number(step.event),
                    step.publishes,
                    NOTHING if step.waits_for is None else step.waits_for,
                    step.orphans,
                    tuple(place for place in step.again if self.parts[place].automaton.restarts),
                )
                for step in self.setup.controller.steps(self.controllers.values[number])
            )
        return known

    # what ties sites to each other

    def is_quiet(self, fields: Fields, place: int) -> bool:
        """Whether nothing of ours can run on at ``place``; true of no place."""
        return place == NOTHING or self.parts[place].marks(fields[place + 1]).quiet

    def is_judged(self, step: Local, place: int) -> bool:
        """Whether a step of the site at ``place`` can break what ties sites to each other, or a site to its past."""
        sight = step.sight
        return sight is not None and (
            sight.finished_id_closes
            or sight.begins is Phase.COMMIT
            or any(turn.phase is sight.begins and turn.earlier[place] for turn in self.turns)
        )

    def runs(self, number: int, phase: Phase) -> bool:
        """Whether this state of the controller is one in which what begins in ``phase`` counts.

        What arrives when its cut or restore is being undone is for nothing and hurts nobody.
        """
        return PHASE_OF.get(self.controllers.values[number].core.transaction) is phase

    def published(self, number: int) -> int:
        """The controller's state once the world has the snapshot."""
        return self.controllers.number(self.controllers.values[number]._replace(published=True))

    def _judged(self, sight: Sight, fields: Fields, place: int) -> int:
        bits = USED_UP_IDS_STAY_SO if sight.finished_id_closes else 0
        if sight.begins is None or not self.runs(fields[0], sight.begins):
            return bits
        if sight.begins is Phase.COMMIT and not self._is_quiesced(fields):
            bits |= QUIESCED_BEFORE_EXPORT
        for turn in self.turns:
            if turn.phase is sight.begins and not self._have(turn.mark, fields, turn.earlier[place]):
                bits |= turn.violation
        return bits

    def _have(self, mark: str, fields: Fields, places: Iterable[int]) -> bool:
        return all(getattr(self.parts[place].marks(fields[place + 1]), mark) for place in places)

    def _is_whole(self, fields: Fields) -> bool:
        return self._have("exported", fields, self.exporting) and self._is_quiesced(fields)

    def _is_quiesced(self, fields: Fields) -> bool:
        return self._have("quiesced", fields, self.cut)

    def _first(self, automaton: SiteAutomaton) -> Site:
        past = Past() if automaton.restarts else None
        if self.setup.fresh_processes and automaton.spec.role is Role.RESOURCES:
            return Site(FenceState(closed=True), owes=True, past=past)
        return Site(past=past)
