"""Promela that is emitted from the automata, and Spin, which must see what the explorer sees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.spin import needs_spin, replayed, trail_of

from quiesce.cli.spin import SpinRun, differences, run_spin
from quiesce.fsm.engine import TableEngine
from quiesce.fsm.explore import Exploration, Kind, explore
from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_promela import ModelNotEmitted, emit_model
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.explore_suites import SUITES, suite
from quiesce.fsm.explore_tables import SystemTables
from quiesce.fsm.promela_composition import ENUMERATED
from quiesce.fsm.rows import Accepted, Facts, Refused, Row, Table
from quiesce.fsm.tables import PARTICIPANT, RELEASE, TRANSACTION
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.participant import ParticipantEvent, ParticipantState
from quiesce.fsm.tables.release import ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.transaction import MemberSpec, Plan
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
AnyRow = Row[Any, Any]

T, P, R = TransactionState, ParticipantState, ReleaseState
TE, PE, RE = TransactionEvent, ParticipantEvent, ReleaseEvent

SMALL = "strict: policy (strict) + agent (strict), cut, no fault"
COMPARED = (
    SMALL,
    "strict: policy (strict) + resources (strict), restore, deadline",
    "strict: policy (strict) + agent (strict), cut, store",
    "gym_a_single: policy (gym_a_single) + agent (gym_a_single), restore, abandoned",
    "gym_a_single: policy (gym_a_single) + resources (gym_a_single), restore, intruder",
    "gym_a_coordinator: policy (gym_a_coordinator) + agent (gym_a_single), cut, failure",
    "mixed: policy (strict) + agent (gym_a_single), restore, loss",
    "mixed: agent (strict) + resources (gym_a_single), cut, controller",
    "strict: policy (strict) + agent (strict), restore, restart",
    "mixed: agent (strict) + resources (gym_a_single), cut, duplicate",
)


class Changed(TableEngine):
    """Walks the tables, but takes one of their rows for another."""

    def __init__(self, rows: Mapping[AnyRow, AnyRow]) -> None:
        self._rows = rows

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        """As the table says, or as the bug has it."""
        result = super().step(table, state, event, facts)
        if isinstance(result, Accepted) and result.row in self._rows:
            return Accepted(self._rows[result.row])
        return result


@dataclass(frozen=True)
class Bug:
    """A row that is taken for another, where, and what must break."""

    table: Table[Any, Any]
    source: Enum
    event: Enum
    wants: tuple[str, ...]
    change: Callable[[AnyRow], AnyRow]
    where: str
    breaks: str

    def planted(self) -> Setup:
        """The set-up with the bug in it."""
        rows = [
            row
            for row in self.table.rows
            if (row.source, row.event) == (self.source, self.event) and set(self.wants) <= set(row.guards)
        ]
        assert rows, "the row that the bug changes is gone; plant it elsewhere"
        engine = Changed({row: self.change(row) for row in rows})
        return replace(SETUPS[self.where], controller=ControllerAutomaton(SETUPS[self.where].controller.plan, engine))


def goes_to(target: Enum, *effects: str) -> Callable[[AnyRow], AnyRow]:
    """The row leads elsewhere, with other effects."""
    return lambda row: replace(row, target=target, effects=effects)


SETUPS = {setup.name: setup for name in SUITES for setup in suite(name)}
BUGS = {
    "a participant is not marked before its first call": Bug(
        PARTICIPANT, P.IDLE, PE.CLOSE_DUE, (), goes_to(P.IDLE, "call_close"), SMALL, "closed_is_known"
    ),
    "an export is not waited for": Bug(
        PARTICIPANT,
        P.PAUSED,
        PE.EXPORT_DUE,
        (),
        goes_to(P.COMMITTED, "call_export", "mark_verified"),
        SMALL,
        "published_whole",
    ),
    "an orphan fence is not repaired": Bug(
        RELEASE,
        R.CONFIRMING,
        RE.READ_ORPHAN,
        ("fresh_ids_left",),
        goes_to(R.RELEASED, "report_released"),
        "gym_a_single: policy (gym_a_single) + agent (gym_a_single), cut, no fault",
        "settled_takes_next_cut",
    ),
    "an unreadable rename is taken for one that failed": Bug(
        TRANSACTION,
        T.PUBLISHING,
        TE.PUBLISH_UNCERTAIN,
        (),
        goes_to(T.ABORTING, "arm_release", "start_release"),
        "strict: policy (strict) + agent (strict), cut, store",
        "never_published_and_aborted",
    ),
    "a failed restore is opened": Bug(
        TRANSACTION,
        T.RESTORING,
        TE.PARTICIPANT_FAILED,
        (),
        goes_to(T.ABORTING, "arm_release", "start_release"),
        "strict: policy (strict) + resources (strict), restore, failure",
        "restore_undone_by_request",
    ),
    "back-off is not armed": Bug(
        RELEASE,
        R.RELEASING,
        RE.UNANSWERED,
        (),
        lambda row: replace(row, effects=tuple(effect for effect in row.effects if effect != "arm_backoff")),
        "strict: policy (strict) + agent (strict), restore, loss",
        "every state that may not rest has a step",
    ),
}


def three() -> Setup:
    """A cut of three participants with an abort at any moment, and records that fail."""
    roles = (Role.POLICY, Role.AGENT, Role.RESOURCES)
    specs = tuple(MemberSpec(ParticipantKey("main", role.value), role, frozenset(Phase)) for role in roles)
    sites = tuple(SiteAutomaton(spec, FenceVariant.STRICT) for spec in specs)
    budgets = {Fault.ABORT: 1, Fault.STORE: 1}
    return Setup("three", ControllerAutomaton(Plan(specs)), sites, budgets, expects=("resumed", "aborted"))


def searched(setup: Setup) -> tuple[System, Exploration]:
    """The system and a complete search of it."""
    system = System(setup)
    return system, explore(system)


def spun(setup: Setup, folder: Path) -> tuple[Exploration, SpinRun]:
    """What the explorer and Spin see of a set-up."""
    system, found = searched(setup)
    return found, run_spin(emit_model(system, found), folder, flags=("-DWITNESS",))


# the text


def test_the_same_search_gives_the_same_bytes() -> None:
    """Emitting twice, from automata enumerated anew and with names hashed otherwise, changes no byte."""
    system, found = searched(SETUPS[SMALL])
    program = (
        "import sys\n"
        "from quiesce.fsm.explore import explore\n"
        "from quiesce.fsm.explore_model import System\n"
        "from quiesce.fsm.explore_promela import emit_model\n"
        "from quiesce.fsm.explore_suites import suite\n"
        "system = System(suite('strict')[0])\n"
        "sys.stdout.write(emit_model(system, explore(system)))\n"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert run.stdout.decode() == emit_model(system, found)


def test_the_text_says_what_it_is_and_stays_small() -> None:
    """The head names the search and its counts; every action is noted; the text is small."""
    system, found = searched(SETUPS[SMALL])
    text = emit_model(system, found)
    assert text.startswith(f"/* {SMALL}\n")
    assert f"{found.states} states, {found.transitions} transitions" in text
    actions = {action for state in system.initial() for action, _ in system.steps(state)}
    assert actions
    assert all(f": {action} */" in text for action in actions)
    assert len(text) < 200_000


def test_a_search_that_was_bounded_gives_no_model() -> None:
    """What the search has not seen is not in its tables: there is no model, and the error says what to do."""
    system = System(SETUPS[SMALL])
    with pytest.raises(ModelNotEmitted, match="let it see more states"):
        emit_model(system, explore(system, states_max=100))


def test_a_wrong_beginning_and_too_large_a_model_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a first state that breaks a property nor tables beyond the bound become a model."""
    system, found = searched(SETUPS[SMALL])
    monkeypatch.setattr("quiesce.fsm.explore_promela._ENTRIES_MAX", 1_000)
    with pytest.raises(ModelNotEmitted, match="Spin is given 1,000"):
        emit_model(system, found)
    monkeypatch.setattr(System, "broken", lambda _system, _state: 1)
    with pytest.raises(ModelNotEmitted, match="first state breaks"):
        emit_model(system, found)


