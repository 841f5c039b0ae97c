"""What a participant declares about itself, apart from where it stands at the moment.

The static part (:class:`Declaration`) enters the topology and its fingerprint; the three live fields never do.
Sources: wire-protocol 1, 2.1, 7.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from quiesce.fsm.tables.fence import FencePhase
from quiesce.fsm.vocabulary import Role

__all__ = [
    "LEASE_FEATURE",
    "RESTORE_OWED_FEATURE",
    "AdmissionState",
    "CheckpointMode",
    "Component",
    "ConcurrencyContract",
    "Contract",
    "Declaration",
    "FencePhase",
    "InstanceRole",
    "LiveCapabilities",
    "WorkerMode",
]


LEASE_FEATURE: Final = "quiesce_lease_v1"
"""By this feature a server of our kit says that its closed state is leased and can be renewed (docs/leases.md)."""


RESTORE_OWED_FEATURE: Final = "quiesce_restore_owed_v1"
"""By this feature a server of our kit says, as long as that is so, that it waits for a restore and refuses all work."""


class Component(StrEnum):
    """Which kind of server it is, in the words of the wire."""

    MODEL = "responses_api_models"
    AGENT = "responses_api_agents"
    RESOURCES = "resources_servers"


class InstanceRole(StrEnum):
    """What a model server is for. Other servers declare none."""

    POLICY = "policy"
    AUXILIARY = "auxiliary"


class AdmissionState(StrEnum):
    """Whether a server takes new work."""

    ACCEPTING = "accepting"
    DRAINING = "draining"
    PAUSED = "paused"


class CheckpointMode(StrEnum):
    """Whether a server can export and restore per-rollout state (wire-protocol 1.3)."""

    STATELESS = "stateless"
    EXPORT_RESTORE = "export_restore"
    RESTART_ONLY = "restart_only"


class ConcurrencyContract(StrEnum):
    """How a server orders the calls of one session. Part of the fingerprint; nothing branches on it."""

    STATELESS = "stateless"
    SERIALIZED_PER_SESSION = "serialized_per_session"
    TRANSACTIONAL_PARALLEL = "transactional_parallel"


class WorkerMode(StrEnum):
    """Who answers the control URL when a server has several workers (wire-protocol 1.2)."""

    SINGLE_WORKER = "single_worker"
    COORDINATOR = "coordinator"
    UNMANAGED = "unmanaged"


@dataclass(frozen=True, slots=True)
class Declaration:
    """The static part of a capabilities reply. Sequences are sorted and free of duplicates.

    ``participant_name`` is the participant's own name, which also stands in the paths of its artefacts.
    """

    component: Component
    participant_name: str
    schema_version: int
    admission_states: tuple[AdmissionState, ...]
    checkpoint_mode: CheckpointMode
    concurrency_contract: ConcurrencyContract
    worker_mode: WorkerMode
    num_workers: int
    instance_role: InstanceRole | None
    features: tuple[str, ...] = ()

    @property
    def role(self) -> Role:
        """What it is to a cut. A model that states no role is a policy, the default of its configuration."""
        if self.component is Component.AGENT:
            return Role.AGENT
        if self.component is Component.RESOURCES:
            return Role.RESOURCES
        return Role.AUXILIARY if self.instance_role is InstanceRole.AUXILIARY else Role.POLICY

    @property
    def exports(self) -> bool:
        """Whether it takes part in commit and restore."""
        return self.checkpoint_mode is CheckpointMode.EXPORT_RESTORE

    @property
    def leased(self) -> bool:
        """Whether it opens by itself when its controller is gone."""
        return LEASE_FEATURE in self.features

    @property
    def lasting(self) -> Declaration:
        """What of it holds for the life of the process: all but that a restore is owed."""
        return replace(self, features=tuple(one for one in self.features if one != RESTORE_OWED_FEATURE))

    @property
    def owes_restore(self) -> bool:
        """Whether it says that it waits for a restore. The recorded servers never say so."""
        return RESTORE_OWED_FEATURE in self.features

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator answers for several workers: its status reply then has another shape."""
        return self.worker_mode is WorkerMode.COORDINATOR


@dataclass(frozen=True, slots=True)
class Contract:
    """One participant of a topology: the routing name by which the controller knows it, and its declaration."""

    server_name: str
    declaration: Declaration

    @property
    def role(self) -> Role:
        return self.declaration.role

    @property
    def participant_name(self) -> str:
        return self.declaration.participant_name


@dataclass(frozen=True, slots=True)
class LiveCapabilities:
    """A whole capabilities reply: the declaration and the live state of the fence.

    ``deadline_ts`` is Unix seconds, None when idle or when the last operation carried none.
    """

    declaration: Declaration
    phase: FencePhase
    active_checkpoint_id: str | None
    deadline_ts: float | None
