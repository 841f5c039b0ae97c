"""The fence of a model server that stands beside a recorded coordinator and serves its commit and restore (F23).

It is a process of its own, so its fence knows nothing of the coordinator's (wire-protocol 4.4). No pause and no
resume reaches it: it holds an id for as long as an operation runs and no longer. Whether the workers stand still
for that id is asked when the export begins, by the operation itself. What no recording shows is decided for the worse:
a resume at the coordinator neither waits for an export that runs here nor ends it, and a restore closes nobody.
"""

from __future__ import annotations

from typing import Final

from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence_calls import CONFLICT, JOIN, REPLAY, WRONG_PHASE, build_table
from quiesce.fsm.tables.fence_recorded import ends_everywhere, starts
from quiesce.fsm.tables.fence_vocabulary import Branch, FenceEvent, FencePhase, FenceRow, decide

__all__ = ["MODEL_SERVER"]

_E = FenceEvent
_P = FencePhase
_REF: Final = "F23"


def _operation(call: FenceEvent, during: FencePhase, done: FenceEvent, failed: FenceEvent) -> tuple[FenceRow, ...]:
    rows: list[FenceRow] = []
    for phase in (_P.IDLE, _P.COMMITTING, _P.RESTORING):
        own = {
            _P.IDLE: (starts(target=during, reason="no pause comes here: it begins from idle", ref=_REF),),
            during: (JOIN, WRONG_PHASE),
        }.get(phase, (WRONG_PHASE,))
        rows += decide(phase, call, (CONFLICT, REPLAY, *own))
    ended = Branch(
        None,
        ("clear_active", "drop_handler", "record_reply", "answer_outcome"),
        "done; no resume comes here, so nothing is held",
        _P.IDLE,
        ref=_REF,
    )
    undone = Branch(
        None, ("clear_active", "drop_handler", "answer_outcome"), "nothing was held and nothing is", _P.IDLE, ref=_REF
    )
    return (*rows, *ends_everywhere((during,), {done: (ended,), failed: (undone,)}))


MODEL_SERVER: Final[Table[FencePhase, FenceEvent]] = build_table(
    "FENCE gym_a_coordinator model server",
    "A model server beside a recorded coordinator: commit and restore alone",
    (
        *_operation(_E.COMMIT, _P.COMMITTING, _E.COMMIT_DONE, _E.COMMIT_FAILED),
        *_operation(_E.RESTORE, _P.RESTORING, _E.RESTORE_DONE, _E.RESTORE_FAILED),
    ),
)
"""Policies behind a coordinator only; it is no fence that a participant is known by, so it stands beside ``FENCE``."""
