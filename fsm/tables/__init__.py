"""Every state machine of Quiesce, declared. There is no transition anywhere else."""

from __future__ import annotations

from quiesce.fsm.tables.joint import JOINT, Condition, JointRule
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import PHASES, DrainMode, Milestone, PhasePlan, Wave
from quiesce.fsm.tables.release import RELEASE, ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState

__all__ = [
    "JOINT",
    "PARTICIPANT",
    "PHASES",
    "RELEASE",
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
