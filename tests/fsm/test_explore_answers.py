"""The explorer reads a fence's answers as the dialect reads the replies of a server that has it."""

from __future__ import annotations

import pytest

from quiesce.fsm.explore_answers import HELD_IN, REFUSAL_OUTCOMES, answer_outcome, end_outcome, event_of, reading
from quiesce.fsm.fence import FenceSignal, FenceState, FenceStep, fence_step
from quiesce.fsm.tables.fence import ENDS, FENCE, REFUSALS, FenceEvent, FencePhase, FenceVariant
from quiesce.fsm.vocabulary import Outcome, Role, Verb
from quiesce.participants import capabilities
from quiesce.participants.dialects.gym_a.read_fence import _HELD_BY_US
from quiesce.participants.dialects.gym_a.refusals import OUTCOME_OF_CODE
from quiesce.participants.dialects.gym_a.routes import ROUTE_OF

STRICT_POLICY = FENCE[FenceVariant.STRICT, Role.POLICY]


def test_refusals_are_read_alike() -> None:
    """Every code with which a fence refuses means the same outcome to the explorer and to the dialect."""
    for code in REFUSALS.values():
        assert REFUSAL_OUTCOMES.get(code, Outcome.REFUSED) is OUTCOME_OF_CODE.get(code, Outcome.REFUSED), code


def test_phases_are_read_alike() -> None:
    """A phase held by our id means the same outcome to both."""
    assert {phase.value: outcome for phase, outcome in HELD_IN.items()} == {
        phase.value: outcome for phase, outcome in _HELD_BY_US.items()
    }
    assert {phase.value for phase in FencePhase} == {phase.value for phase in capabilities.FencePhase}


@pytest.mark.parametrize("phase", FencePhase, ids=str)
def test_a_reading_says_who_holds_the_fence(phase: FencePhase) -> None:
    """Nobody and idle is open, nobody and not idle an orphan, ours by its phase, anybody else's another's."""
    nobody = reading(FenceState(phase=phase), 0)
    assert nobody is (Outcome.OPEN if phase is FencePhase.IDLE else Outcome.ORPHAN_FENCE)
    assert reading(FenceState(phase=phase, active=0), 0) is HELD_IN[phase]
    assert reading(FenceState(phase=phase, active=1), 0) is Outcome.HELD_BY_OTHER


def test_verbs_are_the_calls_that_the_routes_make_of_them() -> None:
    """A verb is a policy's status exactly where its route is the status route, and so on for every route."""
    words = {
        FenceEvent.PREPARE: ("/pause", "/prepare"),
        FenceEvent.STATUS: ("/status",),
        FenceEvent.COMMIT: ("/commit",),
        FenceEvent.RESTORE: ("/restore",),
        FenceEvent.RESUME: ("/resume",),
        FenceEvent.RETIRE: ("/retire",),
        FenceEvent.ABORT_INFLIGHT: ("/abort_inflight",),
    }
    compared = 0
    for (verb, role), route in ROUTE_OF.items():
        event = event_of(verb, role)
        if event is not None and role is not Role.AUXILIARY:
            assert route.path.endswith(words[event]), f"{verb} of {role} is {route.path}"
            compared += 1
    assert compared >= 15


def test_a_pause_is_draining_until_its_record_says_otherwise() -> None:
    """A pause with calls in flight is draining; its repetition is answered from memory, drained or not (9 #5)."""
    first = fence_step(STRICT_POLICY, FenceState(), FenceSignal(FenceEvent.PREPARE, 0))
    assert answer_outcome(FenceEvent.PREPARE, 0, first, working=True) is Outcome.DRAINING
    again = fence_step(STRICT_POLICY, first.state, FenceSignal(FenceEvent.PREPARE, 0))
    assert again.answer == "replay_reply"
    assert answer_outcome(FenceEvent.PREPARE, 0, again, working=False) is Outcome.DRAINING
    drained = fence_step(STRICT_POLICY, FenceState(), FenceSignal(FenceEvent.PREPARE, 0, drained=True))
    assert answer_outcome(FenceEvent.PREPARE, 0, drained, working=False) is Outcome.PAUSED


