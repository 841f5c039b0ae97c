"""What a running transaction needs of the outside, besides a transport and a clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from quiesce.fsm.messages import Publication
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.artefacts import VerifiedExport
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt, ExportReceipt

__all__ = ["CompletedResult", "OnCompleted", "SnapshotPort"]


@dataclass(frozen=True, slots=True)
class CompletedResult:
    """A finished result that an agent keeps until somebody owns it durably.

    ``receipt`` is None where the agent reports the attempt without one; the trainer may know it from its own reply.
    """

    agent: ParticipantKey
    attempt: AttemptId
    receipt: CompletionReceipt | None


OnCompleted = Callable[
    [tuple[CompletedResult, ...]], Iterable[CompletionReceipt] | Awaitable[Iterable[CompletionReceipt]]
]
"""Makes finished results durable and returns the receipts of those that now are. Called during the drain, perhaps
more than once for one result; may be async; bounded by the reach deadline; what it raises aborts the cut."""


class SnapshotPort(Protocol):
    """The snapshot of one transaction. Its methods do file work and are called off the event loop."""

    def deployment_directory(self, deployment: str) -> str:
        """The directory that the participants of one deployment export to or restore from."""
        ...

    def verify(self, key: ParticipantKey, receipt: ExportReceipt) -> VerifiedExport:
        """Check one participant's exported files against what it said.

        Raises:
            SnapshotInvalid: they differ.
            StorageFailed: they cannot be read.
        """
        ...

    def publish(self) -> None:
        """Write the manifest and rename the snapshot into its place.

        Raises:
            PublishUncertain: whether it took effect cannot be read.
            StorageFailed, SnapshotInvalid: it did not.
        """
        ...

    def published(self) -> Publication:
        """Whether the snapshot stands in its place with a valid manifest, and would still after a crash.

        UNKNOWN when that cannot be read, or its name cannot be made durable.
        """
        ...
