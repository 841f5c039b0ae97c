"""The boundaries of an execution: the points from which another process could take it on (wire-protocol 6.3).

A boundary says everything that a continuation needs. What an author does not give stays as it was at the boundary
before, since nothing that has been committed can be taken back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from pydantic import ValidationError

from quiesce.participants.artefact_records import BoundaryRecord, ContinuationRow
from quiesce.participants.artefact_writing import continuation_row
from quiesce.participants.identity import AttemptId, capture_key
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.validation import first_problems

__all__ = ["Boundary", "BoundaryFields", "BoundaryKind", "continued", "first_boundary", "next_boundary"]

BoundaryKind = Literal["turn_complete", "pending_model"]
_KEPT: Final = (
    "output_items",
    "usage",
    "last_committed_model_call_id",
    "resource_state_revisions",
    "agent_state",
)


class BoundaryFields(TypedDict, total=False):
    """What an author says about a boundary (wire-protocol 6.3); values that are left out or None are found.

    ``boundary_index`` is the next one, ``turn_index`` the same as it, ``boundary_kind`` a complete turn and
    ``created_at`` (Unix seconds) now. The others stay as they were at the boundary before. ``captured_as`` is the
    capture key of the last committed call; it is found too, unless a call id repeats one of an earlier attempt.
    ``pending_model`` goes with the kind ``pending_model`` and with no other.
    """

    boundary_index: int | None
    turn_index: int | None
    boundary_kind: BoundaryKind | None
    pending_model: Mapping[str, object] | None
    output_items: Sequence[object] | None
    usage: object
    last_committed_model_call_id: str | None
    captured_as: str | None
    resource_state_revisions: Mapping[str, int] | None
    agent_state: Mapping[str, object] | None
    created_at: float | None


@dataclass(frozen=True, slots=True)
class Boundary:
    """A committed boundary, and under which capture key its last model call was made.

    The key is one of an earlier attempt as long as a restored execution has committed no call of its own.
    """

    record: BoundaryRecord
    captured_as: str

    @property
    def index(self) -> int:
        return self.record.boundary_index

    def root(self) -> ContinuationRow | None:
        """The row of the continuation index, None before the first committed model call."""
        return continuation_row(self.record, captured_as=self.captured_as)


def first_boundary(attempt: AttemptId, agent_state: Mapping[str, object], created_at: float) -> Boundary:
    """Boundary 0: nothing was done yet, and ``agent_state`` is all that starting over needs.

    Raises:
        ControlRefusal: ``agent_checkpoint_error``: the state is not JSON.
    """
    fields = {
        "rollout_id": attempt.rollout_id,
        "attempt_index": attempt.attempt_index,
        "boundary_index": 0,
        "turn_index": 0,
        "agent_state": _copied(attempt, "agent_state", agent_state),
        "created_at": created_at,
    }
    return Boundary(_record(attempt, fields), capture_key(*attempt))


def continued(boundary: Boundary) -> Boundary:
    """A saved boundary of attempt n as attempt n + 1 takes it on (wire-protocol 6.7)."""
    replacement = boundary.record.attempt_index + 1
    return Boundary(boundary.record.model_copy(update={"attempt_index": replacement}), boundary.captured_as)


def next_boundary(attempt: AttemptId, before: Boundary | None, created_at: float, fields: BoundaryFields) -> Boundary:
    """The boundary after ``before``, or the first one where there is none; see ``BoundaryFields``.

    Raises:
        ControlRefusal: ``agent_checkpoint_error``: the index does not grow, or a field has no JSON form.
    """
    known = None if before is None else before.record
    given = {name: _copied(attempt, name, value) for name, value in fields.items() if value is not None}
    following = 1 if known is None else known.boundary_index + 1
    index = given.setdefault("boundary_index", following)
    given.setdefault("turn_index", index)
    given.setdefault("created_at", created_at)
    captured_as = given.pop("captured_as", None)
    if known is not None:
        for name in _KEPT:
            given.setdefault(name, getattr(known, name))
    record = _record(attempt, {**attempt._asdict(), **given})
    key = captured_as if isinstance(captured_as, str) else _captured_as(record, before)
    boundary = Boundary(record, key)
    return boundary if before is None else _after(before, boundary)


def _captured_as(record: BoundaryRecord, before: Boundary | None) -> str:
    if before is not None and record.last_committed_model_call_id == before.record.last_committed_model_call_id:
        return before.captured_as
    return capture_key(*record.attempt)


def _after(before: Boundary, boundary: Boundary) -> Boundary:
    if boundary.index > before.index:
        return boundary
    same_time = boundary.record.model_copy(update={"created_at": before.record.created_at})
    if Boundary(same_time, boundary.captured_as) == before:
        return before
    raise ControlRefusal(
        RefusalCode.AGENT_CHECKPOINT_ERROR,
        f"boundary {boundary.index} of {before.record.attempt} does not come after boundary {before.index}",
    )


def _copied(attempt: AttemptId, name: str, value: object) -> object:
    # through JSON, so that what the author goes on changing cannot change what was committed
    try:
        copy: object = json.loads(json.dumps(value, allow_nan=False, default=_as_plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise ControlRefusal(
            RefusalCode.AGENT_CHECKPOINT_ERROR, f"{name} of {attempt} cannot be saved: {error}"
        ) from None
    return copy


def _as_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _record(attempt: AttemptId, fields: Mapping[str, object]) -> BoundaryRecord:
    try:
        return BoundaryRecord.model_validate(fields)
    except ValidationError as error:
        raise ControlRefusal(
            RefusalCode.AGENT_CHECKPOINT_ERROR, f"the boundary of {attempt} cannot be saved: {first_problems(error)}"
        ) from None
