"""Where things stand under a checkpoint root. Every id is checked before it becomes a path.

::

    <root>/snapshots/<wire id>/MANIFEST.json                  written last; without it the folder is no snapshot
    <root>/snapshots/<wire id>/deployments/<name>/...         the participants' files
    <root>/snapshots/<wire id>/trainer/...                    what the embedding trainer adds inside the cut
    <root>/.quiesce/staging/<wire id>/...                     the same, before it is published
    <root>/.quiesce/journal/<wire id>.ndjson                  what happened, a record a line
    <root>/.quiesce/epoch/<n>/holder.json                     who holds the root: the highest number
    <root>/.quiesce/epoch/of-<nonce>                          a mark: under which the numbers can be compared
    <root>/.quiesce/requests/<n>/<id>.request.json            what another program asks of that holder
    <root>/.quiesce/requests/<n>/<id>.answer.json             what came of it
    <root>/.quiesce/trash/<wire id>.<n>/...                   what is being deleted: it was renamed away first
    <root>/latest                                             the newest wire id, a hint for people
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.participants.identity import check_identity

__all__ = ["DEPLOYMENTS", "SNAPSHOT_MANIFEST", "TRAINER", "RootLayout"]

DEPLOYMENTS: Final = "deployments"
TRAINER: Final = "trainer"
SNAPSHOT_MANIFEST: Final = "MANIFEST.json"


@dataclass(frozen=True, slots=True)
class RootLayout:
    """The paths below one root.

    Raises (from every method that takes an id):
        InvalidIdentity: the id may not become a path; nothing was touched (field cases F-44).
    """

    root: Path

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def staging(self) -> Path:
        return self.root / ".quiesce" / "staging"

    @property
    def journals(self) -> Path:
        return self.root / ".quiesce" / "journal"

    @property
    def epochs(self) -> Path:
        """One folder a tenure, named by its number."""
        return self.root / ".quiesce" / "epoch"

    def holder(self, epoch: int) -> Path:
        """What the holder of a tenure writes."""
        return self.epochs / str(epoch) / "holder.json"

    @property
    def requests(self) -> Path:
        """What other programs ask the controller, in one folder a tenure; see ``quiesce.controller.spool``."""
        return self.root / ".quiesce" / "requests"

    @property
    def trash(self) -> Path:
        """Where whatever is deleted is renamed to first, so that half of it never stands in its old place."""
        return self.root / ".quiesce" / "trash"

    @property
    def latest(self) -> Path:
        return self.root / "latest"

    def snapshot(self, wire_id: str) -> Path:
        """Where a snapshot stands once it is published."""
        return self.snapshots / check_identity(wire_id, field="checkpoint id")

    def staged(self, wire_id: str) -> Path:
        """Where a snapshot is put together."""
        return self.staging / check_identity(wire_id, field="checkpoint id")

    def journal(self, wire_id: str) -> Path:
        """The journal of one transaction."""
        return self.journals / f"{check_identity(wire_id, field='checkpoint id')}.ndjson"
