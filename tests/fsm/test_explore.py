"""The search itself, on models small enough to know the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.fsm.explore import NEVER_STUCK, Exploration, Kind, Progress, Verdict, explore


@dataclass
class Graph:
    """A model that is just its edges; properties are sets of states."""

    edges: Mapping[int, tuple[int, ...]]
    start: tuple[int, ...] = (0,)
    bad: frozenset[int] = frozenset()
    wanted: frozenset[int] = frozenset()
    resting: frozenset[int] = frozenset()
    goal: frozenset[int] = frozenset()
    name: str = "graph"
    always: tuple[str, ...] = ("good",)
    sometimes: tuple[str, ...] = ("wanted",)
    recoverable: str = "the goal is reachable"
    looked_at: list[int] = field(default_factory=list)

    def initial(self) -> Iterable[int]:
        """Where it begins."""
        return self.start

    def steps(self, state: int) -> Iterable[tuple[str, int]]:
        """One action for each edge."""
        self.looked_at.append(state)
        return [(f"{state}->{target}", target) for target in self.edges.get(state, ())]

    def broken(self, state: int) -> int:
        """Bit 0 in a bad state."""
        return int(state in self.bad)

    def reached(self, state: int) -> int:
        """Bit 0 in a wanted state."""
        return int(state in self.wanted)

    def rests(self, state: int) -> bool:
        """Resting states."""
        return state in self.resting

    def at_goal(self, state: int) -> bool:
        """Goal states."""
        return state in self.goal


def verdict(found: Exploration, kind: Kind) -> Verdict:
    """The one verdict of a kind."""
    return next(each for each in found.verdicts if each.kind is kind)


#   0 -> 1 -> 3 -> 5 (rests, goal)
#   0 -> 2 -> 4 -> 3
DIAMOND = {0: (1, 2), 1: (3,), 2: (4,), 4: (3,), 3: (5,)}


def test_every_state_is_seen_once() -> None:
    """States, transitions and depth of a small graph are those that can be counted by hand."""
    graph = Graph(DIAMOND, wanted=frozenset({5}), resting=frozenset({5}), goal=frozenset({5}))
    found = explore(graph)
    assert (found.states, found.transitions, found.depth, found.complete) == (6, 6, 3, True)
    assert sorted(graph.looked_at[:6]) == [0, 1, 2, 3, 4, 5]
    assert found.holds
    assert found.violations() == ()


def test_a_violation_has_a_shortest_trace() -> None:
    """The trace to a bad state is a shortest one, and the search goes on to the end."""
    found = explore(Graph(DIAMOND, bad=frozenset({3, 5}), wanted=frozenset({5}), resting=frozenset({5})))
    always = verdict(found, Kind.ALWAYS)
    assert (always.holds, always.trace) == (False, ("0->1", "1->3"))
    assert found.states == 6
    assert str(always) == "always good: violated"


def test_a_search_can_stop_at_the_first_violation() -> None:
    """If asked to, the search stops at a violation and says that it is not complete; other verdicts are open."""
    found = explore(Graph(DIAMOND, bad=frozenset({1}), goal=frozenset({5})), stop_at_violation=True)
    assert not found.complete
    assert verdict(found, Kind.ALWAYS).trace == ("0->1",)
    assert verdict(found, Kind.SOMETIMES).holds is None
    assert verdict(found, Kind.RECOVERABLE).holds is None


def test_a_state_without_a_step_is_a_deadlock_unless_it_may_rest() -> None:
    """A state that may not rest and has no step is reported with the way to it."""
    found = explore(Graph(DIAMOND, wanted=frozenset({0}), goal=frozenset({5})))
    assert verdict(found, Kind.NO_DEADLOCK).trace == ("0->1", "1->3", "3->5")
    found = explore(Graph(DIAMOND, wanted=frozenset({0}), goal=frozenset({5}), resting=frozenset({5})))
    assert verdict(found, Kind.NO_DEADLOCK).holds


def test_a_loop_without_a_way_out_is_no_deadlock_but_cannot_be_recovered_from() -> None:
    """A livelock has steps for ever; it is found because no goal is reachable from it."""
    loop = DIAMOND | {2: (4, 6), 6: (7,), 7: (6,)}
    found = explore(Graph(loop, wanted=frozenset({5}), resting=frozenset({5}), goal=frozenset({5})))
    assert verdict(found, Kind.NO_DEADLOCK).holds
    lost = verdict(found, Kind.RECOVERABLE)
    assert (lost.holds, lost.trace) == (False, ("0->2", "2->6"))


def test_what_is_never_reached_is_a_violation() -> None:
    """An empty search cannot pass: a wanted state that no search has seen is reported."""
    found = explore(Graph({}, resting=frozenset({0}), wanted=frozenset({9}), goal=frozenset({0})))
    assert [each.kind for each in found.violations()] == [Kind.SOMETIMES]
    assert verdict(found, Kind.SOMETIMES).trace is None


def test_what_is_reached_has_a_witness() -> None:
    """A wanted state comes with a shortest way to it."""
    found = explore(Graph(DIAMOND, wanted=frozenset({4}), resting=frozenset({5}), goal=frozenset({5})))
    assert verdict(found, Kind.SOMETIMES).trace == ("0->2", "2->4")


def test_a_bound_that_is_hit_is_said_honestly() -> None:
    """With fewer states allowed than there are, what would need all of them is undecided, not held."""
    found = explore(Graph(DIAMOND, wanted=frozenset({5}), goal=frozenset({5})), states_max=4)
    assert not found.complete
    assert found.states == 4
    assert {each.kind: each.holds for each in found.verdicts} == dict.fromkeys(Kind)
    assert not found.holds
    assert found.violations() == ()
    assert str(verdict(found, Kind.ALWAYS)) == "always good: undecided"


def test_a_bound_that_just_suffices_is_not_hit() -> None:
    """Exactly as many states as there are is enough."""
    assert explore(Graph(DIAMOND, resting=frozenset({5})), states_max=6).complete


def test_what_was_found_before_the_bound_stands() -> None:
    """A violation that was seen is one, whatever the bound kept from being seen."""
    found = explore(Graph(DIAMOND, bad=frozenset({1})), states_max=3)
    assert [each.kind for each in found.violations()] == [Kind.ALWAYS]


def test_several_beginnings_are_explored_together() -> None:
    """Each initial state counts once and has an empty trace."""
    found = explore(Graph({0: (1,), 5: (1,)}, start=(0, 5, 0), bad=frozenset({5}), resting=frozenset({1})))
    assert found.states == 3
    assert verdict(found, Kind.ALWAYS).trace == ()


def test_a_model_without_a_goal_makes_no_claim_of_recovery() -> None:
    """Where a model names no goal, there is no such verdict and no memory is spent on edges."""
    found = explore(Graph(DIAMOND, wanted=frozenset({5}), resting=frozenset({5}), recoverable=""))
    assert all(each.kind is not Kind.RECOVERABLE for each in found.verdicts)
    assert found.holds


def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher hears how many states are found and waiting; it can tell that the search moves."""
    monkeypatch.setattr("quiesce.fsm.explore.PROGRESS_EVERY", 2)
    heard: list[Progress] = []
    explore(Graph(DIAMOND, resting=frozenset({5})), watch=heard.append)
    assert [each.states for each in heard] == [4, 6, 6]
    assert [each.waiting for each in heard] == [2, 2, 0]
    assert heard[0].depth <= heard[-1].depth


