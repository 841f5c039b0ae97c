"""What a participant declares of itself, held against itself."""

from __future__ import annotations

from collections.abc import Iterator

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import AdmissionState, CheckpointMode, Component, Declaration, WorkerMode

__all__ = ["contradictions"]


def contradictions(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Each contradiction: what would be consistent, and what is declared instead."""
    is_model = declaration.component is Component.MODEL
    if is_model and declaration.instance_role is None:
        yield "instance_role policy or auxiliary", "null for a model server"
    if not is_model and declaration.instance_role is not None:
        yield "instance_role null", f"{declaration.instance_role.value} for a server that is no model"
    if AdmissionState.ACCEPTING not in declaration.admission_states:
        yield "accepting among the admission states", ", ".join(declaration.admission_states) or "none"
    if declaration.role is Role.AUXILIARY and declaration.checkpoint_mode is not CheckpointMode.STATELESS:
        yield "checkpoint_mode stateless for an auxiliary model", declaration.checkpoint_mode.value
    closes = set(declaration.admission_states) >= set(AdmissionState)
    if declaration.role is Role.POLICY and declaration.exports and not closes:
        yield "accepting, draining and paused for a policy that exports", ", ".join(declaration.admission_states)
    if declaration.worker_mode is WorkerMode.SINGLE_WORKER and declaration.num_workers != 1:
        yield "num_workers 1 for a single worker", str(declaration.num_workers)
