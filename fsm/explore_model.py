"""The composed system that the explorer searches: one controller, its participants, and the faults that may strike.

Controller and sites are automata whose states and steps are enumerated from the real core and the real fences once, and
numbered; a state of the whole is a tuple of numbers: controller, sites, what is left of the fault budgets, and the
violations seen on the way. A step of the whole is a step of one part, and what the controller does about it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from quiesce.fsm import messages as m
from quiesce.fsm.explore_controller import Controller, ControllerAutomaton, Moved
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_properties import (
    ALWAYS,
    PUBLISHED_WHOLE,
    QUIESCED_BEFORE_EXPORT,
    SOMETIMES,
    USED_UP_IDS_STAY_SO,
    broken_by_controller,
    broken_by_site,
    is_over,
    seen_in,
)
from quiesce.fsm.explore_site import Fault, Flight, Past, Sight, Site, orphaned, runs_on
from quiesce.fsm.explore_tables import ControllerMarks, Local, Move, PartTables, SiteMarks, SystemTables, Told
from quiesce.fsm.fence import FenceState
from quiesce.fsm.tables.fence import FenceEvent
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Phase, Role

__all__ = ["TIMES_MAX", "Setup", "System", "Whole"]

Whole = tuple[int, ...]
"""Controller, one number for each site, budgets, violations."""

V = TypeVar("V", bound=Hashable)

_DIGIT_BITS: Final = 2
TIMES_MAX: Final = (1 << _DIGIT_BITS) - 1
"""How often a fault may strike at most."""
_NOTHING: Final = -1


@dataclass(frozen=True)
class Setup:
    """What is explored: a controller with its plan, participants with their fences, and how often faults may strike.

    ``expects`` are the *sometimes* properties that this search must reach; ``waives`` the *always* properties that are
    not claimed for it, with the reason. With ``fresh_processes`` resource servers start as those do that were told to
    expect a restore: closed, and refusing to be resumed.

    Raises:
        ValueError: a fault may strike more often than can be counted, or an unknown property is named.
    """

    name: str
    controller: ControllerAutomaton
    sites: tuple[SiteAutomaton, ...]
    budgets: Mapping[Fault, int] = field(default_factory=dict)
    expects: tuple[str, ...] = ()
    waives: Mapping[str, str] = field(default_factory=dict)
    fresh_processes: bool = False

    def __post_init__(self) -> None:
        if not all(0 <= times <= TIMES_MAX for times in self.budgets.values()):
            raise ValueError(f"{self.name}: a fault may strike 0 to {TIMES_MAX} times, not {dict(self.budgets)}")
        known = {claim.name for claim in (*ALWAYS, *SOMETIMES)}
        if unknown := {*self.expects, *self.waives} - known:
            raise ValueError(f"{self.name}: no property is called {sorted(unknown)}; there are {sorted(known)}")


class _Numbered(Generic[V]):
    """Values by number, in the order in which they were met."""

    def __init__(self) -> None:
        self.values: list[V] = []
        self._numbers: dict[V, int] = {}

    def number(self, value: V) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class _SitePart:
    """One participant's automaton, its states numbered, its steps and calls kept."""

    def __init__(self, automaton: SiteAutomaton, place: int, events: _Numbered[m.Event]) -> None:
        self.automaton = automaton
        self.place = place
        self.sites: _Numbered[Site] = _Numbered()
        self._events = events
        self._steps: dict[int, tuple[Local, ...]] = {}
        self._added: dict[tuple[int, Flight], int] = {}
        self._marks: dict[int, SiteMarks] = {}
        self._broken: dict[tuple[int, int], int] = {}
        self._orphaned: dict[int, int] = {}

    def steps(self, number: int) -> tuple[Local, ...]:
        known = self._steps.get(number)
        if known is None:
            name = self.automaton.spec.key.name
            known = self._steps[number] = tuple(
                Local(
                    f"{name}: {step.action}",
                    *_price(step.fault),
                    self.sites.number(step.target),
                    _NOTHING if step.event is None else self._events.number(step.event),
                    step.sight if any(step.sight) else None,
                )
                for step in self.automaton.steps(self.sites.values[number])
            )
        return known

    def add(self, number: int, flight: Flight) -> int:
        """The site with one more call on its way."""
        known = self._added.get((number, flight))
        if known is None:
            known = self._added[number, flight] = self.sites.number(self.sites.values[number].with_flight(flight))
        return known

    def orphaned(self, number: int) -> int:
        """The site after its controller has died."""
        known = self._orphaned.get(number)
        if known is None:
            known = self._orphaned[number] = self.sites.number(orphaned(self.sites.values[number]))
        return known

    def marks(self, number: int) -> SiteMarks:
        """What the participant is seen as."""
        known = self._marks.get(number)
        if known is None:
            site = self.sites.values[number]
            # a process that died after it was read at the cut took nothing with it that is not exported, or refused
            gone, exported = (False, False)
            if site.past is not None:
                gone, exported = site.past.restarted and site.past.shown, site.past.exported
            known = self._marks[number] = SiteMarks(
                gone or (site.fence.closed and not site.work),
                exported or site.fence.record(0, FenceEvent.COMMIT) is not None,
                not runs_on(self.automaton.spec, site),
            )
        return known

    def broken(self, number: int, controller: Controller, of: int) -> int:
        """Bits of the violated properties; ``of`` is the controller's number."""
        known = self._broken.get((of, number))
        if known is None:
            known = self._broken[of, number] = broken_by_site(controller, self.place, self.sites.values[number])
        return known

    def tables(self) -> PartTables:
        """What has been enumerated of it so far."""
        name = self.automaton.spec.key.name
        marks = {number: self.marks(number) for number in sorted(self._steps)}
        return PartTables(name, self._steps, self._added, marks, self._broken, self._orphaned)


