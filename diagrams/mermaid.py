"""A table as a Mermaid state diagram (``stateDiagram-v2``).

An arrow reads ``event, event [guard, not guard] / effect, effect @deadline``. A step that stays in its state
stands inside the state's box, and so does the budget that bounds a wait there; a refusal stands in no picture, only
in the Markdown table. Arrows of one source and target are drawn as one, with a label for each combination of guards,
effects and deadline. A resting state has a broken border, a final one a thick border and an arrow to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from textwrap import wrap
from typing import Final, TypeVar

from quiesce.diagrams.escape import display_name, mermaid_identifiers, mermaid_text, one_line
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["render_mermaid"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

_INDENT: Final = "    "
_BREAK: Final = "<br/>"
_BOX_CHARACTERS: Final = 100
_FOLDED: Final = 4 * chr(0xA0)
# strokes only: a fill would have to suit a light page and a dark one
_STYLES: Final = {
    "resting": "stroke-dasharray:6 4,stroke-width:2px",
    "final": "stroke-width:4px",
}


def render_mermaid(table: Table[S, E]) -> str:
    """The picture of ``table``, ending in a line break; the same table gives the same bytes.

    >>> from quiesce.fsm.rows import Row, Table
    >>> from enum import Enum
    >>> Lamp = Enum("Lamp", {"OFF": "off", "ON": "on"})
    >>> Press = Enum("Press", {"PRESS": "press"})
    >>> rows = (
    ...     Row(Lamp.OFF, Press.PRESS, (), Lamp.ON, (), "light"),
    ...     Row(Lamp.ON, Press.PRESS, (), Lamp.OFF, (), "dark"),
    ... )
    >>> lamp = Table("lamp", "A lamp", Lamp, Press, Lamp.OFF, (), (), rows)
    >>> print(render_mermaid(lamp), end="")
    stateDiagram-v2
        direction TB
        state "off" as off
        state "on" as on
        [*] --> off
        off --> on : press
        on --> off : press
    """
    identifiers = mermaid_identifiers(table.used_states())
    lines = ["direction TB"]
    lines += [f'state "{mermaid_text(display_name(state))}" as {name}' for state, name in identifiers.items()]
    lines += _boxes(table, identifiers)
    lines += [f"[*] --> {identifiers[table.initial]}"]
    lines += _arrows(table, identifiers)
    lines += [f"{name} --> [*]" for state, name in identifiers.items() if state in table.final]
    lines += _classes(table, identifiers)
    return "stateDiagram-v2\n" + "".join(f"{_INDENT}{line}\n" for line in lines)


def _boxes(table: Table[S, E], identifiers: Mapping[S, str]) -> Iterator[str]:
    """What is written inside the states: the budget that bounds a wait, and the steps that stay."""
    for state, name in identifiers.items():
        budget = table.waiting.get(state, DeadlineClass.NONE)
        if budget is not DeadlineClass.NONE:
            yield f"{name} : waits{_deadline(budget)}"
        staying = [row for row in table.rows if row.source is state and row.target is state and not row.refusal]
        for label in _labels(staying):
            lines = wrap(
                label, _BOX_CHARACTERS, subsequent_indent=_FOLDED, break_long_words=False, break_on_hyphens=False
            )
            yield f"{name} : {_BREAK.join(mermaid_text(line) for line in lines)}"


def _arrows(table: Table[S, E], identifiers: Mapping[S, str]) -> Iterator[str]:
    pairs: dict[tuple[S, S], list[Row[S, E]]] = {}
    for row in table.rows:
        if row.source is not row.target:
            pairs.setdefault((row.source, row.target), []).append(row)
    position = {state: number for number, state in enumerate(identifiers)}
    for source, target in sorted(pairs, key=lambda pair: (position[pair[0]], position[pair[1]])):
        labels = [mermaid_text(label) for label in _labels(pairs[source, target])]
        # Mermaid folds long labels: where there are several, a mark tells a new one from a folded one
        text = labels[0] if len(labels) == 1 else _BREAK.join(f"• {label}" for label in labels)
        yield f"{identifiers[source]} --> {identifiers[target]} : {text}"


def _labels(rows: Iterable[Row[S, E]]) -> Iterator[str]:
    """One label for each combination of guards, effects and deadline, with the events that share it."""
    alike: dict[tuple[tuple[str, ...], tuple[str, ...], DeadlineClass], list[str]] = {}
    for row in rows:
        alike.setdefault((row.guards, row.effects, row.deadline), []).append(display_name(row.event))
    for (guards, effects, deadline), events in alike.items():
        yield ", ".join(dict.fromkeys(events)) + _guards(guards) + _effects(effects) + _deadline(deadline)


def _guards(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    plain = map(one_line, names)
    wanted = (f"not {name.removeprefix('!')}" if name.startswith("!") else name for name in plain)
    return f" [{', '.join(wanted)}]"


def _effects(names: tuple[str, ...]) -> str:
    return f" / {', '.join(map(one_line, names))}" if names else ""


def _deadline(deadline: DeadlineClass) -> str:
    return "" if deadline is DeadlineClass.NONE else f" @{deadline.value}"


def _classes(table: Table[S, E], identifiers: Mapping[S, str]) -> Iterator[str]:
    members = {
        "resting": [name for state, name in identifiers.items() if state in table.resting],
        "final": [name for state, name in identifiers.items() if state in table.final],
    }
    used = {kind: names for kind, names in members.items() if names}
    yield from (f"classDef {kind} {_STYLES[kind]}" for kind in used)
    yield from (f"class {','.join(names)} {kind}" for kind, names in used.items())
