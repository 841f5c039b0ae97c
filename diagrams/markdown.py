"""A table as Markdown: every row with everything it says, refusals included, and what the names in it mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TypeVar

from quiesce.diagrams.compose import row_key
from quiesce.diagrams.escape import display_name, markdown_cell, markdown_code
from quiesce.fsm.rows import Guard, Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["markdown_grid", "render_difference", "render_markdown"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

_ROW_HEADER = ("#", "source", "event", "guards", "target", "effects", "deadline", "refusal", "reason", "from")


def render_markdown(table: Table[S, E], *, only: AbstractSet[S] | None = None) -> str:
    """The states, guards and rows of ``table`` as three tables below second-level headings, ending in a line break.

    A row's guards are given with the sentence that is true when the row is taken. With ``only`` there are the rows
    alone that begin in one of these states; they keep their numbers.
    """
    if only is not None:
        return f"## Rows\n\n{markdown_grid(_ROW_HEADER, _row_cells(table, only))}"
    sections = [("States", markdown_grid(("state", "kind", "waits for", "steps out", "events"), _state_cells(table)))]
    if table.guards:
        header = ("guard", "holds when", "that is", "otherwise")
        sections.append(("Guards", markdown_grid(header, _guard_cells(table))))
    sections.append(("Rows", markdown_grid(_ROW_HEADER, _row_cells(table, set(table.used_states())))))
    return "\n".join(f"## {heading}\n\n{grid}" for heading, grid in sections)


def render_difference(table: Table[S, E], against: Table[S, E]) -> str:
    """The rows of one table that the other does not have, both ways round, below second-level headings."""
    sections = []
    for heading, ours, theirs in (
        (f"Rows of {markdown_code(table.name)} alone", table, against),
        (f"Rows of {markdown_code(against.name)} alone", against, table),
    ):
        known = {row_key(row) for row in theirs.rows}
        alone = {number for number, row in enumerate(ours.rows, start=1) if row_key(row) not in known}
        cells = [cells for cells in _row_cells(ours, set(ours.used_states())) if int(cells[0]) in alone]
        sections.append(f"## {heading}\n\n{markdown_grid(_ROW_HEADER, cells) if cells else 'There is none.'}")
    return "\n".join(section if section.endswith("\n") else f"{section}\n" for section in sections)


def markdown_grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells that are escaped already, ending in a line break.

    >>> print(markdown_grid(("a", "b"), [("1", "")]), end="")
    | a | b |
    | --- | --- |
    | 1 |  |
    """
    lines = [tuple(header), ("---",) * len(header), *(tuple(row) for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _state_cells(table: Table[S, E]) -> Iterator[tuple[str, ...]]:
    rows: dict[S, list[Row[S, E]]] = {}
    for row in table.rows:
        rows.setdefault(row.source, []).append(row)
    for state in table.used_states():
        leaving = rows.get(state, [])
        yield (
            markdown_code(display_name(state)),
            ", ".join(_kinds(table, state)),
            _deadline(table.waiting.get(state, DeadlineClass.NONE)),
            str(sum(row.target is not state for row in leaving)),
            ", ".join(markdown_code(text) for text in dict.fromkeys(display_name(row.event) for row in leaving)),
        )


def _kinds(table: Table[S, E], state: S) -> Iterator[str]:
    if state is table.initial:
        yield "initial"
    if state in table.resting:
        yield "resting"
    if state in table.final:
        yield "final"


def _guard_cells(table: Table[S, E]) -> Iterator[tuple[str, ...]]:
    for guard in table.guards:
        yield (
            markdown_code(guard.name),
            markdown_code(str(guard.test)),
            markdown_cell(guard.meaning),
            markdown_cell(guard.otherwise),
        )


def _row_cells(table: Table[S, E], sources: AbstractSet[S]) -> Iterator[tuple[str, ...]]:
    guards = {guard.name: guard for guard in table.guards}
    for number, row in enumerate(table.rows, start=1):
        if row.source not in sources:
            continue
        yield (
            str(number),
            markdown_code(display_name(row.source)),
            markdown_code(display_name(row.event)),
            "<br>".join(_guard_texts(row, guards)),
            markdown_code(display_name(row.target)),
            ", ".join(markdown_code(effect) for effect in row.effects),
            _deadline(row.deadline),
            "refused" if row.refusal else "",
            markdown_cell(row.reason),
            markdown_cell(row.source_ref),
        )


def _guard_texts(row: Row[S, E], guards: dict[str, Guard]) -> Iterator[str]:
    for name, wanted in row.wants().items():
        guard = guards[name]
        sentence = guard.meaning if wanted else guard.otherwise
        yield f"{'' if wanted else 'not '}{markdown_code(name)}: {markdown_cell(sentence)}"


def _deadline(deadline: DeadlineClass) -> str:
    return "" if deadline is DeadlineClass.NONE else markdown_code(deadline.value)
