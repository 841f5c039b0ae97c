"""JOINT: what must hold of all participants together before the transaction takes a step by itself.

The rules are tried in order after every event until none of them applies any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.vocabulary import Phase

__all__ = ["JOINT", "TRIED_AT_REST", "Condition", "JointRule"]


class Condition(StrEnum):
    """A condition on one member; a rule wants it of every member that takes part in the rule's phase."""

    CONFIRMED = "confirmed"
    """Its capabilities were read in this phase and are as they must be."""
    PAUSED = "paused"
    """It stands at the cut."""
    COMMITTED_AND_VERIFIED = "committed_and_verified"
    """It exported, and its files were found to be what it said; who exports nothing was read again at the cut."""
    RESTORED = "restored"
    """It holds the restored state and is closed."""
    SETTLED = "settled"
    """Nothing is owed to it: it was never touched, or it was proven open, or another's id holds it."""
    SETTLED_OR_UNPROVEN = "settled_or_unproven"
    """Nothing more will be learned of it without being asked again."""


@dataclass(frozen=True, slots=True)
class JointRule:
    """While the transaction is in ``state``: when every member of ``phase`` meets ``condition``, ``event`` happens."""

    state: TransactionState
    phase: Phase
    condition: Condition
    event: TransactionEvent
    reason: str


_S = TransactionState
_E = TransactionEvent


def _reopened(state: TransactionState, phase: Phase) -> tuple[JointRule, JointRule]:
    return (
        JointRule(state, phase, Condition.SETTLED, _E.ALL_RELEASED, "nobody is owed anything"),
        JointRule(
            state, phase, Condition.SETTLED_OR_UNPROVEN, _E.SOME_UNPROVEN, "somebody could not be proven open in time"
        ),
    )


JOINT: Final = (
    JointRule(
        _S.PREFLIGHT, Phase.PREFLIGHT, Condition.CONFIRMED, _E.ALL_INSPECTED, "everyone is idle, unchanged, nobody's"
    ),
    JointRule(
        _S.DRAINING, Phase.PREPARE, Condition.PAUSED, _E.ALL_PAUSED, "all required participants stand at the cut"
    ),
    JointRule(
        _S.COMMITTING,
        Phase.PREPARE,
        Condition.COMMITTED_AND_VERIFIED,
        _E.ALL_COMMITTED,
        "all required participants exported and were verified",
    ),
    JointRule(
        _S.RESTORING, Phase.RESTORE, Condition.RESTORED, _E.ALL_RESTORED, "all required participants are restored"
    ),
    *_reopened(_S.RESUMING, Phase.RESUME),
    *_reopened(_S.ABORTING, Phase.ABORT),
    *_reopened(_S.PUBLISH_UNKNOWN, Phase.ROLLBACK),
    *(
        JointRule(state, phase, Condition.SETTLED, _E.ALL_RELEASED, "a late answer settled what was in doubt")
        for state, phase in ((_S.IN_DOUBT_PUBLISHED, Phase.RESUME), (_S.IN_DOUBT_UNPUBLISHED, Phase.ABORT))
    ),
)
"""The rules, in the order in which they are tried."""

TRIED_AT_REST: Final = frozenset({_S.IN_DOUBT_PUBLISHED, _S.IN_DOUBT_UNPUBLISHED})
"""States whose rules are tried although the transaction rests: a late answer can still end a doubt."""
