"""The live engine: one hardened `transitions` machine per table, shared by all its participants.

`transitions` is used for what it is good at, choosing and taking a transition, and is kept from the rest: no
automatic ``to_<state>`` triggers, no queue, nothing ignored, no model of its own whose state could be assigned.
An event is fired on a throwaway carrier; the row that was taken is noted by a ``before`` callback; texts of
refusals come from the table.

`AsyncMachine` is not used: it swallows cancellation and time-outs.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeVar

from transitions import EventData, Machine, MachineError

from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.rows import Accepted, Facts, Guard, Refused, Row, Table

__all__ = ["HardenedMachine", "TransitionsEngine"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class _Carrier:
    """Bears the state and the facts of one event through `transitions`, and the row that it took out again."""

    __slots__ = ("facts", "row", "state")

    def __init__(self, state: str, facts: Facts) -> None:
        self.state = state
        self.facts = facts
        self.row: Row[Any, Any] | None = None


def _condition(guard: Guard) -> Callable[[EventData], bool]:
    def holds(event: EventData) -> bool:
        carrier: _Carrier = event.model  # type: ignore[assignment]  # the only model that is ever fired on
        return guard.test.holds(carrier.facts)

    return holds


def _note(row: Row[Any, Any]) -> Callable[[EventData], None]:
    def before(event: EventData) -> None:
        carrier: _Carrier = event.model  # type: ignore[assignment]  # the only model that is ever fired on
        carrier.row = row

    return before


class HardenedMachine:
    """A `transitions` machine with exactly the rows of one table."""

    def __init__(self, table: Table[Any, Any]) -> None:
        self.table: Final = table
        self._machine = Machine(
            model=None,
            states=[state.value for state in table.used_states()],
            initial=table.initial.value,
            auto_transitions=False,
            send_event=True,
            queued=False,
            ignore_invalid_triggers=False,
        )
        conditions = {guard.name: _condition(guard) for guard in table.guards}
        for row in table.rows:
            wants = row.wants()
            self._machine.add_transition(
                trigger=row.event.value,
                source=row.source.value,
                dest=row.target.value,
                conditions=[conditions[name] for name, wanted in wants.items() if wanted],
                unless=[conditions[name] for name, wanted in wants.items() if not wanted],
                before=_note(row),
            )

    def fire(self, state: Enum, event: Enum, facts: Facts) -> Row[Any, Any] | None:
        """The row that `transitions` takes, or None when it refuses. Nothing outside is changed."""
        known = self._machine.events.get(event.value)
        if known is None:
            return None
        carrier = _Carrier(state.value, facts)
        try:
            taken = known.trigger(carrier)
        except MachineError:
            return None
        return carrier.row if taken else None


class TransitionsEngine:
    """Steps tables on `transitions`, building one machine for each table that it meets."""

    def __init__(self) -> None:
        self._machines: dict[Table[Any, Any], HardenedMachine] = {}

    def machine(self, table: Table[Any, Any]) -> HardenedMachine:
        """The machine of ``table``, built at its first use."""
        machine = self._machines.get(table)
        if machine is None:
            machine = self._machines[table] = HardenedMachine(table)
        return machine

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        """The row that `transitions` takes for these facts, or the table's own words on why none is taken."""
        row = self.machine(table).fire(state, event, facts)
        if row is not None:
            return Accepted(row)
        refusal = table.step(state, event, facts)
        if isinstance(refusal, Accepted):
            raise DefinitionError(  # proven impossible by the lock-step test
                f"the engines disagree on {table.name}: {state.value}, {event.value}: {refusal.row}"
            )
        return refusal
