"""The parts of a composed system in numbers: states, steps and calls of each are enumerated once and kept.

Everything here comes from the real core and the real fences through their automata; nothing is written down twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from quiesce.fsm import messages as m
from quiesce.fsm.explore_controller import Controller
from quiesce.fsm.explore_packing import price
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_properties import broken_by_site
from quiesce.fsm.explore_site import Flight, Past, Site, orphaned, runs_on, tried_again
from quiesce.fsm.explore_tables import Local, PartTables, SiteMarks
from quiesce.fsm.tables.fence import FenceEvent

__all__ = ["NOTHING", "Numbered", "SitePart"]

NOTHING: Final = -1

V = TypeVar("V", bound=Hashable)


class Numbered(Generic[V]):
    """Values by number, in the order in which they were met."""

    def __init__(self) -> None:
        self.values: list[V] = []
        self._numbers: dict[V, int] = {}

    def number(self, value: V) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class SitePart:
    """One participant's automaton, its states numbered, its steps and calls kept.

    ``sites`` may be shared by participants that are alike: then equal numbers mean equal states.
    """

    def __init__(
        self, automaton: SiteAutomaton, place: int, events: Numbered[m.Event], sites: Numbered[Site] | None = None
    ) -> None:
        self.automaton = automaton
        self.place = place
        self.sites: Numbered[Site] = Numbered() if sites is None else sites
        self._events = events
        self._steps: dict[int, tuple[Local, ...]] = {}
        self._added: dict[tuple[int, Flight], int] = {}
        self._marks: dict[int, SiteMarks] = {}
        self._broken: dict[tuple[int, int], int] = {}
        self._orphaned: dict[int, int] = {}
        self._tried_again: dict[int, int] = {}

    def steps(self, number: int) -> tuple[Local, ...]:
        """Everything that can happen in a state."""
        known = self._steps.get(number)
        if known is None:
            name = self.automaton.spec.key.name
            known = self._steps[number] = tuple(
                Local(
                    f"{name}: {step.action}",
                    *price(step.fault),
                    self.sites.number(step.target),
                    NOTHING if step.event is None else self._events.number(step.event),
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

    def tried_again(self, number: int) -> int:
        """The site where a restore that it is no part of yet is tried again."""
        known = self._tried_again.get(number)
        if known is None:
            known = self._tried_again[number] = self.sites.number(tried_again(self.sites.values[number]))
        return known

    def marks(self, number: int) -> SiteMarks:
        """What the participant is seen as."""
        known = self._marks.get(number)
        if known is None:
            site = self.sites.values[number]
            past = site.past or Past()
            known = self._marks[number] = SiteMarks(
                # a process that died after it was read at the cut took nothing with it that is not exported, or refused
                quiesced=(past.restarted and past.shown) or (site.fence.closed and not site.work),
                closed=past.restarted or site.fence.closed,
                drained=past.restarted or (site.fence.closed and not site.work),
                exported=past.exported or site.fence.record(0, FenceEvent.COMMIT) is not None,
                imported=past.restarted or site.fence.record(0, FenceEvent.RESTORE) is not None,
                quiet=not runs_on(self.automaton.spec, site),
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
        return PartTables(name, self._steps, self._added, marks, self._broken, self._orphaned, self._tried_again)
