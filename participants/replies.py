"""What a participant's replies say, in words that no wire generation owns.

A dialect turns a reply into an outcome, which the core consumes, and into one of these payloads, which stays
with the runner. All counts are >= 0, all ages are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quiesce.participants.capabilities import LiveCapabilities
from quiesce.participants.identity import AttemptId

__all__ = [
    "AcknowledgeReceipt",
    "ArtefactReference",
    "Blocker",
    "CompletionReceipt",
    "DiscardReceipt",
    "DrainProgress",
    "ExportReceipt",
    "ImportReceipt",
    "InflightCall",
    "Inspection",
    "ReleaseReceipt",
    "RenewReceipt",
    "RetireReceipt",
]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a participant declares and where it stands; ``instance`` is its incarnation, where it names one."""

    capabilities: LiveCapabilities
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class ArtefactReference:
    """A file that a participant wrote: path relative to the checkpoint directory, digest, records and size."""

    relative_path: str
    sha256: str
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InflightCall:
    """One call that a policy still serves; the identity is None where the caller sent none."""

    rollout_id: str | None
    attempt_index: int | None
    plane: str | None
    age_s: float


@dataclass(frozen=True, slots=True)
class Blocker:
    """One execution and where it stands; among ``DrainProgress.blockers`` it is what holds up the cut."""

    attempt: AttemptId
    state: str
    boundary_index: int | None
    age_s: float
    without_boundary: bool = False


@dataclass(frozen=True, slots=True)
class CompletionReceipt:
    """Names one finished result of an agent. Acknowledging it says that the trainer owns the result durably."""

    rollout_id: str
    attempt_index: int
    execution_generation: int
    result_identity: str
    result_digest: str

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.rollout_id, self.attempt_index)


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """How far a participant is on its way to the cut.

    ``inflight`` lists calls where the server does (a coordinator gives only the total). ``blockers`` are an
    agent's executions that hold up the cut, ``executions`` all that are neither finished nor retired.
    Of the ``completed_unacknowledged`` finished results that nobody has acknowledged, ``completions`` are the
    receipts and ``unreceipted`` the attempts for which the server gave none. ``sessions`` are a resource server's.
    """

    state: str
    inflight_total: int = 0
    inflight: tuple[InflightCall, ...] = ()
    workers_acknowledged: int = 1
    workers_expected: int = 1
    workers_missing: int = 0
    running: int = 0
    parked: int = 0
    without_boundary: int = 0
    completed_unacknowledged: int = 0
    sessions: int = 0
    blockers: tuple[Blocker, ...] = ()
    executions: tuple[Blocker, ...] = ()
    completions: tuple[CompletionReceipt, ...] = ()
    unreceipted: tuple[AttemptId, ...] = ()

    def sentence(self) -> str:
        """What is still open, for a person: empty when nothing is."""
        parts = []
        if self.inflight_total:
            parts.append(f"{self.inflight_total} calls in flight")
        if self.workers_acknowledged != self.workers_expected or self.workers_missing:
            parts.append(f"{self.workers_acknowledged} of {self.workers_expected} workers acknowledged")
        if self.running:
            parts.append(f"{self.running} executions running")
        if self.without_boundary:
            parts.append(f"{self.without_boundary} executions parked without a boundary")
        if self.completed_unacknowledged:
            parts.append(f"{self.completed_unacknowledged} finished results unacknowledged")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ExportReceipt:
    """What a participant says it exported.

    ``manifest_path`` is computed by us from the layout, never taken from the reply; ``manifest_digest`` is the
    reply's. ``index`` is the agent's continuation index or the policy's storage-reference index, None for
    resources. ``counts`` are the reply's own: ``records``; ``rollouts``, ``rows``; ``sessions``.
    """

    manifest_path: str
    manifest_digest: str
    index: ArtefactReference | None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportReceipt:
    """What a participant says it restored, and from which save."""

    source_checkpoint_id: str | None
    index: ArtefactReference | None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RenewReceipt:
    """When the lease lapses unless it is renewed again, in Unix seconds; None where the hold is not leased."""

    expires_at: float | None


@dataclass(frozen=True, slots=True)
class ReleaseReceipt:
    """The participant accepts work again; ``released`` executions were let go (agents only)."""

    released: int = 0


@dataclass(frozen=True, slots=True)
class AcknowledgeReceipt:
    """The receipts that the agent has acknowledged: exactly those that were sent."""

    acknowledged: tuple[CompletionReceipt, ...]


@dataclass(frozen=True, slots=True)
class RetireReceipt:
    """What became of an attempt that was to be retired.

    ``fenced``: the attempt can do nothing any more. ``completed_unacknowledged``: it had finished meanwhile, so it
    was not retired and its result waits to be acknowledged. ``aborted_inflight`` is None where the server does not
    say how many calls it cut off.
    """

    attempt: AttemptId
    fenced: bool
    completed_unacknowledged: bool = False
    aborted_inflight: int | None = None


@dataclass(frozen=True, slots=True)
class DiscardReceipt:
    """Whether a restored continuation was there to be discarded."""

    attempt: AttemptId
    discarded: bool
