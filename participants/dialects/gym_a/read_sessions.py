"""Prepare and status of a resource server (wire-protocol 2.17, 2.18)."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Outcome
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.unbelievable import require_equal
from quiesce.participants.replies import DrainProgress

__all__ = ["read_resources_prepare", "read_resources_progress"]


def read_resources_prepare(_spec: CallSpec, reply: BaseModel) -> Reading:
    """CLOSE and AWAIT_CUT of a resource server: every session's state was taken."""
    prepare = cast("wire.ResourcesPrepareReply", reply)
    if prepare.inventory is not None:
        require_equal("the length of the inventory", prepare.sessions, len(prepare.inventory))
    return Reading(Outcome.PAUSED, DrainProgress(state=prepare.state, sessions=prepare.sessions))


def read_resources_progress(spec: CallSpec, reply: BaseModel) -> Reading:
    """Status of a resource server; the sessions that are still locked are what it waits for."""
    status = cast("wire.ResourcesStatusReply", reply)
    require_equal("checkpoint_id", spec.checkpoint_id, status.checkpoint_id)
    require_equal("the length of per_session", status.sessions, len(status.per_session))
    progress = DrainProgress(state=status.state, sessions=status.sessions, running=status.locked_sessions)
    return Reading(Outcome.DRAINING, progress)
