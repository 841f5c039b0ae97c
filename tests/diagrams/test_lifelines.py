"""The sequence of a run has the order of its records, whoever shares a lifeline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import BEGIN_TS, cut

from quiesce.diagrams import RunRecord, StepKind, run_sequence
from quiesce.diagrams.lifelines import Lifeline, is_call, lifelines_of
from quiesce.diagrams.sequence import CONTROLLER, Sequence
from quiesce.fsm.trace import TraceRecord

LIFELINES_MAX = 12
SCRIPTS = (
    (("inspect_due", "call_inspect"), ("confirmed", "")),
    (("close_due", "call_close"), ("cut_reached", "")),
    (("close_due", "call_close"), ("still_draining", "call_await_cut"), ("cut_reached", "")),
)
"""What a participant can go through here: events, each with its effect."""
ROLES = ("policy", "agent", "resources")
Run = tuple[list[RunRecord], dict[str, str]]


@st.composite
def runs(draw: st.DrawFn, *, at_least: int = LIFELINES_MAX + 1, at_most: int = 24) -> Run:
    """Records in an order that keeps each participant's own, and everybody's role.

    With little spread the steps come in waves, role by role, so that many share a lifeline; with much, in any order.
    """
    count = draw(st.integers(at_least, at_most))
    spread = draw(st.sampled_from((0.0, 0.5, 1.5, 10.0)))
    random = Random(draw(st.integers(0, 2**32)))  # noqa: S311 - a made-up order
    numbers = st.lists(st.sampled_from(range(len(SCRIPTS))), min_size=len(ROLES), max_size=len(ROLES))
    usual = draw(numbers)
    roles = {f"main/p{number}": ROLES[number % len(ROLES)] for number in range(count)}
    odd = draw(st.sets(st.sampled_from(sorted(roles)), max_size=2))
    timed: list[tuple[float, str, str, str]] = []
    for subject, role in roles.items():
        script = SCRIPTS[(usual[ROLES.index(role)] + (subject in odd)) % len(SCRIPTS)]
        at = 10.0 * ROLES.index(role) if draw(st.booleans()) and spread > 1 else 4.0 * ROLES.index(role)
        for event, effect in script:
            at += 1.0 + spread * random.random()
            timed.append((at, subject, event, effect))
    ordered = sorted(timed, key=lambda step: step[0])
    records = [_record(number, *step[1:]) for number, step in enumerate(ordered)]
    return records, roles


def _record(number: int, subject: str, event: str, effect: str) -> RunRecord:
    trace = TraceRecord("participant", subject, "idle", event, event, (effect,) if effect else (), (), "")
    return RunRecord(BEGIN_TS + number, trace)


def arrows(sequence: Sequence) -> list[tuple[str, str]]:
    """Each arrow's lifeline and what it says, without its time."""
    return [
        (step.target if step.kind is StepKind.CALL else step.source, re.sub(r" \(.*", "", step.label))
        for step in sequence.steps
        if CONTROLLER in (step.source, step.target) and step.kind not in (StepKind.STAGE, StepKind.NOTE)
    ]


def recorded(records: list[RunRecord]) -> list[tuple[str, str]]:
    """Each arrow that the records tell of: an answer before what is called upon it."""
    found = []
    for record in records:
        trace = record.trace
        if not trace.event.endswith("_due"):
            found.append((trace.subject, trace.event))
        found += [(trace.subject, effect.removeprefix("call_").replace("_", " ")) for effect in trace.effects]
    return found


def places_of(lifeline: Lifeline, records: list[RunRecord]) -> list[tuple[int, ...]]:
    """For each step of a lifeline, where each of its members took it."""
    own = [[at for at, one in enumerate(records) if one.trace.subject == member] for member in lifeline.members]
    return list(zip(*own, strict=True))


