"""Which snapshots there are. Only reads: whatever is wrong is reported, and nothing is moved, mended or deleted.

A folder's name is never parsed. What a snapshot is called stands in its manifest, and a folder whose manifest is
missing, torn or of another id is no snapshot (field cases F-41, F-42).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileKind, FileSystem, is_there, storage_errors
from quiesce.controller.publishing import MANIFEST_BYTES_MAX
from quiesce.controller.root_layout import SNAPSHOT_MANIFEST, RootLayout
from quiesce.participants.errors import InvalidIdentity, SnapshotInvalid
from quiesce.participants.excerpts import escaped, printable
from quiesce.participants.identity import check_identity
from quiesce.participants.manifest import deployment_folder, load_manifest
from quiesce.participants.manifest_models import SnapshotManifest

__all__ = [
    "LATEST",
    "Snapshot",
    "SnapshotEntry",
    "SnapshotState",
    "entry_of",
    "last_instant",
    "list_snapshots",
    "resolve",
]

LATEST = "latest"
"""The name that always means the newest valid snapshot."""

NAMED_IN_ERROR_MAX = 10
HINT_BYTES_MAX = 1024

_NO_MANIFEST = frozenset({errno.EFBIG, errno.EISDIR, errno.ELOOP, errno.ENXIO})
"""Errors that say that what stands in the manifest's place is none, however often one looks."""


