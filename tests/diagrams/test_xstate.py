"""XState takes the JSON, and decides as the table does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import needs_npm, run_node
from support.tables import ODD_NAMES, AnyTable, odd_everywhere, ring, tables

from quiesce.diagrams import render_xstate, sheets
from quiesce.diagrams.escape import identifiers, one_line
from quiesce.fsm.rows import Accepted

ANY = st.text(max_size=12) | st.sampled_from(ODD_NAMES)
MACHINES = [sheet.table for sheet in sheets() if sheet.table is not None and sheet.against is None]

# for each case: the state after the event and the types of its actions, or what was thrown
_DECIDE = """
const { readFileSync } = require("node:fs");
const { createMachine, transition } = require("xstate");
const verdicts = ({ context }, wanted) => Object.entries(wanted).every(([name, value]) => context[name] === value);
const said = JSON.parse(readFileSync(0)).map(({ config, cases }) => {
  const guards = {}, actions = {};
  for (const state of Object.values(config.states))
    for (const steps of Object.values(state.on ?? {}))
      for (const step of steps) {
        if (step.guard) guards[step.guard.type] = verdicts;
        for (const action of step.actions ?? []) actions[action] = () => {};
      }
  const machine = createMachine(config, { guards, actions });
  return cases.map(({ state, event, facts }) => {
    const before = machine.resolveState({ value: state, context: facts });
    const [after, done] = transition(machine, before, { type: event });
    return [after.value, done.map((action) => action.type)];
  });
});
console.log(JSON.stringify(said));
"""


def cases(table: AnyTable) -> Iterator[tuple[dict[str, Any], list[object]]]:  # Any: members of a JSON object
    """Every state that is not final, event and verdict of the guards, with what the table decides."""
    known: type[Enum] = table.events
    states, events = identifiers(table.used_states()), identifiers(known)
    for state, name in states.items():
        for event, sent in events.items():
            if state in table.final:
                continue
            guards = table.pair_guards(state, event)
            for mask in range(1 << len(guards)):
                facts = {one_line(guard.name): bool(mask >> bit & 1) for bit, guard in enumerate(guards)}
                decided = table.result_for(state, event, mask)
                row = decided.row if isinstance(decided, Accepted) else None
                after: list[object] = [states[row.target], list(map(one_line, row.effects))] if row else [name, []]
                yield {"state": name, "event": sent, "facts": facts}, after


@needs_npm("xstate@5")
@pytest.mark.parametrize(
    "machines",
    [
        pytest.param(MACHINES, id="ours"),
        pytest.param([ring(ODD_NAMES), odd_everywhere()], id="odd"),
        pytest.param([ring(tuple(f"state_{number}" for number in range(500)))], id="large"),
    ],
)
def test_xstate_decides_as_the_table(machines: list[AnyTable]) -> None:
    """For every state, event and verdict of the guards XState goes where the table goes, with the same effects."""
    asked = []
    expected = []
    for table in machines:
        pairs = list(cases(table))[: 60_000 : 1 if len(table.used_states()) < 100 else 97]
        asked.append({"config": json.loads(render_xstate(table)), "cases": [case for case, _ in pairs]})
        expected.append([decided for _, decided in pairs])
    assert run_node(_DECIDE, asked) == expected


@given(tables(names=ANY))
def test_every_row_can_be_read_back(table: AnyTable) -> None:
    """The JSON has each row of a state that is not final, with its guards, effects and reason, under its event."""
    machine = json.loads(render_xstate(table))
    states = identifiers(table.used_states())
    assert machine["initial"] == states[table.initial]
    assert list(machine["states"]) == list(states.values())
    for state, name in states.items():
        found = machine["states"][name]
        rows = [row for row in table.rows if row.source is state and state not in table.final]
        steps = [step for listed in found.get("on", {}).values() for step in listed]
        assert (found.get("type") == "final") is (state in table.final)
        assert len(steps) == len(rows)
        assert {step["description"] for step in steps} == {row.reason for row in rows}


def test_names_are_kept_beside_the_identifiers() -> None:
    """What is no identifier can still be read: as a state's title and a step's event."""
    machine = json.loads(render_xstate(ring(('say "no"', "a.b", "*"))))
    assert [state["meta"]["title"] for state in machine["states"].values()] == ['say "no"', "a.b", "*"]
    steps = [step for state in machine["states"].values() for listed in state["on"].values() for step in listed]
    assert [step["meta"]["event"] for step in steps] == ['say "no"', "a.b", "*"]
