"""The picture says what the table says: nothing more, nothing less, whatever the names are."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mermaid import Label, Picture, read_label, read_picture, sources
from support.programs import CHROMIUM, needs, needs_npm, node_folder, run_node, run_program
from support.tables import ODD_NAMES, AnyTable, odd_everywhere, ring, tables

from quiesce.diagrams import render_mermaid, sheets
from quiesce.diagrams.escape import display_name, identifiers
from quiesce.fsm.rows import Row
from quiesce.fsm.vocabulary import DeadlineClass

PLAIN = st.from_regex(r"[a-z]{1,4}(_[a-z]{1,4})?", fullmatch=True)
ANY = st.text(max_size=12) | st.sampled_from(ODD_NAMES)

Step = tuple[str, str, str, tuple[str, ...], tuple[str, ...], str]


def drawn_steps(picture: Picture) -> Counter[Step]:
    """Every step that a reader of the picture would take down."""
    found = Counter[Step]()
    for (source, target), labels in picture.arrows.items():
        for label in map(read_label, labels):
            for title in sources(picture, source):
                found.update(_taken_down(title, picture.titles[target], label))
    for state, lines in picture.boxes.items():
        title = picture.titles[state]
        for line in lines:
            if not line.startswith(("waits @", "★ runs ", "1. ", "2. ", "3. ")):
                found.update(_taken_down(title, title, read_label(line)))
    return found


def _taken_down(source: str, target: str, label: Label) -> list[Step]:
    return [(source, event, target, label.guards, label.effects, label.deadline) for event in label.events]


def declared_steps(table: AnyTable) -> Counter[Step]:
    """The same of the table's rows, without refusals."""
    return Counter(_as_step(row) for row in table.rows if not row.refusal)


def _as_step(row: Row) -> Step:  # type: ignore[type-arg]  # of any table
    guards = tuple(f"not {name[1:]}" if name.startswith("!") else name for name in row.guards)
    deadline = "" if row.deadline is DeadlineClass.NONE else row.deadline.value
    return row.source.value, row.event.value, row.target.value, guards, row.effects, deadline


@given(tables(names=PLAIN))
def test_every_row_can_be_read_back(table: AnyTable) -> None:
    """Each row that is no refusal is drawn once, with its guards, effects and deadline, and no other is."""
    assert drawn_steps(read_picture(render_mermaid(table))) == declared_steps(table)


@given(tables(names=PLAIN))
def test_kinds_of_states_are_told_apart(table: AnyTable) -> None:
    """Initial, final, resting and waiting states are marked, and only they are."""
    picture = read_picture(render_mermaid(table))
    names = identifiers(table.used_states())
    assert picture.starts == [names[table.initial]]
    assert set(picture.ends) == set(picture.classes.get("final", ())) == {names[state] for state in table.final}
    assert set(picture.classes.get("resting", ())) == {names[state] for state in table.resting}
    entered = [row for row in table.rows if row.source is not row.target and row.target is not table.initial]
    failing = {names[row.target] for row in entered if row.target in table.resting and row.source not in table.resting}
    left = {names[row.target] for row in entered if row.source in table.resting}
    assert set(picture.classes.get("failure", ())) == failing
    assert set(picture.classes.get("recovery", ())) == left - failing
    waits = {names[state]: f"waits @{deadline.value}" for state, deadline in table.waiting.items()}
    assert {name: lines[0] for name, lines in picture.boxes.items() if lines[0].startswith("waits @")} == waits


@given(tables(names=ANY))
def test_no_name_breaks_the_picture(table: AnyTable) -> None:
    """Whatever states and events are called, the picture is well-formed, has all states and joins the same pairs."""
    picture = read_picture(render_mermaid(table))
    names = identifiers(table.used_states())
    assert picture.titles == {names[state]: display_name(state) for state in table.used_states()}
    pairs = {(names[row.source], names[row.target]) for row in table.rows if row.source is not row.target}
    assert set(picture.arrows) == pairs


