"""Capabilities: what a participant declares, and where its fence stands as seen by one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final, cast

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Outcome
from quiesce.participants.capabilities import Declaration, FencePhase, LiveCapabilities
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.unbelievable import Unbelievable
from quiesce.participants.replies import Inspection

__all__ = ["fence_outcome", "read_capabilities"]

_HELD_BY_US: Final[Mapping[FencePhase, Outcome]] = {
    FencePhase.IDLE: Outcome.HELD_BUSY,  # an operation of ours has just begun or just ends
    FencePhase.PREPARING: Outcome.HELD_PREPARING,
    FencePhase.PREPARED: Outcome.HELD_PREPARED,
    FencePhase.COMMITTING: Outcome.HELD_BUSY,
    FencePhase.COMMITTED_PAUSED: Outcome.HELD_COMMITTED,
    FencePhase.RESTORING: Outcome.HELD_BUSY,
    FencePhase.RESTORED_PAUSED: Outcome.HELD_RESTORED,
    FencePhase.RESTORE_FAILED_PAUSED: Outcome.HELD_RESTORE_FAILED,
}


def read_capabilities(spec: CallSpec, reply: BaseModel, instance: str | None, replaced: str) -> Reading:
    """INSPECT: CHANGED for another incarnation or declaration than discovery saw, else where the fence stands."""
    live = cast("wire.Capabilities", reply).live()
    inspection = Inspection(live, instance)
    if replaced:
        raise Unbelievable(replaced, changed=True, payload=inspection)
    if spec.expected is not None:
        changes = _changes(spec.expected.declaration, live.declaration)
        if changes:
            raise Unbelievable(
                f"it declares something else than when it was discovered: {changes}; discover again",
                changed=True,
                payload=inspection,
            )
    return Reading(fence_outcome(spec.checkpoint_id, live), inspection)


def fence_outcome(checkpoint_id: str, live: LiveCapabilities) -> Outcome:
    """Where the fence stands for the transaction ``checkpoint_id`` (empty: for somebody who has none)."""
    if live.active_checkpoint_id is None:
        return Outcome.OPEN if live.phase is FencePhase.IDLE else Outcome.ORPHAN_FENCE
    if live.active_checkpoint_id != checkpoint_id:
        return Outcome.HELD_BY_OTHER
    return _HELD_BY_US[live.phase]


def _changes(expected: Declaration, found: Declaration) -> str:
    # features are additive and no part of the fingerprint (wire-protocol 7.4)
    names = [field.name for field in fields(Declaration) if field.name != "features"]
    return "; ".join(
        f"{name} was {_shown(getattr(expected, name))}, is {_shown(getattr(found, name))}"
        for name in names
        if getattr(expected, name) != getattr(found, name)
    )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return ascii(str(value))
