"""The trainer's own part of a snapshot: whatever it put into its folder while everybody was paused."""

from __future__ import annotations

from quiesce.controller.files import FileKind, FileSystem, hash_file, storage_errors, walk
from quiesce.controller.root_layout import TRAINER
from quiesce.controller.staging import Staged, directories_below
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.excerpts import printable
from quiesce.participants.layout import unsafe_path_reason
from quiesce.participants.manifest_models import TrainerFileEntry

__all__ = ["collect_trainer_files"]


def collect_trainer_files(files: FileSystem, staged: Staged, *, hashed: bool) -> tuple[TrainerFileEntry, ...]:
    """List the trainer's files with their sizes, and make them and their names durable.

    ``hashed`` adds digests, which takes as long as reading all of it.

    Raises:
        SnapshotInvalid: something there is no regular file (a link, for example), or its name cannot be kept.
        StorageFailed: something cannot be read or synced.
    """
    entries: list[TrainerFileEntry] = []
    with storage_errors("save the trainer's files", staged.trainer):
        for path, status in walk(files, staged.trainer):
            relative = f"{TRAINER}/{path}"
            _check(relative, status.kind)
            files.sync_file(staged.directory / relative)
            digest = hash_file(files, staged.directory / relative)[0] if hashed else None
            entries.append(TrainerFileEntry(path=relative, bytes=status.size, sha256=digest))
        for directory in directories_below(files, staged.trainer):
            files.sync_directory(directory)
    return tuple(entries)


def _check(path: str, kind: FileKind) -> None:
    reason = unsafe_path_reason(path)
    if reason is None and kind is not FileKind.FILE:
        reason = f"is {kind.in_words}; only regular files can be kept, so copy what it stands for"
    if reason is not None:
        raise SnapshotInvalid(subject="trainer", file=printable(path, 300), reason=reason)