# Spin


@needs_spin
@pytest.mark.parametrize("name", COMPARED)
def test_spin_sees_what_the_explorer_sees(name: str, tmp_path: Path) -> None:
    """Of every variant and class of faults: as many states, as many transitions, and the same verdicts."""
    found, run = spun(SETUPS[name], tmp_path)
    assert (run.states, run.transitions) == (found.states, found.transitions)
    assert differences(found, run) == ()


@needs_spin
def test_three_participants_are_composed_alike(tmp_path: Path) -> None:
    """The composition is not one of two: a third participant changes nothing about the agreement."""
    found, run = spun(three(), tmp_path)
    assert found.states > 3_000
    assert differences(found, run) == ()


@needs_spin
@pytest.mark.parametrize("name", BUGS)
def test_spin_finds_what_the_explorer_finds(name: str, tmp_path: Path) -> None:
    """Of a planted bug both say the same, property by property, and no trail of Spin is shorter than the shortest."""
    bug = BUGS[name]
    found, run = spun(bug.planted(), tmp_path)
    assert bug.breaks in {verdict.name for verdict in found.violations()}
    assert differences(found, run) == ()
    violated = [verdict for verdict in found.violations() if verdict.kind in {Kind.ALWAYS, Kind.NO_DEADLOCK}]
    assert len(run.violated.keys() - {f"never_{expected}" for expected in bug.planted().expects}) == len(violated)


