"""Proving what lies in a snapshot's folder: the exports, every file's digest, and that nothing else is there.

No link is followed: a participant could have put one there that leads out of the folder (field cases F-44, F-46).
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from quiesce.controller.files import FileKind, FileStatus, FileSystem, hash_file, storage_errors, walk
from quiesce.controller.root_layout import SNAPSHOT_MANIFEST
from quiesce.controller.staging import Staged
from quiesce.fsm.vocabulary import ParticipantKey, Role
from quiesce.participants.artefacts import VerifiedExport, verify_export
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.excerpts import escaped, printable
from quiesce.participants.manifest_models import FileEntry, SnapshotManifest, TrainerFileEntry
from quiesce.participants.replies import ExportReceipt

__all__ = [
    "RECHECK_PAUSES_S",
    "DirectoryReader",
    "SnapshotVerification",
    "check_contents",
    "prove_export",
    "rehash",
]

RECHECK_PAUSES_S = (0.2, 0.8)
"""Waits before an export that looks wrong is looked at again: a network file system may show an old state."""

READERS_MAX: Final = max(2, min(8, os.cpu_count() or 1))
"""Files that are read at once: digests are made without holding the interpreter, so each core can make one."""

Progress = Callable[[int, int], None]
"""Told how many bytes of how many are done."""

_KIND_IN_WORDS: Mapping[FileKind, str] = {
    FileKind.LINK: "a link, which is never followed",
    FileKind.DIRECTORY: "a directory, not a file",
    FileKind.OTHER: "no regular file",
}


class DirectoryReader:
    """Reads below one directory for :func:`quiesce.participants.artefacts.verify_export`. Links lead nowhere."""

    def __init__(self, files: FileSystem, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._entered: set[PurePosixPath] = set()

    def read_bytes(self, relative_path: str, bytes_max: int) -> bytes:
        """The content of a file (see ArtefactReader); one larger than ``bytes_max`` is refused with ``EFBIG``."""
        path = PurePosixPath(relative_path)
        for parent in reversed(path.parents):
            self._enter(parent)
        found = self._files.status(self._directory / path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "does not exist", relative_path)
        if found.kind is not FileKind.FILE:
            raise OSError(errno.ELOOP, f"it is {_KIND_IN_WORDS[found.kind]}", relative_path)
        return self._files.read(self._directory / path, bytes_max)

    def _enter(self, parent: PurePosixPath) -> None:
        if parent in self._entered:
            return
        found = self._files.status(self._directory / parent)
        if found is not None and found.kind is FileKind.LINK:
            raise OSError(errno.ELOOP, f"'{parent}' is {_KIND_IN_WORDS[FileKind.LINK]}", str(parent))
        self._entered.add(parent)


def prove_export(
    files: FileSystem,
    staged: Staged,
    key: ParticipantKey,
    *,
    role: Role,
    participant_name: str,
    receipt: ExportReceipt,
    recheck_pauses_s: Sequence[float] = RECHECK_PAUSES_S,
    sleep: Callable[[float], None] = time.sleep,
) -> VerifiedExport:
    """Prove one participant's export in a staged snapshot, and make the names of its files durable.

    An export that looks wrong is read again after each of ``recheck_pauses_s`` seconds, then refused.

    Raises:
        SnapshotInvalid: what lies there is not what the participant reported.
        InvalidIdentity: its own name may not become a path.
        StorageFailed: its folders cannot be synced.
    """
    directory = staged.deployment(key.deployment)

    def look() -> VerifiedExport:
        return verify_export(
            participant=str(key),
            role=role,
            participant_name=participant_name,
            checkpoint_id=staged.wire_id,
            receipt=receipt,
            reader=DirectoryReader(files, directory),
        )

    export = _patiently(look, recheck_pauses_s, sleep)
    folders = {parent for file in export.files for parent in (directory / file.path).parents}
    with storage_errors("make an export durable", directory):
        for folder in sorted(folders, reverse=True):
            if folder.is_relative_to(directory):
                files.sync_directory(folder)
    return export


@dataclass(frozen=True, slots=True)
class SnapshotVerification:
    """What a full verification found.

    Attributes:
        wire_id, label: of the snapshot.
        files: how many files were read.
        size_bytes: how much was read.
        unhashed: trainer files for which the snapshot holds no digest; only their sizes were compared.
        problems: each file that differs, with what was expected and what was found; empty for a good snapshot.
    """

    wire_id: str
    label: str
    files: int
    size_bytes: int
    unhashed: int
    problems: tuple[SnapshotInvalid, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "wire_id": self.wire_id,
            "label": self.label,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "unhashed": self.unhashed,
            "problems": [str(problem) for problem in self.problems],
        }


def check_contents(files: FileSystem, directory: Path, manifest: SnapshotManifest) -> None:
    """Prove that a folder holds exactly the files of a manifest, each of its size, before it is published.

    Raises:
        SnapshotInvalid: a file is missing, too many, of another size, no regular file, or differs from another in
            case only.
        StorageFailed: the folder cannot be read.
    """
    for problem in _differences(files, directory, manifest):
        raise problem


def rehash(
    files: FileSystem, directory: Path, manifest: SnapshotManifest, *, progress: Progress | None = None
) -> SnapshotVerification:
    """Read every file of a published snapshot and compare it with the manifest. Reports all problems, changes nothing.

    Several files are read at once, the largest first. ``progress`` is called from the threads that read, one at a time.

    Raises:
        StorageFailed: the folder itself cannot be read.
    """
    problems = list(_differences(files, directory, manifest))
    refused = {problem.file for problem in problems}
    entries = [entry for entry in _entries(manifest) if entry.path not in refused]
    total = sum(entry.bytes for entry in entries)
    tally = _Tally(total, progress)
    with ThreadPoolExecutor(READERS_MAX, thread_name_prefix="quiesce-verify") as threads:
        try:
            largest_first = sorted(entries, key=lambda entry: -entry.bytes)
            compared = threads.map(lambda entry: _compare(files, directory, entry, tally), largest_first)
            found = {entry.path: problem for entry, problem in zip(largest_first, compared, strict=True)}
        except BaseException:
            tally.stop()  # whoever asked is gone, and a large file may take minutes
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    problems += [problem for entry in entries if (problem := found[entry.path]) is not None]
    unhashed = sum(entry.sha256 is None for entry in entries)
    return SnapshotVerification(
        manifest.checkpoint_id, manifest.label, len(entries) - unhashed, total, unhashed, tuple(problems)
    )


class _Stopped(Exception):
    """Nobody waits for the result any more."""


class _Tally:
    """How much was read, by all threads together."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count so many bytes and tell.

        Raises:
            _Stopped: it is to end.
        """
        if self._stopped:
            raise _Stopped
        with self._lock:
            self._done += size
            if self._progress is not None:
                self._progress(min(self._done, self._total), self._total)

    def stop(self) -> None:
        """Have every thread end at its next piece."""
        self._stopped = True


def _patiently(
    look: Callable[[], VerifiedExport], pauses_s: Sequence[float], sleep: Callable[[float], None]
) -> VerifiedExport:
    for pause_s in pauses_s:
        try:
            return look()
        except SnapshotInvalid:
            sleep(pause_s)
    return look()


def _entries(manifest: SnapshotManifest) -> Iterator[FileEntry | TrainerFileEntry]:
    yield from manifest.files
    yield from manifest.trainer


def _differences(files: FileSystem, directory: Path, manifest: SnapshotManifest) -> Iterator[SnapshotInvalid]:
    declared = {entry.path: entry for entry in _entries(manifest)}
    folded: dict[str, str] = {}
    with storage_errors("read the snapshot", directory):
        found = dict(walk(files, directory))
    found.pop(SNAPSHOT_MANIFEST, None)
    for path, status in found.items():
        other = folded.setdefault(path.casefold(), path)
        if other != path:
            yield _invalid(path, f"differs from {escaped(other)} in case only, and some file systems mix them up")
        elif path not in declared:
            yield _invalid(path, "is not declared by any participant nor by the trainer; remove whatever wrote it")
        else:
            yield from _difference(path, status, declared[path].bytes)
    for path in sorted(declared.keys() - found.keys()):
        yield _invalid(path, "does not exist")


def _difference(path: str, status: FileStatus, size: int) -> Iterator[SnapshotInvalid]:
    if status.kind is not FileKind.FILE:
        yield _invalid(path, f"is {_KIND_IN_WORDS[status.kind]}")
    elif status.size != size:
        yield _invalid(path, f"has {status.size} bytes, expected {size}")


def _compare(
    files: FileSystem, directory: Path, entry: FileEntry | TrainerFileEntry, tally: _Tally
) -> SnapshotInvalid | None:
    if entry.sha256 is None:
        tally.add(entry.bytes)
        return None
    try:
        digest, size = hash_file(files, directory / entry.path, read=tally.add)
    except OSError as error:
        return _invalid(entry.path, f"cannot be read: {error.strerror or type(error).__name__}")
    if size != entry.bytes:
        return _invalid(entry.path, f"has {size} bytes, expected {entry.bytes}")
    if digest != entry.sha256:
        return _invalid(entry.path, f"has digest {digest}, expected {entry.sha256}")
    return None


def _invalid(path: str, reason: str) -> SnapshotInvalid:
    return SnapshotInvalid(subject="snapshot", file=printable(path, 300), reason=reason)
