"""The oracle: every state that a participant's fence can be in, given what was asked of it and what it answered.

A *world* is one possible state of the FENCE automaton together with the answers that calls under way will get. A call
that arrives, a fact that only the participant knows, an operation that ends at a moment that nobody sees: each splits
worlds. Each reply and each look at the capabilities removes those that it contradicts. When none is left, the
participant did what its table does not allow, and the rows of the worlds that were just removed say what was expected.

Nothing here waits, sends or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Final, TypeAlias

from quiesce.fsm.fence import FenceSignal, FenceState, Handler, fence_step
from quiesce.fsm.rows import Row
from quiesce.fsm.tables.fence import FenceEvent, FencePhase, FenceTable

__all__ = ["Arrival", "Belief", "Circumstances", "Due", "FenceRow", "Waiting", "World", "moves"]

FenceRow: TypeAlias = Row[FencePhase, FenceEvent]

WORLDS_MAX: Final = 2000
"""More worlds than this are a defect of the oracle: a sequence has a handful of open questions."""
_FRESH: Final = FenceState()
_RESTORED: Final = frozenset({FenceEvent.RESTORE_DONE})


@dataclass(frozen=True, slots=True)
class Due:
    """The answer that a call will get: the row that says so, and how the operation behind it ended, if there is one.

    ``via`` is the row by which the call was made to wait for that, None where it was answered at once.
    """

    row: FenceRow
    end: FenceEvent | None = None
    via: FenceRow | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call whose answer hangs on an operation; ``key`` names it, ``via`` is the row that said so."""

    number: int
    key: Hashable
    via: FenceRow


