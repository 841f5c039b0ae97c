"""What a kit's server says about itself: its static declaration by role, and the live fence (wire-protocol 2.1)."""

from __future__ import annotations

from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import (
    LEASE_FEATURE,
    AdmissionState,
    CheckpointMode,
    Component,
    ConcurrencyContract,
    InstanceRole,
    WorkerMode,
)
from quiesce.participants.server.fence import LiveFence
from quiesce.participants.server.ports import Fields

__all__ = ["declaration", "live"]

_COMPONENTS: Final = {
    Role.POLICY: Component.MODEL,
    Role.AUXILIARY: Component.MODEL,
    Role.AGENT: Component.AGENT,
    Role.RESOURCES: Component.RESOURCES,
}
_INSTANCE_ROLES: Final = {Role.POLICY: InstanceRole.POLICY, Role.AUXILIARY: InstanceRole.AUXILIARY}
_FEATURES: Final = {
    Role.POLICY: ["external_storage_reference_index_v1"],
    Role.AUXILIARY: [],
    Role.AGENT: [
        "completed_result_acknowledgement",
        "agent_continuation_index_v1",
        "discard_restored_continuation_v1",
    ],
    Role.RESOURCES: [],
}


def declaration(
    role: Role, name: str, *, controlled: bool, coordinated: int | None = None, leased: bool = False
) -> Fields:
    """The static members of the capabilities reply.

    ``controlled`` is whether a control token is configured; without one a server takes part in nothing.
    ``coordinated`` is for how many workers a coordinator answers, None where there is one worker and no coordinator.
    ``leased`` is whether it opens by itself when its controller is gone.
    """
    takes_part = controlled and role is not Role.AUXILIARY
    states = list(AdmissionState) if takes_part and role is Role.POLICY else [AdmissionState.ACCEPTING]
    mode = CheckpointMode.EXPORT_RESTORE if takes_part else CheckpointMode.STATELESS
    stateless = role in _INSTANCE_ROLES
    contract = ConcurrencyContract.STATELESS if stateless else ConcurrencyContract.SERIALIZED_PER_SESSION
    instance_role = _INSTANCE_ROLES.get(role)
    return {
        "component": _COMPONENTS[role].value,
        "name": name,
        "schema_version": 1,
        "admission_states": [state.value for state in states],
        "checkpoint_mode": mode.value,
        "concurrency_contract": contract.value,
        "multi_process": _workers(coordinated),
        "instance_role": None if instance_role is None else instance_role.value,
        "features": [*_FEATURES[role], *([LEASE_FEATURE] if leased else [])] if takes_part else [],
    }


def _workers(coordinated: int | None) -> Fields:
    if coordinated is None:
        return {"mode": WorkerMode.SINGLE_WORKER.value, "num_workers": 1}
    return {"mode": WorkerMode.COORDINATOR.value, "num_workers": coordinated}


def live(fence: LiveFence) -> Fields:
    """The live members, as the fence stands now."""
    return {
        "phase": fence.state.phase.value,
        "active_checkpoint_id": fence.state.active,
        "deadline_ts": fence.deadline_ts,
    }
