"""What a reply with any other status than 200 means (wire-protocol 3; field cases F-27, F-28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quiesce.fsm.vocabulary import Outcome, Verb
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.errors import ControlRequestError
from quiesce.participants.excerpts import body_excerpt, printable
from quiesce.participants.strict_json import NotStrictJson, parse

__all__ = ["OUTCOME_OF_CODE", "error_code_and_detail", "read_refusal"]

SUCCESS: Final = 200

OUTCOME_OF_CODE: Final[Mapping[str, Outcome]] = {
    "stale_checkpoint": Outcome.STALE_ID,
    "checkpoint_conflict": Outcome.CONFLICT,
    "invalid_phase": Outcome.WRONG_PHASE,
    "missing_workers": Outcome.WORKERS_MISSING,
    "agent_prepare_incomplete": Outcome.INCOMPLETE,
    "deadline_exceeded": Outcome.DEADLINE_EXCEEDED,
}
"""Codes of a 409 that a controller tells apart. Every other code, or none, is REFUSED."""

_OUTCOME_OF_STATUS: Final[Mapping[int, Outcome]] = {
    401: Outcome.UNAUTHORIZED,
    403: Outcome.UNAUTHORIZED,
    404: Outcome.ROUTE_MISSING,
    405: Outcome.ROUTE_MISSING,
    422: Outcome.MALFORMED,
}

_ADVICE: Final[Mapping[Outcome, str]] = {
    Outcome.UNAUTHORIZED: "check the control token on both sides",
    Outcome.ROUTE_MISSING: "the server has no control token configured or does not have this route",
}

CONFLICT_STATUS: Final = 409
SERVER_ERRORS_FROM: Final = 500
STATUS_MAX: Final = 599
REDIRECTS: Final = range(300, 400)


def read_refusal(spec: CallSpec, call: str, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
    """The reading of a reply whose status is 300 to 599."""
    code, said = error_code_and_detail(headers, body)
    outcome = _outcome(spec, status, code)
    advice = _ADVICE.get(outcome)
    if status in REDIRECTS:
        advice = f"redirects are not followed; it points to {printable(headers.get('location', 'nowhere'))}"
    detail = "; ".join(part for part in (said, advice) if part)
    error = ControlRequestError(participant=spec.called, call=call, status=status, error_code=code, detail=detail)
    return Reading(outcome, None, error)


def _outcome(spec: CallSpec, status: int, code: str | None) -> Outcome:
    if status >= SERVER_ERRORS_FROM:
        return Outcome.CRASHED
    if status != CONFLICT_STATUS:
        return _OUTCOME_OF_STATUS.get(status, Outcome.REFUSED)
    if code == "resources_checkpoint_error" and spec.verb is Verb.RELEASE:
        return Outcome.OWES_RESTORE
    return OUTCOME_OF_CODE.get(code or "", Outcome.REFUSED)


def error_code_and_detail(headers: Mapping[str, str], body: bytes) -> tuple[str | None, str]:
    """``error.code`` and what the participant said, in at most 200 characters.

    Control refusals say ``detail``, data-plane ones ``message``, the framework a bare ``detail``; a body that is none
    of these is quoted with its content type.
    """
    try:
        value = parse(body)
    except NotStrictJson:
        value = None
    if isinstance(value, dict):
        error = value.get("error")
        if isinstance(error, dict) and isinstance(error.get("code"), str):
            said = error.get("detail", error.get("message", ""))
            return printable(error["code"], 80), printable(said) if isinstance(said, str) else ""
        if isinstance(value.get("detail"), str):
            return None, printable(value["detail"])
    content_type = printable(headers.get("content-type", "none"), 80)
    begins = body_excerpt(body)
    return None, f"content type {content_type}, " + (f"the body begins: {begins}" if begins else "empty body")
