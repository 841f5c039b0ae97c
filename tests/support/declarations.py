"""Declarations of made-up participants for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import (
    AdmissionState,
    CheckpointMode,
    Component,
    ConcurrencyContract,
    Contract,
    Declaration,
    InstanceRole,
    WorkerMode,
)
from quiesce.participants.discovery_rules import ACKNOWLEDGEMENT, CONTINUATION_INDEX, STORAGE_INDEX, Discovered

Changed = Any  # a field of Declaration, each of its own type

_ALL = (AdmissionState.ACCEPTING, AdmissionState.DRAINING, AdmissionState.PAUSED)
_COMPONENT = {
    Role.POLICY: Component.MODEL,
    Role.AUXILIARY: Component.MODEL,
    Role.AGENT: Component.AGENT,
    Role.RESOURCES: Component.RESOURCES,
}
_FEATURES = {Role.POLICY: (STORAGE_INDEX,), Role.AGENT: (CONTINUATION_INDEX, ACKNOWLEDGEMENT)}


def declaration(role: Role, name: str, **changes: Changed) -> Declaration:
    """What a healthy server of this role declares."""
    is_model = role in {Role.POLICY, Role.AUXILIARY}
    made = Declaration(
        component=_COMPONENT[role],
        participant_name=name,
        schema_version=1,
        admission_states=_ALL if role is Role.POLICY else (AdmissionState.ACCEPTING,),
        checkpoint_mode=CheckpointMode.STATELESS if role is Role.AUXILIARY else CheckpointMode.EXPORT_RESTORE,
        concurrency_contract=(
            ConcurrencyContract.STATELESS if is_model else ConcurrencyContract.SERIALIZED_PER_SESSION
        ),
        worker_mode=WorkerMode.SINGLE_WORKER,
        num_workers=1,
        instance_role=InstanceRole(role.value) if is_model else None,
        features=tuple(sorted(_FEATURES.get(role, ()))),
    )
    return replace(made, **changes)


def contract(role: Role, name: str, **changes: Changed) -> Contract:
    """A contract whose routing name is also its own name."""
    return Contract(name, declaration(role, name, **changes))


def found(role: Role, name: str, port: int, *, upstreams: tuple[str, ...] = (), **changes: Changed) -> Discovered:
    """A participant as it was discovered on a port of loopback."""
    return Discovered(contract(role, name, **changes), f"http://127.0.0.1:{port}", upstreams=upstreams)


def healthy() -> list[Discovered]:
    """One participant of each role, between which nothing is wrong."""
    return [
        found(Role.POLICY, "policy_model", 8000),
        found(Role.AUXILIARY, "judge", 8001),
        found(Role.AGENT, "solver_agent", 8002),
        found(Role.RESOURCES, "tools", 8003),
    ]
