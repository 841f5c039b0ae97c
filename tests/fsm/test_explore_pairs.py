"""Two classes of faults in one search, and more participants: a sample here, all of them in ``make test-all``.

What the whole sweep came to, and which searches it had to bound, stands in ``docs/proof.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import combinations

import pytest

from quiesce.fsm.explore import Kind, explore
from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_setup import Setup
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.explore_suites import PARTICIPANTS_MAX, SUITES, suite

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
BOUNDS = {2: 400_000, 3: 50_000}
"""States of one search, by participants. No search of two hits its bound."""
SAMPLED = (
    "restore, deadline + controller",
    "restore, loss + restart",
    "restore, store + intruder",
    "cut, loss + store",
)
SHARDS = 6
"""So that no test takes long and several cores, or machines, can share the searches."""
in_shards = pytest.mark.parametrize("shard", range(SHARDS))
SWEPT = [(name, participants) for name in SUITES for participants in BOUNDS]


def pairs(name: str, participants: int) -> list[Setup]:
    """The searches of two classes of faults; of three participants, those with every role."""
    return [
        setup
        for setup in suite(name, participants=participants, pairs=True)
        if participants == 2 or len({site.spec.role for site in setup.sites}) == participants
    ]


def nothing_breaks(setup: Setup, states_max: int) -> bool:
    """Whether the search came to its end; nothing that it claims may be violated in what it saw."""
    found = explore(System(setup, reduced=True), states_max=states_max)
    assert [f"{verdict} {verdict.trace}" for verdict in found.violations()] == [], setup.name
    if not found.complete:
        bounded = [verdict.holds for verdict in found.verdicts if verdict.kind is not Kind.SOMETIMES]
        assert set(bounded) == {None}, "a bound that is hit proves nothing"
    return found.complete


@pytest.mark.parametrize(
    "setup",
    [setup for setup in suite("strict", pairs=True) if setup.name.endswith(SAMPLED)],
    ids=lambda setup: setup.name,
)
def test_a_sample_of_pairs_holds(setup: Setup) -> None:
    """Two classes of faults at once break nothing, and the search sees every state."""
    assert nothing_breaks(setup, BOUNDS[2])


@pytest.mark.parametrize("name", SUITES)
def test_three_participants_restore(name: str) -> None:
    """Restores of three without a fault are searched to their end."""
    for setup in suite(name, participants=3):
        if setup.name.endswith("restore, no fault"):
            assert nothing_breaks(setup, 200_000)


@pytest.mark.skipif(not THOROUGH, reason="minutes: in make test-all")
@pytest.mark.timeout(900)
@in_shards
@pytest.mark.parametrize(("name", "participants"), SWEPT)
def test_every_pair_holds(
    name: str, participants: int, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """Every two classes of faults, over every fleet: complete for two participants, as far as the bound for three."""
    complete = [nothing_breaks(setup, BOUNDS[participants]) for setup in pairs(name, participants)[shard::SHARDS]]
    assert participants > 2 or all(complete)
    what = f"searches of two classes of faults over {participants}"
    record_property("swept", f"{what}, to their end: {sum(complete)}")
    record_property("swept", f"{what}, as far as their bound: {len(complete) - sum(complete)}")


@pytest.mark.skipif(not THOROUGH, reason="minutes: in make test-all")
@pytest.mark.timeout(900)
@in_shards
@pytest.mark.parametrize("name", SUITES)
def test_every_class_of_faults_holds_over_three(
    name: str, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """One class of faults at a time over three participants, to the end."""
    setups = suite(name, participants=3)[shard::SHARDS]
    assert all(nothing_breaks(setup, 1_500_000) for setup in setups)
    record_property("swept", f"searches of one class of faults over 3, to their end: {len(setups)}")


def test_the_pairs_are_all_pairs() -> None:
    """Every two of the classes of faults have their search, and every suite has every number of participants."""
    classes = set(Fault) - {Fault.ABORT, Fault.RETRY}
    for name in SUITES:
        assert sorted(SUITES[name]) == list(range(2, PARTICIPANTS_MAX + 1))
        struck = {frozenset(setup.budgets) & classes for setup in suite(name, pairs=True)}
        assert struck == {frozenset(pair) for pair in combinations(classes, 2)}


def test_participants_of_one_role_are_told_apart() -> None:
    """Equals are numbered in their names, so that a trace says who did what."""
    names = [[site.spec.key.name for site in setup.sites] for setup in suite("strict", participants=3)]
    assert ["policy", "agent1", "agent2"] in names
    assert ["policy", "agent", "resources"] in names
