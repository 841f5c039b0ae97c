"""The fence automaton: everything that it can reach, and the named deviations F13 to F19 as traces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from quiesce.fsm.errors import IllegalTransition
from quiesce.fsm.fence import FenceSignal, FenceState, FenceStep, fence_step
from quiesce.fsm.tables.fence import ARRIVALS, FENCE, MODEL_SERVER, FenceEvent, FencePhase, FenceTable, FenceVariant
from quiesce.fsm.vocabulary import Role

E = FenceEvent
P = FencePhase
STRICT_AGENT = FENCE[FenceVariant.STRICT, Role.AGENT]
STRICT_POLICY = FENCE[FenceVariant.STRICT, Role.POLICY]
STRICT_RESOURCES = FENCE[FenceVariant.STRICT, Role.RESOURCES]
GYM_AGENT = FENCE[FenceVariant.GYM_A_SINGLE, Role.AGENT]
GYM_POLICY = FENCE[FenceVariant.GYM_A_SINGLE, Role.POLICY]
GYM_RESOURCES = FENCE[FenceVariant.GYM_A_SINGLE, Role.RESOURCES]
COORDINATOR = FENCE[FenceVariant.GYM_A_COORDINATOR, Role.POLICY]

ENDS_OF = {
    E.PREPARE: (E.PREPARE_READY, E.PREPARE_DRAINING, E.PREPARE_INCOMPLETE, E.PREPARE_FAILED),
    E.COMMIT: (E.COMMIT_DONE, E.COMMIT_FAILED),
    E.RESTORE: (E.RESTORE_DONE, E.RESTORE_FAILED),
    E.RESUME: (E.RESUME_DONE, E.RESUME_FAILED),
}


class Fence:
    """A fence under test: deliver signals, read the answers."""

    def __init__(self, table: FenceTable, *, closed: bool = False) -> None:
        self.table = table
        self.state = FenceState(closed=closed)

    def __call__(self, event: FenceEvent, id_: object = None, **facts: bool) -> str | None:
        step = fence_step(self.table, self.state, FenceSignal(event, id_, **facts))
        self.state = step.state
        return step.refusal or step.answer

    def where(self) -> tuple[FencePhase, object, bool]:
        return self.state.phase, self.state.active, self.state.closed


def signals(table: FenceTable, state: FenceState, ids: range) -> Iterator[FenceSignal]:
    """Everything that can happen to a fence in this state, with these ids and two bodies for commit."""
    events = {row.event for row in table.rows}
    for event in (event for event in ARRIVALS if event in events):
        for number in ids:
            for body in (0, 1) if event is E.COMMIT else (0,):
                yield FenceSignal(event, number, body=body, drained=True)
                yield FenceSignal(event, number, body=body, drained=False)
                yield FenceSignal(event, number, body=body, deadline_passed=True)
            yield FenceSignal(event, number, body=0, members_connected=False)
    for handler in state.running:
        for end in ENDS_OF[FenceEvent(str(handler.operation))]:
            if end in events:
                yield FenceSignal(end, handler.id, handler.operation)
    if state.phase is P.PREPARING and state.active is not None:
        if E.DRAINED in events:
            yield FenceSignal(E.DRAINED, state.active)
        if E.GRACE_PASSED in events and state.unattended:
            yield FenceSignal(E.GRACE_PASSED, state.active)


def explore(table: FenceTable, ids: range = range(2)) -> dict[FenceState, list[tuple[FenceSignal, FenceStep]]]:
    """Every reachable state and what leaves it."""
    found: dict[FenceState, list[tuple[FenceSignal, FenceStep]]] = {}
    frontier = deque([FenceState()])
    while frontier:
        state = frontier.popleft()
        if state in found:
            continue
        found[state] = [(signal, fence_step(table, state, signal)) for signal in signals(table, state, ids)]
        frontier.extend(step.state for _, step in found[state])
    return found


STATES = {
    ("strict", "policy"): 196,
    ("strict", "auxiliary"): 1,
    ("strict", "agent"): 160,
    ("strict", "resources"): 144,
    ("gym_a_single", "policy"): 104,
    ("gym_a_single", "auxiliary"): 1,
    ("gym_a_single", "agent"): 198,
    ("gym_a_single", "resources"): 43,
    ("gym_a_coordinator", "policy"): 1876,
}


@pytest.mark.parametrize(("variant", "role"), FENCE, ids=str)
def test_every_reachable_state_decides_everything_that_can_happen(variant: FenceVariant, role: Role) -> None:
    """No signal that can occur lacks a row; the number of states is pinned (a change has to be explained)."""
    found = explore(FENCE[variant, role])
    assert len(found) == STATES[variant.value, role.value]
    used = {id(step.row) for steps in found.values() for _, step in steps}
    assert len(used) > len(FENCE[variant, role].rows) * 0.8


STRICT_ROLES = pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES], ids=str)


@STRICT_ROLES
def test_strict_is_never_closed_with_nobody_to_open_it(role: Role) -> None:
    """Closed admission always has an active id, and idle is always open (without an owed restore)."""
    for state in explore(FENCE[FenceVariant.STRICT, role]):
        assert state.closed is (state.active is not None)
        assert (state.phase is P.IDLE) is (state.active is None)


@STRICT_ROLES
def test_strict_finished_ids_never_act_again(role: Role) -> None:
    """A call for a used-up id changes nothing, and its late ends change nothing but their own handler."""
    for state, steps in explore(FENCE[FenceVariant.STRICT, role]).items():
        for signal, step in steps:
            if signal.id in state.finished:
                after = step.state
                assert (after.phase, after.active, after.closed) == (state.phase, state.active, state.closed)
                assert after.recorded == state.recorded
                assert after.running <= state.running
                assert step.answer in {"refuse_stale_checkpoint", "replay_reply"}


@STRICT_ROLES
def test_strict_nobody_acts_on_another_ids_fence(role: Role) -> None:
    """While an id holds the fence, a signal of another changes neither phase nor admission nor the holder."""
    seen = 0
    for state, steps in explore(FENCE[FenceVariant.STRICT, role]).items():
        for signal, step in steps:
            if state.active is not None and signal.id != state.active:
                after = step.state
                assert (after.phase, after.active, after.closed) == (state.phase, state.active, state.closed)
                seen += 1
    assert seen


@STRICT_ROLES
def test_strict_opens_again_from_everywhere_by_resume(role: Role) -> None:
    """From every reachable state, ending what runs and resuming the holder opens the fence."""
    for start in explore(FENCE[FenceVariant.STRICT, role]):
        state = start
        while state.active is not None:
            step = fence_step(FENCE[FenceVariant.STRICT, role], state, FenceSignal(E.RESUME, state.active))
            if step.answer == "wait_for_running":
                held = next(handler for handler in step.state.running if handler.id == state.active)
                end = E.COMMIT_DONE if held.operation is E.COMMIT else E.RESTORE_FAILED
                step = fence_step(FENCE[FenceVariant.STRICT, role], step.state, FenceSignal(end, held.id))
            state = step.state
        assert not state.closed


def test_a_step_is_pure() -> None:
    """Stepping twice from one state gives equal steps, and the state stays as it was."""
    state = FenceState()
    signal = FenceSignal(E.PREPARE, 1, drained=False)
    assert fence_step(STRICT_POLICY, state, signal) == fence_step(STRICT_POLICY, state, signal)
    assert state == FenceState()


def test_an_end_of_what_does_not_run_is_refused() -> None:
    """A driver that reports an end twice, or one that never began, is told so and nothing changes."""
    fence = Fence(STRICT_AGENT)
    fence(E.PREPARE, "x")
    fence(E.PREPARE_READY, "x")
    before = fence.state
    with pytest.raises(IllegalTransition, match="does not run"):
        fence(E.PREPARE_READY, "x")
    with pytest.raises(IllegalTransition, match="not possible"):
        fence(E.GRACE_PASSED, "x")
    assert fence.state == before


# strict ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [STRICT_POLICY, STRICT_AGENT, STRICT_RESOURCES], ids=lambda table: table.name)
def test_strict_resume_from_idle_uses_the_id_up(table: FenceTable) -> None:
    """A resume of an id that was never prepared succeeds, is repeatable, and makes a late prepare stale."""
    fence = Fence(table)
    assert fence(E.RESUME, "x") == "answer_now"
    assert fence(E.RESUME, "x") == "replay_reply"
    assert fence(E.PREPARE, "x", drained=True) == "stale_checkpoint"
    assert fence.where() == (P.IDLE, None, False)


@pytest.mark.parametrize("table", [STRICT_AGENT, STRICT_RESOURCES], ids=lambda table: table.name)
def test_strict_resume_ends_a_waiting_prepare(table: FenceTable) -> None:
    """Resume opens at once; the prepare then answers stale, and another id that came meanwhile is untouched."""
    fence = Fence(table)
    fence(E.PREPARE, "x")
    assert fence(E.RESUME, "x") == "answer_now"
    fence(E.PREPARE, "y")
    fence(E.PREPARE_READY, "y")
    assert fence(E.PREPARE_READY, "x") == "stale_checkpoint"
    assert fence.where() == (P.PREPARED, "y", True)


def test_strict_resume_waits_for_a_commit() -> None:
    """A resume during commit is held back, and runs from where the commit ended."""
    fence = Fence(STRICT_POLICY)
    fence(E.PREPARE, "x", drained=True)
    fence(E.COMMIT, "x", drained=True)
    assert fence(E.RESUME, "x") == "wait_for_running"
    assert fence.state.awake == frozenset()
    fence(E.COMMIT_DONE, "x")
    assert fence.state.awake == {"x"}
    assert fence(E.RESUME, "x") == "answer_now"
    assert (fence.state.awake, fence.where()) == (frozenset(), (P.IDLE, None, False))


def test_strict_incomplete_agent_prepare_is_polled_and_then_given_up() -> None:
    """Id and closure stay between polls; when nobody polls any more the agent reopens and the id is used up."""
    fence = Fence(STRICT_AGENT)
    fence(E.PREPARE, "x")
    assert fence(E.PREPARE_INCOMPLETE, "x") == "answer_outcome"
    assert fence.where() == (P.PREPARING, "x", True)
    assert fence(E.PREPARE, "y") == "checkpoint_conflict"
    assert fence(E.PREPARE, "x") == "start_operation"
    assert fence(E.PREPARE, "x") == "join_running"
    fence(E.PREPARE_INCOMPLETE, "x")
    assert fence(E.GRACE_PASSED, "x") is None
    assert fence.where() == (P.IDLE, None, False)
    assert fence(E.PREPARE, "x") == "stale_checkpoint"
    assert fence(E.RESUME, "x") == "replay_reply"


def test_strict_failed_prepare_reopens() -> None:
    """What a failed prepare closed is open again, and the id may be prepared once more."""
    fence = Fence(STRICT_RESOURCES)
    fence(E.PREPARE, "x")
    fence(E.PREPARE_FAILED, "x")
    assert fence.where() == (P.IDLE, None, False)
    assert fence(E.PREPARE, "x") == "start_operation"


def test_strict_drain_itself_completes_the_cut() -> None:
    """The end of the last call moves the policy to prepared; the replayed pause still says draining (F2)."""
    fence = Fence(STRICT_POLICY)
    fence(E.PREPARE, "x", drained=False)
    assert fence(E.COMMIT, "x") == "invalid_phase"
    fence(E.DRAINED, "x")
    assert fence.where() == (P.PREPARED, "x", True)
    assert fence(E.PREPARE, "x") == "replay_reply"
    assert fence(E.COMMIT, "x", drained=True) == "start_operation"


def test_strict_repetition_with_another_body_is_a_conflict() -> None:
    """Another directory under the same id is refused while it runs and after; the same body is joined and replayed."""
    fence = Fence(STRICT_AGENT)
    fence(E.PREPARE, "x")
    fence(E.PREPARE_READY, "x")
    here, there = FenceSignal(E.COMMIT, "x", body="/a"), FenceSignal(E.COMMIT, "x", body="/b")
    state = fence_step(STRICT_AGENT, fence.state, here).state
    assert fence_step(STRICT_AGENT, state, there).refusal == "checkpoint_conflict"
    assert fence_step(STRICT_AGENT, state, here).answer == "join_running"
    state = fence_step(STRICT_AGENT, state, FenceSignal(E.COMMIT_DONE, "x")).state
    assert fence_step(STRICT_AGENT, state, there).refusal == "checkpoint_conflict"
    assert fence_step(STRICT_AGENT, state, here).answer == "replay_reply"


@pytest.mark.parametrize("event", [E.PREPARE, E.RESTORE, E.RESUME, E.STATUS, E.RETIRE], ids=str)
def test_strict_deadline_passed_refuses_work_but_never_the_way_out(event: FenceEvent) -> None:
    """Prepare and restore with a deadline in the past are refused before any work; resume, status, retire are not."""
    fence = Fence(STRICT_AGENT)
    answer = fence(event, "x", deadline_passed=True)
    if event in {E.PREPARE, E.RESTORE}:
        assert answer == "deadline_exceeded"
        assert fence.state == FenceState()
    else:
        assert answer == "answer_now"


def test_strict_process_that_owes_a_restore_stays_closed_until_restored() -> None:
    """It can be neither prepared nor resumed, a failed restore changes nothing, and a good one lets resume open it."""
    fence = Fence(STRICT_RESOURCES, closed=True)
    assert fence(E.PREPARE, "x", owes_restore=True) == "resources_checkpoint_error"
    assert fence(E.RESUME, "x", owes_restore=True) == "resources_checkpoint_error"
    fence(E.RESTORE, "x", owes_restore=True)
    fence(E.RESTORE_FAILED, "x", owes_restore=True)
    assert fence.where() == (P.IDLE, None, True)
    fence(E.RESTORE, "x", owes_restore=True)
    fence(E.RESTORE_DONE, "x")
    assert fence(E.RESUME, "x") == "answer_now"
    assert fence.where() == (P.IDLE, None, False)


@pytest.mark.parametrize("table", [STRICT_AGENT, STRICT_RESOURCES], ids=lambda table: table.name)
def test_strict_restore_is_closed_from_its_start_and_a_failure_reopens_it(table: FenceTable) -> None:
    """Nothing is admitted while state is installed; what could not be restored is as before, its id free."""
    fence = Fence(table)
    fence(E.RESTORE, "x")
    assert fence.where() == (P.RESTORING, "x", True)
    fence(E.RESTORE_FAILED, "x")
    assert fence.where() == (P.IDLE, None, False)
    assert fence(E.PREPARE, "x") == "start_operation"


# the recorded servers ----------------------------------------------------------------------------------------------


def test_f13_resume_answers_at_once_or_says_busy() -> None:
    """Agent: 200 during a waiting prepare. Resources: invalid_phase. Anybody: invalid_phase during a commit."""
    agent, resources, policy = Fence(GYM_AGENT), Fence(GYM_RESOURCES), Fence(GYM_POLICY)
    agent(E.PREPARE, "x")
    resources(E.PREPARE, "x")
    policy(E.PREPARE, "x", drained=True)
    policy(E.COMMIT, "x", drained=True)
    assert agent(E.RESUME, "x") == "answer_now"
    assert resources(E.RESUME, "x") == "invalid_phase"
    assert policy(E.RESUME, "x") == "invalid_phase"


def _late(table: FenceTable) -> Fence:
    """Prepare x waits and was resumed; y is prepared."""
    fence = Fence(table)
    fence(E.PREPARE, "x")
    fence(E.RESUME, "x")
    fence(E.PREPARE, "y")
    fence(E.PREPARE_READY, "y")
    assert fence.where() == (P.PREPARED, "y", True)
    return fence


def test_f14_a_late_end_takes_prepared_away_until_prepare_is_posted_again() -> None:
    """Prepare x ends late: y falls to preparing, its commit is refused, and a repeated prepare of y repairs it."""
    fence = _late(GYM_AGENT)
    assert fence(E.PREPARE_READY, "x") == "stale_checkpoint"
    assert fence.where() == (P.PREPARING, "y", True)
    assert fence(E.COMMIT, "y") == "invalid_phase"
    assert fence(E.PREPARE, "y") == "replay_reply"
    assert fence.where() == (P.PREPARED, "y", True)


def test_f15_a_late_time_out_frees_another_ids_fence() -> None:
    """Prepare x times out late: the fence is idle though y is prepared, and a third id is admitted as well."""
    fence = _late(GYM_AGENT)
    fence(E.PREPARE_INCOMPLETE, "x")
    assert fence.where() == (P.IDLE, None, True)
    assert fence(E.PREPARE, "z") == "start_operation"


def test_f16_an_orphan_fence_is_repaired_by_a_resume_under_a_fresh_id() -> None:
    """A late end leaves preparing with nobody; every prepare is refused until a fresh id's resume, which uses it up."""
    fence = Fence(GYM_AGENT)
    fence(E.PREPARE, "x")
    fence(E.RESUME, "x")
    fence(E.PREPARE_READY, "x")
    assert fence.where() == (P.PREPARING, None, False)
    assert fence(E.PREPARE, "y") == "invalid_phase"
    assert fence(E.RESUME, "x") == "replay_reply"
    assert fence.where()[0] is P.PREPARING
    assert fence(E.RESUME, "fresh") == "answer_now"
    assert fence(E.PREPARE, "fresh") == "stale_checkpoint"
    assert fence(E.PREPARE, "y") == "start_operation"


