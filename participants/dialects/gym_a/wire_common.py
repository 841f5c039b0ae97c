"""What all routes of generation A share: lexical rules, the control envelope, references, receipts, errors.

Requests are strict and are used by both sides. Replies are lenient to unknown fields, which later servers add, and
never to a wrong type: models are validated from the JSON text in pydantic's strict mode.
Sources: wire-protocol 0.2, 2.0, 2.7, 2.15, 3.1.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    model_validator,
)

from quiesce.participants.identity import IDENTITY_LENGTH_MAX, IDENTITY_PATTERN
from quiesce.participants.replies import ArtefactReference as NeutralReference
from quiesce.participants.replies import CompletionReceipt as NeutralReceipt

__all__ = [
    "AcknowledgeCompletedReply",
    "AcknowledgeCompletedRequest",
    "AcknowledgeReply",
    "ArtefactReference",
    "Attempt",
    "AttemptRequest",
    "CheckpointId",
    "CommitRequest",
    "CompletionReceipt",
    "ControlEnvelope",
    "Count",
    "Digest",
    "ErrorDetail",
    "ErrorEnvelope",
    "FiniteNumber",
    "IdQuery",
    "IdentityStr",
    "LiveModel",
    "LiveReceipt",
    "RelativePath",
    "RenewReply",
    "Request",
    "RestoreRequest",
    "SchemaOne",
    "WorkerCounts",
]

RECEIPTS_MAX: Final = 10_000
PATH_CHARS_MAX: Final = 4096
DIGEST_PATTERN: Final = r"^[0-9a-fA-F]{64}$"


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")  # noqa: TRY004 - pydantic collects ValueError only
    return value


# pydantic's patterns are Rust's: there `$` matches the very end only, so a final newline does not pass
CheckpointId = Annotated[StrictStr, Field(min_length=1, max_length=IDENTITY_LENGTH_MAX, pattern=IDENTITY_PATTERN)]
IdentityStr = Annotated[StrictStr, Field(min_length=1, pattern=IDENTITY_PATTERN)]
Count = Annotated[StrictInt, Field(ge=0)]
# digests are lower case; one in upper case is the same number, and is made lower (field cases F-46)
Digest = Annotated[StrictStr, Field(pattern=DIGEST_PATTERN), AfterValidator(str.lower)]
# the digest of a result is the agent's own text: it must go back exactly as it came
EchoedDigest = Annotated[StrictStr, Field(pattern=DIGEST_PATTERN)]
FiniteNumber = Annotated[float, BeforeValidator(_refuse_bool), Field(allow_inf_nan=False)]
# not Literal[1]: that also takes true and 1.0
SchemaOne = Annotated[StrictInt, Field(ge=1, le=1)]
RelativePath = Annotated[StrictStr, Field(min_length=1, max_length=PATH_CHARS_MAX)]


class Request(BaseModel):
    """A body that we send and that our kit takes: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LiveModel(BaseModel):
    """A reply: unknown fields are ignored, types are exact."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ControlEnvelope(Request):
    """What every fenced POST carries.

    ``deadline_ts`` is Unix seconds; text that spells a number is taken, as the recorded servers do.
    """

    schema_version: SchemaOne = 1
    checkpoint_id: CheckpointId
    deadline_ts: FiniteNumber


class CommitRequest(ControlEnvelope):
    """Commit of an agent or of a resource server."""

    checkpoint_dir: Annotated[StrictStr, Field(min_length=1, max_length=PATH_CHARS_MAX)]


class RestoreRequest(ControlEnvelope):
    """Restore of any role. ``checkpoint_id`` names this restore, not the save."""

    checkpoint_dir: Annotated[StrictStr, Field(min_length=1, max_length=PATH_CHARS_MAX)]


class AttemptRequest(ControlEnvelope):
    """A call about one attempt: retire, abort_inflight, discard."""

    rollout_id: IdentityStr
    attempt_index: Count


class IdQuery(BaseModel):
    """The query of an agent's status. Unknown query parameters are ignored, as the recorded servers do."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    checkpoint_id: CheckpointId


class Attempt(LiveModel):
    """One attempt in a list of a reply."""

    rollout_id: Annotated[StrictStr, Field(min_length=1)]
    attempt_index: Count


class WorkerCounts(LiveModel):
    """How many workers acknowledged, of how many that are expected."""

    acknowledged: Count
    expected: Count


class ArtefactReference(BaseModel):
    """A written file: path relative to ``checkpoint_dir``, digest, non-blank lines, size (wire-protocol 2.7)."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    schema_version: SchemaOne = 1
    relative_path: RelativePath
    sha256: Digest
    records: Count
    bytes: Count

    def neutral(self) -> NeutralReference:
        return NeutralReference(self.relative_path, self.sha256, self.records, self.bytes)

    @classmethod
    def of(cls, reference: NeutralReference) -> Self:
        return cls(
            relative_path=reference.relative_path,
            sha256=reference.sha256,
            records=reference.records,
            bytes=reference.size_bytes,
        )


class CompletionReceipt(Request):
    """Names one finished result of an agent (wire-protocol 2.15). As a body it is the whole body."""

    rollout_id: IdentityStr
    attempt_index: Count
    execution_generation: Annotated[StrictInt, Field(ge=1)]
    result_identity: Annotated[StrictStr, Field(min_length=1, max_length=512)]
    result_digest: EchoedDigest

    def neutral(self) -> NeutralReceipt:
        return NeutralReceipt(
            self.rollout_id, self.attempt_index, self.execution_generation, self.result_identity, self.result_digest
        )

    @classmethod
    def of(cls, receipt: NeutralReceipt) -> Self:
        return cls(
            rollout_id=receipt.rollout_id,
            attempt_index=receipt.attempt_index,
            execution_generation=receipt.execution_generation,
            result_identity=receipt.result_identity,
            result_digest=receipt.result_digest,
        )


class LiveReceipt(CompletionReceipt):
    """A receipt inside a reply, where later servers may add fields."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class RenewReply(LiveModel):
    """Reply to a renewal; ``lease_expires_at`` is Unix seconds, null where the hold is not leased (a restore)."""

    checkpoint_id: StrictStr
    lease_expires_at: FiniteNumber | None


class AcknowledgeReply(LiveModel):
    """Reply to one acknowledgement: exactly one of the two is true."""

    acknowledged: bool
    idempotent: bool

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if self.acknowledged == self.idempotent:
            raise ValueError("exactly one of 'acknowledged' and 'idempotent' must be true")
        return self


class AcknowledgeCompletedRequest(Request):
    """Acknowledge several results at once: all or nothing."""

    schema_version: SchemaOne = 1
    executions: Annotated[tuple[CompletionReceipt, ...], Field(min_length=1, max_length=RECEIPTS_MAX)]

    @model_validator(mode="after")
    def _each_attempt_once(self) -> Self:
        attempts = {(receipt.rollout_id, receipt.attempt_index) for receipt in self.executions}
        if len(attempts) != len(self.executions):
            raise ValueError("an attempt is named twice in 'executions'")
        return self


class AcknowledgeCompletedReply(LiveModel):
    """Echoes every receipt that was acknowledged."""

    acknowledged: tuple[LiveReceipt, ...]


class ErrorDetail(LiveModel):
    """``code`` and ``detail`` of a refusal."""

    code: StrictStr
    detail: StrictStr


class ErrorEnvelope(LiveModel):
    """The body of a control refusal (wire-protocol 3.1)."""

    error: ErrorDetail
