"""A step of a table, with its refusals and its trace record, over a bare look-up by the same keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from enum import Enum

from measured import Measured, interleaved_s

from quiesce.fsm.rows import Accepted
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.trace import trace_of

ROUNDS = 15
REPEATS = 200


STATES = Enum("STATES", [(state.name, state.value) for state in TransactionState])  # type: ignore[misc]  # made of data
EVENTS = Enum("EVENTS", [(event.name, event.value) for event in TransactionEvent])  # type: ignore[misc]  # made of data
FACTS = {"is_restore": False, "snapshot_is_published": False}


def _look_up_of() -> Callable[[], None]:
    plain = list(itertools.product(STATES, EVENTS))
    legal = {(row.source.name, row.event.name): row.target.name for row in TRANSACTION.rows}
    table = {pair: legal[(pair[0].name, pair[1].name)] for pair in plain if (pair[0].name, pair[1].name) in legal}

    def look_up() -> None:
        for _ in range(REPEATS):
            for pair in plain:
                table.get(pair)

    return look_up


def _step_of(*, traced: bool) -> Callable[[], None]:
    pairs = list(itertools.product(TransactionState, TransactionEvent))

    def step() -> None:
        for _ in range(REPEATS):
            for state, event in pairs:
                result = TRANSACTION.step(state, event, FACTS)
                if traced and isinstance(result, Accepted):
                    trace_of(TRANSACTION, "", result, FACTS)

    return step


def measure() -> list[Measured]:
    """The step alone, and the step with a trace record for each that is accepted."""
    calls = REPEATS * len(TransactionState) * len(TransactionEvent) / 1e9
    works = (_look_up_of(), _step_of(traced=False), _step_of(traced=True))
    base_s, step_s, trace_s = interleaved_s(*works, rounds=ROUNDS)
    return [
        Measured("table step with refusal, over a look-up (plain enum)", step_s / calls, base_s / calls, "ns", 6),
        Measured("table step with refusal and trace", trace_s / calls, base_s / calls, "ns", 6),
    ]
