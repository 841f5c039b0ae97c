"""Putting a snapshot together beside its final place, and taking it apart again when the cut was aborted."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import (
    FileKind,
    FileSystem,
    make_directories,
    remove_tree,
    storage_errors,
)
from quiesce.controller.root_layout import DEPLOYMENTS, TRAINER, RootLayout
from quiesce.participants.identity import check_identity

__all__ = ["Staged", "discard", "prepare_root", "stage"]


@dataclass(frozen=True, slots=True)
class Staged:
    """A snapshot that is being put together.

    Attributes:
        wire_id: the transaction.
        directory: the folder that will be renamed into its place.
    """

    wire_id: str
    directory: Path

    @property
    def trainer(self) -> Path:
        """Where the embedding trainer puts its own files."""
        return self.directory / TRAINER

    def deployment(self, name: str) -> Path:
        """The directory that the participants of a deployment export to: their ``checkpoint_dir``."""
        return self.directory / DEPLOYMENTS / check_identity(name, field="deployment")


def prepare_root(files: FileSystem, layout: RootLayout) -> None:
    """Make the folders of a checkpoint root where they are missing.

    The root may be a link. What stands in it may not: what is renamed or synced there would be somewhere else.

    Raises:
        StorageFailed: something that is no directory stands in the way, or nothing can be written there.
    """
    for directory in (layout.snapshots, layout.staging, layout.journals):
        with storage_errors("prepare the checkpoint root", layout.root):
            _check_no_link(files, layout, directory)
            make_directories(files, directory)


def _check_no_link(files: FileSystem, layout: RootLayout, directory: Path) -> None:
    """Look at a directory below the root, and at those between."""
    for path in (directory, *directory.parents):
        if path == layout.root:
            return
        found = files.status(path)
        if found is not None and found.kind is FileKind.LINK:
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is a link, and only the root itself may be one", str(path))


def stage(files: FileSystem, layout: RootLayout, wire_id: str, deployments: Collection[str]) -> Staged:
    """Make the empty folders of a new snapshot.

    Left-overs of other attempts are neither used nor swept.

    Raises:
        InvalidIdentity: the id or a deployment's name may not become a path.
        StorageFailed: something of this id stands there already (also one that differs in case only), or the folders
            cannot be made. Nothing was published.
    """
    staged = Staged(wire_id, layout.staged(wire_id))
    directories = [staged.deployment(name) for name in deployments]
    prepare_root(files, layout)
    for parent in (layout.staging, layout.snapshots):
        _check_free(files, parent, wire_id)
    try:
        with storage_errors("make the folder of a new snapshot", staged.directory):
            for directory in (*directories, staged.trainer):
                make_directories(files, directory)
    except StorageFailed:
        with suppress(StorageFailed):
            discard(files, layout, wire_id)
        raise
    return staged


def discard(files: FileSystem, layout: RootLayout, wire_id: str) -> None:
    """Remove what was staged for an id, if anything was. What is published is never touched.

    Raises:
        StorageFailed: some of it could not be removed; the rest is gone.
    """
    directory = layout.staged(wire_id)
    with storage_errors("remove what was staged", directory):
        found = files.status(directory)
        if found is not None and found.kind is FileKind.DIRECTORY:
            remove_tree(files, directory)
        elif found is not None:
            files.remove_file(directory)


def directories_below(files: FileSystem, top: Path) -> Iterator[Path]:
    """Every directory below ``top`` and itself, the deepest first."""
    for name in files.names(top):
        found = files.status(top / name)
        if found is not None and found.kind is FileKind.DIRECTORY:
            yield from directories_below(files, top / name)
    yield top


def _check_free(files: FileSystem, parent: Path, wire_id: str) -> None:
    with storage_errors("look for older snapshots", parent):
        taken = [name for name in files.names(parent) if name.casefold() == wire_id.casefold()]
    if taken:
        exists = OSError(errno.EEXIST, f"'{taken[0]}' stands there already")
        raise StorageFailed("make the folder of a new snapshot", parent / wire_id, exists)
