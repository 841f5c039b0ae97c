"""The Hypothesis state machines that are shipped: over tables, over the kit in process, over live servers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, StrEnum
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from support.planted import PLANTED, Planted
from support.workload import TOKEN, Deployment, deployment

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.rows import Accepted, Refused, Row, Table
from quiesce.fsm.tables import PARTICIPANT, RELEASE, TRANSACTION
from quiesce.fsm.tables.fence import FENCE, FenceVariant
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz import Nonconforming, Profile, kit_machine, kit_traffic, live_machine, table_machine
from quiesce.fuzz.participant_machine import machine_over
from quiesce.fuzz.table_lives import AnyTable, Result, shortest_paths

QUIETLY = settings(
    max_examples=40,
    stateful_step_count=6,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""Without shrinking, which costs more than finding."""


def lives(machine: type[RuleBasedStateMachine], *, examples: int = 40, shrink: bool = False) -> None:
    """Let a machine live, as a test runner would."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(machine, settings=settings(QUIETLY, max_examples=examples, phases=phases))


# ---- over tables

TABLES = {table.name: table for table in (TRANSACTION, PARTICIPANT, RELEASE)} | {
    f"{variant.value}-{role.value}": table for (variant, role), table in FENCE.items()
}


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_every_table_lives(table: AnyTable) -> None:
    """Both engines agree in every life, and a refusal changes nothing."""

    def check(before: Enum, _event: Enum, result: Result, after: Enum) -> None:
        assert after is before if isinstance(result, Refused) else after is result.target

    lives(table_machine(table, check=check), examples=15)
    assert set(shortest_paths(table)) == {table.initial} | {row.target for row in table.rows}


def test_what_must_never_hold_is_found() -> None:
    """A claim that the table does not keep fails, with the events that lead there."""

    def never_published(_before: Enum, _event: Enum, _result: Result, after: Enum) -> None:
        assert after is not TransactionState.PUBLISHED, "published"

    with pytest.raises(AssertionError, match="published"):
        lives(table_machine(TRANSACTION, check=never_published), examples=300)


DEPTH = 60
Deep = StrEnum("Deep", [f"S{number}" for number in range(DEPTH)])  # type: ignore[misc]  # made by number
Move = StrEnum("Move", ["ON", "BACK", "ASIDE"])


def deep_table() -> AnyTable:
    """A long way, on which every other event leads back to its beginning."""
    states = list(Deep)
    on = [Row(here, Move.ON, (), there, (), "on") for here, there in pairwise(states)]
    back = [Row(here, Move.BACK, (), states[0], (), "back") for here in states]
    aside = [Row(states[-1], Move.ASIDE, (), states[0], (), "only from the last")]
    return Table("DEEP", "A long way", Deep, Move, states[0], (), (), tuple(on + back + aside))


def test_deep_states_are_reached() -> None:
    """What only happens behind sixty right moves in a row is found in forty lives of six: they begin everywhere."""

    def never_aside(_before: Enum, event: Enum, result: Result, _after: Enum) -> None:
        assert not (event is Move.ASIDE and isinstance(result, Accepted)), "aside"

    machine = table_machine(deep_table(), check=never_aside)
    with pytest.raises(AssertionError, match="aside"):
        lives(machine, examples=400)
    machine.paths = ((),)  # from the beginning alone it is out of reach
    lives(machine, examples=400)


# ---- over the kit


@pytest.mark.parametrize("role", Role)
def test_the_strict_kit_lives(role: Role) -> None:
    """No rule is broken in any life."""
    lives(kit_machine(role), examples=25)


@pytest.mark.parametrize("variant", [FenceVariant.GYM_A_SINGLE, FenceVariant.GYM_A_COORDINATOR])
def test_the_recorded_kit_lives_by_its_own_profile(variant: FenceVariant) -> None:
    """Known deviations do not fail a life; by the strict measure they do."""
    lives(kit_machine(Role.POLICY, variant, profile=Profile.GYM_A), examples=25)
    with pytest.raises(Nonconforming):
        lives(kit_machine(Role.POLICY, variant), examples=100)


FOUND = [
    "a finished id acts again",
    "resume from idle is refused",
    "the deadline is ignored",
    "an unknown receipt is taken",
    "the token is compared loosely",
    "a digest is made up",
    "an incomplete prepare is forgotten",
    "a refusal has no envelope",
]


@pytest.mark.parametrize("planted", [bug for bug in PLANTED if bug.name in FOUND], ids=lambda bug: bug.name)
def test_planted_bugs_are_found(planted: Planted) -> None:
    """The failure names a rule that the bug breaks, and has the calls."""
    with pytest.raises(Nonconforming) as failed:
        lives(machine_over(planted.source), examples=150)
    assert str(failed.value).partition(":")[0] in planted.rules
    assert " -> " in str(failed.value)


def test_a_failing_life_is_shrunk() -> None:
    """Hypothesis leaves little in it that is not needed: a path is taken or not, as a whole."""
    planted = next(bug for bug in PLANTED if bug.name == "resume from idle is refused")
    with pytest.raises(Nonconforming) as failed:
        lives(machine_over(planted.source), shrink=True)
    assert len([line for line in str(failed.value).splitlines() if " -> " in line]) <= 2


# ---- over live servers


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[FenceVariant, Deployment]]:
    """Strict ones and recorded ones."""
    with deployment() as strict, deployment(fence=FenceVariant.GYM_A_SINGLE) as recorded:
        yield {FenceVariant.STRICT: strict, FenceVariant.GYM_A_SINGLE: recorded}


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", TOKEN)


def live(url: str, exports: Path | None = None) -> type[RuleBasedStateMachine]:
    """A machine over a server of the workload."""
    variable = "THE_TOKEN"
    return live_machine(url, token_variable=variable, traffic=kit_traffic, checkpoint_dir=exports, rate=None)


def test_a_live_server_lives(servers: dict[FenceVariant, Deployment]) -> None:
    """Over HTTP, with its own data plane; it is open after every life."""
    strict = servers[FenceVariant.STRICT]
    lives(live(strict.urls[Role.POLICY]), examples=8)
    assert strict.phases() == {"idle"}


def test_a_live_server_that_deviates_is_found(servers: dict[FenceVariant, Deployment], tmp_path: Path) -> None:
    """The recorded tool server begins work after its deadline; it is open afterwards all the same."""
    recorded = servers[FenceVariant.GYM_A_SINGLE]
    with pytest.raises(Nonconforming, match="wire-protocol"):
        lives(live(recorded.urls[Role.RESOURCES], tmp_path), examples=200)
    assert recorded.phases() == {"idle"}


def test_a_url_without_a_participant_is_an_error_of_ours() -> None:
    """It says who did not answer."""
    with pytest.raises(QuiesceError, match=r"http://127\.0\.0\.1:1: unreachable"):
        lives(live("http://127.0.0.1:1"), examples=1)
