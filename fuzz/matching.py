"""Whether a reply is the answer that a world expects, and that answer in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from quiesce.fsm.tables.fence import REFUSALS, FenceEvent
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.seen import CONFLICT, OK, Seen
from quiesce.fuzz.worlds import Due

__all__ = ["expectations", "is_replay", "matches"]

CRASHED: Final = 500
_E = FenceEvent
_FAILURES: Final = frozenset({_E.PREPARE_FAILED, _E.COMMIT_FAILED, _E.RESTORE_FAILED, _E.RESUME_FAILED})
_FAILURE_CODES: Final[Mapping[Role, frozenset[str]]] = {
    Role.POLICY: frozenset({"ledger_mismatch", "ledger_not_checkpointable", "ledger_not_quiescent", "missing_workers"}),
    Role.AGENT: frozenset({"agent_checkpoint_error"}),
    Role.RESOURCES: frozenset({"resources_checkpoint_error", "unsafe_resources_restore"}),
    Role.AUXILIARY: frozenset(),
}
"""With what a commit, a restore or a prepare of a role fails when it was allowed to begin (wire-protocol 3.2)."""
_MAY_TIME_OUT: Final = frozenset({_E.RETIRE})
_BY_PHASE: Final = "refuse_invalid_phase"
_BY_DEADLINE: Final = "refuse_deadline_exceeded"
_HEEDING: Final = frozenset({_E.PREPARE, _E.COMMIT, _E.RESTORE, _E.ABORT_INFLIGHT})
"""Calls that a passed deadline may refuse."""
_INCOMPLETE: Final = "agent_prepare_incomplete"


def is_replay(due: Due) -> bool:
    """Whether the answer is one that was given before."""
    return bool(due.row.effects) and due.row.effects[-1] == "replay_reply"


def matches(due: Due, seen: Seen, *, role: Role, recorded: object, late: bool = False) -> bool:
    """Whether the reply is the answer. ``recorded`` is the body of the first reply, None where it is not known.

    ``late``: its deadline may have passed before it came. No section says whether that or the phase is looked at first.
    """
    answer = due.row.effects[-1]
    if late and answer == _BY_PHASE and due.row.event in _HEEDING and seen.code == REFUSALS[_BY_DEADLINE]:
        return seen.status == CONFLICT
    if answer in REFUSALS:
        return seen.status == CONFLICT and seen.code == REFUSALS[answer]
    if answer == "answer_crash":
        return seen.status == CRASHED
    if answer == "replay_reply":
        return seen.status == OK and (recorded is None or recorded == seen.json)
    codes = _refusal_codes(due, role)
    fails = due.end is _E.PREPARE_INCOMPLETE or due.end in _FAILURES
    return (seen.status == OK and not fails) or (seen.status == CONFLICT and seen.code in codes)


def _refusal_codes(due: Due, role: Role) -> frozenset[str]:
    """With which codes an operation that was allowed to begin can be refused after all."""
    if due.end is _E.PREPARE_INCOMPLETE:
        return frozenset({_INCOMPLETE})
    fails = due.end in _FAILURES or due.row.event in _MAY_TIME_OUT
    return _FAILURE_CODES[role] if fails else frozenset()


def expectations(dues: Iterable[Due], *, role: Role) -> str:
    """Every answer that was possible, in words."""
    found = dict.fromkeys(_expectation(due, role) for due in dues)
    return " or ".join(found) or "no answer yet"


def _expectation(due: Due, role: Role) -> str:
    answer = due.row.effects[-1]
    if answer in REFUSALS:
        return f"{CONFLICT} {REFUSALS[answer]}"
    if answer == "answer_crash":
        return str(CRASHED)
    if answer == "replay_reply":
        return f"{OK} with the first reply again"
    if due.end is _E.PREPARE_INCOMPLETE or due.end in _FAILURES:
        return f"{CONFLICT} {' or '.join(sorted(_refusal_codes(due, role)))}"
    return str(OK)