@needs_spin
@pytest.mark.parametrize("name", ["an export is not waited for", "an unreadable rename is taken for one that failed"])
def test_a_trail_of_spin_is_a_way_of_the_explorer(name: str, tmp_path: Path) -> None:
    """The actions that Spin's trail prints can be taken one after the other, and break what Spin says they break."""
    system, found = searched(BUGS[name].planted())
    run = run_spin(emit_model(system, found), tmp_path, all_violations=False)
    assert set(run.violated) == {BUGS[name].breaks}
    actions = trail_of(tmp_path)
    assert len(actions) == run.violated[BUGS[name].breaks]
    bit = 1 << system.always.index(BUGS[name].breaks)
    assert any(system.broken(state) & bit for state in replayed(system, actions))


class Forgetful(System):
    """A system whose tables are told otherwise than they are."""

    def __init__(self, setup: Setup, tell: Callable[[SystemTables], SystemTables]) -> None:
        super().__init__(setup)
        self._tell_tables = tell

    def tables(self) -> SystemTables:
        """What it has enumerated, but for what it forgets."""
        return self._tell_tables(super().tables())


def _without_a_move(tables: SystemTables) -> SystemTables:
    return tables._replace(moves=dict(list(tables.moves.items())[:-1]))


def _without_a_call(tables: SystemTables) -> SystemTables:
    part = tables.parts[0]
    return tables._replace(parts=(part._replace(added=dict(list(part.added.items())[:-1])), *tables.parts[1:]))


def _without_a_pair(tables: SystemTables) -> SystemTables:
    part = tables.parts[1]
    return tables._replace(parts=(tables.parts[0], part._replace(broken=dict(list(part.broken.items())[:-1]))))


@needs_spin
@pytest.mark.parametrize("forget", [_without_a_move, _without_a_call, _without_a_pair])
def test_what_the_explorer_never_met_is_told(forget: Callable[[SystemTables], SystemTables], tmp_path: Path) -> None:
    """If Spin composes anything that is not in the tables, an assertion says so: nothing is left out in silence."""
    setup = SETUPS["strict: policy (strict) + resources (strict), restore, no fault"]
    system = Forgetful(setup, forget)
    found = explore(system)
    run = run_spin(emit_model(system, found), tmp_path, flags=("-DWITNESS",))
    assert ENUMERATED in run.violated
    assert any(ENUMERATED in difference for difference in differences(found, run))
