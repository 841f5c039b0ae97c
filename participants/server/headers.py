"""The data-plane headers of a call: whose call it is (wire-protocol 0.3, 2.20)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from quiesce.participants.excerpts import escaped
from quiesce.participants.identity import AttemptId, capture_key
from quiesce.participants.server.errors import ControlRefusal, RefusalCode

__all__ = ["ATTEMPT_HEADER", "PLANE_HEADER", "REVISION_HEADER", "ROLLOUT_HEADER", "attempt_of", "plane_of"]

ROLLOUT_HEADER: Final = "x-nemo-gym-rollout-id"
ATTEMPT_HEADER: Final = "x-nemo-gym-attempt-index"
PLANE_HEADER: Final = "x-nemo-gym-plane"
REVISION_HEADER: Final = "x-nemo-gym-resource-state-revision"

PLANE_CHARS_MAX: Final = 128
_ROLLOUT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,511}")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")

Headers = Iterable[tuple[bytes, bytes]]


def attempt_of(headers: Headers, *, path_capture_key: str | None = None) -> AttemptId | None:
    """The attempt that a call belongs to, None when it names none.

    Raises:
        ControlRefusal: ``execution_identity_mismatch``: one half is missing, given twice or malformed, or the two
            disagree with the capture key that the path names.
    """
    pairs = list(headers)
    rollout, index = _single(pairs, ROLLOUT_HEADER), _single(pairs, ATTEMPT_HEADER)
    if rollout is None and index is None:
        return None
    if rollout is None or index is None:
        raise _mismatch(f"{ROLLOUT_HEADER} and {ATTEMPT_HEADER} must come together")
    if not _ROLLOUT.fullmatch(rollout) or not _INDEX.fullmatch(index):
        raise _mismatch(f"{escaped(rollout)} attempt {escaped(index)} is no rollout id with an attempt index")
    attempt = AttemptId(rollout, int(index))
    if path_capture_key is not None and path_capture_key != capture_key(*attempt):
        raise _mismatch(f"the path captures {escaped(path_capture_key)}, the headers say {attempt}")
    return attempt


def plane_of(headers: Headers) -> str | None:
    """The label of the calling plane, cut to 128 characters."""
    value = next((value for name, value in headers if name.lower() == PLANE_HEADER.encode()), None)
    return None if value is None else value.decode("latin-1")[:PLANE_CHARS_MAX]


def _single(headers: list[tuple[bytes, bytes]], name: str) -> str | None:
    values = {value for key, value in headers if key.lower() == name.encode()}
    if len(values) > 1:
        raise _mismatch(f"{name} came twice, with different values")
    return next((value.decode("latin-1") for value in values), None)


def _mismatch(why: str) -> ControlRefusal:
    return ControlRefusal(RefusalCode.EXECUTION_IDENTITY_MISMATCH, why)