def test_an_incomplete_recorded_agent_prepare_frees_the_fence_and_stays_closed() -> None:
    """Field case 7: the fence is idle, admission stays closed, and the same id may be prepared again."""
    fence = Fence(GYM_AGENT)
    fence(E.PREPARE, "x")
    fence(E.PREPARE_INCOMPLETE, "x")
    assert fence.where() == (P.IDLE, None, True)
    assert fence(E.PREPARE, "x") == "start_operation"


def test_f18_f19_a_coordinator_reopens_by_itself_and_refuses_the_rollback() -> None:
    """A pause without its workers fails and reopens; its resume is a wrong phase; a later one is healed by pausing."""
    fence = Fence(COORDINATOR)
    assert fence(E.PREPARE, "x", members_connected=False) == "missing_workers"
    fence(E.PREPARE, "x")
    fence(E.PREPARE_FAILED, "x")
    assert fence.where() == (P.IDLE, None, False)
    assert fence(E.RESUME, "x") == "invalid_phase"
    fence(E.PREPARE, "x")
    fence(E.PREPARE_READY, "x")
    fence(E.RESUME, "x")
    fence(E.RESUME_FAILED, "x")
    assert fence.where() == (P.PREPARED, "x", False)
    fence(E.RESUME, "x")
    fence(E.RESUME_DONE, "x")
    assert fence(E.RESUME, "x") == "replay_reply"


