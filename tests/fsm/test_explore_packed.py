"""The explorer's short cuts, held against what they stand for: packed states and sums, and one state for an orbit."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from support.sweeps import REDUCED

from quiesce.fsm.explore import Kind, Verdict, explore
from quiesce.fsm.explore_follow import follow, shows
from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_packing import VIOLATION_BITS, Packing, price
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.explore_suites import SUITES, suite
from quiesce.fsm.explore_symmetry import alike

PAIRS = {setup.name: setup for name in SUITES for setup in suite(name)}
LOOKED_AT = (
    "strict: policy (strict) + agent (strict), cut, store",
    "strict: policy (strict) + resources (strict), restore, controller",
    "gym_a_single: policy (gym_a_single) + resources (gym_a_single), restore, restart",
    "gym_a_coordinator: policy (gym_a_coordinator) + resources (gym_a_single), cut, failure",
    "mixed: agent (strict) + resources (gym_a_single), cut, duplicate",
)
ALIKE = {setup.name: setup for name in SUITES for setup in suite(name, participants=3) if alike(setup.sites)}
SMALL = [name for name in ALIKE if name.endswith(("restore, no fault", "restore, failure"))]
SMALL.append("strict: policy (strict) + policy (strict) + agent (strict), cut, no fault")
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
LARGE = [name for name in ALIKE if name.endswith(("no fault", "restore, controller")) and name not in SMALL]
BOUND = 600_000
ORBITS = [*SMALL, *LARGE] if THOROUGH else SMALL
"""All of them in ``make test-all``."""


def reachable(system: System) -> list[int]:
    """Every state, found by the steps as they are declared."""
    states = dict.fromkeys(system.initial())
    for state in (waiting := list(states)):
        for _, target in system.steps(state):
            if target not in states:
                states[target] = None
                waiting.append(target)
    return list(states)


@pytest.mark.parametrize("name", LOOKED_AT)
def test_sums_lead_where_the_declared_steps_lead(name: str) -> None:
    """In every state: as many steps to the same states, and the same judgement of it, by either way."""
    system = System(PAIRS[name])
    for state in reachable(system):
        targets, broken, reached, rests, at_goal = system.expanded(state)
        assert Counter(targets) == Counter(target for _, target in system.steps(state))
        assert (broken, reached) == (system.broken(state), system.reached(state))
        assert (rests, at_goal) == (system.rests(state), system.at_goal(state))


def test_a_state_is_packed_without_loss() -> None:
    """Fields come out as they went in; faults without a budget take no room; too large a part is refused."""
    packing = Packing(2, {Fault.LOSS: 3, Fault.RESTART: 1, Fault.STORE: 0})
    budget = 2 * price(Fault.LOSS)[1] + price(Fault.RESTART)[1]
    fields = [4_000_000, 1_000_000, 7, budget, 5]
    assert packing.unpack(packing.pack(fields)) == fields
    assert packing.pack(fields).bit_length() <= 22 + 2 * 20 + 2 * 2 + VIOLATION_BITS
    for part in range(3):
        with pytest.raises(OverflowError, match="more states than a search can number"):
            packing.pack([1 << 22 if place == part else value for place, value in enumerate(fields)])
    with pytest.raises(OverflowError):
        packing.moved(1, 0, 1 << 20)
    with pytest.raises(OverflowError):
        packing.controller_moved(0, 1 << 22)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("what", REDUCED if THOROUGH else [next(iter(REDUCED))])
def test_equals_are_searched_once(what: str) -> None:
    """As many states without and with the reduction as the page on the proof says."""
    participants, name, *states = REDUCED[what]
    setup = next(setup for setup in suite("strict", participants=participants) if setup.name == name)
    assert [explore(System(setup, reduced=reduced)).states for reduced in (False, True)] == states


@pytest.mark.parametrize("name", ORBITS)
def test_one_state_stands_for_an_orbit(name: str) -> None:
    """Who is who changes nothing: equal states have equal steps, and the reduced search has one state of each orbit."""
    system = System(ALIKE[name], reduced=True)
    states = reachable(system)
    for state in states:
        stands = system.canonical(state)
        assert system.canonical(stands) == stands
        assert _orbits(system, state) == _orbits(system, stands)
        assert system.expanded(state)[1:] == system.expanded(stands)[1:]
    assert explore(System(ALIKE[name], reduced=True)).states == len({system.canonical(state) for state in states})


def _orbits(system: System, state: int) -> set[int]:
    return {system.canonical(target) for _, target in system.steps(state)}


COMPARED = SMALL + [name for name in ALIKE if name.endswith("cut, no fault") and name not in SMALL]


@pytest.mark.parametrize("name", ALIKE if THOROUGH else COMPARED)
def test_the_reduced_search_says_what_the_full_one_says(name: str) -> None:
    """The same verdicts, and the same length of every trace, from fewer states; or both are bounded."""
    full = explore(System(ALIKE[name]), states_max=BOUND)
    reduced = explore(System(ALIKE[name], reduced=True), states_max=BOUND)
    if not full.complete:
        assert full.violations() == reduced.violations() == ()
        return
    assert reduced.states < full.states
    assert reduced.depth == full.depth
    assert [told(verdict) for verdict in reduced.verdicts] == [told(verdict) for verdict in full.verdicts]


def told(verdict: Verdict) -> tuple[object, ...]:
    """A verdict without the names in its trace."""
    return verdict.kind, verdict.name, verdict.holds, None if verdict.trace is None else len(verdict.trace)


def test_a_trace_of_a_reduced_search_can_be_followed() -> None:
    """Its actions name those who really acted: they can be taken in the full system, one after the other."""
    setup = ALIKE["strict: policy (strict) + agent (strict) + agent (strict), cut, no fault"]
    resumed = next(verdict for verdict in explore(System(setup, reduced=True)).verdicts if verdict.name == "resumed")
    assert resumed.trace is not None
    assert {"agent1: export arrives", "agent2: export arrives"} <= set(resumed.trace)
    system = System(setup)
    followed = follow(system, resumed.trace)
    assert shows(system, Kind.SOMETIMES, "resumed", followed[-1].state)
