"""A table as the JSON configuration of an XState machine (version 5 of the npm package ``xstate``).

Effects are the actions. A guard's type reads as a person would (``drained, not other_active``) and its parameters are
the verdicts that the row wants, so that one function serves all of them::

    const verdicts = ({ context }, wanted) => Object.entries(wanted).every(([name, value]) => context[name] === value);

Deadline classes are tags of the states that wait (``waits:reach``); their lengths are the runner's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from quiesce.diagrams.annotated import annotations_of
from quiesce.diagrams.annotations import Annotations
from quiesce.diagrams.escape import display_name, identifiers, one_line
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["render_xstate"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

_Json = dict[str, Any]  # Any: members of a JSON object


def render_xstate(table: Table[S, E], *, annotations: Annotations[S, E] | None = None) -> str:
    """The machine as JSON, ending in a line break; the same table gives the same bytes.

    Rows of a final state are left out: a machine of XState has ended there.
    """
    states = identifiers(table.used_states())
    notes = annotations if annotations is not None else annotations_of(table)
    rows: dict[S, list[Row[S, E]]] = {}
    for row in table.rows:
        rows.setdefault(row.source, []).append(row)
    machine: _Json = {
        "id": next(iter(identifiers([one_line(table.name) or "table"]).values())),
        "description": one_line(table.title),
        "initial": states[table.initial],
        "context": {one_line(guard.name): False for guard in table.guards},
        "states": {name: _state(table, state, rows.get(state, []), states, notes) for state, name in states.items()},
        "meta": {
            "name": one_line(table.name),
            "guards": {
                one_line(guard.name): {
                    "when": one_line(str(guard.test)),
                    "meaning": one_line(guard.meaning),
                    "otherwise": one_line(guard.otherwise),
                }
                for guard in table.guards
            },
        },
    }
    return f"{json.dumps(machine, indent=2, ensure_ascii=False)}\n"


def _state(
    table: Table[S, E], state: S, rows: list[Row[S, E]], states: Mapping[S, str], notes: Annotations[S, E]
) -> _Json:
    found: _Json = {"meta": {"title": display_name(state)}}
    tags = ["resting"] if state in table.resting else []
    waits = table.waiting.get(state, DeadlineClass.NONE)
    tags += [f"waits:{waits.value}"] if waits is not DeadlineClass.NONE else []
    if tags:
        found["tags"] = tags
    if state in table.final:
        return {"type": "final", **found}
    events = identifiers(table.events)
    taken: dict[str, list[_Json]] = {}
    for row in rows:
        taken.setdefault(events[row.event], []).append(_transition(row, states, notes))
    return {**found, "on": taken}


def _transition(row: Row[S, E], states: Mapping[S, str], notes: Annotations[S, E]) -> _Json:
    found: _Json = {}
    if row.target is not row.source:
        found["target"] = states[row.target]
    if row.guards:
        wanted = {one_line(name): value for name, value in row.wants().items()}
        reads = ", ".join(name if value else f"not {name}" for name, value in wanted.items())
        found["guard"] = {"type": reads, "params": wanted}
    if row.effects:
        found["actions"] = [one_line(effect) for effect in row.effects]
    found["description"] = one_line(row.reason)
    found["meta"] = {"event": display_name(row.event), "path": notes.path_of(row).value}
    found["meta"] |= {"deadline": row.deadline.value} if row.deadline is not DeadlineClass.NONE else {}
    found["meta"] |= {"landmark": notes.landmark_of(row)} if notes.landmark_of(row) else {}
    found["meta"] |= {"refusal": True} if row.refusal else {}
    found["meta"] |= {"from": one_line(row.source_ref)} if row.source_ref else {}
    return found
