"""FENCE as a table: total for every call, its deviations cited, its wire codes closed."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from quiesce.fsm.rows import Accepted, Refused
from quiesce.fsm.tables.fence import (
    ANSWERS,
    ARRIVALS,
    ENDS,
    FENCE,
    REFUSALS,
    FenceEvent,
    FencePhase,
    FenceTable,
    FenceVariant,
)
from quiesce.fsm.tables.fence_vocabulary import EFFECTS, FenceRow
from quiesce.fsm.vocabulary import Role

RECORDINGS = Path(__file__).parents[1] / "data" / "wire_recordings"
TABLES = pytest.mark.parametrize("table", FENCE.values(), ids=lambda table: table.name)
KEYS = pytest.mark.parametrize(("variant", "role"), FENCE, ids=str)

MEMBERS = {
    Role.POLICY: {"prepare", "status", "abort_inflight", "commit", "restore", "resume"},
    Role.AUXILIARY: {"prepare", "status", "abort_inflight", "commit", "restore", "resume"},
    Role.AGENT: {"prepare", "status", "commit", "restore", "resume", "retire", "discard"},
    Role.RESOURCES: {"prepare", "status", "commit", "restore", "resume", "retire"},
}


def _calls(table: FenceTable) -> set[str]:
    return {row.event.value for row in table.rows if row.event in ARRIVALS}


def _what(row: FenceRow) -> tuple[object, ...]:
    return (row.source, row.event, frozenset(row.guards), row.target, row.effects)


def test_there_is_a_fence_for_every_role_and_a_coordinator_for_policies_alone() -> None:
    """Every role has a strict and a recorded single-worker fence; only policies have coordinators."""
    single = set(product((FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE), Role))
    assert set(FENCE) == single | {(FenceVariant.GYM_A_COORDINATOR, Role.POLICY)}


@KEYS
def test_a_role_has_exactly_the_calls_of_its_routes(variant: FenceVariant, role: Role) -> None:
    """A role's table decides the calls of its own routes; the coordinator has the admission routes alone (F23)."""
    expected = MEMBERS[role]
    if variant is FenceVariant.GYM_A_COORDINATOR:
        expected = expected - {"commit", "restore"}
    assert _calls(FENCE[variant, role]) == expected


@TABLES
def test_every_call_is_decided_in_every_phase_for_every_verdict(table: FenceTable) -> None:
    """The cross product: a call always finds exactly one row, and a refusal leaves the phase as it was."""
    seen = 0
    for phase, event in product(table.used_states(), _calls(table)):
        guards = table.pair_guards(phase, FenceEvent(event))
        for mask in range(2 ** len(guards)):
            result = table.result_for(phase, FenceEvent(event), mask)
            assert isinstance(result, Accepted), (phase, event, mask)
            assert not result.row.refusal or result.row.target is phase
            seen += 1
    assert seen >= len(table.rows) - sum(row.event not in ARRIVALS for row in table.rows)


@TABLES
def test_what_the_table_lacks_is_refused_with_a_reason(table: FenceTable) -> None:
    """A pair without rows answers what would be possible, and nothing is taken."""
    pairs = {(row.source, row.event) for row in table.rows}
    absent = [(phase, event) for phase, event in product(FencePhase, FenceEvent) if (phase, event) not in pairs]
    assert absent
    for phase, event in absent:
        result = table.step(phase, event, {})
        assert isinstance(result, Refused)
        assert event.value in result.reason


@TABLES
def test_each_row_of_a_call_answers_it_exactly_once_and_last(table: FenceTable) -> None:
    """An arrival and an end have one answer, as the last effect; an event from within has none."""
    for row in table.rows:
        answers = [effect for effect in row.effects if effect in ANSWERS]
        if row.event in (*ARRIVALS, *ENDS):
            assert answers == [row.effects[-1]], str(row)
        else:
            assert answers == [], str(row)


@TABLES
def test_every_end_drops_its_handler_and_answers_its_caller(table: FenceTable) -> None:
    """A handler that has ended runs no more, and only an end can end one."""
    for row in table.rows:
        assert ("drop_handler" in row.effects) is (row.event in ENDS), str(row)


@TABLES
def test_refusal_rows_only_refuse(table: FenceTable) -> None:
    """A row marked as refusal has one effect, which has a code on the wire; no unmarked arrival refuses."""
    for row in table.rows:
        if row.refusal:
            assert len(row.effects) == 1
            assert row.effects[0] in REFUSALS
        elif row.event in ARRIVALS:
            assert not set(row.effects) & set(REFUSALS), str(row)


@TABLES
def test_a_used_up_id_is_stale_for_everything_but_its_resume(table: FenceTable) -> None:
    """F1 holds in every variant, role and phase: resume is replayed, all else is stale (an auxiliary has no ids)."""
    for row in table.rows:
        if "id_finished" in row.guards and row.event in ARRIVALS:
            assert row.effects == (
                ("replay_reply",) if row.event is FenceEvent.RESUME else ("refuse_stale_checkpoint",)
            )


def test_the_effects_are_all_used_by_some_variant() -> None:
    """The vocabulary holds nothing that no fence uses."""
    used = {effect for table in FENCE.values() for row in table.rows for effect in row.effects}
    assert used == set(EFFECTS)


@pytest.mark.parametrize(("variant", "role"), [key for key in FENCE if key[0] is not FenceVariant.STRICT], ids=str)
def test_each_deviation_of_a_recorded_server_names_where_it_was_seen(variant: FenceVariant, role: Role) -> None:
    """A row that strict does not have cites an F number, or a recording that exists."""
    strict = {_what(row) for row in FENCE[FenceVariant.STRICT, role].rows}
    deviations = [row for row in FENCE[variant, role].rows if _what(row) not in strict]
    assert deviations or role is Role.AUXILIARY
    for row in deviations:
        files = re.findall(r"[a-z_]+\.jsonl", row.source_ref)
        assert files or re.search(r"\bF\d+\b", row.source_ref), str(row)
        assert all((RECORDINGS / name).is_file() for name in files), row.source_ref


def test_strict_never_writes_a_late_end_over_another_id() -> None:
    """In every strict table an end whose id is not active leaves the phase alone and answers stale_checkpoint."""
    seen = 0
    for role in (Role.POLICY, Role.AGENT, Role.RESOURCES):
        for row in FENCE[FenceVariant.STRICT, role].rows:
            if row.event in ENDS and "!id_active" in row.guards:
                assert row.target is row.source
                assert row.effects == ("drop_handler", "refuse_stale_checkpoint")
                seen += 1
            elif row.event in ENDS:
                assert "id_active" in row.guards
    assert seen > 20


def test_strict_resume_is_never_a_wrong_phase() -> None:
    """Resume works from every phase in every strict role; only another id or an owed restore refuse."""
    for role in (Role.POLICY, Role.AGENT, Role.RESOURCES):
        refusals = {
            effect
            for row in FENCE[FenceVariant.STRICT, role].rows
            for effect in row.effects
            if row.event is FenceEvent.RESUME and row.refusal
        }
        assert refusals <= {"refuse_conflict", "refuse_owes_restore"}


@TABLES
def test_a_waiting_phase_has_a_deadline_class(table: FenceTable) -> None:
    """Wherever an operation may run, the table says which budget bounds it."""
    for row in table.rows:
        if "start_operation" in row.effects and row.event is not FenceEvent.RESUME:
            assert row.target in table.waiting, str(row)
