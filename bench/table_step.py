"""A step of a table, with its refusals and its trace record, over a bare look-up by the same keys."""

from __future__ import annotations

import itertools
from enum import Enum

from measured import Measured, interleaved_s

from quiesce.fsm.rows import Accepted
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.trace import trace_of

ROUNDS = 15
REPEATS = 200




def measure() -> list[Measured]:
    """The step alone, and the step with a trace record for each that is accepted."""
    states = Enum("States", [(state.name, state.value) for state in TransactionState])  # type: ignore[misc]  # names from a table
    events = Enum("Events", [(event.name, event.value) for event in TransactionEvent])  # type: ignore[misc]  # names from a table
    pairs = list(itertools.product(TransactionState, TransactionEvent))
    plain = list(itertools.product(states, events))
    legal = {(row.source.name, row.event.name): row.target.name for row in TRANSACTION.rows}
    lookup = {
        (state, event): legal[(state.name, event.name)] for state, event in plain if (state.name, event.name) in legal
    }
    facts = {"is_restore": False, "snapshot_is_published": False}

    def look_up() -> None:
        for _ in range(REPEATS):
            for state, event in plain:
                lookup.get((state, event))

    def step() -> None:
        for _ in range(REPEATS):
            for state, event in pairs:
                TRANSACTION.step(state, event, facts)

    def step_and_trace() -> None:
        for _ in range(REPEATS):
            for state, event in pairs:
                result = TRANSACTION.step(state, event, facts)
                if isinstance(result, Accepted):
                    trace_of(TRANSACTION, "", result, facts)

    calls = REPEATS * len(pairs) / 1e9
    base_s, step_s, trace_s = interleaved_s(look_up, step, step_and_trace, rounds=ROUNDS)
    return [
        Measured("table step with refusal, over a look-up (plain enum)", step_s / calls, base_s / calls, "ns", 6),
        Measured("table step with refusal and trace", trace_s / calls, base_s / calls, "ns", 6),
    ]
