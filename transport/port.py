"""The port: what a control call is, what its reply is, and what every transport promises.

The contract, tested for every transport by one suite:

1. ``send`` returns the reply with whatever status it has: a refusal, a redirect and a crash are replies. Redirects
   are never followed, cookies are never kept, no proxy and no credential comes from the environment unless asked for.
2. Otherwise it raises ``NeverSent`` (no byte of the request can have reached the participant) or ``MaybeApplied``
   (everything else), and nothing but these two. A reply that cannot be used (over the cap, with a content encoding,
   cut in its middle, not HTTP) is ``MaybeApplied``: the participant did receive the request.
3. ``timeout_s`` is total: from the call of ``send`` to the last byte of the reply, on the clock of the event loop. With
   nothing left of it the request is not sent.
4. Cancelling ``send`` raises ``asyncio.CancelledError``, closes the connection it used, and leaves no task behind on
   this side. The participant's handler runs on, as behind a real server (wire-protocol F17).
5. The bearer token is added to authorized requests and to no other, and appears in no text. A 401 makes the transport
   ask its token provider once for a newer token and repeat the request with it: it was refused before anything was
   done.
6. A POST is sent at most once, apart from 5. A GET may be sent again over a fresh connection when a kept one turns
   out to be closed: it changes nothing.
7. ``aclose`` ends what is under way (those calls raise as in 2) and releases everything. A later ``send`` is
   ``NeverSent``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import urlsplit

from quiesce.participants.errors import ConfigurationError
from quiesce.transport.limits import REPLY_BODY_CAP, REQUEST_BODY_MAX

__all__ = ["ControlReply", "ControlRequest", "Transport"]

URLS_KEPT: Final = 65536
"""Checked URLs that are remembered: the same few routes of the same participants, again and again."""
_METHODS: Final = frozenset({"GET", "POST"})
_NOT_IN_A_URL: Final = re.compile(r"[\x00-\x20\x7f]")
_HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "host",
        "proxy-authorization",
        "transfer-encoding",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """One call to a participant. Whether it can be sent is checked here, so that ``send`` has no bad input.

    Attributes:
        participant: the name that errors give it; it does not go on the wire.
        method: GET or POST.
        url: scheme, host, port and path; no query, no credentials.
        timeout_s: seconds for the whole call. Zero or less is allowed and means that it comes too late.
        query: decoded names and values.
        body: JSON text in UTF-8, or None.
        headers: further headers, names in lower case; none of those that the transport sets.
        authorized: whether the bearer token goes with it.
        body_cap: bytes of the reply's body that are read at most.

    Raises:
        ConfigurationError: one of these is unusable; the text says which and why.
    """

    participant: str
    method: str
    url: str
    timeout_s: float
    query: Mapping[str, str] | None = None
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    authorized: bool = False
    body_cap: int = REPLY_BODY_CAP

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise ConfigurationError(f"a call to participant {self.participant!r} cannot be sent: {problem}")

    @property
    def call(self) -> str:
        """Method and path, as errors and fault scripts name the call: ``POST /ng-control/v1/model-admission/pause``."""
        return f"{self.method} {urlsplit(self.url).path or '/'}"

    def _problem(self) -> str:
        if self.method not in _METHODS:
            return f"the method is {self.method!r}; control calls are GET or POST"
        if not math.isfinite(self.timeout_s):
            return f"timeout_s is {self.timeout_s}; every call needs a finite number of seconds"
        if self.body_cap < 1:
            return f"body_cap is {self.body_cap}; it must be at least 1"
        if self.body is not None and len(self.body) > REQUEST_BODY_MAX:
            return f"the body has {len(self.body)} bytes and {REQUEST_BODY_MAX} are allowed; split the call"
        return _url_problem(self.url) or _headers_problem(self.headers)


@dataclass(frozen=True, slots=True)
class ControlReply:
    """What a participant answered, not yet interpreted.

    Attributes:
        status: HTTP status; 3xx included, since redirects are not followed.
        headers: names in lower case; repeated ones joined with ", ". No ``set-cookie``; ``location`` is stripped of
            credentials, query and fragment.
        body: the whole body, at most the request's cap.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Transport(Protocol):
    """A way for control calls to travel. The contract stands at the top of this module."""

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one call.

        Raises:
            NeverSent: it certainly did not arrive.
            MaybeApplied: it may have arrived, and the answer is not known.
        """
        ...

    async def aclose(self) -> None:
        """Release everything; may be called twice."""
        ...


@lru_cache(maxsize=URLS_KEPT)
def _url_problem(url: str) -> str:
    if _NOT_IN_A_URL.search(url):
        return "its URL contains a space or a control character"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"its URL is malformed: {error}"
    if parts.username is not None or parts.password is not None:
        return "its URL contains credentials; give the token through a token provider"
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        return f"its URL is {url!r}; http://host:port/path or https://host:port/path is needed"
    if parts.query or parts.fragment:
        return f"its URL has a query or a fragment ({parts.path!r}); give the query apart"
    return ""


def _headers_problem(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            return f"the header name {name!r} is not one (lower case is expected)"
        if name in _OURS:
            return f"the header {name!r} is set by the transport alone"
        if not _HEADER_VALUE.fullmatch(value):
            return f"the value of header {name!r} contains a character that headers may not have"
    return ""
