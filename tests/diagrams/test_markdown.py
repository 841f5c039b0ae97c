"""The Markdown tables hold every row with everything it says, and no name breaks a table."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from support.tables import ODD_NAMES, AnyTable, ring, tables

from quiesce.diagrams import Focus, Format, find_sheet, render_markdown, sheets
from quiesce.diagrams.compose import row_key
from quiesce.diagrams.escape import markdown_cell, markdown_code
from quiesce.fsm.vocabulary import DeadlineClass

NAMES = st.text(max_size=12) | st.sampled_from(ODD_NAMES)


def grids(text: str) -> dict[str, list[list[str]]]:
    """Heading to the cells of the table below it, split as a reader of Markdown does; the ruler row left out."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| "):
            cells = re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]
            found.setdefault(heading, []).append([cell.strip() for cell in cells])
    return {heading: [rows[0], *rows[2:]] for heading, rows in found.items()}


@given(tables(names=NAMES))
def test_every_row_stands_in_the_table(table: AnyTable) -> None:
    """One line a row, refusals too, with its effects, deadline, reason and source; every line has every column."""
    header, *rows = grids(render_markdown(table))["Rows"]
    assert len(rows) == len(table.rows)
    assert {len(row) for row in rows} == {len(header)}
    for cells, row in zip(rows, table.rows, strict=True):
        named = dict(zip(header, cells, strict=True))
        assert named["effects"] == ", ".join(f"`{effect}`" for effect in row.effects)
        assert named["deadline"] == ("" if row.deadline is DeadlineClass.NONE else f"`{row.deadline.value}`")
        assert named["refusal"] == ("refused" if row.refusal else "")
        assert (named["reason"], named["from"]) == (row.reason, row.source_ref)


@given(tables(names=NAMES))
def test_a_guard_stands_with_what_it_means(table: AnyTable) -> None:
    """A row's guards show the sentence that is true when the row is taken, and each guard is explained once."""
    found = grids(render_markdown(table))
    guards = found["Rows"][0].index("guards")
    for cells, row in zip(found["Rows"][1:], table.rows, strict=True):
        meant = {(): "", ("allowed",): "`allowed`: it is allowed", ("!allowed",): "not `allowed`: it is forbidden"}
        assert cells[guards] == meant[row.guards]
    explained = [row[0] for row in found.get("Guards", [[]])[1:]]
    assert explained == [f"`{guard.name}`" for guard in table.guards]


@given(tables(names=NAMES))
def test_every_state_stands_in_the_table(table: AnyTable) -> None:
    """One line a state that the machine uses, with its kind and how many steps leave it."""
    _, *rows = grids(render_markdown(table))["States"]
    assert len(rows) == len(table.used_states())
    for cells, state in zip(rows, table.used_states(), strict=True):
        assert ("final" in cells[1].split(", ")) == (state in table.final)
        assert ("resting" in cells[1].split(", ")) == (state in table.resting)
        assert ("initial" in cells[1].split(", ")) == (state is table.initial)
        assert int(cells[3]) == sum(row.source is state and row.target is not state for row in table.rows)


def test_every_refusal_of_ours_is_listed() -> None:
    """What the pictures leave out, the tables hold."""
    listed = declared = 0
    for sheet in sheets():
        if sheet.table is not None and sheet.against is None:
            header, *rows = grids(sheet.markdown())["Rows"]
            listed += sum(row[header.index("refusal")] == "refused" for row in rows)
            declared += sum(row.refusal for row in sheet.table.rows)
    assert listed == declared > 0


def test_odd_names_keep_the_columns() -> None:
    """Pipes, backslashes, ticks, markup and line breaks in names neither end a cell nor a row."""
    header, *rows = grids(render_markdown(ring(ODD_NAMES)))["Rows"]
    assert len(rows) == len(ODD_NAMES)
    assert {len(row) for row in rows} == {len(header)}


def test_cells_do_not_start_markup() -> None:
    """Plain words in a cell stay plain words."""
    assert markdown_cell("<img src=x> *a* [b](c) `d` | e\nf") == (r"&lt;img src=x\> \*a\* \[b\](c) \`d\` \| e f")
    assert markdown_cell("a & b &lt;") == "a &amp; b &amp;lt;"
    assert markdown_code("a`b") == r"a\`b"
    assert markdown_code("a|b") == r"a\|b"
    assert markdown_code("plain_name") == "`plain_name`"


def test_phases_stand_in_their_order() -> None:
    """The page of the phases has the waves as design and wire want them: resources open before policies and agents."""
    header, *rows = grids(find_sheet("phases").markdown())["Waves"]
    role = header.index("roles")
    for phase, order in {
        "commit": ["`agent`", "`policy`", "`resources`"],
        "restore": ["`policy`", "`agent`", "`resources`"],
        "resume": ["`resources`", "`policy`", "`agent`"],
        "abort": ["`resources`", "`policy`", "`agent`"],
        "rollback": ["`resources`", "`policy`", "`agent`"],
    }.items():
        roles = [row[role] for row in rows if row[0] == f"`{phase}`"]
        assert [found for found in roles if "," not in found] == order


def test_joint_rules_are_listed_in_order() -> None:
    """The page of the joint rules numbers them as they are tried."""
    _, *rows = grids(find_sheet("joint").markdown())["Rules"]
    assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)]
    assert ["2", "`draining`", "`prepare`", "`paused`", "`all_paused`"] in [row[:5] for row in rows]


def test_a_difference_lists_the_rows_of_either_side() -> None:
    """The page of a difference has both lists, and each row in it is one that the other table does not have."""
    sheet = find_sheet("fence-gym-a-coordinator-policy-difference")
    assert sheet.table is not None
    assert sheet.against is not None
    found = grids(sheet.markdown())
    headings = [f"Rows of `{table.name}` alone" for table in (sheet.table, sheet.against)]
    assert list(found) == headings
    here, there = ({row_key(row) for row in table.rows} for table in (sheet.table, sheet.against))
    assert [len(found[heading]) - 1 for heading in headings] == [len(here - there), len(there - here)]
    assert any("resume_from_idle_coordinator" in row[-1].replace("\\", "") for row in found[headings[0]])


def test_a_neighbourhood_keeps_the_numbers_of_its_rows() -> None:
    """With a focus the page lists the rows that begin near it, numbered as in the whole table."""
    sheet = find_sheet("release")
    assert sheet.table is not None
    _, *rows = grids(str(sheet.render(Format.MARKDOWN, focus=Focus("closing", 0))))["Rows"]
    numbers = [str(number) for number, row in enumerate(sheet.table.rows, 1) if row.source.value == "closing"]
    assert [row[0] for row in rows] == numbers