def test_a_status_that_says_accepting_is_a_lie() -> None:
    """A policy that we closed and that says it accepts work cannot be believed; otherwise the drain decides."""
    closed = fence_step(STRICT_POLICY, FenceState(), FenceSignal(FenceEvent.PREPARE, 0)).state
    step = fence_step(STRICT_POLICY, closed, FenceSignal(FenceEvent.STATUS, 0))
    assert answer_outcome(FenceEvent.STATUS, 0, step, working=True) is Outcome.DRAINING
    assert answer_outcome(FenceEvent.STATUS, 0, step, working=False) is Outcome.PAUSED
    reopened = FenceState(phase=FencePhase.PREPARING, active=0, closed=False)
    step = fence_step(STRICT_POLICY, reopened, FenceSignal(FenceEvent.STATUS, 0))
    assert answer_outcome(FenceEvent.STATUS, 0, step, working=False) is Outcome.LIED


@pytest.mark.parametrize("event", ENDS, ids=str)
def test_every_end_of_an_operation_is_an_outcome(event: FenceEvent) -> None:
    """Whatever an operation comes to, its caller hears an outcome that fits it."""
    outcomes = {
        end_outcome(event, role, _ended(variant, role, event), unowned=False)
        for (variant, role), table in FENCE.items()
        if any(row.event is event for row in table.rows)
    }
    failed = "failed" in event
    assert outcomes
    assert all((outcome in _REFUSING) is failed for outcome in outcomes), outcomes


_REFUSING = {Outcome.REFUSED, Outcome.WORKERS_MISSING}
_OPERATION = {
    "prepare": FenceEvent.PREPARE,
    "commit": FenceEvent.COMMIT,
    "restore": FenceEvent.RESTORE,
    "resume": FenceEvent.RESUME,
}


def _ended(variant: FenceVariant, role: Role, event: FenceEvent) -> FenceStep:
    """The step by which an operation that began in the phase that it needs comes to this end."""
    table = FENCE[variant, role]
    operation = _OPERATION[event.split("_")[0]]
    begun = {FenceEvent.COMMIT: FencePhase.PREPARED, FenceEvent.RESUME: FencePhase.PREPARED}
    state = FenceState(phase=begun.get(operation, FencePhase.IDLE), active=0 if operation in begun else None)
    running = fence_step(table, state, FenceSignal(operation, 0, drained=True)).state
    return fence_step(table, running, FenceSignal(event, 0, operation))


def test_results_alone_are_what_holds_an_agent_up() -> None:
    """An incomplete prepare is read as unacknowledged when nothing but results is in the way."""
    step = _ended(FenceVariant.STRICT, Role.AGENT, FenceEvent.PREPARE_INCOMPLETE)
    assert end_outcome(FenceEvent.PREPARE_INCOMPLETE, Role.AGENT, step, unowned=True) is Outcome.UNACKNOWLEDGED
    assert end_outcome(FenceEvent.PREPARE_INCOMPLETE, Role.AGENT, step, unowned=False) is Outcome.INCOMPLETE


def test_a_resume_of_what_owes_a_restore_says_so() -> None:
    """The refusal of a resource server that owes a restore is told from any other refusal of it (F20)."""
    table = FENCE[FenceVariant.STRICT, Role.RESOURCES]
    step = fence_step(table, FenceState(closed=True), FenceSignal(FenceEvent.RESUME, 0, owes_restore=True))
    assert answer_outcome(FenceEvent.RESUME, 0, step, working=False) is Outcome.OWES_RESTORE
    step = fence_step(table, FenceState(closed=True), FenceSignal(FenceEvent.PREPARE, 0, owes_restore=True))
    assert answer_outcome(FenceEvent.PREPARE, 0, step, working=False) is Outcome.REFUSED


def test_readings_and_acknowledgements_pass_no_fence() -> None:
    """What is not fenced on the wire is decided by no fence (2.1, 2.15)."""
    assert {verb for verb in Verb if event_of(verb, Role.AGENT) is None} == {
        Verb.INSPECT,
        Verb.ACKNOWLEDGE,
        Verb.DISCARD,
        Verb.RENEW,
    }