def test_every_odd_name_is_shown_as_it_is() -> None:
    """Quotes, keywords, markup, entities and any script come out as a reader would write them."""
    picture = read_picture(render_mermaid(ring(ODD_NAMES)))
    shown = list(picture.titles.values())
    flat = [" ".join(name.split()) or "(empty)" for name in ODD_NAMES]
    assert shown == flat
    assert list(picture.arrows.values()) == [[name] for name in flat]


def test_five_hundred_states_go_round() -> None:
    """A large machine with a cycle is drawn whole: one arrow a step, back to where it began."""
    names = tuple(f"state_{number}" for number in range(500))
    picture = read_picture(render_mermaid(ring(names)))
    assert len(picture.titles) == len(picture.arrows) == 500
    state, visited = picture.starts[0], []
    for _ in range(500):
        visited.append(state)
        state = next(target for source, target in picture.arrows if source == state)
    assert state == picture.starts[0]
    assert len(set(visited)) == 500


def test_refusals_stay_out_of_the_picture() -> None:
    """A row that refuses is drawn nowhere, though its event may be drawn for another row."""
    refusals = {_as_step(row) for sheet in sheets() if sheet.table for row in sheet.table.rows if row.refusal}
    assert refusals
    for sheet in sheets():
        if sheet.table is not None and sheet.against is None:
            drawn = drawn_steps(read_picture(sheet.mermaid()))
            assert drawn == declared_steps(sheet.table), sheet.name


@pytest.mark.parametrize("sheet", [sheet for sheet in sheets() if not sheet.lists], ids=lambda sheet: sheet.name)
def test_pictures_stay_within_what_hosts_draw(sheet: object) -> None:
    """Mermaid as hosted refuses more than 50,000 characters or 500 arrows."""
    text = next(found for found in sheets() if found is sheet).mermaid()
    assert len(text) < 50_000
    assert text.count("-->") < 500


_PARSE = """
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const { JSDOM } = createRequire(process.env.NODE_PATH + "/x.js")("jsdom");
globalThis.window = new JSDOM("<body></body>").window;
globalThis.document = globalThis.window.document;
const file = process.env.NODE_PATH + "/mermaid/dist/mermaid.core.mjs";
const { default: mermaid } = await import(pathToFileURL(file));
mermaid.initialize({ maxEdges: 5000 });
const said = [];
for (const text of JSON.parse(readFileSync(0))) {
  try { said.push((await mermaid.parse(text)).diagramType); } catch (error) { said.push(String(error)); }
}
console.log(JSON.stringify(said));
process.exit(0);
"""


@needs_npm("mermaid@11", "jsdom@24")
def test_mermaid_itself_reads_every_picture() -> None:
    """Mermaid's own parser accepts all our pictures and sequences, one with odd names, and one of five hundred states.

    It refuses a broken one, so that its consent means something.
    """
    pictures = [sheet.mermaid() for sheet in sheets() if not sheet.lists]
    pictures += [render_mermaid(ring(ODD_NAMES)), render_mermaid(odd_everywhere())]
    pictures += [render_mermaid(ring(tuple(f"s{number}" for number in range(500))))]
    said = run_node(_PARSE, [*pictures, "stateDiagram-v2\n a --> --> b"], module=True)
    assert isinstance(said, list)
    assert set(said[:-1]) == {"stateDiagram", "sequence"}
    assert "Parse error" in said[-1]


_LAID_OUT = """<!doctype html><meta charset="utf-8"><body><div id="at"></div><script src="MERMAID"></script><script>
const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
async function look() {
  const found = {};
  mermaid.initialize({ startOnLoad: false });
  for (const [name, text] of Object.entries(PICTURES)) {
    at.innerHTML = (await mermaid.render("drawn", text)).svg;
    const all = [...at.querySelectorAll(".node, .edgeLabel")].filter((one) => !one.querySelector(".edgeLabel"));
    const boxes = all.map((one) => one.getBoundingClientRect());
    const seen = boxes.filter((box) => box.width > 2);
    found[name] = {
      boxes: seen.length,
      over: seen.flatMap((a, i) => seen.slice(i + 1).filter((b) => over(a, b))).length,
      texts: [...at.querySelectorAll(".node")].map((one) => one.textContent.replace(/\\s+/g, " ").trim()),
    };
  }
  document.title = JSON.stringify(found);
}
look();
</script></body>"""


