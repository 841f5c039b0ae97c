"""The oracle never rules out what happened, and does rule out what could not have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.fsm.fence import FenceSignal, FenceState, fence_step
from quiesce.fsm.tables.fence import ARRIVALS, FENCE, FenceEvent, FenceTable, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.worlds import Arrival, Belief, Circumstances, Due, World

E = FenceEvent
ENDS = {
    E.PREPARE: (E.PREPARE_READY, E.PREPARE_INCOMPLETE, E.PREPARE_FAILED, E.PREPARE_DRAINING),
    E.COMMIT: (E.COMMIT_DONE, E.COMMIT_FAILED),
    E.RESTORE: (E.RESTORE_DONE, E.RESTORE_FAILED),
    E.RESUME: (E.RESUME_DONE, E.RESUME_FAILED),
}
TABLES = [
    pytest.param(FENCE[variant, role], id=f"{variant.value}-{role.value}")
    for variant, role in FENCE
    if role is not Role.AUXILIARY
]


UNKNOWN = Circumstances(None, lambda handler: ENDS[FenceEvent(str(handler.operation))], grace_may_be_over=True)

Choice = tuple[str, int, int, bool, bool]
CHOICES = st.lists(
    st.tuples(
        st.sampled_from(["call", "call", "end", "within", "look"]),
        st.integers(0, 7),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)


class Truth:
    """What really happens: one fence with everything decided, and the oracle that only hears of it."""

    def __init__(self, table: FenceTable) -> None:
        self.table = table
        self.state = FenceState()
        self.belief = Belief(table)
        self.events = {row.event for row in table.rows}
        self.number = 0
        self.waiting: dict[int, object] = {}

    def has(self, event: FenceEvent) -> bool:
        return any(row.event is event and row.source is self.state.phase for row in self.table.rows)

    def call(self, event: FenceEvent, id_: str, *, drained: bool, past: bool) -> None:
        if not self.has(event):
            return
        self.number += 1
        operation = (event, "p") if event is E.ABORT_INFLIGHT else None
        arrival = Arrival(self.number, event, id_, operation, body="d1", deadline_passed=past)
        self.belief.arrive(arrival, UNKNOWN)
        signal = FenceSignal(event, id_, operation, "d1", deadline_passed=past, drained=drained)
        self.take(self.number, signal, arrival.key)

    def take(self, number: int, signal: FenceSignal, key: object) -> None:
        step = fence_step(self.table, self.state, signal)
        self.state = step.state
        if step.answer in {"start_operation", "join_running"}:
            self.waiting[number] = key
        elif step.answer == "wait_for_running":
            self.waiting[number] = ("awake", signal.id)
        else:
            self.hear(number, Due(step.row))

    def end(self, choice: int, outcome: int, *, drained: bool) -> None:
        running = sorted(self.state.running, key=str)
        if not running:
            return
        handler = running[choice % len(running)]
        ends = [end for end in ENDS[FenceEvent(str(handler.operation))] if self.has(end)]
        if not ends:
            return
        event = ends[outcome % len(ends)]
        step = fence_step(
            self.table, self.state, FenceSignal(event, handler.id, operation=handler.operation, drained=drained)
        )
        self.state = step.state
        answered = [number for number, key in self.waiting.items() if key == (handler.id, handler.operation)]
        woken = self.wake()
        self.belief.settle(UNKNOWN)
        for number in answered:
            del self.waiting[number]
            self.hear(number, Due(step.row, event))
        for number, due in woken:
            self.hear(number, due)

    def wake(self) -> list[tuple[int, Due]]:
        heard = []
        for id_ in sorted(map(str, self.state.awake)):
            for number in sorted(number for number, key in self.waiting.items() if key == ("awake", id_)):
                del self.waiting[number]
                step = fence_step(self.table, self.state, FenceSignal(E.RESUME, id_))
                self.state = step.state
                heard.append((number, Due(step.row)))
        return heard

    def within(self) -> None:
        if E.DRAINED in self.events and self.has(E.DRAINED):
            self.state = fence_step(self.table, self.state, FenceSignal(E.DRAINED, self.state.active)).state
        elif E.GRACE_PASSED in self.events and self.state.unattended and self.has(E.GRACE_PASSED):
            self.state = fence_step(self.table, self.state, FenceSignal(E.GRACE_PASSED, self.state.active)).state

    def look(self) -> None:
        self.belief.settle(UNKNOWN)
        self.belief.keep(lambda world: (world.fence.phase, world.fence.active) == (self.state.phase, self.state.active))

    def hear(self, number: int, answer: Due) -> None:
        self.belief.settle(UNKNOWN)
        self.belief.replied(number, lambda due: (due.row, due.end) == (answer.row, answer.end))


@pytest.mark.parametrize("table", TABLES)
def test_the_oracle_never_rules_out_the_truth(table: FenceTable) -> None:
    """Whatever a fence does that keeps its table, some world explains it, and one of them is where the fence stands."""

    @settings(max_examples=60, deadline=None)
    @given(CHOICES)
    def holds(choices: list[Choice]) -> None:
        truth = Truth(table)
        for kind, first, second, one, two in choices:
            match kind:
                case "call":
                    truth.call(ARRIVALS[first % len(ARRIVALS)], "abc"[second], drained=one, past=two and one)
                case "end":
                    truth.end(first, second, drained=one)
                case "within":
                    truth.within()
                case "look":
                    truth.look()
            truth.belief.settle(UNKNOWN)
            assert truth.state in {world.fence for world in truth.belief.worlds}

    holds()


def test_a_wrong_answer_leaves_no_world() -> None:
    """A conflict that is answered as a success is explained by nothing, and what was expected can be said."""
    table = FENCE[FenceVariant.STRICT, Role.POLICY]
    belief = Belief(table)
    drained = replace(UNKNOWN, drained=True)
    belief.arrive(Arrival(1, E.PREPARE, "a"), drained)
    assert belief.replied(1, lambda _: True)
    belief.arrive(Arrival(2, E.PREPARE, "b"), drained)
    expected = belief.replied(2, lambda due: due.row.effects[-1] == "answer_now")
    assert [due.row.effects for due in expected] == [("refuse_conflict",)]
    assert not belief


def test_a_drain_that_is_known_to_be_over_has_moved_the_fence() -> None:
    """While nobody knows, both phases are possible; once it is known, only the one behind the drain is."""
    belief = Belief(FENCE[FenceVariant.STRICT, Role.POLICY])
    belief.arrive(Arrival(1, E.PREPARE, "a"), replace(UNKNOWN, drained=False))
    belief.settle(UNKNOWN)
    assert {world.fence.phase.value for world in belief.worlds} == {"preparing", "prepared"}
    belief.settle(replace(UNKNOWN, drained=True))
    assert {world.fence.phase.value for world in belief.worlds} == {"prepared"}


def test_calls_that_race_may_have_come_in_either_order() -> None:
    """A commit and a resume at once: the commit ran and the resume waited, or the resume came first."""
    belief = Belief(FENCE[FenceVariant.STRICT, Role.AGENT])
    done = Circumstances(True, lambda handler: ENDS[FenceEvent(str(handler.operation))][:1])  # noqa: FBT003 - drained
    belief.arrive(Arrival(1, E.PREPARE, "a"), done)
    belief.settle(done)
    belief.replied(1, lambda _: True)
    belief.arrive_in_any_order([Arrival(2, E.COMMIT, "a"), Arrival(3, E.RESUME, "a")], done)
    belief.settle(done)
    ways = {
        (due.row.effects[-1], world.fence.phase.value)
        for world in belief.worlds
        if (due := world.answer_to(2)) is not None and world.answer_to(3) is not None
    }
    assert ways == {("answer_outcome", "idle"), ("refuse_stale_checkpoint", "idle")}


def test_one_world_is_where_everything_begins() -> None:
    """A fresh oracle knows exactly one world: idle, open, nothing used up."""
    assert Belief(FENCE[FenceVariant.STRICT, Role.AGENT]).worlds == (World(),)
