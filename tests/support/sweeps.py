"""The searches beyond ``quiesce check``'s own: what each kind of them comes to, for whoever reproduces the proof.

``PYTHONPATH=tests python -m support.sweeps [KIND]`` makes the searches and prints what they come to; kinds are the keys
of ``SWEPT``. ``make test-all`` makes the same searches, and ``docs/proof.md`` is held to these numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from quiesce.fsm.explore import Exploration, Kind, explore
from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_setup import Setup
from quiesce.fsm.explore_suites import SUITES, suite

__all__ = ["REDUCED", "SWEPT", "Sweep", "searched", "setups_of", "sweep"]


class Sweep(NamedTuple):
    """What the searches of a kind come to; ``cuts`` and ``restores`` are those that came to their end.

    ``transitions`` is None where a search hit its bound: how many it saw depends on the order in which it looked.
    """

    searches: int
    states: int
    transitions: int | None
    largest: int
    deepest: int
    cuts: int
    restores: int


class _Kind(NamedTuple):
    participants: int
    pairs: bool
    states_max: int


_KINDS: Final = {
    "two, pairs": _Kind(2, pairs=True, states_max=400_000),
    "three": _Kind(3, pairs=False, states_max=1_500_000),
    "three, pairs": _Kind(3, pairs=True, states_max=50_000),
}
SWEPT: Final = {
    "two, pairs": Sweep(612, 16_709_869, 69_846_357, 293_246, 50, 360, 252),
    "three": Sweep(170, 11_382_412, 55_110_535, 697_313, 57, 100, 70),
    "three, pairs": Sweep(216, 7_992_709, None, 50_000, 60, 23, 67),
}
"""By participants and by how many classes of faults strike. A changed number has to be explained, as those of
``support.pinned_states``."""

_AGENTS: Final = "strict: policy (strict) + agent (strict) + agent (strict), {}"
_MORE_AGENTS: Final = "strict: policy (strict) + agent (strict) + agent (strict) + agent (strict), {}"
REDUCED: Final = {
    "policy + 2 agents, cut, no fault": (3, _AGENTS.format("cut, no fault"), 25_020, 13_019),
    "policy + 2 agents, cut, failing records": (3, _AGENTS.format("cut, store"), 71_295, 37_045),
    "policy + 3 agents, restore, no fault": (4, _MORE_AGENTS.format("restore, no fault"), 22_672, 4_339),
    "policy + 3 agents, cut, no fault": (4, _MORE_AGENTS.format("cut, no fault"), 1_041_910, 186_501),
}
"""Participants, search, and its states without and with the reduction."""


def setups_of(kind: str) -> Iterator[Setup]:
    """The searches of a kind. Of three participants with two classes of faults, those with one of each role."""
    for name in SUITES:
        for setup in suite(name, participants=_KINDS[kind].participants, pairs=_KINDS[kind].pairs):
            roles = {site.spec.role for site in setup.sites}
            if kind != "three, pairs" or len(roles) == len(setup.sites):
                yield setup


def searched(setup: Setup, states_max: int) -> Exploration:
    """The search, in which nothing that it claims may be violated.

    Raises:
        AssertionError: something is, or a search that hit its bound claims more than that it saw no violation.
    """
    found = explore(System(setup, reduced=True), states_max=states_max)
    violations = [f"{verdict} {verdict.trace}" for verdict in found.violations()]
    assert violations == [], setup.name
    if not found.complete:
        bounded = [verdict.holds for verdict in found.verdicts if verdict.kind is not Kind.SOMETIMES]
        assert set(bounded) == {None}, "a bound that is hit proves nothing"
    return found


def sweep(kind: str) -> Sweep:
    """Every search of a kind.

    Raises:
        AssertionError: something that is claimed is violated.
    """
    found = [searched(setup, _KINDS[kind].states_max) for setup in setups_of(kind)]
    ended = [", cut, " in one.name for one in found if one.complete]
    return Sweep(
        len(found),
        sum(one.states for one in found),
        sum(one.transitions for one in found) if all(one.complete for one in found) else None,
        max(one.states for one in found),
        max(one.depth for one in found),
        ended.count(True),
        ended.count(False),
    )


if __name__ == "__main__":
    for asked in sys.argv[1:] or list(SWEPT):
        print(asked, sweep(asked), sep=": ")  # noqa: T201 - its one purpose
