"""Every state machine of Quiesce, declared. There is no transition anywhere else.

The fences of servers stand in ``quiesce.fsm.tables.fence`` and are not imported here: their checks take longer than all
the others' together, and a controller does not need them.
"""

from __future__ import annotations

from quiesce.fsm.tables.joint import JOINT, Condition, JointRule
from quiesce.fsm.tables.participant import ANSWERS, PARTICIPANT, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import PHASES, DrainMode, Milestone, PhasePlan, Wave
from quiesce.fsm.tables.release import RELEASE, RELEASE_ANSWERS, ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState

__all__ = [
    "ANSWERS",
    "JOINT",
    "PARTICIPANT",
    "PHASES",
    "RELEASE",
    "RELEASE_ANSWERS",
    "TRANSACTION",
    "Condition",
    "DrainMode",
    "JointRule",
    "Milestone",
    "ParticipantEvent",
    "ParticipantState",
    "PhasePlan",
    "ReleaseEvent",
    "ReleaseState",
    "TransactionEvent",
    "TransactionState",
    "Wave",
]
