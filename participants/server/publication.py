"""How an export becomes visible: files first, the manifest last, each durable before the next (wire-protocol 6.6).

A folder without a manifest was never committed; a folder with one is complete. Nothing in between can be seen,
wherever the writer stops. Files that an earlier, failed attempt left behind and that the manifest does not name stay
where they are: readers trust the manifest only (wire-protocol 9, 57).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.excerpts import escaped
from quiesce.participants.layout import MANIFEST_NAME
from quiesce.participants.server.storage import FilePort

__all__ = ["Export", "ExportConflict", "publish", "write_atomically"]


class ExportConflict(QuiesceError):
    """The folder holds a committed export that is not the one to be written. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Export:
    """Everything that one participant writes at a commit.

    ``folder`` is the participant's own, ``members`` maps a file name in it to its content.
    """

    folder: Path
    members: Mapping[str, bytes]
    manifest: bytes

    @property
    def manifest_digest(self) -> str:
        """SHA-256 of the manifest's exact bytes."""
        return hashlib.sha256(self.manifest).hexdigest()


def publish(files: FilePort, export: Export) -> None:
    """Write the export, or find that it is there already and prove that every byte of it is (rule P4).

    Raises:
        ExportConflict: a manifest is there and it, or a file that it names, is not what would be written.
        OSError: the folder cannot be written. No manifest is there then, unless only the final wait for the disk
            failed; publishing the same again repeats that wait.
    """
    standing = _read_if_there(files, export.folder / MANIFEST_NAME)
    if standing is None:
        _write(files, export)
    else:
        _compare(files, export, standing)
        files.sync_directory(export.folder)


def write_atomically(files: FilePort, path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` so that a reader sees the old file or the new one, never a part (rule P1)."""
    # the name is fresh: an abandoned writer of the same file may still be at work in its thread
    temporary = path.with_name(f".partial-{secrets.token_hex(8)}")
    try:
        files.write(temporary, content)
        files.replace(temporary, path)
    except BaseException:
        _remove_quietly(files, temporary)
        raise


def _write(files: FilePort, export: Export) -> None:
    files.make_directories(export.folder)
    for name, content in export.members.items():
        write_atomically(files, export.folder / name, content)
    files.sync_directory(export.folder)
    write_atomically(files, export.folder / MANIFEST_NAME, export.manifest)
    files.sync_directory(export.folder)


def _compare(files: FilePort, export: Export, standing: bytes) -> None:
    if standing != export.manifest:
        raise ExportConflict(
            f"{export.folder} already holds another committed export, or this one of another state; "
            "commit into an empty directory"
        )
    for name, content in export.members.items():
        if _read_if_there(files, export.folder / name) != content:
            raise ExportConflict(f"{export.folder} holds this export, but {escaped(name)} is missing or was changed")


def _read_if_there(files: FilePort, path: Path) -> bytes | None:
    try:
        return files.read(path)
    except FileNotFoundError:
        return None


def _remove_quietly(files: FilePort, path: Path) -> None:
    try:
        files.remove(path)
    except OSError:
        # what made the write fail may make this fail as well, and it is the write's error that must be seen
        return
