"""The search finds planted bugs: each is one row, guard or order that is changed, and a property that then breaks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.mutations_page import page
from support.planted_bugs import (
    BUGS,
    STRICT_AGENT,
    Misorder,
    doubled,
    forgetting,
    in_place,
    planted,
    searched,
    setups,
    verdict_of,
    waves,
)

from quiesce.fsm.explore import explore
from quiesce.fsm.explore_model import System
from quiesce.fsm.vocabulary import Phase, Role

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutations.md"
SHORTEST = {
    "a drain is neither waited for nor read again": 18,
    "a participant is not marked before its first call": 6,
    "an export is not waited for": 17,
    "a lost close is taken for one that never left": 7,
    "a resume that is refused from idle is taken for success": 23,
    "an outstanding call is not waited for": 13,
    "a call that ended under the resume is not looked after": 15,
    "an orphan fence is not repaired": 17,
    "an orphan fence is resumed under the used-up id for ever": 12,
    "the idle resume is not healed": 7,
    "a coordinator is resumed while a pause runs": 18,
    "a coordinator is healed while a resume runs": 22,
    "another controller's conflict is believed too early": 12,
    "back-off is not armed": 9,
    "the deadline of reopening names nobody": 8,
    "an answer from before the deadline is taken for a new one": 18,
    "an abort does not wait for the rename": 26,
    "a failed record undoes what the rename decides": 26,
    "an unreadable rename is taken for one that failed": 25,
    "everybody is released before the rename": 26,
    "a failed restore is opened": 8,
    "an export is published before it was checked": 23,
    "an export that differs from what was said is published": 25,
    "a first call leaves before its record is durable": 5,
    "a controller that takes over is not told of a first call": 7,
    "the decision is recorded after the rename": 24,
    "a recovery undoes what was published": 26,
    "a recovery believes the first 200": 22,
    "a recovery forgets the calls of its predecessor": 13,
    "a recovery opens half a restore": 6,
    "a recovery releases half a restore": 6,
    "a recovery holds a restore that was being released": 19,
    "a restore is released before that is recorded": 19,
    "a restore is aborted before that is recorded": 7,
    "another id is used while a call of ours may run": 21,
    "a resume is not compared with the id that holds": 13,
    "a prepare whose id is used up is taken": 8,
    "a policy exports with a call in flight": 16,
    "the order of reopening is turned round": 8,
    "an abort forgets the agents": 13,
    "resources are frozen before the agents are parked": 6,
    "agents are closed before the policies": 6,
    "resources are frozen before the policies are closed": 6,
    "agents are closed while the policies drain, where they must not be": 8,
    "a close that got lost counts as one": 7,
    "policies export before the agents have": 16,
    "resources export before the agents have": 17,
    "an export that got lost counts as one": 17,
    "agents are restored before the policies": 6,
    "resources are restored before the policies": 6,
    "the order of restoring is turned round": 6,
    "an import that got lost counts as one": 7,
    "the judge is paused": 5,
    "phases are not read again before the exports": 13,
    "exports begin before everybody is paused": 12,
    "a restarted participant commits": 18,
    "a rename that failed is taken for one that happened": 24,
    "a snapshot that is looked for and not found is taken for one": 27,
    "a recovery goes on without a snapshot": 2,
    "an abort ends as a cut that was taken": 2,
    "a cut that is held for too long goes on as taken": 11,
    "a retry of an abort in doubt goes on as taken": 8,
    "what stands leaves participants aborted, and what does not resumed": 10,
    "whoever was exported is left aborted": 27,
    "half a restore that failed counts as a whole one": 8,
    "half a restore that ran out of time counts as a whole one": 6,
    "workers' acknowledgements are not counted": 20,
}
"""How many actions lead to each violation. A changed number means that a bug shows earlier or later: say why."""
SAMPLED = (
    "a participant is not marked before its first call",
    "a recovery opens half a restore",
    "an abort forgets the agents",
    "a failed restore is opened",
)
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
"""All of them are searched with a twin in ``make test-all``."""
BOUND = 600_000


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_with_a_shortest_trace(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """Each planted bug breaks the property that it is planted against, in so many steps."""
    verdict = verdict_of(name)
    assert verdict is not None, f"{name}: not found, or another property breaks"
    assert len(verdict.trace or ()) == SHORTEST[name]
    record_property("swept", "planted bugs, each found: 1")


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", BUGS if THOROUGH else SAMPLED)
def test_the_reduced_search_finds_what_the_full_one_finds(name: str) -> None:
    """Beside a twin of its last participant, a bug shows after as many steps in either search, or in neither."""
    bug = BUGS[name]
    setup = doubled(planted(bug))
    with in_place(bug):
        full = explore(System(setup), states_max=BOUND, stop_at_violation=True)
        reduced = explore(System(setup, reduced=True), states_max=BOUND, stop_at_violation=True)
    assert reduced.states < full.states or full.states == BOUND
    shortest = [sorted(len(verdict.trace or ()) for verdict in found.violations()) for found in (full, reduced)]
    assert shortest[0][:1] == shortest[1][:1] or (full.states == BOUND and not shortest[0])


def test_there_are_enough_of_them_and_each_is_pinned() -> None:
    """At least 24 bugs are planted, each says where its property holds without it, and each trace is pinned."""
    assert set(SHORTEST) == set(BUGS)
    assert len(BUGS) >= 24
    assert {bug.where for bug in BUGS.values()} <= set(setups())
    assert len({bug.breaks for bug in BUGS.values()}) >= 15


@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.budgets is not None])
def test_the_faults_alone_break_nothing(name: str) -> None:
    """Where a bug needs more than one class of faults, the sound tables stand them for as far as the bug needs."""
    setup = setups()[BUGS[name].where]
    bounded = System(replace(setup, budgets=BUGS[name].budgets or {}, expects=()))
    assert explore(bounded, states_max=40_000).violations() == ()


@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.breaks.endswith("_in_order")])
def test_what_is_out_of_order_is_found_by_its_own_property(name: str) -> None:
    """Each order has its property: what else would catch these bugs, catches none of them, but for one."""
    beside = {"an import that got lost counts as one": {"restored_is_held", "restored_whole"}}
    assert {verdict.name for verdict in searched(name).violations()} == {BUGS[name].breaks} | beside.get(name, set())


@pytest.mark.source
def test_the_page_says_what_is_found() -> None:
    """``docs/mutations.md`` is what the searches find now (PYTHONPATH=tests python -m support.mutations_page)."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_a_trace_reads_as_a_scenario() -> None:
    """A counterexample is a list of what happens to whom, shortest first, that can be read without the source."""
    verdict = verdict_of("a participant is not marked before its first call")
    assert verdict is not None
    assert verdict.trace == (
        "asked to Begin",
        "policy: inspect arrives",
        "policy: the answer to inspect arrives: open",
        "agent: inspect arrives",
        "agent: the answer to inspect arrives: open",
        "policy: close arrives, nothing in flight",
    )


def test_a_rollback_that_forgets_somebody_is_missed_where_it_should_end() -> None:
    """Nobody waits for a rename that cannot be read; here it is never reached that everybody is open before."""
    bug = Misorder(
        "PHASES: no wave of a rollback goes to agents",
        waves(forgetting(Role.AGENT), Phase.ROLLBACK),
        STRICT_AGENT.format("store"),
        "open_though_unknown",
    )
    with in_place(bug):
        found = explore(System(planted(bug)), states_max=200_000)
    assert [verdict.name for verdict in found.violations()] == ["open_though_unknown"]