def test_f23_a_model_server_beside_a_coordinator_holds_no_id_once_an_operation_has_ended() -> None:
    """No resume comes to it: every state in which nothing runs is idle and nobody's, and the next id may begin."""
    found = explore(MODEL_SERVER)
    assert len(found) == 120
    for state, steps in found.items():
        assert (state.active is None) is (state.phase is P.IDLE) is (not state.running)
        assert not state.closed
        assert not state.finished
        for signal, step in steps:
            if state.phase is P.IDLE and state.record(signal.id, signal.key) is None:
                assert step.answer == "start_operation"
    fence = Fence(MODEL_SERVER)
    fence(E.COMMIT, "x")
    assert fence(E.COMMIT, "x") == "join_running"
    assert fence(E.RESTORE, "x") == "invalid_phase"
    assert fence(E.COMMIT, "y") == "checkpoint_conflict"
    fence(E.COMMIT_DONE, "x")
    assert fence(E.COMMIT, "x") == "replay_reply"


def test_f20_a_recorded_server_that_owes_a_restore_can_be_prepared_but_not_resumed() -> None:
    """No call but a restore gets it out of there, and a restore is a wrong phase by then."""
    fence = Fence(GYM_RESOURCES, closed=True)
    assert fence(E.PREPARE, "x", owes_restore=True) == "start_operation"
    fence(E.PREPARE_READY, "x")
    assert fence(E.RESUME, "x", owes_restore=True) == "resources_checkpoint_error"
    assert fence.where() == (P.PREPARED, "x", True)


