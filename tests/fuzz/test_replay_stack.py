"""Counterexamples and witnesses on the real stack: the runner and real servers stand where the tables stand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.counterexamples import counterexample_of, row_bugs
from support.planted_bugs import setups

from quiesce.fsm.explore import Exploration, Kind, Verdict, explore
from quiesce.fsm.explore_follow import follow
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fuzz.counterexample import Change, Counterexample
from quiesce.fuzz.replay_stack import replay_on_stack
from quiesce.fuzz.replay_tables import replay_on
from quiesce.fuzz.script import knows

DIES = "the controller dies, and another recovers"
# what surrounds the tables on the real stack does not let these happen, whatever the tables say: the store refuses to
# publish an export that nobody has verified; a caller believes in a holder only if the capabilities name it; who was
# called is read off the journal; the release of a restore is in the journal before it is taken. With it the number of
# the action at which it is caught, from the end
CAUGHT = {
    "an export is not waited for": ("the rename happens", 1),
    "an export is published before it was checked": ("the rename happens", 1),
    "an export that differs from what was said is published": ("the rename happens", 1),
    "another controller's conflict is believed too early": ("policy: the answer to release arrives: conflict", 1),
    "a controller that takes over is not told of a first call": (DIES, 2),
    "a restore is released before that is recorded": (DIES, 7),
}
NO_COUNTERPART = (
    "for role 'auxiliary': its servers have no such route",
    "it exports into a folder that the recovery has withdrawn",
)
"""Ends of the reasons why a random walk may end early on the real stack."""
SHOWN = (
    "strict: policy (strict) + agent (strict), cut, no fault",
    "strict: policy (strict) + resources (strict), restore, failure",
    "gym_a_single: policy (gym_a_single) + agent (gym_a_single), cut, no fault",
    "gym_a_single: policy (gym_a_single) + resources (gym_a_single), restore, no fault",
    "gym_a_coordinator: policy (gym_a_coordinator) + agent (gym_a_single), cut, failure",
    "mixed: agent (strict) + resources (gym_a_single), cut, intruder",
    "mixed: policy (gym_a_coordinator) + agent (strict), cut, store",
)


@pytest.mark.parametrize("name", row_bugs())
def test_a_planted_bug_shows_on_the_real_stack(name: str) -> None:
    """With the changed row in its engine, the real runner leaves real servers as the tables say, action by action."""
    found = counterexample_of(name)
    came = replay_on_stack(found, replay_on(found))
    if name in CAUGHT:
        action, from_end = CAUGHT[name]
        assert came.difference is not None
        assert (came.taken, came.difference.action) == (len(found.actions) - from_end, action)
    else:
        assert came.agrees, str(came)
        assert came.taken == len(found.actions)


def _witnesses(setup: Setup) -> list[Counterexample]:
    found = explore(System(setup))
    return [
        Counterexample.of(setup, verdict)
        for verdict in found.verdicts
        if verdict.kind is Kind.SOMETIMES and verdict.trace is not None
    ]


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_search_reaches_is_reached_by_real_servers(name: str) -> None:
    """A shortest way to everything that a search must see is a way of the real stack as well."""
    witnesses = _witnesses(setups()[name])
    assert witnesses
    for found in witnesses:
        came = replay_on_stack(found, replay_on(found))
        assert came.agrees, f"{found.claim.name}: {came}"


@given(st.sampled_from(sorted(setups())), st.randoms())
@settings(max_examples=40)
def test_wherever_the_tables_go_the_stack_goes(name: str, chance: Random) -> None:
    """A random walk through any search ends, action by action, with real servers and the real runner standing alike."""
    setup = setups()[name]
    actions: list[str] = []
    model = System(setup)
    state = next(iter(model.initial()))
    while len(actions) < 60 and (steps := model.steps(state)):
        action, state = chance.choice(steps)
        actions.append(action)
    _walk_is_taken(setup, actions)


@given(
    st.sampled_from(sorted(name for name in setups() if name.endswith("controller"))), st.integers(1, 25), st.randoms()
)
@settings(max_examples=40)
def test_whenever_a_controller_dies_the_stack_goes_on_as_the_tables(name: str, dies_at: int, chance: Random) -> None:
    """The controller is dead and its journal read, and from then on another one stands as the tables say."""
    setup = setups()[name]
    actions: list[str] = []
    model = System(setup)
    state = next(iter(model.initial()))
    while len(actions) < 60 and (steps := model.steps(state)):
        deaths = [step for step in steps if step[0] == DIES]
        others = [step for step in steps if step[0] not in {DIES, "asked to abort", "the caller goes away"}]
        action, state = chance.choice(deaths if deaths and len(actions) >= dies_at else others or steps)
        actions.append(action)
    assume(DIES in actions)
    _walk_is_taken(setup, actions)


def _walk_is_taken(setup: Setup, actions: list[str]) -> None:
    walked = Verdict("resumed", Kind.SOMETIMES, holds=True, trace=tuple(actions))
    found = Counterexample.of(setup, walked)
    came = replay_on_stack(found, replay_on(found))
    ends_there = came.no_counterpart is not None and came.no_counterpart.reason.endswith(NO_COUNTERPART)
    assert came.agrees or ends_there, f"{came}\n" + "\n".join(actions)


READ = (
    "asked to Begin",
    "policy: inspect arrives",
    "policy: the answer to inspect arrives: open",
    "agent: inspect arrives",
    "agent: the answer to inspect arrives: open",
)
RESTARTED = (
    (
        (
            *READ,
            "the caller goes away",
            "policy: its process is restarted",
            "policy: import breaks off",
            "asked to retry",
            "policy: import arrives",
            "policy: restore ends: restore_done",
            "policy: the answer to import arrives: imported",
            "agent: import arrives",
            "agent: restore ends: restore_done",
            "agent: the answer to import arrives: imported",
        ),
        TransactionState.RESTORED,
    ),
    (
        (
            *READ,
            "policy: its process is restarted",
            "policy: import breaks off",
            "timer retry of main/policy",
            "policy: import arrives",
            "the caller goes away",
            "asked to retry",
            "policy: restore ends: restore_done",
            "policy: the answer to import arrives: lied",
        ),
        TransactionState.RESTORE_FAILED,
    ),
)
"""What is sent after the retry may be answered by another process; what is on its way is for the one that was read."""


@pytest.mark.parametrize(("actions", "ends"), RESTARTED)
def test_whoever_was_restarted_is_taken_by_a_retry(actions: tuple[str, ...], ends: TransactionState) -> None:
    """A process that failed may be restarted for the retry; by the tables and by the runner alike."""
    setup = setups()["strict: policy (strict) + agent (strict), restore, restart"]
    model = System(setup)
    assert model.parts(follow(model, actions)[-1].state)[0].core.transaction is ends
    found = Counterexample.of(setup, Verdict("resumed", Kind.SOMETIMES, holds=True, trace=actions))
    came = replay_on_stack(found, replay_on(found))
    assert came.agrees, str(came)


def test_without_the_planted_bug_the_stack_goes_another_way() -> None:
    """The comparison is one: with sound tables in the runner the way is left, and where is said."""
    found = counterexample_of("a lost close is taken for one that never left")
    replayed = replay_on(found)
    came = replay_on_stack(found.model_copy(update={"changes": ()}), replayed)
    assert came.difference is not None
    assert came.difference.reason == "the transaction is 'draining', by the tables 'aborted'"
    assert f"action {came.difference.number}" in str(came.difference)


def test_a_fence_that_is_changed_has_no_counterpart() -> None:
    """The servers run the fence that ships; a counterexample of another one says so instead of showing nothing."""
    found = counterexample_of("a participant is not marked before its first call")
    change = Change(table="FENCE strict policy", row="x", target="idle", effects=())
    came = replay_on_stack(found.model_copy(update={"changes": (change,)}), replay_on(found))
    assert came.no_counterpart is not None
    assert "the fence that ships" in came.no_counterpart.reason


def test_every_word_of_the_explorer_is_known() -> None:
    """No action of a search with every class of faults is unknown to the script."""
    for name in SHOWN:
        setup = setups()[name]
        every = replace(setup, budgets={fault: 1 for one in setups().values() for fault in one.budgets}, expects=())
        model = System(every)
        assert isinstance(explore(model, states_max=3_000), Exploration)
        waiting = list(model.initial())
        seen = set(waiting)
        while waiting and len(seen) < 3_000:
            for action, target in model.steps(waiting.pop(0)):
                assert knows(action), action
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
    assert not knows("somebody dances")
