"""The composed system that the explorer searches: one controller, its participants, and the faults that may strike.

Controller and sites are automata whose states and steps are enumerated from the real core and the real fences once, and
numbered; a state of the whole is one integer in which these numbers stand: controller, sites, what is left of the fault
budgets, and the violations seen on the way. A step of the whole is a step of one part, and what the controller does
about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from quiesce.fsm.explore import Expansion
from quiesce.fsm.explore_composition import Composition
from quiesce.fsm.explore_controller import Controller
from quiesce.fsm.explore_expansion import Expansions
from quiesce.fsm.explore_packing import TIMES_MAX, Packing
from quiesce.fsm.explore_properties import ALWAYS, broken_by_controller, is_over, seen_in
from quiesce.fsm.explore_setup import Setup
from quiesce.fsm.explore_site import Site
from quiesce.fsm.explore_symmetry import Symmetry
from quiesce.fsm.explore_tables import ControllerMarks, SystemTables
from quiesce.fsm.tables.transaction import TransactionState

__all__ = ["TIMES_MAX", "Setup", "System"]


class System:
    """A model for :func:`quiesce.fsm.explore.explore`. What stands where in a state, its ``Packing`` says.

    With ``reduced`` one state is searched of all those that differ by who is who among participants that are alike.
    """

    recoverable: Final = "everybody can accept work again, or is named"

    def __init__(self, setup: Setup, *, reduced: bool = False) -> None:
        self.setup = setup
        self.name = setup.name
        self._claimed = tuple(place for place, claim in enumerate(ALWAYS) if claim.name not in setup.waives)
        self.always = tuple(ALWAYS[place].name for place in self._claimed)
        self.sometimes = setup.expects
        self._composition = Composition(setup)
        self._packing = Packing(len(setup.sites), setup.budgets)
        self._marks: dict[int, ControllerMarks] = {}
        self._expansions = Expansions(self._composition, self._packing, self._controller_marks, self._claims)
        groups = self._composition.groups if reduced else ()
        self._symmetry = Symmetry(self._packing, self._composition.controllers, groups) if groups else None

    # what the search asks

    def initial(self) -> Iterator[int]:
        """Nobody was called; the budgets are whole."""
        yield self._packing.pack(self._composition.first())

    def steps(self, state: int) -> list[tuple[str, int]]:
        """Every step of a site or of the controller that the budgets allow, and where it really leads."""
        taken = self._composition.steps(self._packing.unpack(state))
        return [(action, self._packing.pack(fields)) for action, fields in taken]

    def canonical(self, state: int) -> int:
        """The state that stands for this one."""
        return state if self._symmetry is None else self._symmetry.canonical(state)

    def expanded(self, state: int) -> Expansion[int]:
        """What the search asks of a state, at once: where it leads, what it breaks and has."""
        expansion = self._expansions.expanded(state)
        if self._symmetry is None:
            return expansion
        return [self._symmetry.canonical(target) for target in expansion[0]], *expansion[1:]

    def broken(self, state: int) -> int:
        """Bits of the properties of ``always`` that ``state`` lacks."""
        return self._expansions.expanded(state)[1]

    def reached(self, state: int) -> int:
        """Bits of the properties of ``sometimes`` that ``state`` has."""
        return self._controller_marks(self._packing.controller(state)).reached

    def rests(self, state: int) -> bool:
        """Whether the transaction rests or is over."""
        return self._controller_marks(self._packing.controller(state)).rests

    def at_goal(self, state: int) -> bool:
        """Whether it rests with everybody open or named; half a restore that is held is no such rest."""
        return self._controller_marks(self._packing.controller(state)).at_goal

    def parts(self, state: int) -> tuple[Controller, tuple[Site, ...]]:
        """What the numbers of ``state`` stand for: the controller, and each participant in the plan's order."""
        controller, *sites, _, _ = self._packing.unpack(state)
        parts = zip(self._composition.parts, sites, strict=True)
        return self._composition.controllers.values[controller], tuple(part.sites.values[n] for part, n in parts)

    def tables(self) -> SystemTables:
        """What the searches so far have enumerated of each part. Nothing is missing from it after a complete one."""
        found = self._composition
        looked_at = sorted(found.told)
        return SystemTables(
            always={name: 1 << place for name, place in zip(self.always, self._claimed, strict=True)},
            sometimes={name: 1 << bit for bit, name in enumerate(self.sometimes)},
            first=tuple(found.first()),
            told={number: found.told[number] for number in looked_at},
            moves=found.moves,
            published={
                number: found.published(number) for number in looked_at if any(t.publishes for t in found.told[number])
            },
            running={
                turn.phase: frozenset(number for number in looked_at if found.runs(number, turn.phase))
                for turn in found.turns
            },
            marks={number: self._controller_marks(number) for number in looked_at},
            cut=found.cut,
            exporting=found.exporting,
            turns=found.turns,
            parts=tuple(part.tables() for part in found.parts),
        )

    # what is known of a state

    def _claims(self, bits: int) -> int:
        return sum(1 << bit for bit, place in enumerate(self._claimed) if bits >> place & 1) if bits else 0

    def _controller_marks(self, number: int) -> ControllerMarks:
        known = self._marks.get(number)
        if known is None:
            controller = self._composition.controllers.values[number]
            seen = seen_in(controller)
            reached = sum(1 << bit for bit, name in enumerate(self.sometimes) if name in seen)
            rests = controller.core.rested or is_over(controller)
            goal = rests and controller.core.transaction is not TransactionState.RESTORE_FAILED
            known = self._marks[number] = ControllerMarks(broken_by_controller(controller), reached, rests, goal)
        return known
