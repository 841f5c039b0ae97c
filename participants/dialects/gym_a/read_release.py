"""Resume and retire (wire-protocol 2.5, 2.6, 2.13, 2.14, 2.19), and our renewal of a lease."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Outcome
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.unbelievable import Unbelievable, require_equal
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import ReleaseReceipt, RenewReceipt, RetireReceipt

__all__ = ["read_aborted", "read_agent_retired", "read_released", "read_renewed", "read_session_retired"]


def read_released(_spec: CallSpec, reply: BaseModel) -> Reading:
    """RELEASE: the participant must say that it accepts work."""
    resume = cast("wire.ResumeReply | wire.AgentResumeReply | wire.ResourcesResumeReply", reply)
    require_equal("state", "accepting", str(resume.state))
    return Reading(Outcome.RELEASED, ReleaseReceipt(getattr(resume, "released", 0)))


def read_aborted(spec: CallSpec, reply: BaseModel) -> Reading:
    """RETIRE at a policy: the attempt is fenced; its cancelled calls stay in flight until their handlers end."""
    aborted = cast("wire.AbortInflightReply", reply).aborted_inflight
    receipt = RetireReceipt(cast("AttemptId", spec.attempt), fenced=True, aborted_inflight=aborted)
    return Reading(Outcome.RETIRED, receipt)


def read_agent_retired(spec: CallSpec, reply: BaseModel) -> Reading:
    """RETIRE at an agent. An attempt that finished meanwhile is not fenced: its result waits to be acknowledged."""
    retire = cast("wire.AgentRetireReply", reply)
    if retire.tombstoned == retire.completed_unacknowledged:
        raise Unbelievable("an attempt is either fenced or completed and unacknowledged, never both and never neither")
    if retire.retired and not retire.tombstoned:
        raise Unbelievable("an attempt was retired but not fenced")
    receipt = RetireReceipt(
        cast("AttemptId", spec.attempt),
        fenced=retire.tombstoned,
        completed_unacknowledged=retire.completed_unacknowledged,
    )
    return Reading(Outcome.RETIRED, receipt)


def read_session_retired(spec: CallSpec, reply: BaseModel) -> Reading:
    """RETIRE at a resource server: it must name the attempt that was asked for."""
    retire = cast("wire.ResourcesRetireReply", reply)
    attempt = cast("AttemptId", spec.attempt)
    require_equal("the retired attempt", attempt, AttemptId(retire.rollout_id, retire.attempt_index))
    return Reading(Outcome.RETIRED, RetireReceipt(attempt, fenced=True))


def read_renewed(spec: CallSpec, reply: BaseModel) -> Reading:
    """RENEW: the lease of this id runs on."""
    renewed = cast("wire.RenewReply", reply)
    require_equal("checkpoint_id", spec.checkpoint_id, renewed.checkpoint_id)
    return Reading(Outcome.RENEWED, RenewReceipt(renewed.lease_expires_at))