def test_f21_a_failed_restore_leaves_recorded_agents_and_resources_open() -> None:
    """Only the policy is held closed by a failed restore."""
    for table in (GYM_AGENT, GYM_RESOURCES):
        fence = Fence(table)
        fence(E.RESTORE, "x")
        assert fence.where() == (P.RESTORING, "x", False)
        fence(E.RESTORE_FAILED, "x")
        assert fence.where() == (P.IDLE, None, False)
    policy = Fence(GYM_POLICY)
    policy(E.RESTORE, "x")
    policy(E.RESTORE_FAILED, "x")
    assert policy.where() == (P.RESTORE_FAILED_PAUSED, "x", True)
    assert policy(E.RESTORE, "y") == "checkpoint_conflict"
    assert policy(E.RESTORE, "x") == "start_operation"


def test_recorded_status_moves_a_drained_policy_and_crashes_once_restored() -> None:
    """Only a status call completes the cut; in restored_paused it answers 500."""
    fence = Fence(GYM_POLICY)
    fence(E.PREPARE, "x", drained=False)
    fence(E.STATUS, "x", drained=False)
    assert fence.where()[0] is P.PREPARING
    fence(E.STATUS, "x", drained=True)
    assert fence.where()[0] is P.PREPARED
    fence(E.RESUME, "x")
    fence(E.RESTORE, "y")
    fence(E.RESTORE_DONE, "y")
    assert fence(E.STATUS, "y", drained=True) == "answer_crash"