class System:
    """A model for :func:`quiesce.fsm.explore.explore`."""

    recoverable: Final = "everybody can accept work again, or is named"

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.name = setup.name
        claimed = [(place, claim.name) for place, claim in enumerate(ALWAYS) if claim.name not in setup.waives]
        self.always = tuple(name for _, name in claimed)
        self._claimed = tuple(place for place, _ in claimed)
        self.sometimes = setup.expects
        self._automaton = setup.controller
        self._controllers: _Numbered[Controller] = _Numbered()
        self._events: _Numbered[m.Event] = _Numbered()
        self._parts = tuple(_SitePart(site, place, self._events) for place, site in enumerate(setup.sites))
        specs = setup.controller.plan.members
        self._cut = tuple(place for place, spec in enumerate(specs) if Phase.PREPARE in spec.phases)
        self._exporting = tuple(place for place, spec in enumerate(specs) if Phase.COMMIT in spec.phases)
        self._told: dict[int, tuple[Told, ...]] = {}
        self._moves: dict[tuple[int, int], tuple[Move, ...]] = {}
        self._marks: dict[int, ControllerMarks] = {}

    # what the search asks

    def initial(self) -> Iterator[Whole]:
        """Nobody was called; the budgets are whole."""
        budget = sum(times << _DIGIT_BITS * fault for fault, times in self.setup.budgets.items())
        first = self._controllers.number(self._automaton.initial())
        yield (first, *(part.sites.number(self._first(part.automaton)) for part in self._parts), budget, 0)

    def steps(self, state: Whole) -> list[tuple[str, Whole]]:
        """Every step of a site or of the controller that the budgets allow."""
        budget = state[-2]
        found: list[tuple[str, Whole]] = []
        for slot, part in enumerate(self._parts, start=1):
            for action, need, cost, target, event, sight in part.steps(state[slot]):
                if need and not budget & need:
                    continue
                after = list(state)
                after[slot] = target
                after[-2] = budget - cost
                if sight is not None:
                    after[-1] |= self._judged(sight, state)
                if event == _NOTHING:
                    found.append((action, tuple(after)))
                else:
                    self._move(action, after, event, found)
        for told in self._told_to(state[0]):
            if (not told.need or budget & told.need) and self._is_quiet(state, told.waits_for):
                self._tell(state, told, found)
        return found

    def broken(self, state: Whole) -> int:
        """Bits of the properties of ``always`` that ``state`` lacks."""
        number = state[0]
        bits = state[-1] | self._controller_marks(number).broken
        controller = self._controllers.values[number]
        for slot, part in enumerate(self._parts, start=1):
            bits |= part.broken(state[slot], controller, number)
        return sum(1 << bit for bit, place in enumerate(self._claimed) if bits >> place & 1) if bits else 0

    def reached(self, state: Whole) -> int:
        """Bits of the properties of ``sometimes`` that ``state`` has."""
        return self._controller_marks(state[0]).reached

    def rests(self, state: Whole) -> bool:
        """Whether the transaction rests or is over."""
        return self._controller_marks(state[0]).rests

    def at_goal(self, state: Whole) -> bool:
        """Whether it rests with everybody open or named; half a restore that is held is no such rest."""
        return self._controller_marks(state[0]).at_goal

    def parts(self, state: Whole) -> tuple[Controller, tuple[Site, ...]]:
        """What the numbers of ``state`` stand for: the controller, and each participant in the plan's order."""
        sites = tuple(part.sites.values[number] for part, number in zip(self._parts, state[1:-2], strict=True))
        return self._controllers.values[state[0]], sites

    def tables(self) -> SystemTables:
        """What the searches so far have enumerated of each part. Nothing is missing from it after a complete one."""
        looked_at = sorted(self._told)
        return SystemTables(
            always={name: 1 << place for name, place in zip(self.always, self._claimed, strict=True)},
            sometimes={name: 1 << bit for bit, name in enumerate(self.sometimes)},
            first=next(self.initial()),
            told={number: self._told[number] for number in looked_at},
            moves=self._moves,
            published={
                number: self._published(number) for number in looked_at if any(t.publishes for t in self._told[number])
            },
            committing=frozenset(number for number in looked_at if self._is_committing(number)),
            marks={number: self._controller_marks(number) for number in looked_at},
            cut=self._cut,
            exporting=self._exporting,
            parts=tuple(part.tables() for part in self._parts),
        )

    # steps

    def _tell(self, state: Whole, told: Told, found: list[tuple[str, Whole]]) -> None:
        after = list(state)
        after[-2] -= told.cost
        if told.orphans:
            after[1:-2] = [part.orphaned(number) for part, number in zip(self._parts, state[1:-2], strict=True)]
        if told.publishes:
            after[0] = self._published(state[0])
            after[-1] |= 0 if self._is_whole(state) else PUBLISHED_WHOLE
        self._move(told.action, after, told.event, found)

    def _move(self, action: str, before: list[int], event: int, found: list[tuple[str, Whole]]) -> None:
        for suffix, need, cost, target, calls in self._moves_of(before[0], event):
            if need and not before[-2] & need:
                continue
            after = list(before)
            after[0] = target
            after[-2] -= cost
            for place, flight in calls:
                after[place + 1] = self._parts[place].add(after[place + 1], flight)
            found.append((action + suffix if suffix else action, tuple(after)))

    def _moves_of(self, number: int, event: int) -> tuple[Move, ...]:
        known = self._moves.get((number, event))
        if known is None:
            known = self._moves[number, event] = self._enumerated(number, event)
        return known

    def _enumerated(self, number: int, event: int) -> tuple[Move, ...]:
        controller, told = self._controllers.values[number], self._events.values[event]
        moved, *unrecorded = self._automaton.moves(controller, told)
        return (
            self._prepared("", None, moved),
            *(self._prepared("; its record fails", Fault.STORE, failed) for failed in unrecorded),
        )

    def _prepared(self, suffix: str, fault: Fault | None, moved: Moved) -> Move:
        return Move(suffix, *_price(fault), self._controllers.number(moved.target), moved.calls)

    def _told_to(self, number: int) -> tuple[Told, ...]:
        known = self._told.get(number)
        if known is None:
            known = self._told[number] = tuple(
                Told(
                    step.action,
                    *_price(step.fault),
                    self._events.number(step.event),
                    step.publishes,
                    _NOTHING if step.waits_for is None else step.waits_for,
                    step.orphans,
                )
                for step in self._automaton.steps(self._controllers.values[number])
            )
        return known

    # what ties sites to each other

    def _is_quiet(self, state: Whole, place: int) -> bool:
        return place == _NOTHING or self._parts[place].marks(state[place + 1]).quiet

    def _judged(self, sight: Sight, state: Whole) -> int:
        bits = USED_UP_IDS_STAY_SO if sight.finished_id_closes else 0
        # an export that arrives when its cut is being undone is for nothing and hurts nobody
        if sight.export_begins and self._is_committing(state[0]) and not self._is_quiesced(state):
            bits |= QUIESCED_BEFORE_EXPORT
        return bits

    def _is_committing(self, number: int) -> bool:
        return self._controllers.values[number].core.transaction is TransactionState.COMMITTING

    def _published(self, number: int) -> int:
        return self._controllers.number(self._controllers.values[number]._replace(published=True))

    def _is_whole(self, state: Whole) -> bool:
        exported = all(self._parts[place].marks(state[place + 1]).exported for place in self._exporting)
        return exported and self._is_quiesced(state)

    def _is_quiesced(self, state: Whole) -> bool:
        return all(self._parts[place].marks(state[place + 1]).quiesced for place in self._cut)

    def _controller_marks(self, number: int) -> ControllerMarks:
        known = self._marks.get(number)
        if known is None:
            controller = self._controllers.values[number]
            seen = seen_in(controller)
            reached = sum(1 << bit for bit, name in enumerate(self.sometimes) if name in seen)
            rests = controller.core.rested or is_over(controller)
            goal = rests and controller.core.transaction is not TransactionState.RESTORE_FAILED
            known = self._marks[number] = ControllerMarks(broken_by_controller(controller), reached, rests, goal)
        return known

    def _first(self, automaton: SiteAutomaton) -> Site:
        past = Past() if automaton.restarts else None
        if self.setup.fresh_processes and automaton.spec.role is Role.RESOURCES:
            return Site(FenceState(closed=True), owes=True, past=past)
        return Site(past=past)


def _price(fault: Fault | None) -> tuple[int, int]:
    """The bits of the fault's budget, and what one stroke takes from it."""
    return (0, 0) if fault is None else (TIMES_MAX << _DIGIT_BITS * fault, 1 << _DIGIT_BITS * fault)
