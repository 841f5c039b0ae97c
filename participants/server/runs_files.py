"""An agent's part of an export: building and writing it, and reading one back (wire-protocol 6.3, 6.6, 6.7).

Runs in a worker thread and sees only what it is given; installing what was read is the runs' own affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_records import AgentManifest, BoundaryRecord
from quiesce.participants.artefact_writing import (
    agent_manifest_file,
    index_file,
    record_file,
    reference_to,
    sha256_hex,
    sorted_roots,
)
from quiesce.participants.identity import AttemptId, capture_key
from quiesce.participants.layout import MANIFEST_NAME, index_path, participant_folder, record_name
from quiesce.participants.replies import ArtefactReference
from quiesce.participants.server.boundaries import Boundary
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.publication import Export, publish
from quiesce.participants.server.saved import SavedExport, refusing
from quiesce.participants.server.storage import FilePort

__all__ = ["SavedRuns", "WrittenRuns", "load_runs", "refuse_rival_attempts", "write_runs"]


@dataclass(frozen=True, slots=True)
class WrittenRuns:
    """What was exported."""

    manifest_digest: str
    index: ArtefactReference


@dataclass(frozen=True, slots=True)
class SavedRuns:
    """A verified save. ``checkpoint_id`` is the id of the save; the boundaries are those of the saved attempts."""

    checkpoint_id: str
    boundaries: tuple[Boundary, ...]
    index: ArtefactReference


def write_runs(
    files: FilePort, directory: Path, name: str, checkpoint_id: str, boundaries: Sequence[Boundary]
) -> WrittenRuns:
    """Write a record for each boundary, the continuation index, and the manifest.

    Raises:
        ControlRefusal: ``agent_checkpoint_error``: two attempts of one rollout, another export in the directory, or
            a directory that cannot be written.
    """
    refuse_rival_attempts(RefusalCode.AGENT_CHECKPOINT_ERROR, [boundary.record.attempt for boundary in boundaries])
    roots = sorted_roots(root for root in (boundary.root() for boundary in boundaries) if root is not None)
    relative_index = index_path(Role.AGENT, name) or ""
    index_content = index_file(roots)
    index = reference_to(relative_index, index_content)
    members = {record_name(boundary.record.attempt): record_file(boundary.record) for boundary in boundaries}
    manifest = agent_manifest_file(
        checkpoint_id, name, {file: sha256_hex(content) for file, content in members.items()}, index
    )
    members[Path(relative_index).name] = index_content
    export = Export(directory / participant_folder(Role.AGENT, name), members, manifest)
    refusing(RefusalCode.AGENT_CHECKPOINT_ERROR, lambda: publish(files, export))
    return WrittenRuns(export.manifest_digest, index)


def load_runs(files: FilePort, directory: Path, name: str) -> SavedRuns:
    """Read and verify a save.

    Raises:
        ControlRefusal: ``agent_checkpoint_error``: there is no manifest, a file is not what it says, it is another
            agent's, or it holds two attempts of one rollout.
    """

    def load() -> SavedRuns:
        saved = SavedExport(files, directory, Role.AGENT, name)
        refuse_rival_attempts(RefusalCode.AGENT_CHECKPOINT_ERROR, saved.verified.attempts)
        captured_as = {root.attempt: root.capture_key for root in saved.verified.roots}
        records = [saved.record(record_name(attempt), BoundaryRecord) for attempt in saved.verified.attempts]
        return SavedRuns(
            checkpoint_id=saved.checkpoint_id,
            boundaries=tuple(
                Boundary(record, captured_as.get(record.attempt, capture_key(*record.attempt))) for record in records
            ),
            index=saved.record(MANIFEST_NAME, AgentManifest).continuation_index.neutral(),
        )

    return refusing(RefusalCode.AGENT_CHECKPOINT_ERROR, load)


def refuse_rival_attempts(code: RefusalCode, attempts: Iterable[AttemptId]) -> None:
    """Refuse two attempts of one rollout: attempt n goes on as n + 1, which would be the other one.

    Raises:
        ControlRefusal: with ``code``.
    """
    counted = Counter(attempt.rollout_id for attempt in attempts)
    rivals = sorted(rollout_id for rollout_id, count in counted.items() if count > 1)
    if rivals:
        raise ControlRefusal(
            code, f"rollout {rivals[0]!r} is there with {counted[rivals[0]]} attempts; retire all but one and try again"
        )