class SnapshotState(StrEnum):
    """What a name in the folder of snapshots stands for."""

    VALID = "valid"
    INCOMPLETE = "incomplete"
    """There is no manifest, or a file that it declares is missing."""
    TORN = "torn"
    """There is a manifest, but it cannot be believed."""
    UNREADABLE = "unreadable"
    """The storage gave an error, so nobody can say at the moment what it is."""
    FOREIGN = "foreign"
    """No folder, or not of this id: something that somebody else put there."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot with a manifest that can be believed."""

    directory: Path
    manifest: SnapshotManifest

    @property
    def wire_id(self) -> str:
        return self.manifest.checkpoint_id


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One name in the folder of snapshots.

    ``reason`` says why it is not valid; ``manifest`` is None unless it can be believed.
    """

    wire_id: str
    directory: Path
    state: SnapshotState
    reason: str = ""
    manifest: SnapshotManifest | None = None

    @property
    def label(self) -> str | None:
        return self.manifest.label if self.manifest else None

    @property
    def created_at(self) -> float | None:
        """Unix seconds."""
        return self.manifest.created_at if self.manifest else None

    @property
    def size_bytes(self) -> int | None:
        """How much its files hold, as the manifest says."""
        if self.manifest is None:
            return None
        return sum(file.bytes for file in self.manifest.files) + sum(file.bytes for file in self.manifest.trainer)

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "wire_id": self.wire_id,
            "label": self.label,
            "created_at": self.created_at,
            "size_bytes": self.size_bytes,
            "state": self.state.value,
            "reason": self.reason or None,
            "directory": str(self.directory),
        }


def list_snapshots(files: FileSystem, layout: RootLayout) -> tuple[SnapshotEntry, ...]:
    """Everything in the folder of snapshots: valid ones first, the newest first, then the others by name.

    Raises:
        StorageFailed: the folder cannot be read. A root without one has no snapshots.
    """
    with storage_errors("list the snapshots", layout.snapshots):
        if not is_there(files, layout.snapshots):
            return ()
        names = files.names(layout.snapshots)
    entries = [_entry(files, layout.snapshots / name) for name in names]
    return tuple(sorted(entries, key=_newest_first))


def entry_of(files: FileSystem, layout: RootLayout, wire_id: str) -> SnapshotEntry | None:
    """What stands in the place of one id, or None.

    Raises:
        InvalidIdentity: the id may not become a path.
        StorageFailed: the folder cannot be read.
    """
    directory = layout.snapshot(wire_id)
    with storage_errors("read the snapshot", directory):
        if files.status(directory) is None:
            return None
    return _entry(files, directory)


def last_instant(files: FileSystem, layout: RootLayout) -> float:
    """The instant of the snapshot that was published last, as far as the hint says which that is; Unix seconds, else 0.

    Only a hint, so whatever is wrong with it means nothing.
    """
    try:
        name = files.read(layout.latest, HINT_BYTES_MAX).decode("ascii", errors="replace").strip()
        entry = entry_of(files, layout, name)
    except (OSError, InvalidIdentity, StorageFailed):
        return 0.0
    return entry.created_at or 0.0 if entry is not None else 0.0


def resolve(files: FileSystem, layout: RootLayout, name: str) -> Snapshot:
    """The snapshot that a name means: ``latest``, a wire id, or a label (then the newest valid one that has it).

    A wire id comes first; if its snapshot is damaged that is an error, not a reason to take another one. While some
    snapshot cannot be read nobody knows which one is the newest, and an older one is never taken for it silently.

    Raises:
        InvalidIdentity: the name could be no id and no label.
        SnapshotInvalid: there is no such snapshot, or it cannot be trusted; the text says what there is.
        StorageFailed: the folder cannot be read.
    """
    check_identity(name, field="snapshot")
    if name != LATEST:
        exact = entry_of(files, layout, name)
        if exact is not None:
            return _trusted(exact)
    entries = list_snapshots(files, layout)
    _check_readable(entries)
    for entry in entries:
        if entry.state is SnapshotState.VALID and name in {LATEST, entry.label}:
            return _trusted(entry)
    raise SnapshotInvalid(subject="snapshot", file=name, reason=_what_there_is(layout, entries))


def _check_readable(entries: tuple[SnapshotEntry, ...]) -> None:
    for entry in entries:
        if entry.state is SnapshotState.UNREADABLE:
            raise SnapshotInvalid(
                subject="snapshot",
                file=entry.wire_id,
                reason=f"{entry.reason}; it may be the newest: mend it, move it away, or name a wire id",
            )


def _trusted(entry: SnapshotEntry) -> Snapshot:
    if entry.state is not SnapshotState.VALID or entry.manifest is None:
        raise SnapshotInvalid(subject="snapshot", file=entry.wire_id, reason=f"is {entry.state.value}: {entry.reason}")
    return Snapshot(entry.directory, entry.manifest)


class _NotValid(Exception):
    """Why an entry is no valid snapshot; ``manifest`` where it has one that can be believed."""

    def __init__(self, state: SnapshotState, reason: str, manifest: SnapshotManifest | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.manifest = manifest


def _entry(files: FileSystem, directory: Path) -> SnapshotEntry:
    try:
        return SnapshotEntry(directory.name, directory, SnapshotState.VALID, manifest=_valid(files, directory))
    except _NotValid as found:
        return SnapshotEntry(directory.name, directory, found.state, found.reason, found.manifest)
    except InvalidIdentity as error:
        return SnapshotEntry(directory.name, directory, SnapshotState.FOREIGN, str(error))
    except SnapshotInvalid as error:
        return SnapshotEntry(directory.name, directory, SnapshotState.TORN, error.reason)
    except OSError as error:
        state = SnapshotState.TORN if error.errno in _NO_MANIFEST else SnapshotState.UNREADABLE
        reason = f"it cannot be read: {error.strerror or type(error).__name__}"
        return SnapshotEntry(directory.name, directory, state, reason)


def _valid(files: FileSystem, directory: Path) -> SnapshotManifest:
    """The manifest of a valid snapshot; cheap, since only the manifest is read."""
    check_identity(directory.name, field="its name")
    found = files.status(directory)
    if found is None or found.kind is not FileKind.DIRECTORY:
        raise _NotValid(SnapshotState.FOREIGN, "it is no folder")
    if files.status(directory / SNAPSHOT_MANIFEST) is None:
        raise _NotValid(SnapshotState.INCOMPLETE, "it has no manifest")
    manifest = load_manifest(files.read(directory / SNAPSHOT_MANIFEST, MANIFEST_BYTES_MAX))
    if manifest.checkpoint_id != directory.name:
        raise _NotValid(SnapshotState.FOREIGN, f"its manifest is that of {escaped(manifest.checkpoint_id)}")
    for path in _landmarks(manifest):
        found = files.status(directory / path)
        if found is None or found.kind is not FileKind.FILE:
            raise _NotValid(SnapshotState.INCOMPLETE, f"{escaped(path)} is missing", manifest)
    return manifest


def _landmarks(manifest: SnapshotManifest) -> Iterator[str]:
    """Files whose absence shows that a snapshot was half deleted: each participant's manifest, the trainer's files."""
    for entry in manifest.participants:
        yield f"{deployment_folder(entry.deployment)}/{entry.manifest_path}"
    for file in manifest.trainer:
        yield file.path


def _newest_first(entry: SnapshotEntry) -> tuple[float, str]:
    if entry.state is SnapshotState.VALID and entry.created_at is not None:
        return (-entry.created_at, entry.wire_id)
    return (float("inf"), entry.wire_id)


def _what_there_is(layout: RootLayout, entries: tuple[SnapshotEntry, ...]) -> str:
    valid = [f"{entry.label} ({entry.wire_id})" for entry in entries if entry.state is SnapshotState.VALID]
    others = [
        f"{escaped(entry.wire_id)} is {entry.state.value} ({printable(entry.reason)})"
        for entry in entries
        if entry.state is not SnapshotState.VALID
    ]
    if not entries:
        return f"there is no snapshot in {layout.snapshots}"
    told = f"there is no valid snapshot of that name; valid: {_some(valid)}; not valid: {_some(others)}"
    return f"{told}. What is not valid cannot be restored; restore another one" if others else told


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED_IN_ERROR_MAX]) or "none"
    return shown if len(names) <= NAMED_IN_ERROR_MAX else f"{shown} and {len(names) - NAMED_IN_ERROR_MAX} more"
