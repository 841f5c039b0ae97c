"""The authorization header of each call, as its step wants it: the right one, none, or one of the wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from quiesce.fuzz.steps import Bearer
from quiesce.transport.token import Token, TokenProvider

__all__ = ["RULE_OF_BEARER", "FuzzedTokens", "bearing"]

_WANTED: Final[ContextVar[Bearer]] = ContextVar("quiesce_fuzz_bearer", default=Bearer.GOOD)

RULE_OF_BEARER: Final[Mapping[Bearer, str]] = {
    Bearer.MISSING: "bearer.missing",
    Bearer.WRONG: "bearer.wrong",
    Bearer.SHORTER: "bearer.exact",
    Bearer.LONGER: "bearer.exact",
    Bearer.OTHER_CASE: "bearer.exact",
    Bearer.LOWER_SCHEME: "bearer.exact",
    Bearer.TWO_BLANKS: "bearer.exact",
    Bearer.NO_SCHEME: "bearer.exact",
    Bearer.NOT_ASCII: "bearer.not-ascii",
}
"""The rule that a call with this bearer is about."""

_HEADERS: Final[Mapping[Bearer, Callable[[str], str]]] = {
    Bearer.WRONG: lambda _: "Bearer not-the-control-token",
    Bearer.SHORTER: lambda header: header[:-1],
    Bearer.LONGER: lambda header: f"{header}x",
    Bearer.OTHER_CASE: lambda header: f"Bearer {header.removeprefix('Bearer ').swapcase()}",
    Bearer.LOWER_SCHEME: lambda header: f"bearer {header.removeprefix('Bearer ')}",
    Bearer.TWO_BLANKS: lambda header: f"Bearer  {header.removeprefix('Bearer ')}",
    Bearer.NO_SCHEME: lambda header: header.removeprefix("Bearer "),
    Bearer.NOT_ASCII: lambda header: f"{header}\u00e9",
}


@contextmanager
def bearing(bearer: Bearer) -> Iterator[None]:
    """Requests that are sent inside carry this header."""
    token = _WANTED.set(bearer)
    try:
        yield
    finally:
        _WANTED.reset(token)


class _Spoiled(Token):
    """A header that is nearly that of the real token."""

    __slots__ = ("_spoil",)

    def __init__(self, token: Token, spoil: Callable[[str], str]) -> None:
        super().__init__(token.header().removeprefix("Bearer "))
        self._spoil = spoil

    def header(self) -> str:
        return self._spoil(super().header())


class FuzzedTokens:
    """A provider that gives each request the header which its step wants (see ``bearing``).

    ``source`` has the right token; where it has none, every authorized request goes without a header.
    """

    def __init__(self, source: TokenProvider) -> None:
        self._source = source

    async def current(self) -> Token | None:
        """The token to use for the call that is being sent."""
        wanted = _WANTED.get()
        token = None if wanted is Bearer.MISSING else await self._source.current()
        if token is None or wanted is Bearer.GOOD:
            return token
        return _Spoiled(token, _HEADERS[wanted])

    async def refreshed(self) -> Token | None:
        """The newest right token; a wrong one stays as it is, so that its refusal is the answer."""
        return await (self._source.refreshed() if _WANTED.get() is Bearer.GOOD else self.current())