def laid_out(drawn: dict[str, str], folder: Path) -> dict[str, dict[str, Any]]:  # Any: what a browser found
    """What a browser finds in pictures that Mermaid lays out: boxes, overlaps, and the texts of the boxes."""
    package = node_folder("mermaid")
    assert package is not None
    page = _LAID_OUT.replace("MERMAID", (package / "dist" / "mermaid.min.js").as_uri())
    path = folder / "page.html"
    path.write_text(page.replace("PICTURES", json.dumps(drawn).replace("<", "\\u003c")), encoding="utf-8")
    dom = run_program(
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=200000",
        "--dump-dom",
        path.as_uri(),
    )
    title = re.search("<title>(.*?)</title>", dom)
    assert title is not None
    found: dict[str, dict[str, Any]] = json.loads(html.unescape(title[1]))
    assert set(found) == set(drawn)
    return found


@needs(CHROMIUM)
@needs_npm("mermaid@11")
def test_nothing_lies_over_anything(tmp_path: Path) -> None:
    """As Mermaid lays our pictures out in a browser, no box and no label of an arrow overlaps another."""
    found = laid_out({sheet.name: sheet.mermaid() for sheet in sheets() if sheet.table is not None}, tmp_path)
    assert all(picture["boxes"] >= 2 for picture in found.values())
    assert {name: picture["over"] for name, picture in found.items() if picture["over"]} == {}


@needs(CHROMIUM)
@needs_npm("mermaid@11")
def test_a_browser_shows_odd_names_as_they_are(tmp_path: Path) -> None:
    """Every odd name stands twice in the picture, as a state and as an event, and none is taken for markup."""
    shown = Counter(laid_out({"odd": render_mermaid(ring(ODD_NAMES))}, tmp_path)["odd"]["texts"])
    flat = [" ".join(name.split()) or "(empty)" for name in ODD_NAMES]
    # what is longer than a line of a step is folded
    assert [name for name in flat if shown[name] < (2 if len(name) <= 32 else 1)] == []


def test_the_bytes_do_not_depend_on_the_process() -> None:
    """Two processes that hash strings differently draw the same bytes."""
    program = "from quiesce.diagrams import sheets; print([s.markdown() for s in sheets()])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert b"stateDiagram-v2" in outputs.pop()


@given(st.lists(ANY, min_size=2, max_size=8, unique=True))
def test_identifiers_are_distinct(names: list[str]) -> None:
    """No two states share an identifier, and each is a plain word."""
    found = list(identifiers(ring(tuple(names)).used_states()).values())
    assert len(set(found)) == len(found)
    assert [name for name in found if not re.fullmatch("[a-z][a-z0-9_]*", name)] == []


def test_no_identifier_is_a_keyword() -> None:
    """What Mermaid keeps for itself gets a prefix; what only begins like it stays as it is."""
    kept = (
        "state",
        "note",
        "end",
        "class",
        "style",
        "default",
        "as",
        "href",
        "click",
        "scale",
        "root",
        "statediagram",
        "constructor",
    )
    free = ("stated", "noted", "endless", "classy", "off", "aside")
    found = list(identifiers(ring((*kept, *free)).used_states()).values())
    assert found == [*(f"s_{name}" for name in kept), *free]


def test_a_collision_is_resolved() -> None:
    """Names that would become one identifier get different ones, also where the second choice is taken too."""
    found = list(identifiers(ring(("s_a_b_3", "a b", "A b")).used_states()).values())
    assert found == ["s_a_b_3", "s_a_b", "s_a_b_3_"]
