"""The protocol: rows and tables, the engines that step them, the transaction core, the trace record, the explorer.

Here is what declaring, stepping and recording a table takes, also one of your own
(``docs/guide/own-table.md``). Elsewhere:

- ``quiesce.fsm.tables``: Quiesce's own machines, but for the fences of servers: ``quiesce.fsm.tables.fence``
- ``quiesce.fsm.machine``: the engine that runs tables on the `transitions` library
- ``quiesce.fsm.transaction``, ``quiesce.fsm.advance``, ``quiesce.fsm.messages``: the transaction core and its contract
- ``quiesce.fsm.fence``: the fence of one server, as the server kit and the explorer step it
- ``quiesce.fsm.explore``: the search through every state of a model
"""

from __future__ import annotations

from quiesce.fsm.engine import Engine, TableEngine, require
from quiesce.fsm.errors import DefinitionError, GuardRefused, IllegalTransition, QuiesceError
from quiesce.fsm.rows import (
    Accepted,
    AllOf,
    AnyOf,
    Equal,
    Expression,
    Facts,
    Guard,
    IsTrue,
    IsZero,
    Negation,
    Refused,
    Row,
    Table,
)
from quiesce.fsm.trace import TraceRecord, trace_of
from quiesce.fsm.vocabulary import DeadlineClass, Outcome, ParticipantKey, Phase, Role, Verb

__all__ = [
    "Accepted",
    "AllOf",
    "AnyOf",
    "DeadlineClass",
    "DefinitionError",
    "Engine",
    "Equal",
    "Expression",
    "Facts",
    "Guard",
    "GuardRefused",
    "IllegalTransition",
    "IsTrue",
    "IsZero",
    "Negation",
    "Outcome",
    "ParticipantKey",
    "Phase",
    "QuiesceError",
    "Refused",
    "Role",
    "Row",
    "Table",
    "TableEngine",
    "TraceRecord",
    "Verb",
    "require",
    "trace_of",
]
