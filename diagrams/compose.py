"""From a table to its drawing: what is drawn, what shares an arrow or a box, and in which order.

What leads from three or more states to the same one in the same way is drawn once, from a box that lists the states:
otherwise the failures, which are possible everywhere, would hide the way that is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from quiesce.diagrams.annotated import annotations_of
from quiesce.diagrams.annotations import Annotations, PathKind
from quiesce.diagrams.drawing import Arrow, Change, Drawing, Label, Node
from quiesce.diagrams.escape import display_name, identifiers, one_line
from quiesce.diagrams.focus import Focus, around
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["GATHERED_MIN", "RowKey", "draw", "row_key"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

GATHERED_MIN: Final = 3
"""From so many states on, the same step is drawn once."""

RowKey = tuple[Any, ...]


def row_key(row: Row[S, E]) -> RowKey:
    """What makes two rows the same step: everything but the words about it."""
    return (row.source, row.event, frozenset(row.guards), row.target, row.effects, row.deadline, row.refusal)


@dataclass(frozen=True, slots=True)
class _Drawn(Generic[S, E]):
    """A row and how it stands to the compared table."""

    row: Row[S, E]
    change: Change


def draw(
    table: Table[S, E],
    *,
    annotations: Annotations[S, E] | None = None,
    focus: Focus | None = None,
    against: Table[S, E] | None = None,
) -> Drawing:
    """What there is to draw of ``table``.

    Args:
        table: any machine.
        annotations: paths and landmarks; those of our own machines are known.
        focus: draw the neighbourhood of one state.
        against: show the difference from this table, which is over the same states and events.

    Raises:
        UnknownState: the focus names no state of it.
    """
    notes = annotations if annotations is not None else annotations_of(table)
    compared = _rows(table, against)
    near = around(table, focus) if focus else dict.fromkeys(table.used_states(), 0)
    within = focus.steps if focus else 1
    drawn = [one for one in compared if _is_near(one.row, near, within)]
    names = identifiers(table.used_states())
    shown, every, paths = _by_state(drawn), _by_state(compared), _entering_paths(table, notes)
    nodes = [
        _node(
            table,
            notes,
            state,
            name,
            [one for one in shown.get(state, ()) if one.row.source is one.row.target],
            hidden=len(every.get(state, ())) - len(shown.get(state, ())),
            path=paths.get(state, PathKind.PLAIN),
        )
        for state, name in names.items()
        if state in near
    ]
    moving = [one for one in drawn if one.row.source is not one.row.target]
    gathers = {} if focus else _gathers(notes, moving)
    boxes = _boxes(table, gathers, names)
    apart = {id(one) for found in gathers.values() for one in found}
    arrows = list(_arrows(notes, [one for one in moving if id(one) not in apart], names))
    for box, found in zip(boxes, gathers.values(), strict=True):
        arrows += _arrows(notes, found, names, source=box.name)
    title = _title(table) if against is None else f"{_title(table)} (+), compared with: {_title(against)} (–)"
    return Drawing(table.name, title, (*nodes, *boxes), tuple(arrows))


def _title(table: Table[S, E]) -> str:
    return one_line(table.title) or one_line(table.name) or "(untitled)"


def _is_near(row: Row[S, E], near: Mapping[S, int], within: int) -> bool:
    """A step is drawn whose nearer end is less than so many steps away, or that stays where it is."""
    if row.source not in near or row.target not in near:
        return False
    return row.source is row.target or min(near[row.source], near[row.target]) < within


def _by_state(drawn: Iterable[_Drawn[S, E]]) -> Mapping[S, list[_Drawn[S, E]]]:
    """The rows that begin or end in each state, each once."""
    found: dict[S, list[_Drawn[S, E]]] = {}
    for one in drawn:
        for state in {one.row.source, one.row.target}:
            found.setdefault(state, []).append(one)
    return found


def _entering_paths(table: Table[S, E], notes: Annotations[S, E]) -> Mapping[S, PathKind]:
    """The best path on which each state is entered, so that the happy one can be followed through it."""
    entered: dict[S, set[PathKind]] = {}
    for row in table.rows:
        if row.source is not row.target:
            entered.setdefault(row.target, set()).add(notes.path_of(row))
    if any(PathKind.HAPPY in paths for paths in entered.values()):
        entered.setdefault(table.initial, set()).add(PathKind.HAPPY)
    else:
        entered.pop(table.initial, None)
    # the kinds are declared from the best to the plain one
    return {state: next(path for path in PathKind if path in paths) for state, paths in entered.items()}


def _gathers(notes: Annotations[S, E], moving: Iterable[_Drawn[S, E]]) -> dict[tuple[S, ...], list[_Drawn[S, E]]]:
    """Steps that are the same from several states, by these states. The happy path is never torn apart."""
    alike: dict[RowKey, list[_Drawn[S, E]]] = {}
    for one in moving:
        if (
            notes.path_of(one.row) is not PathKind.HAPPY
            and not notes.landmark_of(one.row)
            and one.change is not Change.SAME
        ):
            _, *same = row_key(one.row)
            alike.setdefault((*same, one.change, notes.path_of(one.row)), []).append(one)
    found: dict[tuple[S, ...], list[_Drawn[S, E]]] = {}
    for rows in alike.values():
        if len(rows) >= GATHERED_MIN:
            found.setdefault(tuple(one.row.source for one in rows), []).extend(rows)
    return found


def _boxes(
    table: Table[S, E], gathers: Mapping[tuple[S, ...], list[_Drawn[S, E]]], names: Mapping[S, str]
) -> tuple[Node, ...]:
    taken, boxes = set(names.values()), []
    for number, states in enumerate(gathers, start=1):
        name = f"any_{number}"
        while name in taken:
            name += "_"
        others = [state for state in table.used_states() if state not in states]
        is_short = len(states) <= len(others) + GATHERED_MIN
        listed = [state for state in table.used_states() if state in states] if is_short else others
        title = "any of" if is_short else "any but" if others else "any state"
        gathered = tuple(map(display_name, listed)) or ("(all)",)
        boxes.append(Node(name, title, gathers=gathered, is_rest=not is_short))
    return tuple(boxes)


def _rows(table: Table[S, E], against: Table[S, E] | None) -> tuple[_Drawn[S, E], ...]:
    if against is None:
        return tuple(_Drawn(row, Change.NONE) for row in table.rows if not row.refusal)
    here, there = {row_key(row) for row in table.rows}, {row_key(row) for row in against.rows}
    used = set(table.used_states())
    found = [_Drawn(row, Change.SAME if row_key(row) in there else Change.HERE) for row in table.rows]
    gone = [_Drawn(row, Change.THERE) for row in against.rows if row_key(row) not in here]
    found += [one for one in gone if one.row.source in used and one.row.target in used]
    return tuple(one for one in found if one.change is not Change.SAME or not one.row.refusal)


def _node(
    table: Table[S, E],
    notes: Annotations[S, E],
    state: S,
    name: str,
    staying: Iterable[_Drawn[S, E]],
    *,
    hidden: int,
    path: PathKind,
) -> Node:
    return Node(
        name,
        display_name(state),
        is_initial=state is table.initial,
        is_resting=state in table.resting,
        is_final=state in table.final,
        waits=_deadline(table.waiting.get(state, DeadlineClass.NONE)),
        inner=tuple(map(one_line, notes.inner.get(state, ()))),
        inside=tuple(_labels(notes, [one for one in staying if one.change is not Change.SAME])),
        hidden=hidden,
        path=path,
    )


def _arrows(
    notes: Annotations[S, E],
    moving: Iterable[_Drawn[S, E]],
    names: Mapping[S, str],
    *,
    source: str = "",
) -> Iterator[Arrow]:
    """Arrows from state to state, or all of them from the box ``source``."""
    grouped: dict[tuple[str, str, PathKind, str, Change], list[_Drawn[S, E]]] = {}
    for one in moving:
        row = one.row
        begins = source or names[row.source]
        key = (begins, names[row.target], notes.path_of(row), notes.landmark_of(row), one.change)
        grouped.setdefault(key, []).append(one)
    position = {name: number for number, name in enumerate((*names.values(), source))}
    for key in sorted(grouped, key=lambda key: (position[key[0]], position[key[1]])):
        begins, ends, path, landmark, change = key
        labels = tuple(_labels(notes, grouped[key]))
        if change is Change.SAME:
            labels = (_only_events(labels),)
        yield Arrow(begins, ends, labels, path, landmark, change)


def _only_events(labels: Iterable[Label]) -> Label:
    """What is the same on both sides is drawn for orientation: its events say enough."""
    events = dict.fromkeys(event for label in labels for event in label.events)
    return Label(tuple(events), change=Change.SAME)


_Alike = tuple[tuple[str, ...], tuple[str, ...], DeadlineClass, PathKind, str, Change, bool]


def _labels(notes: Annotations[S, E], drawn: Iterable[_Drawn[S, E]]) -> Iterator[Label]:
    alike: dict[_Alike, list[Row[S, E]]] = {}
    for one in drawn:
        row = one.row
        path, landmark = notes.path_of(row), notes.landmark_of(row)
        key = (row.guards, row.effects, row.deadline, path, landmark, one.change, row.refusal)
        alike.setdefault(key, []).append(row)
    for (guards, effects, deadline, path, landmark, change, refuses), rows in alike.items():
        references = dict.fromkeys(one_line(row.source_ref) for row in rows if change and one_line(row.source_ref))
        yield Label(
            tuple(dict.fromkeys(display_name(row.event) for row in rows)),
            tuple(map(_guard, guards)),
            tuple(map(one_line, effects)),
            _deadline(deadline),
            path,
            landmark,
            change,
            tuple(references),
            refuses,
        )


def _guard(name: str) -> str:
    plain = one_line(name)
    return f"not {plain.removeprefix('!')}" if plain.startswith("!") else plain


def _deadline(deadline: DeadlineClass) -> str:
    return "" if deadline is DeadlineClass.NONE else deadline.value
