"""A table as SCXML (W3C, State Chart XML 1.0): a machine that any interpreter can run.

The guards are the data model: each is a boolean that whoever runs the machine sets, and a row's condition reads them.
Effects are logged, in order; refusals are steps without target. What SCXML has no word for (deadline classes, reasons,
where a row comes from, names that are no identifiers) stands in attributes of a namespace of its own, which the W3C's
schema allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

from quiesce.diagrams.escape import display_name, identifiers, one_line, xml_text
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["QUIESCE_NAMESPACE", "SCXML_NAMESPACE", "render_scxml"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

SCXML_NAMESPACE: Final = "http://www.w3.org/2005/07/scxml"
QUIESCE_NAMESPACE: Final = "urn:quiesce:table:1"


def render_scxml(table: Table[S, E]) -> str:
    """The machine as an XML document, ending in a line break; the same table gives the same bytes.

    A final state of SCXML is never left and takes no events, so rows of the table that stay in one (refusals, late
    answers) are not in it.
    """
    states = identifiers(table.used_states())
    events = identifiers(table.events)
    # whatever has an id in an XML document shares one space of names
    guards = identifiers((guard.name for guard in table.guards), besides=states.values())
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<!-- {_comment(table.title)} -->"]
    said = f' initial="{states[table.initial]}"{_attribute("q:name", table.name)}{_attribute("q:title", table.title)}'
    spaces = f'xmlns="{SCXML_NAMESPACE}" xmlns:q="{QUIESCE_NAMESPACE}"'
    lines += [f'<scxml {spaces} version="1.0" datamodel="ecmascript"{said}>']
    lines += _variables(table, guards)
    rows: dict[S, list[Row[S, E]]] = {}
    for row in table.rows:
        rows.setdefault(row.source, []).append(row)
    for state, name in states.items():
        lines += _state(table, state, name, rows.get(state, []), (states, events, guards))
    return "".join(f"{line}\n" for line in (*lines, "</scxml>"))


_Names = tuple[Mapping[Any, str], Mapping[Any, str], Mapping[str, str]]


def _variables(table: Table[S, E], guards: Mapping[str, str]) -> Iterator[str]:
    if not table.guards:
        return
    yield "  <datamodel>"
    for guard in table.guards:
        said = _named("q:guard", guard.name, guards[guard.name]) + _attribute("q:when", str(guard.test))
        said += _attribute("q:meaning", guard.meaning) + _attribute("q:otherwise", guard.otherwise)
        yield f'    <data id="{guards[guard.name]}" expr="false"{said}/>'
    yield "  </datamodel>"


def _state(table: Table[S, E], state: S, name: str, rows: list[Row[S, E]], names: _Names) -> Iterator[str]:
    kind = "final" if state in table.final else "state"
    waits = table.waiting.get(state, DeadlineClass.NONE)
    said = _named("q:title", display_name(state), name)
    said += ' q:resting="true"' if state in table.resting else ""
    said += _attribute("q:waits", waits.value) if waits is not DeadlineClass.NONE else ""
    rows = rows if kind == "state" else []
    yield f'  <{kind} id="{name}"{said}{"" if rows else "/"}>'
    for row in rows:
        yield from _transition(row, names)
    if rows:
        yield f"  </{kind}>"


def _transition(row: Row[S, E], names: _Names) -> Iterator[str]:
    states, events, guards = names
    wanted = [f"{'' if wanted else '!'}{guards[name]}" for name, wanted in row.wants().items()]
    condition = f' cond="{" &amp;&amp; ".join(wanted)}"' if wanted else ""
    # without target nothing is left and entered again, which is what staying means
    target = f' target="{states[row.target]}"' if row.target is not row.source else ""
    said = _named("q:event", display_name(row.event), events[row.event]) + _attribute("q:reason", row.reason)
    said += _attribute("q:deadline", row.deadline.value) if row.deadline is not DeadlineClass.NONE else ""
    said += ' q:refusal="true"' if row.refusal else ""
    said += _attribute("q:from", row.source_ref) if row.source_ref else ""
    opening = f'    <transition event="{events[row.event]}"{condition}{target}{said}'
    if not row.effects:
        yield f"{opening}/>"
        return
    yield f"{opening}>"
    for effect in row.effects:
        yield f'      <log label="effect" expr="{xml_text(_literal(effect))}"/>'
    yield "    </transition>"


def _literal(text: str) -> str:
    """A string of ECMAScript."""
    escaped = one_line(text).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _named(attribute: str, name: str, identifier: str) -> str:
    """What the table calls it, where an identifier cannot say it."""
    return "" if name == identifier else _attribute(attribute, name)


def _attribute(name: str, value: str) -> str:
    return f' {name}="{xml_text(one_line(value))}"'


def _comment(text: str) -> str:
    # two dashes would end it
    return one_line(text).replace("--", "- -").removesuffix("-")