@given(runs())
def test_what_is_drawn_has_the_order_of_the_records(run: Run) -> None:
    """Every arrow is one that was recorded of somebody on its lifeline, and they come in the order of the records."""
    records, roles = run
    shared, _ = lifelines_of(records, roles, LIFELINES_MAX)
    members = {lifeline.name: lifeline.members for lifeline in shared}
    sequence = run_sequence("x", records, roles=roles)
    assert sequence.lifelines == (CONTROLLER, *members)
    left = iter(recorded(records))
    for name, label in arrows(sequence):
        assert any(subject in members[name] and said == label for subject, said in left), (name, label)


@given(runs())
def test_calls_to_two_roles_are_drawn_in_the_order_that_is_everybodys(run: Run) -> None:
    """Where one call is drawn before one of another role, all whom it stands for were called before all of those.

    Except for calls between which nothing happened: they went out at once.
    """
    records, roles = run
    shared, _ = lifelines_of(records, roles, LIFELINES_MAX)
    for one, other in combinations(shared, 2):
        if _role(one, roles) != _role(other, roles):
            for ours in calls_of(one, records):
                for theirs in calls_of(other, records):
                    earlier, later = sorted((ours, theirs), key=max)
                    at_once = records[min(earlier) : max(later) + 1]
                    alone = all(record.trace.event.endswith("_due") for record in at_once)
                    assert alone or max(earlier) < min(later), (one.name, other.name)


def calls_of(lifeline: Lifeline, records: list[RunRecord]) -> list[tuple[int, ...]]:
    """Of each call on a lifeline, where each member's is recorded."""
    return [places for places in places_of(lifeline, records) if any(map(is_call, records[places[0]].trace.effects))]


def _role(lifeline: Lifeline, roles: Mapping[str, str]) -> str:
    (role,) = {roles[member] for member in lifeline.members}
    return role


@given(runs())
def test_whoever_shares_a_lifeline_took_the_same_steps(run: Run) -> None:
    """No lifeline mixes roles, no role lacks one; everybody is drawn or counted, each step as the last one took it."""
    records, roles = run
    shared, left_out = lifelines_of(records, roles, LIFELINES_MAX)
    assert len(shared) <= LIFELINES_MAX
    assert {_role(lifeline, roles) for lifeline in shared} == set(roles.values())
    assert sum(len(lifeline.members) for lifeline in shared) + left_out == len(roles)
    for lifeline in shared:
        places = places_of(lifeline, records)
        assert lifeline.standing_for == tuple(map(max, places))
        assert all(len({(records[at].trace.event, records[at].trace.effects) for at in one}) == 1 for one in places)


@given(runs(at_least=1, at_most=LIFELINES_MAX))
def test_few_have_a_lifeline_each(run: Run) -> None:
    """Up to a dozen are drawn one by one, with every arrow that was recorded."""
    records, roles = run
    sequence = run_sequence("x", records, roles=roles)
    assert set(sequence.lifelines) == {CONTROLLER, *roles}
    assert arrows(sequence) == recorded(records)


@pytest.mark.parametrize("names", [("agent", "tools"), ("agent_1", "tools_1")])
def test_roles_that_are_not_known_are_told_by_names(names: tuple[str, str]) -> None:
    """A run that published nothing knows no role: then names that differ in more than numbers are of two kinds."""
    subjects = [f"main/{name}{number}" for name in names for number in range(10)]
    shared, left_out = lifelines_of(cut(subjects), {}, LIFELINES_MAX)
    assert left_out == 0
    assert [{re.sub(r"\d", "", member) for member in lifeline.members} for lifeline in shared] == [
        {f"main/{re.sub(r'[0-9]', '', name)}"} for name in names
    ]


def test_calls_that_go_out_at_once_part_nobody() -> None:
    """Everybody is looked at in one wave, in whatever order they stand in the topology: that is one moment."""
    roles = {f"main/p{number}": ROLES[number % len(ROLES)] for number in range(30)}
    calls = [_record(at, subject, "inspect_due", "call_inspect") for at, subject in enumerate(roles)]
    answers = [_record(100 + at, subject, "confirmed", "") for at, subject in enumerate(roles)]
    assert len(lifelines_of(calls + answers, roles, LIFELINES_MAX)[0]) == len(ROLES)
