"""A resource server's part of an export: taking, writing and reading back session states (wire-protocol 6.5 to 6.7).

Files are touched in a worker thread; what was read is installed by the sessions themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_records import SessionRecord
from quiesce.participants.artefact_writing import record_file, resources_manifest_file, sha256_hex
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import participant_folder, record_name
from quiesce.participants.server.errors import RefusalCode
from quiesce.participants.server.publication import Export, publish
from quiesce.participants.server.runs_files import refuse_rival_attempts
from quiesce.participants.server.saved import SavedExport, refusing
from quiesce.participants.server.storage import FilePort

__all__ = ["FrozenSession", "SavedSession", "SavedSessions", "freeze", "load_sessions", "write_sessions"]


@dataclass(frozen=True, slots=True)
class FrozenSession:
    """The state of a session as it was taken: the exact bytes of its file, so that nothing can change it any more."""

    content: bytes


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session of a save: the attempt that it was, its revision and its state."""

    attempt: AttemptId
    revision: int
    state: Mapping[str, object]

    @property
    def replacement(self) -> AttemptId:
        """The attempt that goes on with it."""
        return self.attempt._replace(attempt_index=self.attempt.attempt_index + 1)


@dataclass(frozen=True, slots=True)
class SavedSessions:
    """A verified save. ``checkpoint_id`` is the id of the save."""

    checkpoint_id: str
    sessions: tuple[SavedSession, ...]


def freeze(attempt: AttemptId, revision: int, state: Mapping[str, object], taken_at: float) -> FrozenSession:
    """Take a state.

    Raises:
        TypeError, ValueError: the state is not a JSON object.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is a {type(state).__name__}, not a JSON object")
    record = SessionRecord(
        rollout_id=attempt.rollout_id,
        attempt_index=attempt.attempt_index,
        state_revision=revision,
        state=json.loads(json.dumps(dict(state), allow_nan=False)),
        created_at=float(taken_at),
    )
    return FrozenSession(record_file(record))


def write_sessions(
    files: FilePort, directory: Path, name: str, checkpoint_id: str, held: Mapping[AttemptId, FrozenSession]
) -> str:
    """Write a file for each session, then the manifest; the manifest's digest.

    Raises:
        ControlRefusal: ``resources_checkpoint_error``: two attempts of one rollout, another export in the directory,
            or a directory that cannot be written.
    """
    refuse_rival_attempts(RefusalCode.RESOURCES_CHECKPOINT_ERROR, held)
    members = {record_name(attempt): held[attempt].content for attempt in sorted(held)}
    manifest = resources_manifest_file(
        checkpoint_id, name, {file: sha256_hex(content) for file, content in members.items()}
    )
    export = Export(directory / participant_folder(Role.RESOURCES, name), members, manifest)
    refusing(RefusalCode.RESOURCES_CHECKPOINT_ERROR, lambda: publish(files, export))
    return export.manifest_digest


def load_sessions(files: FilePort, directory: Path, name: str) -> SavedSessions:
    """Read and verify a save.

    Raises:
        ControlRefusal: ``resources_checkpoint_error``: there is no manifest, a file is not what it says, it is another
            server's, or it holds two attempts of one rollout.
    """

    def load() -> SavedSessions:
        saved = SavedExport(files, directory, Role.RESOURCES, name)
        refuse_rival_attempts(RefusalCode.RESOURCES_CHECKPOINT_ERROR, saved.verified.attempts)
        records = [saved.record(record_name(attempt), SessionRecord) for attempt in saved.verified.attempts]
        return SavedSessions(
            saved.checkpoint_id,
            tuple(SavedSession(record.attempt, record.state_revision, record.state) for record in records),
        )

    return refusing(RefusalCode.RESOURCES_CHECKPOINT_ERROR, load)
