"""A recorded run is held against the tables: true runs pass, and whatever is changed in one is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_fleet import DRAIN_ONLY, Fleet, agent, auxiliary, policy, resources

from quiesce.fsm import messages as m
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.trace_check import check_trace, split_runs
from quiesce.fsm.vocabulary import Outcome, Role, Verb

S = TransactionState
ROLES = {"main/policy": Role.POLICY, "main/agent": Role.AGENT, "main/resources": Role.RESOURCES}


def clean(fleet: Fleet) -> Fleet:
    """A cut without trouble."""
    return fleet.to(S.RESUMED)


def troubled(fleet: Fleet) -> Fleet:
    """Lost calls, results to acknowledge, a drain, a refused resume."""
    fleet.script("policy", Verb.CLOSE, Outcome.DRAINING).script("agent", Verb.CLOSE, Outcome.LOST, Outcome.INCOMPLETE)
    fleet.script("agent", Verb.AWAIT_CUT, Outcome.UNACKNOWLEDGED).script("agent", Verb.EXPORT, Outcome.LOST)
    fleet.script("resources", Verb.RELEASE, Outcome.WRONG_PHASE, Outcome.LOST)
    return fleet.to(S.RESUMED)


def aborted(fleet: Fleet) -> Fleet:
    """A cut that a refusal ends."""
    return fleet.script("resources", Verb.CLOSE, Outcome.REFUSED).begin().run()


RUNS: dict[str, Callable[[Fleet], Fleet]] = {"clean": clean, "troubled": troubled, "aborted": aborted}


def records(run: Callable[[Fleet], Fleet], drain: DrainMode = DrainMode.OVERLAPPED) -> list[TraceRecord]:
    """What a run records."""
    fleet = run(Fleet(policy(), agent(), resources(), drain=drain))
    return [command.trace for command in fleet.log if isinstance(command, m.Record)]


@pytest.mark.parametrize("drain", DrainMode)
@pytest.mark.parametrize("name", RUNS)
def test_a_true_run_has_no_fault(name: str, drain: DrainMode) -> None:
    """In both drain modes, with and without trouble."""
    run = records(RUNS[name], drain=drain)
    assert len(run) > 20
    assert check_trace(run, roles=ROLES, drain=drain) == ()


def test_a_drain_only_policy_and_a_judge_are_no_fault() -> None:
    """Who exports nothing stays paused while the others export; who takes part in nothing is waited for by nobody."""
    fleet = Fleet(policy(phases=DRAIN_ONLY), agent(), resources(), auxiliary()).to(S.RESUMED)
    run = [command.trace for command in fleet.log if isinstance(command, m.Record)]
    assert check_trace(run, roles={**ROLES, "main/judge": Role.AUXILIARY}) == ()


@given(data=st.data(), name=st.sampled_from(sorted(RUNS)))
def test_a_record_that_is_missing_is_found(data: st.DataObject, name: str) -> None:
    """Unless it is the last of its machine, or a step that stayed where it was."""
    run = records(RUNS[name])
    place = data.draw(st.integers(0, len(run) - 1))
    gone = run[place]
    later = [record for record in run[place + 1 :] if (record.machine, record.subject) == (gone.machine, gone.subject)]
    if gone.source != gone.target and later:
        assert check_trace([*run[:place], *run[place + 1 :]], roles=ROLES)


@given(data=st.data(), name=st.sampled_from(sorted(RUNS)))
def test_a_record_that_was_edited_is_found(data: st.DataObject, name: str) -> None:
    """Another target, another effect, a guard turned round, another event or machine: none passes."""
    run = records(RUNS[name])
    place = data.draw(st.integers(0, len(run) - 1))
    record = run[place]
    edits = [
        record._replace(target="idle" if record.target != "idle" else "aborted"),
        record._replace(effects=(*record.effects, "publish")),
        record._replace(event="nonsense"),
        record._replace(machine="NONSENSE"),
    ]
    edits += [
        record._replace(verdicts=tuple((guard, verdict != (guard == turned)) for guard, verdict in record.verdicts))
        for turned, _ in record.verdicts
        if turned in {"going_forward", "decided", "is_restore"}
    ]
    edited = data.draw(st.sampled_from(edits))
    faults = check_trace([*run[:place], edited, *run[place + 1 :]], roles=ROLES)
    assert any(fault.number == place + 1 for fault in faults), f"{record} -> {edited}"


@pytest.mark.parametrize("late", ["agent", "resources"])
def test_a_close_before_its_turn_is_found(late: str) -> None:
    """The order of the waves is part of what is checked."""
    run = records(clean)
    due = next(r for r in run if r.subject == f"main/{late}" and r.event == "close_due")
    begun = next(place for place, r in enumerate(run) if r.machine == "TRANSACTION" and r.target == "draining")
    early = [*run[: begun + 1], due, *(record for record in run[begun + 1 :] if record is not due)]
    faults = check_trace(early, roles=ROLES)
    assert any("its wave waits for" in fault.reason for fault in faults)


def test_an_export_before_everybody_was_read_again_is_found() -> None:
    """Commit needs a fresh reading of everybody."""
    run = records(clean)
    export = next(record for record in run if record.event == "export_due")
    reading = max(place for place, record in enumerate(run) if record.event == "confirmed")
    early = [record for record in run if record is not export]
    early.insert(reading - 1, export)
    assert any("read again first" in fault.reason for fault in check_trace(early, roles=ROLES))


def test_runs_of_several_transactions_are_told_apart() -> None:
    """A journal of one controller life is checked run by run."""
    both = [*records(clean), *records(aborted)]
    assert [len(run) for run in split_runs(both)] == [len(records(clean)), len(records(aborted))]
    assert check_trace(both), "as one run they contradict each other"
