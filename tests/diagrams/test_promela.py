"""Promela: the same machine as the table, whatever its names are, in a text that Spin takes."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.spin import needs_spin, takes
from support.tables import ODD_NAMES, AnyTable, odd_everywhere, tables

from quiesce.cli.spin import run_spin
from quiesce.diagrams import Format, render, render_promela, sheets
from quiesce.fsm.rows import AnyOf, Guard, IsTrue, Row, Table

ANY = st.text(max_size=12) | st.sampled_from(ODD_NAMES)
MACHINES = {sheet.name: sheet.table for sheet in sheets() if sheet.table is not None and sheet.against is None}
RUN = ("transaction", "release", "fence-gym-a-single-agent", "fence-gym-a-coordinator-policy")

_STEP = re.compile(r"^inline STEP_(S_\w+)\(event\)")
_ROW = re.compile(r"^  :: event == (E_\w+)((?: && !?G_\w+)*) -> (.*); printf\(\"(\w+) (\w+) (\w+)\\n\"\)$")
Parsed = tuple[str, str, tuple[tuple[str, bool], ...], str, tuple[str, ...]]


def parsed(text: str) -> list[Parsed]:
    """The rows of a model: state, event, wanted verdicts, target and effects, by the names that it gives them."""
    found: list[Parsed] = []
    state = ""
    for line in text.splitlines():
        if opening := _STEP.match(line):
            state = opening[1]
        elif row := _ROW.match(line.replace(" -> printf", " -> ; printf")):
            wants = tuple((name.removeprefix("!"), not name.startswith("!")) for name in row[2].split(" && ")[1:])
            said = [word for word in row[3].split("; ") if word]
            moves = [word.split(" = ")[1] for word in said if word.startswith("AT_")]
            effects = tuple(word for word in said if word.startswith("DO_"))
            assert (row[4], row[5], row[6]) == (state, row[1], moves[0] if moves else state)
            found.append((state, row[1], wants, row[6], effects))
    return found


def numbered(names: list[str]) -> dict[str, int]:
    """Names by the order of their first appearance."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def shape(rows: list[Parsed]) -> list[tuple[object, ...]]:
    """The rows with every name as a number: what two renderings of one machine share, whatever they call it."""
    states = numbered([name for row in rows for name in (row[0], row[3])])
    events = numbered([row[1] for row in rows])
    guards = numbered([name for row in rows for name, _ in row[2]])
    effects = numbered([name for row in rows for name in row[4]])
    return [
        (
            states[state],
            events[event],
            tuple((guards[name], wanted) for name, wanted in wants),
            states[target],
            tuple(effects[name] for name in done),
        )
        for state, event, wants, target, done in rows
    ]


def declared(table: AnyTable) -> list[Parsed]:
    """The rows of the table, in the order of their states."""
    known: list[object] = list(table.states)  # type: ignore[call-overload]  # of any table
    rows = sorted(table.rows, key=lambda row: known.index(row.source))  # stable: in a state, the order of the table
    return [(row.source.name, row.event.name, tuple(row.wants().items()), row.target.name, row.effects) for row in rows]


@given(tables(names=ANY))
def test_it_is_the_same_machine(table: AnyTable) -> None:
    """Every row is there with its event, wanted verdicts, target and effects, and nothing else is."""
    assert shape(parsed(render_promela(table))) == shape(declared(table))


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_of_ours_is_the_same(name: str) -> None:
    """Refusals too: they are steps that stay."""
    assert shape(parsed(render_promela(MACHINES[name]))) == shape(declared(MACHINES[name]))


def test_it_is_a_format_like_others() -> None:
    """A table in the format is what the function gives; the same bytes each time."""
    table = MACHINES["release"]
    assert render(table, Format.PROMELA) == render_promela(table) == render_promela(table)


@needs_spin
@pytest.mark.parametrize("name", MACHINES)
def test_spin_takes_every_machine_of_ours(name: str, tmp_path: Path) -> None:
    """Spin parses each, without a word."""
    assert takes(render_promela(MACHINES[name]), tmp_path) == ""


@needs_spin
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tables(names=ANY))
@example(odd_everywhere())
def test_spin_takes_any_table(table: AnyTable) -> None:
    """Whatever a table's words are, keywords of Promela and C among them, Spin parses it."""
    with TemporaryDirectory() as folder:
        assert takes(render_promela(table), Path(folder)) == ""


@needs_spin
@pytest.mark.parametrize("name", RUN)
def test_spin_reaches_the_states_of_the_table(name: str, tmp_path: Path) -> None:
    """The states that Spin stores are as many as the table has; no step that was asked for is refused."""
    run = run_spin(render_promela(MACHINES[name]), tmp_path)
    assert run.states == len(MACHINES[name].used_states())
    assert run.violated == {}


class Register(Enum):
    """States whose names are keywords."""

    INIT = "init"
    REGISTER = "register"


class Chan(Enum):
    """Events whose names are keywords."""

    PROCTYPE = "proctype"
    SWITCH = "switch"


KEYWORDS: AnyTable = Table(
    name="never",
    title="A machine of keywords",
    states=Register,
    events=Chan,
    initial=Register.INIT,
    guards=(Guard("timeout", AnyOf((IsTrue("a"), IsTrue("b"))), "it is late", "it is early"),),
    effects=("assert",),
    rows=(
        Row(Register.INIT, Chan.PROCTYPE, ("timeout",), Register.REGISTER, ("assert",), "only when it's late"),
        Row(Register.INIT, Chan.PROCTYPE, ("!timeout",), Register.INIT, (), 'the "other" case'),
        Row(Register.REGISTER, Chan.SWITCH, (), Register.INIT, (), "back"),
    ),
)
_OWN = """\
#define OWN_ENVIRONMENT
#define DO_never_assert done++
#define REFUSED_never refused = true
byte done = 0;
bool refused = false;
#include "never.pml"
active proctype own() {
  d_step { G_never_timeout = false; STEP_never(E_never_proctype) };
  assert(AT_never == S_never_init && done == 0 && !refused);
  d_step { G_never_timeout = true; STEP_never(E_never_proctype) };
  assert(AT_never == S_never_register && done == 1 && !refused);
  d_step { STEP_never(E_never_proctype) };
  assert(AT_never == S_never_register && done == 1 && refused)
}
"""


@needs_spin
def test_a_model_of_ones_own_can_use_the_table(tmp_path: Path) -> None:
    """Included, it steps as the table does: guards are read, effects are done, and a refused step changes nothing."""
    text = render_promela(KEYWORDS)
    assert run_spin(text, tmp_path).states == 2
    (tmp_path / "never.pml").write_text(text, encoding="utf-8")
    run = run_spin(_OWN, tmp_path)
    assert run.violated == {}
