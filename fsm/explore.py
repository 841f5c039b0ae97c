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
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["STATES_MAX", "Exploration", "Kind", "Model", "Progress", "Verdict", "explore"]

STATES_MAX: Final = 5_000_000
"""Default bound on the states of one search."""
PROGRESS_EVERY: Final = 50_000

S = TypeVar("S", bound=Hashable)


class Kind(StrEnum):
    """What a property claims."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    NO_DEADLOCK = "no deadlock"
    RECOVERABLE = "recoverable"


class Model(Protocol[S]):
    """What is searched. States are compared and hashed as values; everything here is pure."""

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
    """How far a search has come: states found, states waiting to be looked at, distance from the beginning."""

    states: int
    waiting: int
    depth: int


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
        self.states: list[S] = []
        self.number: dict[S, int] = {}
        self.parents = array("q")
        # edges of state i are targets[begins[i]:begins[i + 1]]: states are looked at in the order of their numbers
        self.begins = array("I", [0])
        self.targets = array("I")
        self.transitions = 0
        self.depth = 0
        self.complete = True
        self.broken_at: dict[int, int] = {}
        self.reached_at: dict[int, int] = {}
        self.stuck_at: int | None = None
        self.keeps_edges = bool(model.recoverable)
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
            if not self._expand(index) or (stop_at_violation and (self._broken or self.stuck_at is not None)):
                self.complete = False
                return
            index += 1
            if watch is not None and index % PROGRESS_EVERY == 0:
                watch(Progress(len(self.states), len(self.states) - index, self.depth))

    def _expand(self, index: int) -> bool:
        """Look at one state; False when the bound on states is hit."""
        state = self.states[index]
        targets: list[int] = []
        for _, target in self.model.steps(state):
            to = self.number.get(target)
            if to is None:
                if len(self.states) >= self.states_max:
                    return False
                to = self._found(target, index)
            targets.append(to)
        self.transitions += len(targets)
        if self.keeps_edges:
            self.targets.extend(targets)
            self.begins.append(len(self.targets))
        if not targets and self.stuck_at is None and not self.model.rests(state):
            self.stuck_at = index
        return True

    def _found(self, state: S, parent: int) -> int:
        index = self.number.setdefault(state, len(self.states))
        if index < len(self.states):
            return index
        self.states.append(state)
        self.parents.append(parent)
        broken, reached = self.model.broken(state), self.model.reached(state)
        if broken & ~self._broken:
            self._broken = _first_seen(broken, self._broken, self.broken_at, index)
        if reached & ~self._reached:
            self._reached = _first_seen(reached, self._reached, self.reached_at, index)
        return index

    # what it has come to

    def result(self) -> Exploration:
        model = self.model
        verdicts = [self._always(name, Kind.ALWAYS, self.broken_at.get(bit)) for bit, name in enumerate(model.always)]
        verdicts.append(self._always("every state that may not rest has a step", Kind.NO_DEADLOCK, self.stuck_at))
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
        """The first state from which no goal is reachable: goals are followed backwards along the edges."""
        count = len(self.states)
        begins, sources = _reversed(self.begins, self.targets)
        good = bytearray(count)
        stack = [index for index, state in enumerate(self.states) if self.model.at_goal(state)]
        for index in stack:
            good[index] = 1
        while stack:
            index = stack.pop()
            for place in range(begins[index], begins[index + 1]):
                source = sources[place]
                if not good[source]:
                    good[source] = 1
                    stack.append(source)
        lost = good.find(0)
        return None if lost < 0 else lost

    def _trace(self, index: int) -> tuple[str, ...]:
        way = [index]
        while self.parents[way[-1]] >= 0:
            way.append(self.parents[way[-1]])
        way.reverse()
        return tuple(self._action(before, after) for before, after in pairwise(way))

    def _action(self, before: int, after: int) -> str:
        target = self.states[after]
        return next(action for action, found in self.model.steps(self.states[before]) if found == target)


def _first_seen(bits: int, known: int, places: dict[int, int], index: int) -> int:
    """Note for each new bit where it was first seen; all bits known by now."""
    new = bits & ~known
    if new:
        for bit in range(new.bit_length()):
            if new >> bit & 1:
                places[bit] = index
    return known | bits


def _reversed(begins: Sequence[int], targets: Sequence[int]) -> tuple[array[int], array[int]]:
    """The same edges by where they lead: those into state i are ``sources[into[i]:into[i + 1]]``."""
    count = len(begins) - 1
    into = array("I", bytes(4 * (count + 1)))
    for to in targets:
        into[to + 1] += 1
    for index in range(count):
        into[index + 1] += into[index]
    free = array("I", into)
    sources = array("I", bytes(4 * len(targets)))
    for source in range(count):
        for place in range(begins[source], begins[source + 1]):
            to = targets[place]
            sources[free[to]] = source
            free[to] += 1
    return into, sources
