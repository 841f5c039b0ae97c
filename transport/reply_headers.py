"""Reply headers as every transport hands them on: lower case, nothing secret, no encoding to undo."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from quiesce.transport.delivery import ExchangeFailed
from quiesce.transport.limits import LOCATION_LENGTH_MAX

__all__ = ["read_headers", "sanitized_location"]


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case, repeated values joined, cookies dropped, a redirect's target sanitized.

    Raises:
        ExchangeFailed: the body is compressed although ``identity`` was asked for. A hundred kilobytes of gzip can
            be a hundred megabytes of JSON, so it is not unpacked.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "set-cookie":
            continue
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if "location" in headers:
        headers["location"] = sanitized_location(headers["location"])
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise ExchangeFailed(f"the reply has the content encoding {encoding[:20]!r}, which was not asked for")
    return headers


def sanitized_location(target: str) -> str:
    """A redirect's target as it may stand in an error: no credentials, query, fragment or control characters."""
    visible = "".join(character for character in target if " " < character < "\x7f")
    try:
        parts = urlsplit(visible)
    except ValueError:
        return "(malformed)"
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()[:LOCATION_LENGTH_MAX]
