"""Tables in which some rows are taken for others: planted bugs, and what-ifs, that no check of a table sees.

A change names a row of a table and what becomes of it. It is applied when the row is chosen, by an engine that stands
before any other, so that one and the same change is explored, replayed on both engines, and run by a live controller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeVar

from quiesce.fsm.engine import Engine, TableEngine
from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.rows import Accepted, Facts, Refused, Row, Table
from quiesce.fsm.tables.fence import FENCE
from quiesce.fsm.tables.joint import JOINT
from quiesce.fsm.tables.participant import ANSWERS, PARTICIPANT
from quiesce.fsm.tables.phases import PHASES
from quiesce.fsm.tables.release import RELEASE, RELEASE_ANSWERS
from quiesce.fsm.tables.transaction import TRANSACTION

__all__ = ["ChangedEngine", "RowChange", "tables_digest", "tables_that_run"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def tables_that_run() -> Mapping[str, Table[Any, Any]]:
    """Every table of the protocol by its name: the controller's three, and all fences."""
    tables: tuple[Table[Any, Any], ...] = (TRANSACTION, PARTICIPANT, RELEASE, *FENCE.values())
    return {table.name: table for table in tables}


def tables_digest() -> str:
    """A digest of all that the protocol declares: tables, joint rules, waves and the meaning of answers."""
    told = hashlib.sha256()
    for line in _declarations():
        told.update(line.encode())
        told.update(b"\n")
    return told.hexdigest()


def _declarations() -> Iterator[str]:
    for name, table in sorted(tables_that_run().items()):
        yield from (f"{name}: {row} {row.effects} {row.deadline} {row.refusal}" for row in table.rows)
    yield from (f"{rule.state} {rule.phase} {rule.condition} {rule.event}" for rule in JOINT)
    for plan in PHASES:
        for wave in plan.waves:
            yield f"{plan.phase} {plan.drain} {wave.event} {wave.roles} {wave.waits_for} {wave.expects}"
    for answers in (ANSWERS, RELEASE_ANSWERS):
        yield from sorted(f"{verb} {outcome} {event}" for (verb, outcome), event in answers.items())


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row, named as its ``str`` is, and what it is taken for. Guards and event stay: those are what names it.

    Raises:
        DefinitionError: there is no such table or row, or no such state or effect in its table.
    """

    table: str
    row: str
    target: str
    effects: tuple[str, ...]

    def __post_init__(self) -> None:
        self.rows()

    @classmethod
    def of(cls, table: Table[Any, Any], before: Row[Any, Any], after: Row[Any, Any]) -> RowChange:
        """The change that makes ``after`` of ``before``."""
        return cls(table.name, str(before), str(after.target.value), after.effects)

    def rows(self) -> tuple[Row[Any, Any], Row[Any, Any]]:
        """The row as it is declared, and as it is taken."""
        table = tables_that_run().get(self.table)
        if table is None:
            raise DefinitionError(f"there is no table '{self.table[:80]}'; there are {', '.join(tables_that_run())}")
        row = next((row for row in table.rows if str(row) == self.row), None)
        if row is None:
            raise DefinitionError(f"table {self.table} has no row '{self.row[:200]}'; rows are named as they are drawn")
        targets = {state.value: state for state in table.used_states()}
        unknown = [effect for effect in self.effects if effect not in table.effects]
        if self.target not in targets or unknown:
            what = f"effect {unknown}" if unknown else f"state '{self.target[:80]}'"
            raise DefinitionError(f"table {self.table} has no {what}; a change stays within the table's words")
        refuses = row.refusal and self.effects == row.effects
        return row, replace(row, target=targets[self.target], effects=self.effects, refusal=refuses)


class ChangedEngine:
    """Another engine, some of whose rows are taken for others. Holds no state of its own."""

    def __init__(self, changes: Iterable[RowChange], inner: Engine = TableEngine()) -> None:  # noqa: B008 - stateless
        # fences of several roles and variants have rows that are equal as values
        self._changed: Final = {
            (change.table, before): after for change in changes for before, after in (change.rows(),)
        }
        self._inner: Final = inner

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        """As the inner engine says, or as the change has it."""
        result = self._inner.step(table, state, event, facts)
        if not isinstance(result, Accepted):
            return result
        changed = self._changed.get((table.name, result.row))
        return result if changed is None else Accepted(changed)
