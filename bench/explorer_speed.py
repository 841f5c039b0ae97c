"""The explorer on the real core: CPU and memory a state, and how far the reduction goes.

The baseline is a search of the very same model packed by hand: plain integers from finished tables, local moves worked
out once and added, a visited set, and nothing else. It enumerates no core and no fence, judges no property, keeps no
trace and no edge. The explorer's time has all of that in it, from automata that nobody has enumerated yet.
"""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace

from measured import Measured

from quiesce.fsm.explore import Exploration, explore
from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_packing import Packing
from quiesce.fsm.explore_setup import Setup
from quiesce.fsm.explore_site import Fault, Flight
from quiesce.fsm.explore_suites import suite
from quiesce.fsm.explore_tables import Local, Move, SystemTables, Told

STRUCK = {Fault.ABORT: 1, Fault.RETRY: 1, Fault.ABANDONED: 1, Fault.LOSS: 1, Fault.STORE: 1}
PAIR = "strict: policy (strict) + agent (strict), cut, no fault"
REDUCED = (
    (3, "strict: policy (strict) + agent (strict) + agent (strict), cut, no fault"),
    (3, "strict: policy (strict) + agent (strict) + agent (strict), cut, store"),
    (4, "strict: policy (strict) + agent (strict) + agent (strict) + agent (strict), restore, no fault"),
    (4, "strict: policy (strict) + agent (strict) + agent (strict) + agent (strict), cut, no fault"),
)
ROUNDS = 3


def measure() -> list[Measured]:
    """Half the speed of the hand-packed search is to be reached; the other rows inform."""
    explored_s, packed_s, found = _speeds()
    what = f"({found.states:,} states, {found.transitions:,} transitions: a cut of two, three classes of faults)"
    return [
        Measured(
            f"explorer, CPU a state {what}, over the same search packed by hand",
            explored_s / found.states * 1e6,
            packed_s / found.states * 1e6,
            "µs",
            2,
        ),
        Measured(f"explorer, memory a state {what}, over one integer", _peak_bytes() / found.states, 36, "B", None),
        *(_reduction(participants, name) for participants, name in REDUCED),
    ]


def _setup(participants: int, name: str) -> Setup:
    """The set-up of a name, with automata that nobody has enumerated yet."""
    return next(setup for setup in suite("strict", participants=participants) if setup.name == name)


def _struck() -> Setup:
    return replace(_setup(2, PAIR), budgets=STRUCK)


def _speeds() -> tuple[float, float, Exploration]:
    """The best CPU time of each search, taken in turns; both must see the same."""
    explored_s: list[float] = []
    packed_s: list[float] = []
    found = explore(System(_struck()))
    for _ in range(ROUNDS):
        system = System(_struck())
        began_s = time.process_time()
        explore(system)
        explored_s.append(time.process_time() - began_s)
        by_hand = HandPacked(system.tables(), STRUCK)
        began_s = time.process_time()
        counted = by_hand.search()
        packed_s.append(time.process_time() - began_s)
        assert counted == (found.states, found.transitions)
    return min(explored_s), min(packed_s), found


def _peak_bytes() -> int:
    """The most memory that the search has at once, its automata included."""
    system = System(_struck())
    tracemalloc.start()
    explore(system)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def _reduction(participants: int, name: str) -> Measured:
    full, reduced = (explore(System(_setup(participants, name), reduced=on)) for on in (False, True))
    assert [verdict.holds for verdict in full.verdicts] == [verdict.holds for verdict in reduced.verdicts]
    return Measured(f"states with the reduction ({name})", reduced.states, full.states, "states", None)


class HandPacked:
    """A search that knows nothing but tables of numbers."""

    def __init__(self, tables: SystemTables, budgets: dict[Fault, int]) -> None:
        self._tables = tables
        self._packing = Packing(len(tables.parts), budgets)
        self._memories: list[dict[int, tuple[list[int], list[tuple[int, tuple[tuple[int, Flight], ...]]]]]] = [
            {} for _ in range(len(tables.parts) + 1)
        ]

    def search(self) -> tuple[int, int]:
        """States and transitions."""
        packing, parts = self._packing, self._tables.parts
        masks = [packing.controller_mask, *(packing.site_mask(place) for place in range(len(parts)))]
        watched = list(zip(range(-1, len(parts)), masks, self._memories, strict=True))
        first = packing.pack(self._tables.first)
        seen, frontier, transitions = {first}, [first], 0
        while frontier:
            following = []
            for state in frontier:
                for place, mask, memory in watched:
                    key = state & mask
                    known = memory.get(key)
                    if known is None:
                        known = memory[key] = self._local(place, key)
                    sums, sends = known
                    targets = [state + more for more in sums]
                    for more, calls in sends:
                        target = state + more
                        for to, flight in calls:
                            number = packing.site(target, to)
                            target += packing.moved(to, number, parts[to].added[number, flight])
                        targets.append(target)
                    transitions += len(targets)
                    for target in targets:
                        if target not in seen:
                            seen.add(target)
                            following.append(target)
            frontier = following
        return len(seen), transitions

    def _local(self, place: int, key: int) -> tuple[list[int], list[tuple[int, tuple[tuple[int, Flight], ...]]]]:
        controller = self._packing.controller(key)
        sums: list[int] = []
        sends: list[tuple[int, tuple[tuple[int, Flight], ...]]] = []
        number = self._packing.site(key, place) if place >= 0 else 0
        if place >= 0:
            for step in self._tables.parts[place].steps[number]:
                self._add(key, controller, step, self._packing.moved(place, number, step.target), sums, sends)
        for told in self._tables.told[controller]:
            if told.waits_for == place and (place < 0 or self._tables.parts[place].marks[number].quiet):
                self._add(key, controller, told, 0, sums, sends)
        return sums, sends

    def _add(
        self,
        key: int,
        controller: int,
        step: Local | Told,
        more: int,
        sums: list[int],
        sends: list[tuple[int, tuple[tuple[int, Flight], ...]]],
    ) -> None:
        budget = self._packing.budget
        if step.need and not key & budget(step.need):
            return
        more -= budget(step.cost)
        if step.event < 0:
            sums.append(more)
            return
        before = controller
        if isinstance(step, Told) and step.publishes:
            controller = self._tables.published[controller]
        moves: tuple[Move, ...] = self._tables.moves[controller, step.event]
        for move in moves:
            if move.need and not key - budget(step.cost) & budget(move.need):
                continue
            total = more - budget(move.cost) + self._packing.controller_moved(before, move.target)
            if move.calls:
                sends.append((total, move.calls))
            else:
                sums.append(total)
