"""When a call is refused only because its server is being checkpointed: how to tell, and how to say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.server.errors import RefusalCode

__all__ = ["CallParked", "is_parking_reply"]

RETRY_AFTER_S: Final = 1.0
_PARKING_CODES: Final = {RefusalCode.CHECKPOINT_PARKED.value, RefusalCode.RESOURCES_ADMISSION_CLOSED.value}
_CONFLICT: Final = 409


class CallParked(QuiesceError):
    """A server refused a call because it is being checkpointed; raised by what ``Execution.call`` is given.

    ``retry_after_s`` is how long to wait where nobody says when it is over.
    """

    def __init__(self, reason: str = "", *, retry_after_s: float = RETRY_AFTER_S) -> None:
        super().__init__(reason or "the server is being checkpointed; the call is sent again afterwards")
        self.retry_after_s = retry_after_s


def is_parking_reply(status: int, body: object) -> bool:
    """Whether a reply (its body parsed) says that the call is to be sent again after the checkpoint (2.20)."""
    error = body.get("error") if isinstance(body, Mapping) else None
    return status == _CONFLICT and isinstance(error, Mapping) and error.get("code") in _PARKING_CODES
