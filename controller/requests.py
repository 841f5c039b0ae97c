"""From a call of a dialect to a request of a transport."""

from __future__ import annotations

import json

from quiesce.participants.dialects.base import WireCall
from quiesce.transport.limits import REPLY_BODY_CAP
from quiesce.transport.port import ControlRequest

__all__ = ["control_request"]


def control_request(
    call: WireCall, *, base_url: str, participant: str, timeout_s: float, body_cap: int = REPLY_BODY_CAP
) -> ControlRequest:
    """The request that carries ``call`` to the participant at ``base_url``; ``timeout_s`` bounds all of it.

    Raises:
        ConfigurationError: it cannot be sent (a malformed URL, a body that is too large).
    """
    body = None if call.json is None else json.dumps(call.json, separators=(",", ":"), allow_nan=False).encode()
    return ControlRequest(
        participant=participant,
        method=call.method,
        url=base_url.rstrip("/") + call.path,
        timeout_s=timeout_s,
        query=call.query,
        body=body,
        headers={} if body is None else {"content-type": "application/json"},
        authorized=call.authorized,
        body_cap=body_cap,
    )
