"""A policy's part of an export: building and writing it, and reading one back (wire-protocol 6.4, 6.6, 6.7).

Runs in a worker thread and sees only what it is given; installing what was read is the ledger's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_records import ModelManifest
from quiesce.participants.artefact_writing import index_file, lineage_entry, model_manifest_file, reference_to
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import MANIFEST_NAME, index_path, manifest_path, participant_folder
from quiesce.participants.replies import ArtefactReference
from quiesce.participants.server.continuations import Selection, read_roots, rows_of, select_lineage
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.publication import Export, publish
from quiesce.participants.server.saved import SavedExport, refusing
from quiesce.participants.server.storage import FilePort

__all__ = ["SavedLedger", "Standing", "WrittenLedger", "load_ledger", "write_ledger"]

STRAYS_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ledger knew when the export began. ``seen``: attempts that have called since the process started."""

    server_name: str
    checkpoint_id: str
    seen: frozenset[AttemptId]
    tombstones: tuple[AttemptId, ...]


@dataclass(frozen=True, slots=True)
class WrittenLedger:
    """What was exported. ``lineages`` is by capture key."""

    lineages: Mapping[str, bytes]
    rows: int
    excluded_inactive: int
    manifest_digest: str
    index: ArtefactReference


@dataclass(frozen=True, slots=True)
class SavedLedger:
    """A verified save. ``checkpoint_id`` is the id of the save."""

    checkpoint_id: str
    lineages: Mapping[str, bytes]
    rows: int
    tombstones: tuple[AttemptId, ...]
    source_attempts: tuple[AttemptId, ...]
    index: ArtefactReference


def write_ledger(
    files: FilePort,
    directory: Path,
    standing: Standing,
    references: Sequence[Mapping[str, object]],
    read: Callable[[str], bytes | None],
) -> WrittenLedger:
    """Write the lineage that the roots of the agents' indexes name, then the index, then the manifest.

    Raises:
        ControlRefusal: ``ledger_mismatch``: the roots cannot be served from here, or the directory holds another
            export; ``ledger_not_checkpointable``: the lineage cannot be read or the directory cannot be written.
    """

    def select() -> Selection:
        roots = read_roots(files, directory, standing.server_name, references)
        return select_lineage(roots, frozenset(standing.tombstones), _guarded(read))

    def write() -> WrittenLedger:
        export, written = _export(directory, standing, selection)
        publish(files, export)
        return written

    selection = refusing(RefusalCode.LEDGER_MISMATCH, select)
    return refusing(RefusalCode.LEDGER_MISMATCH, write, storage=RefusalCode.LEDGER_NOT_CHECKPOINTABLE)


def load_ledger(
    files: FilePort, directory: Path, server_name: str, standing_keys: Callable[[], Collection[str]]
) -> SavedLedger:
    """Read and verify a save. ``standing_keys`` gives the lineages that are there already.

    Raises:
        ControlRefusal: ``ledger_mismatch``: there is no manifest, a file is not what it says, it is another server's,
            or there is lineage here that the save does not know.
    """

    def load() -> SavedLedger:
        saved = _saved(files, directory, server_name)
        strays = sorted(set(standing_keys()) - set(saved.lineages))
        if strays:
            named = ", ".join(strays[:STRAYS_NAMED_MAX])
            raise ControlRefusal(
                RefusalCode.LEDGER_MISMATCH,
                f"this store has {len(strays)} lineages that the save does not know ({named}); start with an empty one",
            )
        return saved

    return refusing(RefusalCode.LEDGER_MISMATCH, load)


def _guarded(read: Callable[[str], bytes | None]) -> Callable[[str], bytes | None]:
    def reading(key: str) -> bytes | None:
        return refusing(RefusalCode.LEDGER_NOT_CHECKPOINTABLE, lambda: read(key))

    return reading


def _export(directory: Path, standing: Standing, selection: Selection) -> tuple[Export, WrittenLedger]:
    name = standing.server_name
    relative_index = index_path(Role.POLICY, name) or ""
    index_content = index_file(selection.storage)
    index = reference_to(relative_index, index_content)
    continuing = {root.attempt for root in selection.roots}
    inactive = standing.seen - continuing - set(standing.tombstones)
    manifest = model_manifest_file(
        checkpoint_id=standing.checkpoint_id,
        server_name=name,
        rollouts={key: lineage_entry(_file_name(key), content) for key, content in selection.lineages.items()},
        roots=selection.roots,
        excluded_inactive=len(inactive),
        index=index,
        tombstones=standing.tombstones,
        # an attempt may go on without having called since a restore; it is fenced after the next one all the same
        source_attempts=standing.seen | continuing,
    )
    members = {_file_name(key): content for key, content in selection.lineages.items()}
    members[Path(relative_index).name] = index_content
    export = Export(directory / participant_folder(Role.POLICY, name), members, manifest)
    rows = sum(len(rows_of(key, content)) for key, content in selection.lineages.items())
    return export, WrittenLedger(selection.lineages, rows, len(inactive), export.manifest_digest, index)


def _saved(files: FilePort, directory: Path, server_name: str) -> SavedLedger:
    saved = SavedExport(files, directory, Role.POLICY, server_name)
    manifest = saved.record(MANIFEST_NAME, ModelManifest)
    for key, entry in manifest.rollouts.items():
        if set(entry.files) != {_file_name(key)}:
            raise SnapshotInvalid(
                subject=server_name,
                file=manifest_path(Role.POLICY, server_name),
                reason=f"the lineage of {key} is not in the one file {_file_name(key)}",
            )
    return SavedLedger(
        checkpoint_id=saved.checkpoint_id,
        lineages={key: saved.content(_file_name(key)) for key in manifest.rollouts},
        rows=sum(entry.rows for entry in manifest.rollouts.values()),
        tombstones=saved.verified.tombstones,
        source_attempts=saved.verified.source_attempts,
        index=manifest.storage_reference_index.neutral(),
    )


def _file_name(key: str) -> str:
    return f"{key}.lineage.jsonl"
