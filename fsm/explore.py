"""Breadth-first search through every state of a model: what always holds, what is reached, what can be got out of.

A model is initial states, the steps possible in a state, and named properties over states. The search visits each
state once, in the order of its distance, so that the first violation of a property has a shortest trace. Kinds of
properties, and what the search says of each:

- *always*: holds in every state. A violation is reported with the actions that lead to it.
- *sometimes*: some state has it. An empty search cannot pass.
- *no deadlock*: every state has a step, or is one in which the model may rest.
- *recoverable*: from every state a goal is reachable. A state from which none is, is reported like a violation.

A search that hits its bound on states says so; what it has found stands, and what it would have had to see every
state for is undecided.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["NEVER_STUCK", "STATES_MAX", "Exploration", "Kind", "Model", "Progress", "Verdict", "explore"]

STATES_MAX: Final = 5_000_000
"""Default bound on the states of one search."""
PROGRESS_EVERY: Final = 50_000
NEVER_STUCK: Final = "every state that may not rest has a step"

S = TypeVar("S", bound=Hashable)


class Kind(StrEnum):
    """What a property claims."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    NO_DEADLOCK = "no deadlock"
    RECOVERABLE = "recoverable"


Expansion = tuple[list[S], int, int, bool, bool]
"""Where a state's steps lead, ``broken``, ``reached``, ``rests`` and ``at_goal`` of it: all that a search asks."""


class Model(Protocol[S]):
    """What is searched. States are compared and hashed as values; everything here is pure.

    Two methods may be there beside these. ``expanded(state) -> Expansion`` answers everything at once, for speed.
    ``canonical(state)`` names the one of several states that stands for all of them, where steps lead only there in
    ``expanded``; it must be one that has the same future but for names (symmetry), and the beginning stands for itself.
    """

    @property
    def name(self) -> str:
        """What the model is of."""
        ...

    @property
    def always(self) -> tuple[str, ...]:
        """Names of the properties that every state must have."""
        ...

    @property
    def sometimes(self) -> tuple[str, ...]:
        """Names of what some state must have, so that the search has seen something."""
        ...

    @property
    def recoverable(self) -> str:
        """Name of the property that a goal can be reached from everywhere; empty where there is none."""
        ...

    def initial(self) -> Iterable[S]:
        """Where it begins."""
        ...

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """Every action possible in ``state``, and where it leads."""
        ...

    def broken(self, state: S) -> int:
        """Bits of the properties of ``always`` that ``state`` lacks."""
        ...

    def reached(self, state: S) -> int:
        """Bits of the properties of ``sometimes`` that ``state`` has."""
        ...

    def rests(self, state: S) -> bool:
        """Whether the model may stay here for ever."""
        ...

    def at_goal(self, state: S) -> bool:
        """Whether this is a state that must be reachable from everywhere."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the search says of one property.

    ``holds`` is None when the search was bounded before it could tell. ``trace`` are the actions to a violation, or to
    the first state that has a *sometimes* property.
    """

    name: str
    kind: Kind
    holds: bool | None
    trace: tuple[str, ...] | None = None

    def __str__(self) -> str:
        word = {True: "holds", False: "violated", None: "undecided"}[self.holds]
        return f"{self.kind.value} {self.name}: {word}"


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a search has seen. ``depth`` is the longest shortest way; ``complete`` is false when a bound was hit."""

    name: str
    states: int
    transitions: int
    depth: int
    complete: bool
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        """Whether every property is known to hold."""
        return all(verdict.holds for verdict in self.verdicts)

    def violations(self) -> tuple[Verdict, ...]:
        """Properties that are known not to hold."""
        return tuple(verdict for verdict in self.verdicts if verdict.holds is False)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search has come: states found, states waiting to be looked at, distance from the beginning.

    ``violated`` names the properties that are known by now not to hold, whatever comes of the rest.
    """

    states: int
    waiting: int
    depth: int
    violated: tuple[str, ...] = ()


