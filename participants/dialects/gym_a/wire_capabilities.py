"""The capabilities reply of generation A (wire-protocol 2.1)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt, StrictStr

from quiesce.participants.capabilities import (
    AdmissionState,
    CheckpointMode,
    Component,
    ConcurrencyContract,
    Declaration,
    FencePhase,
    InstanceRole,
    LiveCapabilities,
    WorkerMode,
)
from quiesce.participants.dialects.gym_a.wire_common import FiniteNumber, LiveModel, SchemaOne
from quiesce.participants.validation import Listed

__all__ = ["Capabilities", "MultiProcess"]


class MultiProcess(LiveModel):
    """Who answers, and for how many workers."""

    mode: WorkerMode
    num_workers: Annotated[StrictInt, Field(ge=1)]


class Capabilities(LiveModel):
    """What a server declares, with its three live fields (the last ones)."""

    component: Component
    name: Annotated[StrictStr, Field(min_length=1, max_length=512)]
    schema_version: SchemaOne
    admission_states: Listed[AdmissionState]
    checkpoint_mode: CheckpointMode
    concurrency_contract: ConcurrencyContract
    multi_process: MultiProcess
    instance_role: InstanceRole | None
    features: Listed[StrictStr] = ()
    phase: FencePhase
    active_checkpoint_id: Annotated[StrictStr, Field(min_length=1)] | None
    deadline_ts: FiniteNumber | None

    def declaration(self) -> Declaration:
        """The static part: the live fields are stripped, sequences sorted and freed of duplicates."""
        return Declaration(
            component=self.component,
            participant_name=self.name,
            schema_version=self.schema_version,
            admission_states=tuple(sorted(set(self.admission_states))),
            checkpoint_mode=self.checkpoint_mode,
            concurrency_contract=self.concurrency_contract,
            worker_mode=self.multi_process.mode,
            num_workers=self.multi_process.num_workers,
            instance_role=self.instance_role,
            features=tuple(sorted(set(self.features))),
        )

    def live(self) -> LiveCapabilities:
        """The whole reply in words that no wire generation owns."""
        return LiveCapabilities(self.declaration(), self.phase, self.active_checkpoint_id, self.deadline_ts)
