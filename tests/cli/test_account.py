"""The account of the demonstration: every kind of loss is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.cli.demonstration.account import CutAccount, settle_accounts
from quiesce.cli.demonstration.job import LIVE_MIN, ROLLOUTS_MIN, Rollout, expected_result, job
from quiesce.participants.identity import AttemptId

JOB = job(ROLLOUTS_MIN, 6)
DONE = [rollout for rollout in JOB if rollout.turns == 2 and not rollout.late]
LIVE = [rollout for rollout in JOB if rollout.turns > 2]
LATE = [rollout for rollout in JOB if rollout.late]
CUT = CutAccount(
    kept=frozenset(rollout.rollout_id for rollout in DONE),
    boundaries={AttemptId(rollout.rollout_id, 0): number for number, rollout in enumerate(LIVE)},
    restarting=frozenset(),
    unstarted=frozenset(rollout.rollout_id for rollout in LATE),
)


def result_of(rollout: Rollout) -> dict[str, object]:
    """What the trainer's file says of a rollout when all went well."""
    continued = AttemptId(rollout.rollout_id, 0) in CUT.boundaries
    began_at = CUT.boundaries.get(AttemptId(rollout.rollout_id, 0), 0)
    return {**expected_result(rollout), "attempt_index": int(continued), "began_at_turn": began_at}


RESULTS = [result_of(rollout) for rollout in JOB]


def changed(rollout: Rollout, **fields: object) -> list[dict[str, object]]:
    """All results, one of them with other fields."""
    return [{**line, **fields} if line["rollout_id"] == rollout.rollout_id else line for line in RESULTS]


@given(st.permutations(RESULTS))
def test_a_clean_account(results: list[dict[str, object]]) -> None:
    """When every rollout came out right once, nothing is lost, doubled, restarted or wrong, in whatever order."""
    account = settle_accounts(JOB, CUT, results)
    assert account.is_clean
    assert account.completed == account.total == len(JOB)
    assert CUT.missing(JOB) == []
    assert CUT.live == len(LIVE) >= LIVE_MIN


@given(st.sampled_from(JOB))
def test_a_lost_rollout_is_found(rollout: Rollout) -> None:
    """A rollout without a result is lost."""
    account = settle_accounts(JOB, CUT, [line for line in RESULTS if line["rollout_id"] != rollout.rollout_id])
    assert account.lost == (rollout.rollout_id,)
    assert not account.is_clean


@given(st.sampled_from(JOB))
def test_a_doubled_rollout_is_found(rollout: Rollout) -> None:
    """A rollout whose result stands twice in the file is doubled, also when both lines are the same."""
    account = settle_accounts(JOB, CUT, [*RESULTS, result_of(rollout)])
    assert account.doubled == (rollout.rollout_id,)
    assert not account.is_clean


@pytest.mark.parametrize("fields", [{"attempt_index": 0}, {"attempt_index": 2}, {"began_at_turn": 0}])
def test_a_restarted_rollout_is_found(fields: dict[str, object]) -> None:
    """A rollout that did not go on as the next attempt from the turn of its boundary was restarted."""
    account = settle_accounts(JOB, CUT, changed(LIVE[-1], **fields))
    assert account.restarted == (LIVE[-1].rollout_id,)
    assert not account.is_clean


@pytest.mark.parametrize(
    "fields", [{"observation": "0" * 64}, {"turns": 1}, {"model_calls": 99}, {"reward": 0.0}, {"more": 1}]
)
def test_a_wrong_result_is_found(fields: dict[str, object]) -> None:
    """A result that does not follow from the task is wrong, also where only a count differs."""
    account = settle_accounts(JOB, CUT, changed(DONE[0], **fields))
    assert account.wrong == (DONE[0].rollout_id,)
    assert not account.is_clean


def test_a_result_of_nobody_is_wrong() -> None:
    """A line of a rollout that was never dispatched is no completed rollout."""
    account = settle_accounts(JOB, CUT, [*RESULTS, {**RESULTS[0], "rollout_id": "stranger"}])
    assert account.wrong == ("stranger",)
    assert account.completed == len(JOB)


def test_a_rollout_that_the_cut_has_not_exactly_once_is_missing() -> None:
    """Neither in no place nor in two."""
    nowhere = replace(CUT, kept=frozenset())
    twice = replace(CUT, restarting=frozenset({LIVE[0].rollout_id}))
    assert nowhere.missing(JOB) == sorted(rollout.rollout_id for rollout in DONE)
    assert twice.missing(JOB) == [LIVE[0].rollout_id]
    assert settle_accounts(JOB, twice, RESULTS).restarted == (LIVE[0].rollout_id,)


@given(rollouts=st.integers(min_value=ROLLOUTS_MIN, max_value=60), turns=st.integers(min_value=6, max_value=20))
def test_every_job_has_enough_of_each_kind(rollouts: int, turns: int) -> None:
    """Whatever is asked for: enough rollouts under way at the cut, some over before it, some not begun."""
    found = job(rollouts, turns)
    assert len(found) == len(_ids(found)) == rollouts
    assert sum(rollout.turns >= turns and not rollout.late for rollout in found) >= LIVE_MIN
    assert sum(rollout.turns < turns and not rollout.late for rollout in found) >= 2
    assert sum(rollout.late for rollout in found) == 2


def _ids(rollouts: Iterable[Rollout]) -> set[str]:
    return {rollout.rollout_id for rollout in rollouts}
