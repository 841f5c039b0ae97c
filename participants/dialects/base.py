"""The port between the controller and a wire generation.

The controller says *what* it wants in a :class:`CallSpec`; a :class:`Dialect` says how that is put on the wire and
what a reply to it means. Dialects are pure: no clock, no sockets, no files. ``deadline_ts`` is made by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Outcome, Phase, Role, Verb
from quiesce.participants.capabilities import Contract
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import ArtefactReference, CompletionReceipt, ExportReceipt

__all__ = ["CallSpec", "Dialect", "Reading", "WireCall"]


@dataclass(frozen=True, slots=True)
class WireCall:
    """One HTTP call, without its origin and without its token.

    ``query`` values are text already; ``json`` is the body of a POST, None for no body. ``authorized`` says whether
    the route wants the bearer token.
    """

    method: str
    path: str
    query: Mapping[str, str] | None = None
    json: Mapping[str, object] | None = None
    authorized: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class CallSpec:
    """What the controller asks of one participant, and what it already knows that the reply must agree with.

    Attributes:
        verb, role, coordinator: the abstract call, to whom, and whether a coordinator answers for workers.
        checkpoint_id: wire id of the transaction; empty only for an INSPECT outside a transaction.
        deadline_ts: Unix seconds, finite.
        checkpoint_dir: directory of the deployment's files, as the participant sees it (EXPORT, IMPORT).
        continuation_indexes: the agents' indexes in topology order (EXPORT of a policy).
        source_checkpoint_id: wire id of the save that is restored; None skips the comparison (IMPORT).
        saved: what the save recorded for this participant; None skips the comparison (IMPORT).
        receipts: results to acknowledge (ACKNOWLEDGE).
        acknowledge_singly: use the older route that takes one receipt a call (ACKNOWLEDGE).
        attempt: whom to retire; for DISCARD the replacement attempt.
        wait_s: how long the server may wait before it answers (AWAIT_CUT of a policy).
        participant_name: the participant's own name, which stands in the paths of its artefacts.
        participant: how errors name it; the own name where empty.
        expected: the contract that discovery saw; None skips the comparison.
        expected_instance: the incarnation that answered before; None skips the comparison. Leave it None where any
            incarnation will do, as in the RELEASE of a rollback.
    """

    verb: Verb
    role: Role
    coordinator: bool = False
    checkpoint_id: str = ""
    deadline_ts: float = 0.0
    checkpoint_dir: str | None = None
    continuation_indexes: tuple[ArtefactReference, ...] = ()
    source_checkpoint_id: str | None = None
    saved: ExportReceipt | None = None
    receipts: tuple[CompletionReceipt, ...] = ()
    acknowledge_singly: bool = False
    attempt: AttemptId | None = None
    wait_s: float = 0.0
    participant_name: str = ""
    participant: str = ""
    expected: Contract | None = None
    expected_instance: str | None = None

    @property
    def called(self) -> str:
        """How errors name the participant."""
        return self.participant or self.participant_name or f"a participant of role {self.role.value}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply means.

    ``payload`` is one of :mod:`quiesce.participants.replies` or None; ``error`` says why it is no success.
    """

    outcome: Outcome
    payload: object | None = None
    error: QuiesceError | None = None


class Dialect(Protocol):
    """One wire generation. Its readings never raise: whatever came back becomes an outcome and an error."""

    @property
    def name(self) -> str:
        """The generation's name, as it is saved in a snapshot's manifest."""
        ...

    def call(self, spec: CallSpec) -> WireCall:
        """How ``spec`` is put on the wire.

        Raises:
            UnsupportedVerb: this generation, or this role in it, does not have the verb.
            QuiesceError: the spec lacks what the verb needs, or holds what may not go on the wire.
        """
        ...

    def read(self, spec: CallSpec, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
        """What the reply to ``call(spec)`` means. ``headers`` have lower-case names."""
        ...

    def progress_call(self, spec: CallSpec) -> WireCall:
        """The call that reads how far the participant is, without asking anything of it (role and id from ``spec``)."""
        ...

    def read_progress(self, spec: CallSpec, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
        """What the reply to ``progress_call(spec)`` means: a DrainProgress, and no step of a cut."""
        ...

    def probes(self, role: Role, phases: Sequence[Phase]) -> tuple[WireCall, ...]:
        """Calls without effect that show whether the routes of these phases exist (wire-protocol F23)."""
        ...

    def read_probe(
        self, probe: WireCall, status: int, headers: Mapping[str, str], body: bytes, *, participant: str
    ) -> QuiesceError | None:
        """None when the probed route is there; otherwise what is wrong and what to do."""
        ...
