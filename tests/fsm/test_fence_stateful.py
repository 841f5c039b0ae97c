"""Long random lives of a fence with many ids: what must hold after every step, in any order of events."""

from __future__ import annotations

from typing import cast
from unittest import TestCase

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quiesce.fsm.fence import FenceSignal, FenceState, FenceStep, Handler, fence_step
from quiesce.fsm.tables.fence import ARRIVALS, FENCE, FenceEvent, FencePhase, FenceTable, FenceVariant
from quiesce.fsm.vocabulary import Role

E = FenceEvent
IDS = st.integers(min_value=0, max_value=5)
BODIES = st.sampled_from(["/a", "/b"])
ENDS = {
    E.PREPARE: [E.PREPARE_READY, E.PREPARE_INCOMPLETE, E.PREPARE_FAILED],
    E.COMMIT: [E.COMMIT_DONE, E.COMMIT_FAILED],
    E.RESTORE: [E.RESTORE_DONE, E.RESTORE_FAILED],
}


class _Life(RuleBasedStateMachine):
    """One fence, its calls and ends in any order; ``seen`` are the steps in which an id could have acted."""

    table: FenceTable

    def __init__(self) -> None:
        super().__init__()
        self.state = FenceState()
        self.events = {row.event for row in self.table.rows}

    def deliver(self, signal: FenceSignal) -> FenceStep:
        before = self.state
        step = fence_step(self.table, before, signal)
        self.state = step.state
        self.check(before, signal, step)
        for waiting in self.state.awake:
            self.deliver(FenceSignal(E.RESUME, waiting))
        return step

    def check(self, before: FenceState, signal: FenceSignal, step: FenceStep) -> None:
        """What must hold of a single step."""

    @rule(event=st.sampled_from(ARRIVALS), id_=IDS, body=BODIES, drained=st.booleans(), late=st.booleans())
    def call(self, event: FenceEvent, id_: int, body: str, *, drained: bool, late: bool) -> None:
        """A control call arrives."""
        if event in self.events:
            self.deliver(FenceSignal(event, id_, body=body, drained=drained, deadline_passed=late))

    @precondition(lambda self: self.state.running)
    @rule(choice=st.integers(min_value=0), outcome=st.integers(min_value=0))
    def end(self, choice: int, outcome: int) -> None:
        """One of the running operations ends, somehow."""
        running = sorted(self.state.running, key=str)
        handler: Handler = running[choice % len(running)]
        ends = [event for event in ENDS[FenceEvent(str(handler.operation))] if event in self.events]
        self.deliver(FenceSignal(ends[outcome % len(ends)], handler.id, handler.operation))

    @precondition(lambda self: self.state.phase is FencePhase.PREPARING)
    @rule()
    def within(self) -> None:
        """The last call in flight ends, or nobody polls any more."""
        if E.DRAINED in self.events:
            self.deliver(FenceSignal(E.DRAINED, self.state.active))
        elif E.GRACE_PASSED in self.events and self.state.unattended:
            self.deliver(FenceSignal(E.GRACE_PASSED, self.state.active))


class _StrictLife(_Life):
    """A strict fence keeps its promises."""

    def check(self, before: FenceState, signal: FenceSignal, step: FenceStep) -> None:
        after = step.state
        held = (before.phase, before.active, before.closed, before.recorded)
        if signal.id in before.finished or before.active not in {None, signal.id}:
            assert (after.phase, after.active, after.closed, after.recorded) == held
        if step.refusal is not None and signal.event in ARRIVALS:
            assert after == before
        assert before.finished <= after.finished

    @invariant()
    def never_closed_without_a_holder(self) -> None:
        """Closed admission has an active id, which can be resumed."""
        assert self.state.closed is (self.state.active is not None)
        assert self.state.active not in self.state.finished

    @invariant()
    def only_the_holder_is_remembered(self) -> None:
        """Records and waits belong to the active id; other handlers that run belong to used-up ids."""
        assert {record.id for record in self.state.recorded} <= {self.state.active}
        assert self.state.waiting <= {self.state.active}
        assert {handler.id for handler in self.state.running} <= {self.state.active} | self.state.finished

    def teardown(self) -> None:
        """From wherever a life ends, resuming the holder opens the fence for good."""
        while self.state.active is not None:
            step = self.deliver(FenceSignal(E.RESUME, self.state.active))
            if step.answer == "wait_for_running":
                held = next(handler for handler in self.state.running if handler.id == self.state.active)
                end = E.COMMIT_DONE if held.operation is E.COMMIT else E.RESTORE_DONE
                self.deliver(FenceSignal(end, held.id, held.operation))  # which delivers the resume again
        assert not self.state.closed


class _RecordedLife(_Life):
    """A recorded fence breaks many promises, but these hold."""

    def check(self, before: FenceState, signal: FenceSignal, step: FenceStep) -> None:
        if signal.event in ARRIVALS and signal.id in before.finished:
            assert step.state == before
        if step.row.refusal:
            assert step.state == before
        assert before.finished <= step.state.finished


def _lives(base: type[_Life], variant: FenceVariant, role: Role) -> type[TestCase]:
    named = type(f"{base.__name__}{variant.value}{role.value}", (base,), {"table": FENCE[variant, role]})
    case = cast("type[_Life]", named).TestCase
    case.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
    return cast("type[TestCase]", case)


TestStrictPolicy = _lives(_StrictLife, FenceVariant.STRICT, Role.POLICY)
TestStrictAgent = _lives(_StrictLife, FenceVariant.STRICT, Role.AGENT)
TestStrictResources = _lives(_StrictLife, FenceVariant.STRICT, Role.RESOURCES)
TestRecordedPolicy = _lives(_RecordedLife, FenceVariant.GYM_A_SINGLE, Role.POLICY)
TestRecordedAgent = _lives(_RecordedLife, FenceVariant.GYM_A_SINGLE, Role.AGENT)
TestRecordedResources = _lives(_RecordedLife, FenceVariant.GYM_A_SINGLE, Role.RESOURCES)
