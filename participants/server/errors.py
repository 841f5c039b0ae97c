"""How the kit refuses: one exception that becomes one wire reply.

QuiesceError (quiesce.fsm.errors)
└── ControlRefusal     status and ``error.code`` of the reply; nothing changed

A store raises it where an operation cannot be done; the control plane and the admission gate turn it into the
envelope of wire-protocol 3.1. Anything else that an operation raises becomes a bare 500, as on real servers.
"""

from __future__ import annotations

from enum import StrEnum

from quiesce.fsm.errors import QuiesceError

__all__ = ["ControlRefusal", "RefusalCode"]


class RefusalCode(StrEnum):
    """The values of ``error.code`` that the kit sends (wire-protocol 3.2)."""

    STALE_CHECKPOINT = "stale_checkpoint"
    CHECKPOINT_CONFLICT = "checkpoint_conflict"
    INVALID_PHASE = "invalid_phase"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_A_POLICY_INSTANCE = "not_a_policy_instance"
    MISSING_WORKERS = "missing_workers"
    WORKER_REGISTRATION_REJECTED = "worker_registration_rejected"
    LEDGER_MISMATCH = "ledger_mismatch"
    LEDGER_NOT_CHECKPOINTABLE = "ledger_not_checkpointable"
    LEDGER_NOT_QUIESCENT = "ledger_not_quiescent"
    AGENT_PREPARE_INCOMPLETE = "agent_prepare_incomplete"
    AGENT_CHECKPOINT_ERROR = "agent_checkpoint_error"
    ACKNOWLEDGEMENT_ERROR = "completed_execution_acknowledgement_error"
    RESOURCES_CHECKPOINT_ERROR = "resources_checkpoint_error"
    UNSAFE_RESOURCES_RESTORE = "unsafe_resources_restore"

    # the data plane (wire-protocol 2.20)
    CHECKPOINT_PARKED = "checkpoint_parked"
    AGENT_ADMISSION_CLOSED = "agent_admission_closed"
    RESOURCES_ADMISSION_CLOSED = "resources_admission_closed"
    STALE_ATTEMPT = "stale_attempt"
    DUPLICATE_EXECUTION = "duplicate_execution"
    RESOURCES_SESSION_UNBOUND = "resources_session_unbound"
    EXECUTION_IDENTITY_MISMATCH = "execution_identity_mismatch"


class ControlRefusal(QuiesceError):
    """The operation was refused and nothing changed. ``detail`` is for people and may change between versions."""

    def __init__(self, code: RefusalCode, detail: str, *, status: int = 409) -> None:
        super().__init__(f"{code.value}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status
