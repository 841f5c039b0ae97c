"""Base URLs of servers: checked before the first call, so that a mistake is named and nothing secret is kept."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from quiesce.participants.excerpts import escaped

__all__ = ["check_base_url"]

URL_LENGTH_MAX: Final = 2048


def check_base_url(url: str) -> str:
    """``url`` without a final slash, proven to be usable in front of a control route.

    Raises:
        ValueError: no http or https, no host, a bad port, or something that a base URL must not carry: credentials
            (never repeated in the text), a query, a fragment, a blank or control character.
    """
    if "@" in url:
        raise ValueError("must hold no credentials and no '@'; the bearer token comes from an environment variable")
    if len(url) > URL_LENGTH_MAX:
        raise ValueError(f"is longer than {URL_LENGTH_MAX} characters")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(f"{escaped(url)} holds a blank, a backslash or a character that is not printable ASCII")
    _check_parts(url)
    return url.rstrip("/")


def _check_parts(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{escaped(url)} is no URL: {error}") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError(f"{escaped(url)} must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise ValueError(f"{escaped(url)} must name a host, and a port above 0 if it names one")
    if "?" in url or "#" in url:
        raise ValueError(f"{escaped(url)} must have no query and no fragment")
