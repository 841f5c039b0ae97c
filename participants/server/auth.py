"""Who may use the control routes: whoever sends the bearer token, compared in constant time (wire-protocol 3.3)."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from quiesce.participants.errors import ConfigurationError

__all__ = ["Bearer"]


class Bearer:
    """A control token. It shows in no representation, log or error.

    Raises:
        ConfigurationError: the token is empty or holds characters that a header cannot carry.
    """

    __slots__ = ("_expected",)

    def __init__(self, token: str) -> None:
        if not token or not token.isprintable() or token != token.strip():
            raise ConfigurationError(
                "the control token must be printable text without surrounding spaces; set the variable that holds it"
            )
        self._expected = b"Bearer " + token.encode()

    def admits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether there is exactly one authorization header and it is the whole expected value.

        Bytes are compared, not text: a header that is not ASCII is wrong, not an error (wire-protocol 9, 41).
        """
        given = [value for name, value in headers if name.lower() == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)

    def __repr__(self) -> str:
        return "Bearer(<hidden>)"
