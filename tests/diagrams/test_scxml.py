"""SCXML: valid, whatever the names are, and the same machine as the table."""

from __future__ import annotations

import subprocess
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import QSCXMLC, found, needs
from support.scxml import Transition, read_scxml
from support.tables import ODD_NAMES, AnyTable, odd_everywhere, ring, tables

from quiesce.diagrams import render_scxml, sheets
from quiesce.diagrams.escape import identifiers, one_line

ANY = st.text(max_size=12) | st.sampled_from(ODD_NAMES)
MACHINES = [sheet for sheet in sheets() if sheet.table is not None and sheet.against is None]


def expected(table: AnyTable) -> list[Transition]:
    """The rows as transitions; a final state takes none."""
    known: type[Enum] = table.events
    states, events = identifiers(table.used_states()), identifiers(known)
    guards = identifiers((guard.name for guard in table.guards), besides=states.values())
    return [
        Transition(
            states[row.source],
            events[row.event],
            tuple((guards[name], wanted) for name, wanted in row.wants().items()),
            states[row.target],
            tuple(map(one_line, row.effects)),
        )
        for state in table.used_states()
        if state not in table.final
        for row in table.rows
        if row.source is state
    ]


@given(tables(names=ANY))
def test_it_is_the_same_machine(table: AnyTable) -> None:
    """Valid by the schema's rules, with every state, its kind, and every row in the order of the table."""
    initial, kinds, transitions = read_scxml(render_scxml(table))
    states = identifiers(table.used_states())
    assert initial == states[table.initial]
    assert kinds == {name: "final" if state in table.final else "state" for state, name in states.items()}
    assert transitions == expected(table)


@pytest.mark.parametrize("sheet", MACHINES, ids=lambda sheet: sheet.name)
def test_every_machine_of_ours_is_the_same(sheet: object) -> None:
    """Refusals too: they are steps without a target."""
    table = next(one.table for one in sheets() if one is sheet)
    assert table is not None
    assert read_scxml(render_scxml(table))[2] == expected(table)


@pytest.mark.parametrize(
    "broken",
    [
        '<state id="a b"/>',
        '<state id="a"/><state id="a"/>',
        '<datamodel><data id="a"/></datamodel><state id="a"/>',
        '<state id="a"><transition event="x" target="nowhere"/></state>',
        '<final id="a"><transition event="x"/></final>',
        '<state id="a" color="red"/>',
        '<state id="a"><transition event="x y.*.z"/></state>',
        '<state id="a"><transition/></state>',
        '<state id="a"><transition event="x" type="inner"/></state>',
        '<state id="a">words</state>',
        '<state id="a"><log label="x"/></state>',
        '<state id="a" title="x"/>',
        '<datamodel/><datamodel/><state id="a"/>',
        '<datamodel><data/></datamodel><state id="a"/>',
        '<datamodel><data id="d" src="x" expr="1"/></datamodel><state id="a"/>',
        '<state id="b"/>',
        '<state id="a" xmlns="urn:another"/>',
    ],
)
def test_the_rules_notice_what_is_wrong(broken: str) -> None:
    """A document that the schema refuses is refused by the rules that the other tests hold ours against."""
    head = '<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" initial="a">'
    with pytest.raises(ValueError, match=r"."):
        read_scxml(f"{head}{broken}</scxml>")


def test_odd_words_are_read_back_wherever_they_stand() -> None:
    """Guards and effects of any name keep their places."""
    table = odd_everywhere()
    assert read_scxml(render_scxml(table))[2] == expected(table)


@needs(QSCXMLC)
@pytest.mark.parametrize("which", ["ours", "odd", "large"])
def test_a_compiler_of_scxml_takes_it(which: str, tmp_path: Path) -> None:
    """Qt's compiler translates our machines, one of odd names and one of five hundred states without complaint."""
    made = {
        "ours": [sheet.table for sheet in MACHINES if sheet.table],
        "odd": [ring(ODD_NAMES), odd_everywhere()],
        "large": [ring(tuple(f"state_{number}" for number in range(500)))],
    }[which]
    for table in made:
        done = _compile(render_scxml(table), tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


@needs(QSCXMLC)
def test_the_compiler_notices_what_is_wrong(tmp_path: Path) -> None:
    """Its consent means something: a target that is nowhere is refused."""
    text = render_scxml(ring(("a", "b"))).replace('target="b"', 'target="nowhere"')
    assert _compile(text, tmp_path).returncode != 0


def _compile(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    source = folder / "machine.scxml"
    source.write_text(text, encoding="utf-8")
    program = found(QSCXMLC)
    assert program is not None
    outputs = ["--output", str(folder / "machine")]
    return subprocess.run([program, *outputs, str(source)], capture_output=True, text=True, check=False)