def explore(
    model: Model[S],
    *,
    states_max: int = STATES_MAX,
    stop_at_violation: bool = False,
    watch: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Search ``model`` until every state is seen, a bound is hit, or (if asked for) a property is violated.

    ``watch`` is called now and then with the progress. Memory grows with the states: about as much as the states
    themselves, and 8 bytes a transition for the *recoverable* property.
    """
    search = _Search(model, states_max)
    search.run(stop_at_violation=stop_at_violation, watch=watch)
    return search.result()


class _Search(Generic[S]):
    """The memory of one search: states in the order found, whence each came, and which edges there are."""

    def __init__(self, model: Model[S], states_max: int) -> None:
        self.model = model
        self.states_max = states_max
        self.expanded: Callable[[S], Expansion[S]] = getattr(model, "expanded", None) or partial(_expanded, model)
        self.states: list[S] = []
        self.number: dict[S, int] = {}
        self.parents = array("i")
        # edges of state i are targets[begins[i]:begins[i + 1]]: states are looked at in the order of their numbers
        self.begins = array("I", [0])
        self.targets = array("I")
        self.goals: list[int] = []
        self.transitions = 0
        self.depth = 0
        self.complete = True
        self.broken_at: dict[int, int] = {}
        self.reached_at: dict[int, int] = {}
        self.stuck_at: int | None = None
        self._broken = 0
        self._reached = 0

    def run(self, *, stop_at_violation: bool, watch: Callable[[Progress], None] | None) -> None:
        for state in self.model.initial():
            self._found(state, -1)
        level_end = len(self.states)
        index = 0
        while index < len(self.states):
            if index == level_end:
                self.depth += 1
                level_end = len(self.states)
            until = min(level_end, index + PROGRESS_EVERY - index % PROGRESS_EVERY)
            index = self._look_at(index, until, stop_at_violation=stop_at_violation)
            if not self.complete:
                break
            if watch is not None and index % PROGRESS_EVERY == 0:
                watch(Progress(len(self.states), len(self.states) - index, self.depth, self._violated()))
        if not (stop_at_violation and self._is_violated()):
            for waiting in range(index, len(self.states)):
                state = self.states[waiting]
                self._judge(waiting, self.model.broken(state), self.model.reached(state))

    def _look_at(self, begin: int, end: int, *, stop_at_violation: bool) -> int:
        """Look at these states, one after the other; the number of the next one. One loop, since all time goes here."""
        states, number, parents, known = self.states, self.number, self.parents, self.number.get
        keeps_edges = bool(self.model.recoverable)
        for index in range(begin, end):
            targets, broken, reached, rests, at_goal = self.expanded(states[index])
            if broken & ~self._broken or reached & ~self._reached:
                self._judge(index, broken, reached)
            if at_goal:
                self.goals.append(index)
            edges = []
            for target in targets:
                to = known(target)
                if to is None:
                    to = len(states)
                    if to >= self.states_max:
                        self.complete = False
                        return index
                    number[target] = to
                    states.append(target)
                    parents.append(index)
                edges.append(to)
            self.transitions += len(edges)
            if keeps_edges:
                self.targets.extend(edges)
                self.begins.append(len(self.targets))
            if not edges and self.stuck_at is None and not rests:
                self.stuck_at = index
            if stop_at_violation and self._is_violated():
                self.complete = False
                return index + 1
        return end

    def _violated(self) -> tuple[str, ...]:
        known = [name for bit, name in enumerate(self.model.always) if bit in self.broken_at]
        return (*known, *((NEVER_STUCK,) if self.stuck_at is not None else ()))

    def _is_violated(self) -> bool:
        return bool(self._broken) or self.stuck_at is not None

    def _found(self, state: S, parent: int) -> None:
        if self.number.setdefault(state, len(self.states)) == len(self.states):
            self.states.append(state)
            self.parents.append(parent)

    def _judge(self, index: int, broken: int, reached: int) -> None:
        if broken & ~self._broken:
            self._broken = _first_seen(broken, self._broken, self.broken_at, index)
        if reached & ~self._reached:
            self._reached = _first_seen(reached, self._reached, self.reached_at, index)

    # what it has come to

    def result(self) -> Exploration:
        model = self.model
        verdicts = [self._always(name, Kind.ALWAYS, self.broken_at.get(bit)) for bit, name in enumerate(model.always)]
        verdicts.append(self._always(NEVER_STUCK, Kind.NO_DEADLOCK, self.stuck_at))
        if model.recoverable:
            verdicts.append(self._recoverable(model.recoverable))
        verdicts += [self._sometimes(name, self.reached_at.get(bit)) for bit, name in enumerate(model.sometimes)]
        return Exploration(model.name, len(self.states), self.transitions, self.depth, self.complete, tuple(verdicts))

    def _always(self, name: str, kind: Kind, index: int | None) -> Verdict:
        if index is not None:
            return Verdict(name, kind, holds=False, trace=self._trace(index))
        return Verdict(name, kind, holds=True if self.complete else None)

    def _sometimes(self, name: str, index: int | None) -> Verdict:
        if index is not None:
            return Verdict(name, Kind.SOMETIMES, holds=True, trace=self._trace(index))
        return Verdict(name, Kind.SOMETIMES, holds=False if self.complete else None)

    def _recoverable(self, name: str) -> Verdict:
        if not self.complete:
            return Verdict(name, Kind.RECOVERABLE, holds=None)
        lost = self._first_lost()
        if lost is None:
            return Verdict(name, Kind.RECOVERABLE, holds=True)
        return Verdict(name, Kind.RECOVERABLE, holds=False, trace=self._trace(lost))

    def _first_lost(self) -> int | None:
        """The first state from which no goal is reachable.

        States are found on the way from the beginning, and most ways out lead on: one sweep from the last state to the
        first decides nearly all, and each further one those whose way out leads back once more.
        """
        begins, targets = self.begins, self.targets
        good = bytearray(len(self.states))
        for index in self.goals:
            good[index] = 1
        waiting = [index for index in reversed(range(len(self.states))) if not good[index]]
        while waiting:
            still = []
            for index in waiting:
                for target in targets[begins[index] : begins[index + 1]]:
                    if good[target]:
                        good[index] = 1
                        break
                else:
                    still.append(index)
            if len(still) == len(waiting):
                return still[-1]
            waiting = still
        return None

    def _trace(self, index: int) -> tuple[str, ...]:
        """Actions that can be taken one after the other, also where a state stands for others that are equal to it."""
        way = [index]
        while self.parents[way[-1]] >= 0:
            way.append(self.parents[way[-1]])
        way.reverse()
        standing: Callable[[S], S] = getattr(self.model, "canonical", None) or (lambda state: state)
        first = self.states[way[0]]
        state = next(begun for begun in self.model.initial() if standing(begun) == first)
        actions: list[str] = []
        for after in way[1:]:
            following = self.states[after]
            steps = self.model.steps(state)
            action, state = next((action, target) for action, target in steps if standing(target) == following)
            actions.append(action)
        return tuple(actions)


def _expanded(model: Model[S], state: S) -> Expansion[S]:
    """What a search asks of a state, of a model that answers one question at a time."""
    targets = [target for _, target in model.steps(state)]
    return targets, model.broken(state), model.reached(state), model.rests(state), model.at_goal(state)


def _first_seen(bits: int, known: int, places: dict[int, int], index: int) -> int:
    """Note for each new bit where it was first seen; all bits known by now."""
    new = bits & ~known
    if new:
        for bit in range(new.bit_length()):
            if new >> bit & 1:
                places[bit] = index
    return known | bits
