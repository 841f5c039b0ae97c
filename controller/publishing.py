"""The moment at which a snapshot comes to be: manifest last, then one rename. Nobody ever sees half of one."""

from __future__ import annotations

import errno
from typing import Final

from quiesce.controller.errors import PublishUncertain, StorageFailed
from quiesce.controller.files import FileSystem, reached, storage_errors, write_durably
from quiesce.controller.root_layout import DEPLOYMENTS, SNAPSHOT_MANIFEST, RootLayout
from quiesce.controller.staging import Staged
from quiesce.controller.verification import check_contents
from quiesce.fsm.messages import Publication
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.manifest import load_manifest, manifest_bytes
from quiesce.participants.manifest_models import SnapshotManifest

__all__ = ["MANIFEST_BYTES_MAX", "publish", "published"]

MANIFEST_BYTES_MAX: Final = 256 << 20


def publish(files: FileSystem, layout: RootLayout, staged: Staged, manifest: SnapshotManifest) -> tuple[str, ...]:
    """Write the manifest and rename the staged folder into its place; returns notes on what did not matter.

    A second call with the same manifest, after the first took effect, is a success.

    Raises:
        SnapshotInvalid: the folder does not hold exactly what the manifest declares. Nothing was published.
        StorageFailed: a file operation failed before the rename took effect. Nothing was published.
        PublishUncertain: it is not known whether it took effect, or whether it would survive a crash.
    """
    if manifest.checkpoint_id != staged.wire_id:
        raise SnapshotInvalid(
            subject="manifest",
            file=SNAPSHOT_MANIFEST,
            reason=f"is of checkpoint {manifest.checkpoint_id}, not of {staged.wire_id}",
        )
    content = manifest_bytes(manifest)
    if not _is_done(files, layout, staged.wire_id, content):
        _complete(files, staged, manifest, content)
        _move(files, layout, staged)
    _make_durable(files, layout, staged.wire_id)
    return _hint(files, layout, staged.wire_id)


def published(files: FileSystem, layout: RootLayout, wire_id: str) -> Publication:
    """Whether the snapshot of an id stands in its place, with a manifest that can be believed.

    UNKNOWN only where the folder cannot be read at the moment; then look again later (field cases F-45).
    """
    path = layout.snapshot(wire_id) / SNAPSHOT_MANIFEST
    try:
        if files.status(path) is None:
            return Publication.NOT_PUBLISHED
        found = load_manifest(files.read(path, MANIFEST_BYTES_MAX))
    except SnapshotInvalid:
        return Publication.NOT_PUBLISHED
    except OSError:
        return Publication.UNKNOWN
    return Publication.PUBLISHED if found.checkpoint_id == wire_id else Publication.NOT_PUBLISHED


def _is_done(files: FileSystem, layout: RootLayout, wire_id: str, content: bytes) -> bool:
    """Whether exactly this was published already. Anything else in its place is refused, never mixed with."""
    final = layout.snapshot(wire_id)
    with storage_errors("publish the snapshot", final):
        if files.status(final) is None:
            return False
        manifest = final / SNAPSHOT_MANIFEST
        if files.status(manifest) is not None and files.read(manifest, MANIFEST_BYTES_MAX) == content:
            return True
        raise OSError(errno.EEXIST, "something else stands there")


def _complete(files: FileSystem, staged: Staged, manifest: SnapshotManifest, content: bytes) -> None:
    check_contents(files, staged.directory, manifest)
    with storage_errors("write the manifest", staged.directory):
        for deployment in manifest.deployments:
            files.sync_directory(staged.deployment(deployment))
        if manifest.deployments:
            files.sync_directory(staged.directory / DEPLOYMENTS)
        write_durably(files, staged.directory / SNAPSHOT_MANIFEST, content)


def _move(files: FileSystem, layout: RootLayout, staged: Staged) -> None:
    final = layout.snapshot(staged.wire_id)
    try:
        files.rename(staged.directory, final)
    except OSError as error:
        # over a network the operation may have taken effect although its answer was an error
        match published(files, layout, staged.wire_id):
            case Publication.NOT_PUBLISHED:
                raise StorageFailed("publish the snapshot", final, error) from error
            case Publication.UNKNOWN:
                raise PublishUncertain("publish the snapshot", final, error) from error
            case Publication.PUBLISHED:
                return


def _make_durable(files: FileSystem, layout: RootLayout, wire_id: str) -> None:
    try:
        files.sync_directory(layout.snapshots)
    except OSError as error:
        raise PublishUncertain("make the published name durable", layout.snapshot(wire_id), error) from error


def _hint(files: FileSystem, layout: RootLayout, wire_id: str) -> tuple[str, ...]:
    try:
        write_durably(files, reached(files, layout.root) / layout.latest.name, f"{wire_id}\n".encode())
    except OSError as error:
        return (f"the hint {layout.latest} could not be written ({error.strerror}); it is only a hint",)
    return ()
