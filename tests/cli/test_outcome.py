"""What the demonstration came to: each check fails by itself, and a failing one is no success."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.workload import TOKEN, deployed

from quiesce.cli.demonstration.account import CutAccount, settle_accounts
from quiesce.cli.demonstration.doors import still_closed
from quiesce.cli.demonstration.job import ROLLOUTS_MIN, expected_result, job
from quiesce.cli.demonstration.outcome import Outcome
from quiesce.controller.api import Controller
from quiesce.controller.config import parse_config
from quiesce.controller.results import CutResult, RestoreResult, Timings
from quiesce.controller.verification import SnapshotVerification
from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.identity import AttemptId
from quiesce.transport import StaticTokenProvider

JOB = job(ROLLOUTS_MIN, 6)
LIVE = tuple(AttemptId(rollout.rollout_id, 0) for rollout in JOB if rollout.turns > 2)
TIMINGS = Timings((), 1.0, 0.5)
VERIFIED = SnapshotVerification("demo-1", "demo", 1, 1, 0, ())
AT_CUT = CutAccount(
    kept=frozenset(rollout.rollout_id for rollout in JOB if rollout.turns == 2 and not rollout.late),
    boundaries=dict.fromkeys(LIVE, 1),
    restarting=frozenset(),
    unstarted=frozenset(rollout.rollout_id for rollout in JOB if rollout.late),
)


def results() -> list[dict[str, object]]:
    """What the trainer's file says when all went well."""
    lines = []
    for rollout in JOB:
        went_on = int(AttemptId(rollout.rollout_id, 0) in LIVE)
        lines.append({**expected_result(rollout), "attempt_index": went_on, "began_at_turn": went_on})
    return lines


def good() -> Outcome:
    """An outcome in which everything holds."""
    return Outcome(
        JOB,
        Path("demo"),
        cut=CutResult("demo", "demo-1", Path("demo-1"), LIVE, (), ("key",), TIMINGS),
        at_cut=AT_CUT,
        thrown_away=tuple(AT_CUT.unstarted),
        killed={"agent": -signal.SIGKILL},
        restore=RestoreResult("demo", "restore-1", "demo-1", Path("demo-1"), LIVE, (), (), (), TIMINGS),
        account=settle_accounts(JOB, AT_CUT, results()),
        verification=VERIFIED,
        journal_faults=(),
    )


def test_when_all_holds_it_is_good() -> None:
    """Every check holds, and the JSON form says so in the names that scripts read."""
    outcome = good()
    assert outcome.is_good
    found = json.loads(json.dumps(outcome.to_json()))
    assert (found["ok"], found["left_paused"]) == (True, 0)
    assert found["rollouts"]["completed"] == found["rollouts"]["total"] == len(JOB)
    assert found["snapshot"]["wire_id"] == "demo-1"


def _lose_one(outcome: Outcome) -> None:
    outcome.account = settle_accounts(JOB, AT_CUT, results()[1:])


def _double_one(outcome: Outcome) -> None:
    outcome.account = settle_accounts(JOB, AT_CUT, [*results(), results()[0]])


def _restart_one(outcome: Outcome) -> None:
    lines = [{**line, "began_at_turn": 0} if line["attempt_index"] else line for line in results()]
    outcome.account = settle_accounts(JOB, AT_CUT, lines)


def _spoil_one(outcome: Outcome) -> None:
    outcome.account = settle_accounts(JOB, AT_CUT, [{**results()[0], "reward": 0.0}, *results()[1:]])


def _forget_one_in_the_cut(outcome: Outcome) -> None:
    outcome.at_cut = replace(AT_CUT, unstarted=frozenset())


def _few_live(outcome: Outcome) -> None:
    outcome.at_cut = replace(AT_CUT, boundaries={})


def _nothing_waited(outcome: Outcome) -> None:
    outcome.at_cut = replace(AT_CUT, kept=frozenset())


def _nothing_thrown_away(outcome: Outcome) -> None:
    outcome.thrown_away = ()


def _somebody_survived(outcome: Outcome) -> None:
    outcome.killed = {"agent": -signal.SIGKILL, "tools": 0}


def _restored_others(outcome: Outcome) -> None:
    assert outcome.restore is not None
    outcome.restore = replace(outcome.restore, rollouts=LIVE[1:])


def _somebody_closed(outcome: Outcome) -> None:
    outcome.closed.append("main/agent: held_prepared")


def _damaged(outcome: Outcome) -> None:
    problem = SnapshotInvalid(subject="snapshot", file="x", reason="does not exist")
    outcome.verification = replace(VERIFIED, problems=(problem,))


def _stepped_wrongly(outcome: Outcome) -> None:
    outcome.journal_faults = ("record 3: no row of the table is this step",)


def _broken_off(outcome: Outcome) -> None:
    outcome.restore = None


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        (_lose_one, "nothing_lost"),
        (_double_one, "nothing_doubled"),
        (_restart_one, "nothing_restarted"),
        (_spoil_one, "every_result_right"),
        (_forget_one_in_the_cut, "everybody_in_the_cut_once"),
        (_few_live, "enough_live_at_cut"),
        (_nothing_waited, "unacknowledged_at_cut"),
        (_nothing_thrown_away, "work_after_the_cut_thrown_away"),
        (_somebody_survived, "everything_killed"),
        (_restored_others, "same_rollouts_restored"),
        (_somebody_closed, "nobody_left_paused"),
        (_damaged, "snapshot_verified"),
        (_stepped_wrongly, "every_step_allowed"),
        (_broken_off, "carried_through"),
    ],
)
def test_each_check_can_fail(spoil: Callable[[Outcome], None], check: str) -> None:
    """One thing that went wrong is found by the check of its name, and the whole is then no success."""
    outcome = good()
    spoil(outcome)
    assert outcome.checks()[check] is False
    assert not outcome.is_good
    assert outcome.to_json()["ok"] is False


async def test_a_closed_door_is_found(tmp_path: Path) -> None:
    """Whoever is held by a checkpoint is named while it is held, and not before or after."""
    async with deployed(latency_s=0) as urls:
        names = {Role.POLICY: "policy_model", Role.AUXILIARY: "judge", Role.AGENT: "agent", Role.RESOURCES: "tools"}
        rows = ", ".join(f'{{ name = "{names[role]}", url = "{url}" }}' for role, url in urls.items())
        text = f'root = "root"\n[deployment.main]\nparticipants = [{rows}]\n'
        config = parse_config(text, source="test", directory=tmp_path, environment={})
        async with Controller(config, tokens=StaticTokenProvider(TOKEN)) as controller:
            assert controller.discovered is not None
            everybody = controller.discovered.participants
            assert await still_closed(everybody) == []
            async with controller.cut("a"):
                closed = await still_closed(everybody)
                assert {sentence.partition(":")[0] for sentence in closed} == {
                    "main/policy_model",
                    "main/agent",
                    "main/tools",
                }
            assert await still_closed(everybody) == []
    assert len(await still_closed(everybody)) == 4
