"""The bearer token and where it comes from.

A token never shows itself: its ``repr`` and ``str`` are a placeholder, and only a transport asks for the header.
The order of the variables is the field's (wire-protocol 3.3): the dedicated control token, else that of the token
capture. With neither there is no header, and the participants then have no control routes either.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping
from typing import Final, Protocol

from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.errors import ConfigurationError

__all__ = [
    "TOKEN_VARIABLES",
    "EnvironmentTokenProvider",
    "StaticTokenProvider",
    "Token",
    "TokenProvider",
    "note_without_token",
]

TOKEN_LENGTH_MAX: Final = 8000
"""Characters of a token: servers refuse longer header lines."""

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


class Token:
    """A bearer token that hides itself and compares in constant time.

    Raises:
        ConfigurationError: it is empty, too long, or holds a character that a header may not have. The text
            names ``source`` and never the token.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: str, *, source: str = "the given token") -> None:
        if not secret:
            raise ConfigurationError(f"{source} is empty; set it to the bearer token of the control routes")
        if len(secret) > TOKEN_LENGTH_MAX:
            raise ConfigurationError(f"{source} has {len(secret)} characters; at most {TOKEN_LENGTH_MAX} are allowed")
        if not _VISIBLE.fullmatch(secret):
            raise ConfigurationError(
                f"{source} contains a space, a line break or another character that cannot stand in a header; "
                "look for a stray newline at its end"
            )
        self._secret = secret

    def header(self) -> str:
        """The value of the Authorization header."""
        return f"Bearer {self._secret}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash((Token, self._secret))

    def __repr__(self) -> str:
        return "Token(hidden)"


class TokenProvider(Protocol):
    """Where a transport gets its token from, at every call. Either method may raise ConfigurationError."""

    async def current(self) -> Token | None:
        """The token to use now; None: send no header."""
        ...

    async def refreshed(self) -> Token | None:
        """The newest token there is, read from its source again, after a participant has refused ``current``."""
        ...


class StaticTokenProvider:
    """Always the same token, or none."""

    def __init__(self, token: Token | str | None) -> None:
        self._token = Token(token) if isinstance(token, str) else token

    async def current(self) -> Token | None:
        return self._token

    async def refreshed(self) -> Token | None:
        return self._token


class EnvironmentTokenProvider:
    """Reads the token from an environment variable, anew at every call.

    Args:
        variable: its name, as a configuration names it; it must then be set. None: the first of TOKEN_VARIABLES
            that is set, and no token where none is.
        environ: where to look; by default the process's own environment.
    """

    def __init__(self, variable: str | None = None, *, environ: Mapping[str, str] | None = None) -> None:
        self._variable = variable
        self._environ = os.environ if environ is None else environ

    async def current(self) -> Token | None:
        """The token that is set now.

        Raises:
            ConfigurationError: the configured variable is not set, or what is set is no token.
        """
        if self._variable is not None:
            if not self._environ.get(self._variable):
                raise ConfigurationError(f"the token variable {self._variable} is not set; export it or name another")
            return self._read(self._variable)
        name = next((name for name in TOKEN_VARIABLES if self._environ.get(name)), None)
        return None if name is None else self._read(name)

    async def refreshed(self) -> Token | None:
        return await self.current()

    def __repr__(self) -> str:
        return f"EnvironmentTokenProvider({self._variable or ' or '.join(TOKEN_VARIABLES)})"

    def _read(self, name: str) -> Token:
        return Token(self._environ[name], source=f"the token in the variable {name}")


async def note_without_token(tokens: TokenProvider) -> str:
    """Empty where there is a token to send; otherwise a sentence that explains why everybody will refuse.

    Raises:
        ConfigurationError: what is set cannot be a token, or the variable that the configuration names is not set.
    """
    if await tokens.current() is not None:
        return ""
    return f"there is no control token here: set {' or '.join(TOKEN_VARIABLES)} to what the servers were started with"
