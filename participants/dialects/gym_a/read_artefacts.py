"""Commit and restore: receipts whose paths, ids, indexes and counts agree with what we know (7.6, 7.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Outcome
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.unbelievable import Unbelievable, require_equal
from quiesce.participants.layout import index_path, manifest_path
from quiesce.participants.replies import ExportReceipt, ImportReceipt

__all__ = ["read_export", "read_import"]

CommitReply = wire.ModelCommitReply | wire.AgentCommitReply | wire.ResourcesCommitReply
RestoreReply = wire.ModelRestoreReply | wire.AgentRestoreReply | wire.ResourcesRestoreReply


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the replies of the three roles have in common."""

    index: wire.ArtefactReference | None
    counts: Mapping[str, int]


def read_export(spec: CallSpec, reply: BaseModel) -> Reading:
    """EXPORT: digest and counts are the reply's, the path of the manifest is ours."""
    commit = cast("CommitReply", reply)
    parts = _parts(commit)
    _check_index(spec, parts)
    receipt = ExportReceipt(
        manifest_path=manifest_path(spec.role, spec.participant_name),
        manifest_digest=commit.manifest_digest,
        index=parts.index.neutral() if parts.index else None,
        counts=parts.counts,
    )
    return Reading(Outcome.EXPORTED, receipt)


def read_import(spec: CallSpec, reply: BaseModel) -> Reading:
    """IMPORT: it must have loaded the save that was asked for, and what that save recorded."""
    restore = cast("RestoreReply", reply)
    # a model reports the save in checkpoint_id, the others in source_checkpoint_id (wire-protocol 9 #14)
    source = restore.checkpoint_id if isinstance(restore, wire.ModelRestoreReply) else restore.source_checkpoint_id
    if spec.source_checkpoint_id is not None:
        require_equal("the id of the restored save", spec.source_checkpoint_id, source)
    parts = _parts(restore)
    _check_index(spec, parts)
    receipt = ImportReceipt(source, parts.index.neutral() if parts.index else None, parts.counts)
    if spec.saved is not None:
        _check_saved(spec.saved, receipt)
    return Reading(Outcome.IMPORTED, receipt)


def _parts(reply: CommitReply | RestoreReply) -> _Parts:
    match reply:
        case wire.AgentCommitReply() | wire.AgentRestoreReply():
            return _Parts(reply.continuation_index, {"records": reply.records})
        case wire.ResourcesCommitReply() | wire.ResourcesRestoreReply():
            return _Parts(None, {"sessions": reply.sessions})
        case wire.ModelRestoreReply():
            return _Parts(reply.storage_reference_index, {"rollouts": reply.rollouts, "rows": reply.rows})
        case wire.ModelCommitReply():
            counts = {
                "rollouts": reply.rollouts,
                "rows": reply.rows,
                "excluded_tombstoned": reply.excluded_tombstoned,
                "excluded_inactive": reply.excluded_inactive,
            }
            return _Parts(reply.storage_reference_index, counts)


def _check_index(spec: CallSpec, parts: _Parts) -> None:
    if parts.index is None:
        return
    require_equal("the path of the index", index_path(spec.role, spec.participant_name), parts.index.relative_path)
    records = parts.counts.get("records")
    if records is not None and parts.index.records > records:
        raise Unbelievable(f"the continuation index has {parts.index.records} rows for {records} records")


def _check_saved(saved: ExportReceipt, restored: ImportReceipt) -> None:
    require_equal("the restored index", saved.index, restored.index)
    for name, count in restored.counts.items():
        if name in saved.counts:
            require_equal(f"the restored number of {name}", saved.counts[name], count)
