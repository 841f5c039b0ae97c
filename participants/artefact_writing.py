"""The exact bytes of every artefact (wire-protocol 6.2). Nothing here opens a file.

Records keep the order of their fields; manifests have sorted keys; index rows are compact. Non-ASCII is escaped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from quiesce.participants.artefact_records import BoundaryRecord, ContinuationRow, SessionRecord, StorageRow
from quiesce.participants.identity import AttemptId, capture_key
from quiesce.participants.replies import ArtefactReference
from quiesce.participants.strict_json import compact, pretty

__all__ = [
    "agent_manifest_file",
    "continuation_row",
    "index_file",
    "lineage_entry",
    "model_manifest_file",
    "record_file",
    "reference_entry",
    "reference_to",
    "resources_manifest_file",
    "result_digest",
    "result_identity",
    "roots_digest",
    "sha256_hex",
    "sorted_roots",
    "storage_rows",
]

AGENT_MANIFEST_SCHEMA: Final = 1
MODEL_MANIFEST_SCHEMA: Final = 2
RESOURCES_MANIFEST_SCHEMA: Final = 1
STAGING_KIND: Final = "token_capture_staging"


def sha256_hex(content: bytes) -> str:
    """The digest that stands in every reference and manifest."""
    return hashlib.sha256(content).hexdigest()


def record_file(record: BoundaryRecord | SessionRecord) -> bytes:
    """A boundary or session file: indent 2, order of the fields, no final newline."""
    return pretty(record.model_dump(mode="python"), indent=2, sort_keys=False).encode()


def continuation_row(record: BoundaryRecord, *, captured_as: str | None = None) -> ContinuationRow | None:
    """The root of a boundary, None when it has committed no model call yet.

    ``captured_as`` names the capture key of the call where that is one of an earlier attempt (wire-protocol 6.7).
    """
    if record.last_committed_model_call_id is None:
        return None
    return ContinuationRow(
        rollout_id=record.rollout_id,
        attempt_index=record.attempt_index,
        capture_key=captured_as or capture_key(record.rollout_id, record.attempt_index),
        last_committed_model_call_id=record.last_committed_model_call_id,
    )


def sorted_roots(rows: Iterable[ContinuationRow]) -> tuple[ContinuationRow, ...]:
    """Rows in the order in which they are written and digested: capture key, then call id."""
    return tuple(sorted(rows, key=lambda row: (row.capture_key, row.last_committed_model_call_id)))


def index_file(rows: Sequence[ContinuationRow] | Sequence[StorageRow]) -> bytes:
    """An index: one compact row a line, each ended by LF; no rows make an empty file."""
    return "".join(compact(_row(row)) + "\n" for row in rows).encode()


def _row(row: ContinuationRow | StorageRow) -> dict[str, object]:
    fields = row.model_dump(mode="python")
    if fields.get("resource_state_revisions", ...) is None:
        del fields["resource_state_revisions"]
    return fields


def reference_to(relative_path: str, content: bytes) -> ArtefactReference:
    """The reference to a written index; blank lines are no records, but count in digest and size."""
    records = sum(1 for line in content.split(b"\n") if line.strip())
    return ArtefactReference(relative_path, sha256_hex(content), records, len(content))


def reference_entry(reference: ArtefactReference) -> dict[str, object]:
    """A reference as it stands in a manifest or in a reply."""
    return {
        "schema_version": 1,
        "relative_path": reference.relative_path,
        "sha256": reference.sha256,
        "records": reference.records,
        "bytes": reference.size_bytes,
    }


def agent_manifest_file(
    checkpoint_id: str, instance_name: str | None, files: Mapping[str, str], index: ArtefactReference
) -> bytes:
    """An agent's manifest. ``files`` maps a file name to its digest."""
    manifest = {
        "schema_version": AGENT_MANIFEST_SCHEMA,
        "checkpoint_id": checkpoint_id,
        "instance_name": instance_name,
        "files": dict(files),
        "continuation_index": reference_entry(index),
    }
    return pretty(manifest, indent=2, sort_keys=True).encode()


