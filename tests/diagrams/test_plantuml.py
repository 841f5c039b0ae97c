"""PlantUML reads what was meant, whatever the names are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import PLANTUML, needs, run_program
from support.tables import ODD_NAMES, AnyTable, odd_everywhere, ring, tables

from quiesce.diagrams import Format, draw, find_sheet, render_plantuml
from quiesce.fsm.tables.release import RELEASE
from quiesce.fsm.tables.transaction import TRANSACTION

ANY = st.text(max_size=12) | st.sampled_from(ODD_NAMES)
SVG = "{http://www.w3.org/2000/svg}"
_POINT = re.compile("<U\\+([0-9A-F]+)>")
_ARROW = re.compile(r"([a-z][a-z0-9_]*) -\[#\w+(?:,dashed|,dotted)?,thickness=\d\]-> ([a-z][a-z0-9_]*) : .+")


@given(tables(names=ANY))
def test_names_cannot_be_taken_for_syntax(table: AnyTable) -> None:
    """Whatever names there are, each arrow is a line of its own with plain ends, and each title reads as the name."""
    drawing = draw(table)
    lines = render_plantuml(table).splitlines()
    arrows = [found.groups() for line in lines if (found := _ARROW.fullmatch(line))]
    assert Counter(arrows) == Counter((arrow.source, arrow.target) for arrow in drawing.arrows)
    titles = [found[1] for line in lines if (found := re.match(r'state "([^"]*)" as ', line))]
    assert [_POINT.sub(lambda found: chr(int(found[1], 16)), title) for title in titles] == [
        n.title for n in drawing.nodes
    ]
    assert lines[0] == "@startuml"
    assert lines.index("@enduml") == len(lines) - 1


def test_a_resting_state_is_told_by_its_border() -> None:
    """PlantUML breaks the border of boxes with lines in them alone, so each resting state has one."""
    text = render_plantuml(TRANSACTION)
    resting = [node for node in draw(TRANSACTION).nodes if node.is_resting]
    assert resting
    for node in resting:
        assert re.search(f"^state .* as {node.name} .*##\\[dashed\\]$", text, re.MULTILINE)
        assert re.search(f"^{node.name} : .", text, re.MULTILINE)


@needs(PLANTUML)
def test_plantuml_draws_odd_names_as_they_are() -> None:
    """The program draws a machine of odd names, and its SVG shows each name as a reader would write it."""
    shown = _drawn(render_plantuml(ring(ODD_NAMES)))
    # what is longer than a line of a label is folded
    flat = {" ".join(name.split()) or "(empty)" for name in ODD_NAMES if len(name) < 40}
    assert flat <= shown
    assert any('not say "no"' in line for line in _drawn(render_plantuml(odd_everywhere())))


@needs(PLANTUML)
def test_plantuml_reads_our_machines(tmp_path: Path) -> None:
    """One run of the program finds no fault in the main ones, and finds the fault of a broken one."""
    main = ("transaction", "participant", "release", "fence-gym-a-coordinator-policy-difference")
    drawn = {name: str(find_sheet(name).render(Format.PLANTUML)) for name in main}
    for name, text in drawn.items():
        (tmp_path / f"{name}.puml").write_text(text, encoding="utf-8")
    run_program(PLANTUML, "-charset", "UTF-8", "-checkonly", *(str(tmp_path / f"{name}.puml") for name in drawn))
    broken = tmp_path / "broken.puml"
    broken.write_text(drawn["release"].replace("[*] -->", "[*] --> -->", 1), encoding="utf-8")
    with pytest.raises(AssertionError):
        run_program(PLANTUML, "-checkonly", str(broken))


@needs(PLANTUML)
def test_plantuml_reads_five_hundred_states() -> None:
    """A large machine with a cycle is a state diagram with all its states, and the one at which it begins."""
    said = run_program(PLANTUML, "-syntax", given=render_plantuml(ring(tuple(f"state_{n}" for n in range(500)))))
    assert said.split() == ["STATE", "(501", "entities)"]


@needs(PLANTUML)
def test_plantuml_draws_the_idle_resume() -> None:
    """The steps of the landmark can be read in the picture."""
    shown = " ".join(_drawn(render_plantuml(RELEASE)))
    assert all(f"the IDLE resume {number}/3" in shown for number in (1, 2, 3))


def _drawn(source: str) -> set[str]:
    """Every line of text in the picture, runs of one line joined."""
    svg = run_program(PLANTUML, "-charset", "UTF-8", "-tsvg", "-pipe", given=source)
    root = ET.fromstring(svg)  # noqa: S314 - drawn by a program of ours a moment ago
    lines: dict[tuple[str, int], list[tuple[float, str]]] = {}
    found = set()
    for text in root.iter(f"{SVG}text"):
        words = " ".join("".join(text.itertext()).replace("\xa0", " ").split())
        found.add(words)
        lines.setdefault((text.get("y", ""), 0), []).append((float(text.get("x", "0")), words))
    return found | {" ".join(words for _, words in sorted(line)) for line in lines.values()}
