"""Promela that is emitted from the automata, and Spin, which must see what the explorer sees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from support.planted_bugs import BUGS, Misorder, named, planted
from support.spin import needs_spin, replayed, trail_of

from quiesce.cli.spin import SpinRun, differences, run_spin
from quiesce.fsm.explore import Exploration, explore
from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_participant import SiteAutomaton
from quiesce.fsm.explore_promela import ModelNotEmitted, emit_model
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.explore_suites import SUITES, suite
from quiesce.fsm.explore_tables import SystemTables
from quiesce.fsm.promela_composition import ENUMERATED
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.transaction import MemberSpec, Plan
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role

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
PLANTED = (
    "a participant is not marked before its first call",
    "an export is not waited for",
    "back-off is not armed",
    "a failed restore is opened",
    "an unreadable rename is taken for one that failed",
    "a controller that takes over is not told of a first call",
    "a policy exports with a call in flight",
    "resources are frozen before the agents are parked",
    "a rename that failed is taken for one that happened",
    "whoever was exported is left aborted",
    "half a restore that failed counts as a whole one",
)
"""Of every kind: rows of each table of the controller, of a fence, an order of waves; deadlock among what breaks."""
HELD_TO = tuple(BUGS) if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else PLANTED
"""All of them in ``make test-all``."""
SETUPS = {setup.name: setup for name in SUITES for setup in suite(name)}


def three() -> Setup:
    """A cut of three participants with an abort at any moment, and records that fail."""
    roles = (Role.POLICY, Role.AGENT, Role.RESOURCES)
    specs = tuple(MemberSpec(ParticipantKey("main", role.value), role, frozenset(Phase)) for role in roles)
    sites = tuple(SiteAutomaton(spec, FenceVariant.STRICT) for spec in specs)
    budgets = {Fault.ABORT: 1, Fault.STORE: 1}
    return Setup("three", ControllerAutomaton(Plan(specs)), sites, budgets, expects=("resumed", "aborted"))


@contextmanager
def bug_in_place(name: str) -> Iterator[System]:
    """The system with a planted bug, for as long as it lasts."""
    bug = BUGS[name]
    with ExitStack() as stack:
        if isinstance(bug, Misorder):
            for place, exchanged in bug.patches.items():
                stack.enter_context(patch(place, exchanged))
        yield System(planted(bug))


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
@pytest.mark.parametrize("name", HELD_TO)
def test_spin_finds_what_the_explorer_finds(name: str, tmp_path: Path) -> None:
    """Of a planted bug both say the same, property by property, and no trail of Spin is shorter than the shortest."""
    with bug_in_place(name) as system:
        found = explore(system)
        run = run_spin(emit_model(system, found), tmp_path, flags=("-DWITNESS",))
    assert BUGS[name].breaks in {named(verdict) for verdict in found.violations()}
    assert differences(found, run) == ()


@needs_spin
@pytest.mark.parametrize("name", ["an export is not waited for", "an unreadable rename is taken for one that failed"])
def test_a_trail_of_spin_is_a_way_of_the_explorer(name: str, tmp_path: Path) -> None:
    """The actions that Spin's trail prints can be taken one after the other, and break what Spin says they break."""
    with bug_in_place(name) as system:
        run = run_spin(emit_model(system, explore(system)), tmp_path, all_violations=False)
        ((broken, steps),) = run.violated.items()
        actions = trail_of(tmp_path)
        assert len(actions) == steps
        bit = 1 << system.always.index(broken)
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