def resources_manifest_file(checkpoint_id: str, server_name: str, files: Mapping[str, str]) -> bytes:
    """A resource server's manifest. ``files`` maps a file name to its digest."""
    manifest = {
        "schema_version": RESOURCES_MANIFEST_SCHEMA,
        "checkpoint_id": checkpoint_id,
        "server_name": server_name,
        "files": dict(files),
    }
    return pretty(manifest, indent=2, sort_keys=True).encode()


def lineage_entry(name: str, content: bytes) -> dict[str, object]:
    """The entry of one lineage file, for :func:`model_manifest_file`."""
    rows = sum(1 for line in content.split(b"\n") if line.strip())
    return {"files": {name: sha256_hex(content)}, "rows": rows, "bytes": len(content)}


def model_manifest_file(
    *,
    checkpoint_id: str,
    server_name: str | None,
    rollouts: Mapping[str, Mapping[str, object]],
    roots: Sequence[ContinuationRow],
    excluded_inactive: int,
    index: ArtefactReference,
    tombstones: Iterable[AttemptId],
    source_attempts: Iterable[AttemptId],
) -> bytes:
    """A policy's manifest. ``rollouts`` maps a capture key to its :func:`lineage_entry`."""
    manifest = {
        "schema_version": MODEL_MANIFEST_SCHEMA,
        "checkpoint_id": checkpoint_id,
        "server_name": server_name,
        "rollouts": {key: dict(entry) for key, entry in rollouts.items()},
        "continuation_roots": len(roots),
        "continuation_roots_sha256": roots_digest(roots),
        "excluded_inactive": excluded_inactive,
        "storage_reference_index": reference_entry(index),
        "tombstones": _attempts(tombstones),
        "source_attempts": _attempts(source_attempts),
    }
    return pretty(manifest, indent=1, sort_keys=True).encode()


def _attempts(attempts: Iterable[AttemptId]) -> list[dict[str, object]]:
    ordered = sorted(set(attempts))
    return [{"rollout_id": attempt.rollout_id, "attempt_index": attempt.attempt_index} for attempt in ordered]


def roots_digest(rows: Iterable[ContinuationRow]) -> str:
    """The digest over all continuation roots: a compact array with sorted keys, ordered by capture key, then call."""
    return sha256_hex(compact([_row(row) for row in sorted_roots(rows)], sort_keys=True).encode())


def storage_rows(root: ContinuationRow, lineage_row: Mapping[str, object]) -> tuple[StorageRow, ...]:
    """The storage references of one root, from the one row of its lineage that has its call id (wire-protocol 6.4).

    Each entry of ``staging_chain``, and ``staging_key``, once. Raises ValueError when one of them is not text.
    """
    chain = lineage_row.get("staging_chain") or []
    last = lineage_row.get("staging_key")
    if not isinstance(chain, list):
        raise ValueError(f"'staging_chain' of {root.capture_key} is no list")  # noqa: TRY004 - it is content, not a call
    keys = dict.fromkeys([*chain, *([] if last is None else [last])])
    if not all(isinstance(key, str) and key for key in keys):
        raise ValueError(f"a staging key of {root.capture_key} is no text")
    return tuple(
        StorageRow(
            capture_key=root.capture_key,
            boundary_model_call_id=root.last_committed_model_call_id,
            kind=STAGING_KIND,
            key=key,
        )
        for key in keys
    )


def result_digest(result: object) -> str:
    """The digest of an agent's result: sorted keys, compact, ASCII (wire-protocol 2.15)."""
    return sha256_hex(compact(result, sort_keys=True).encode())


def result_identity(result: object) -> str:
    """How a result is named: its ``id``, else the ``id`` of its ``response``, else its digest (1..512 characters)."""
    if isinstance(result, Mapping):
        response = result.get("response")
        inner = response.get("id") if isinstance(response, Mapping) else None
        for identity in (result.get("id"), inner):
            if isinstance(identity, str) and 0 < len(identity) <= 512:  # noqa: PLR2004 - the wire's own bound
                return identity
    return result_digest(result)