def test_progress_names_what_is_violated_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupts a long search learns what it has found by then."""
    monkeypatch.setattr("quiesce.fsm.explore.PROGRESS_EVERY", 2)
    heard: list[Progress] = []
    explore(Graph({0: (1,), 1: (2, 4), 2: (3,)}, bad=frozenset({2}), resting=frozenset({3, 4})), watch=heard.append)
    assert [each.violated for each in heard] == [(), ("good",)]
    explore(Graph({0: (1, 2, 3), 2: (1,)}, resting=frozenset({3})), watch=heard.append)
    assert [each.violated for each in heard[2:]] == [(NEVER_STUCK,)] * 2


# random graphs against plain definitions

EDGES = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=3, unique=True).map(tuple), max_size=8)
SOME = st.frozensets(st.integers(0, 7))


def _closure(edges: Mapping[int, tuple[int, ...]], start: int) -> dict[int, int]:
    """Each reachable state with its distance."""
    distance = {start: 0}
    frontier = [start]
    while frontier:
        state = frontier.pop(0)
        for target in edges.get(state, ()):
            if target not in distance:
                distance[target] = distance[state] + 1
                frontier.append(target)
    return distance


@given(edges=EDGES, bad=SOME, wanted=SOME, resting=SOME, goal=SOME)
def test_the_search_agrees_with_the_definitions(
    edges: Mapping[int, tuple[int, ...]],
    bad: frozenset[int],
    wanted: frozenset[int],
    resting: frozenset[int],
    goal: frozenset[int],
) -> None:
    """For any graph: states, depth, each verdict and each trace's length are what their definitions say."""
    found = explore(Graph(edges, bad=bad, wanted=wanted, resting=resting, goal=goal))
    distance = _closure(edges, 0)
    assert found.states == len(distance)
    assert found.depth == max(distance.values())
    assert found.transitions == sum(len(edges.get(state, ())) for state in distance)
    lost = {state for state in distance if not set(_closure(edges, state)) & goal}
    stuck = {state for state in distance if not edges.get(state) and state not in resting}
    for kind, places in ((Kind.ALWAYS, bad), (Kind.NO_DEADLOCK, stuck), (Kind.RECOVERABLE, lost)):
        _holds_unless(verdict(found, kind), places & set(distance), distance.__getitem__)
    seen = verdict(found, Kind.SOMETIMES)
    assert seen.holds is bool(wanted & set(distance))
    assert seen.trace is None or len(seen.trace) == min(distance[state] for state in wanted & set(distance))


def _holds_unless(found: Verdict, places: Iterable[int], distance: Callable[[int], int]) -> None:
    nearest = min((distance(place) for place in places), default=None)
    assert found.holds is (nearest is None)
    assert (found.trace is None) if nearest is None else (found.trace is not None and len(found.trace) == nearest)
