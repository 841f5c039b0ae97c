"""The small interface behind which both engines stand.

The explorer, the fuzzer and the renderers walk the table itself; the live controller runs on `transitions`
(``quiesce.fsm.machine``). A test proves for every state, event and verdict that both choose the same row.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeVar

from quiesce.fsm.errors import GuardRefused, IllegalTransition
from quiesce.fsm.rows import Accepted, Facts, Refused, Table

__all__ = ["Engine", "TableEngine", "require"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Engine(Protocol):
    """Chooses the row of a table for a state, an event and the facts."""

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        """The row that holds, or why none does. Changes nothing but the engine's own bookkeeping."""
        ...


class TableEngine:
    """Walks the table: no bookkeeping, a dictionary look-up and the verdicts of the pair's guards."""

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        return table.step(state, event, facts)


def require(result: Accepted[S, E] | Refused) -> Accepted[S, E]:
    """The accepted step.

    Raises:
        IllegalTransition: the table has no row for the pair.
        GuardRefused: it has, and the guards that failed are named.
    """
    if isinstance(result, Accepted):
        return result
    if result.verdicts:
        raise GuardRefused(result.machine, result.state, result.event, result.reason, result.failed)
    raise IllegalTransition(result.machine, result.state, result.event, result.reason)