@dataclass(frozen=True, slots=True)
class Arrival:
    """A control call as the fence sees it. ``number`` tells the calls of a session apart.

    ``deadline_passed`` is None where nobody knows whether the call arrived before its deadline.
    """

    number: int
    event: FenceEvent
    id: Hashable
    operation: Hashable = None
    body: Hashable = None
    deadline_passed: bool | None = False

    @property
    def deadline_facts(self) -> tuple[bool, ...]:
        """Every verdict that ``deadline_passed`` can have."""
        return (False, True) if self.deadline_passed is None else (self.deadline_passed,)

    @property
    def key(self) -> tuple[Hashable, Hashable]:
        """By which the fence knows the operation."""
        return self.id, self.event if self.operation is None else self.operation


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of the things that only the participant sees. None: it could be either.

    Attributes:
        drained: whether nothing is in flight.
        ends: how a running operation can end.
        grace_may_be_over: whether an incomplete prepare may have been given up by now.
    """

    drained: bool | None
    ends: Callable[[Handler], Iterable[FenceEvent]]
    grace_may_be_over: bool = False

    @property
    def drained_facts(self) -> tuple[bool, ...]:
        """Every verdict that ``drained`` can have."""
        return (False, True) if self.drained is None else (self.drained,)


@dataclass(frozen=True, slots=True)
class World:
    """One possible state. ``waiting``: calls whose answer hangs on an operation; ``due``: answers not yet seen.

    ``last`` is the row that was taken last; worlds that differ in it alone are the same.
    """

    fence: FenceState = _FRESH
    owes_restore: bool = False
    waiting: frozenset[Waiting] = frozenset()
    due: frozenset[tuple[int, Due]] = frozenset()
    last: FenceRow | None = field(default=None, compare=False)

    def answer_to(self, number: int) -> Due | None:
        """The answer that call ``number`` gets in this world, None while it is not decided."""
        return next((due for found, due in self.due if found == number), None)

    def without(self, number: int) -> World:
        """The world in which nobody waits for the answer to call ``number`` any more."""
        return replace(
            self,
            waiting=frozenset(one for one in self.waiting if one.number != number),
            due=frozenset(pair for pair in self.due if pair[0] != number),
        )


class Belief:
    """Every world that is still possible under one table."""

    def __init__(self, table: FenceTable, worlds: Iterable[World] = (World(),)) -> None:
        self._table = table
        self._pairs = frozenset((row.source, row.event) for row in table.rows)
        self.worlds: tuple[World, ...] = tuple(worlds)

    def __bool__(self) -> bool:
        return bool(self.worlds)

    def arrive(self, arrival: Arrival, circumstances: Circumstances) -> None:
        """A call has arrived. What could have happened by itself before it is taken to be possible."""
        self.settle(circumstances)
        self._put(after for world in self.worlds for after in self._arrived(world, arrival, circumstances))

    def arrive_in_any_order(self, arrivals: Sequence[Arrival], circumstances: Circumstances) -> None:
        """Several calls have arrived, and nobody knows which came first."""
        before = self.worlds
        found: dict[World, None] = {}
        for order in permutations(arrivals):
            self.worlds = before
            for arrival in order:
                self.arrive(arrival, circumstances)
            found |= dict.fromkeys(self.worlds)
        self._put(found)

    def settle(self, circumstances: Circumstances) -> None:
        """Add what can have happened by itself; where a drain is known to be over, require that it did its work."""
        self._put(self._closure(self.worlds, circumstances))

    def give_up_incomplete(self) -> None:
        """So long after its deadline an incomplete prepare is not held any more."""
        self._put(
            world
            for world in self.worlds
            if not (world.fence.unattended and self._has_row(world, FenceEvent.GRACE_PASSED))
        )

    def replied(self, number: int, matches: Callable[[Due], bool]) -> tuple[Due, ...]:
        """Keep the worlds in which call ``number`` gets such an answer, and give all answers that were possible."""
        found = [(world, world.answer_to(number)) for world in self.worlds]
        possible = tuple(dict.fromkeys(due for _, due in found if due is not None))
        self._put(world.without(number) for world, due in found if due is not None and matches(due))
        return possible

    def abandon(self, number: int) -> None:
        """Nobody will see the answer to call ``number``."""
        self._put(world.without(number) for world in self.worlds)

    def keep(self, holds: Callable[[World], bool]) -> tuple[World, ...]:
        """Keep the worlds that agree with something that was seen, and give those that were possible before."""
        before = self.worlds
        self._put(world for world in before if holds(world))
        return before

    def _put(self, worlds: Iterable[World]) -> None:
        self.worlds = tuple(dict.fromkeys(worlds))
        if len(self.worlds) > WORLDS_MAX:
            raise AssertionError(f"{len(self.worlds)} worlds are possible; the oracle has lost its way")

    # ---- arrivals

    def _arrived(self, world: World, arrival: Arrival, circumstances: Circumstances) -> Iterator[World]:
        if not self._has_row(world, arrival.event):
            return
        for drained, passed in product(circumstances.drained_facts, arrival.deadline_facts):
            signal = FenceSignal(
                arrival.event,
                arrival.id,
                operation=arrival.operation,
                body=arrival.body,
                deadline_passed=passed,
                drained=drained,
                owes_restore=world.owes_restore,
            )
            yield self._delivered(world, arrival, signal)

    def _delivered(self, world: World, arrival: Arrival, signal: FenceSignal, via: FenceRow | None = None) -> World:
        step = fence_step(self._table, world.fence, signal)
        after = replace(world, fence=step.state, last=_told(world.last, step.row))
        match step.answer:
            case "start_operation" | "join_running":
                return replace(after, waiting=after.waiting | {Waiting(arrival.number, arrival.key, step.row)})
            case "wait_for_running":
                waiting = Waiting(arrival.number, ("awake", arrival.id), step.row)
                return replace(after, waiting=after.waiting | {waiting})
        return replace(after, due=after.due | {(arrival.number, Due(step.row, via=via))})

    # ---- what happens by itself

    def _closure(self, worlds: Iterable[World], circumstances: Circumstances) -> Iterator[World]:
        seen: dict[World, None] = {}
        frontier = list(worlds)
        while frontier:
            world = frontier.pop()
            if world in seen:
                continue
            seen[world] = None
            frontier += self._by_itself(world, circumstances)
        return (world for world in seen if not self._must_have_drained(world, circumstances))

    def _by_itself(self, world: World, circumstances: Circumstances) -> Iterator[World]:
        for handler in world.fence.running:
            for event in circumstances.ends(handler):
                if self._has_row(world, event):
                    for drained in circumstances.drained_facts:
                        yield self._ended(world, handler, event, drained=drained)
        if circumstances.drained is not False and self._drains(world):
            yield self._internal(world, FenceEvent.DRAINED)
        if circumstances.grace_may_be_over and world.fence.unattended and self._has_row(world, FenceEvent.GRACE_PASSED):
            yield self._internal(world, FenceEvent.GRACE_PASSED)

    def _must_have_drained(self, world: World, circumstances: Circumstances) -> bool:
        return circumstances.drained is True and self._drains(world)

    def _drains(self, world: World) -> bool:
        return world.fence.closed and self._has_row(world, FenceEvent.DRAINED)

    def _has_row(self, world: World, event: FenceEvent) -> bool:
        return (world.fence.phase, event) in self._pairs

    def _internal(self, world: World, event: FenceEvent) -> World:
        step = fence_step(self._table, world.fence, FenceSignal(event, world.fence.active))
        return replace(world, fence=step.state, last=_told(world.last, step.row))

    def _ended(self, world: World, handler: Handler, event: FenceEvent, *, drained: bool) -> World:
        owes = world.owes_restore and event not in _RESTORED
        signal = FenceSignal(event, handler.id, operation=handler.operation, drained=drained, owes_restore=owes)
        step = fence_step(self._table, world.fence, signal)
        key = (handler.id, handler.operation)
        answered = {one for one in world.waiting if one.key == key}
        after = replace(
            world,
            fence=step.state,
            owes_restore=owes,
            waiting=world.waiting - answered,
            due=world.due | {(one.number, Due(step.row, event, one.via)) for one in answered},
            last=_told(world.last, step.row),
        )
        return self._woken(after)

    def _woken(self, world: World) -> World:
        """Resumes that waited are delivered before anything else can arrive."""
        for id_ in sorted(world.fence.awake, key=repr):
            asked = sorted((one for one in world.waiting if one.key == ("awake", id_)), key=lambda one: one.number)
            for one in asked:
                arrival = Arrival(one.number, FenceEvent.RESUME, id_)
                signal = FenceSignal(FenceEvent.RESUME, id_, owes_restore=world.owes_restore)
                world = self._delivered(replace(world, waiting=world.waiting - {one}), arrival, signal, one.via)
            if not asked:  # whoever asked has gone; the fence resumes all the same
                step = fence_step(self._table, world.fence, FenceSignal(FenceEvent.RESUME, id_))
                world = replace(world, fence=step.state, last=_told(world.last, step.row))
        return world


def moves(row: FenceRow) -> bool:
    """Whether the row says something of how the fence stands: a refusal, a call beside it, a replay do not."""
    return not (row.refusal or row.event in _BESIDE or (row.effects and row.effects[-1] in _REPLAYS))


def _told(last: FenceRow | None, row: FenceRow) -> FenceRow | None:
    """The newest row that moves the fence."""
    return row if moves(row) else last


_BESIDE: Final = frozenset({FenceEvent.STATUS, FenceEvent.RETIRE, FenceEvent.DISCARD, FenceEvent.ABORT_INFLIGHT})
"""Calls that move no phase."""
_REPLAYS: Final = frozenset({"replay_reply", "join_running"})
