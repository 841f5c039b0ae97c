"""A Hypothesis state machine over any table, a user's own as well: random events and facts, and what must always hold.

    TestDoor = table_machine(DOOR, check=never_open_and_locked).TestCase

Each life begins behind a shortest path to one of the table's states, so that deep states are reached at once. A step
takes exactly the row that the table gives, a refusal changes nothing, and both engines (the table itself, and the
``transitions`` machine that runs live) agree; ``check`` is whatever else is to hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import product
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from quiesce.fsm.engine import TableEngine
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.rows import Accepted, Expression, Facts, Refused, Row, Table

__all__ = ["Check", "TableMachine", "facts_for", "shortest_paths", "table_machine"]

FACTS_MAX: Final = 12
"""Facts of one pair beyond which its rows are not looked for one by one."""
_VALUES: Final = (False, True, 0, 1)

AnyTable = Table[Any, Any]
Result = Accepted[Any, Any] | Refused
Check = Callable[[Enum, Enum, Result, Enum], None]
"""What must hold of a step: state before, event, result, state after. It raises AssertionError."""
Path = tuple[tuple[Enum, Facts], ...]


class TableMachine(RuleBasedStateMachine):
    """Random lives of one machine. Made by :func:`table_machine`; ``state`` is where it stands."""

    table: ClassVar[AnyTable]
    checks: ClassVar[tuple[Check, ...]] = ()
    paths: ClassVar[tuple[Path, ...]] = ((),)
    live: ClassVar[TransitionsEngine]

    def __init__(self) -> None:
        super().__init__()
        self.state: Enum = self.table.initial

    @initialize(data=st.data())
    def begin_somewhere(self, data: st.DataObject) -> None:
        """Go a shortest way to one of the states."""
        for event, facts in data.draw(st.sampled_from(self.paths), label="path"):
            self._step(event, facts)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Any event, with any facts."""
        events: type[Enum] = self.table.events
        event = data.draw(st.sampled_from(list(events)), label="event")
        self._step(event, data.draw(_facts_of(self.table), label="facts"))

    def _step(self, event: Enum, facts: Facts) -> None:
        before = self.state
        result = TableEngine().step(self.table, before, event, facts)
        live = self.live.step(self.table, before, event, facts)
        if live != result:
            raise AssertionError(f"the engines disagree on {event} in {before}: {result} and {live}")
        if isinstance(result, Accepted):
            self.state = result.target
        for check in self.checks:
            check(before, event, result, self.state)


def table_machine(table: AnyTable, *, check: Check | None = None) -> type[TableMachine]:
    """A state machine over ``table``; its ``TestCase`` is what a test runner collects."""
    members: dict[str, object] = {
        "table": table,
        "checks": () if check is None else (check,),
        "paths": tuple(shortest_paths(table).values()),
        "live": TransitionsEngine(),
    }
    return type(f"Machine over {table.name}", (TableMachine,), members)


def shortest_paths(table: AnyTable) -> Mapping[Enum, Path]:
    """For each state of the table a shortest way to it: events with facts, breadth first."""
    found: dict[Enum, Path] = {table.initial: ()}
    frontier: deque[Enum] = deque([table.initial])
    while frontier:
        state = frontier.popleft()
        for row in table.rows:
            if row.source is not state or row.target in found:
                continue
            facts = facts_for(table, row)
            if facts is not None:
                found[row.target] = (*found[state], (row.event, facts))
                frontier.append(row.target)
    return found


def facts_for(table: AnyTable, row: Row[Any, Any]) -> Facts | None:
    """Facts under which ``row`` is taken; None where none were found (its guards exclude each other)."""
    guards = table.pair_guards(row.source, row.event)
    names = tuple(dict.fromkeys(name for guard in guards for name in guard.reads()))
    for values in _assignments(len(names)):
        facts = dict(zip(names, values, strict=True))
        result = table.step(row.source, row.event, facts)
        if isinstance(result, Accepted) and result.row is row:
            return facts
    return None


def _assignments(count: int) -> Iterator[tuple[object, ...]]:
    if count > FACTS_MAX:
        return
    yield from product((False, True), repeat=count)
    if count <= FACTS_MAX // 2:
        yield from product(_VALUES, repeat=count)


def _facts_of(table: AnyTable) -> st.SearchStrategy[dict[str, object]]:
    names = sorted({name for guard in table.guards for name in _reads(guard.test)})
    return st.dictionaries(st.sampled_from(names), st.sampled_from(_VALUES)) if names else st.just({})


def _reads(expression: Expression) -> tuple[str, ...]:
    return expression.reads()
