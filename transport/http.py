"""Control calls over HTTP: httpx's types on an aiohttp connector that is configured here.

httpx's own pool rescans all its connections for every request, which stops working near a thousand participants;
httpx-aiohttp's transport is called directly, without a client around it. What it leaves open is closed here: the
total time-out, the cap on a reply, the proof of whether a request was sent, and every default that would read
something from the environment.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, cast

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from quiesce.participants.errors import ConfigurationError
from quiesce.transport.delivery import Delivery, ExchangeFailed, caller_is_cancelled, carry
from quiesce.transport.limits import CONNECT_TIMEOUT_S, KEEPALIVE_S, REQUEST_SLICE_SIZE, CappedBody, OverCap
from quiesce.transport.port import ControlReply, ControlRequest
from quiesce.transport.reasons import reason_for
from quiesce.transport.reply_headers import read_headers
from quiesce.transport.token import TokenProvider

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ["HttpTransport"]

_DELIVERY: Final[ContextVar[Delivery]] = ContextVar("quiesce_delivery")


class HttpTransport:
    """A transport over HTTP/1.1; the contract is that of ``quiesce.transport.port``.

    It belongs to the event loop in which it sends first. Connections are kept for ``keepalive_s`` after a reply.

    Args:
        tokens: where the bearer token comes from; None: authorized requests go without one.
        max_connections: connections open at once; None: one for every call under way. Where it is set, connections
            are not kept, since an idle one counts as much as a busy one; calls wait for their turn within their
            time-out.
        keepalive_s: seconds; must stay below that of every participant's server (uvicorn: 5).
        connect_timeout_s: seconds for one attempt to connect.
        proxy: URL of the proxy to use. Proxy variables of the environment are not looked at.
        tls: context for https; by default one that trusts the usual authorities, built once for the process.

    Raises:
        ConfigurationError: an argument is unusable.
    """

    def __init__(
        self,
        tokens: TokenProvider | None = None,
        *,
        max_connections: int | None = None,
        keepalive_s: float = KEEPALIVE_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if max_connections is not None and max_connections < 1:
            raise ConfigurationError(f"max_connections is {max_connections}; give at least 1, or none for no bound")
        if not (keepalive_s > 0 and connect_timeout_s > 0):
            raise ConfigurationError("keepalive_s and connect_timeout_s must be more than 0 seconds")
        self._tokens = tokens
        self._connect_timeout_s = connect_timeout_s
        self._max_connections = max_connections
        self._keepalive_s = keepalive_s
        self._proxy = _proxy_of(proxy)
        self._tls = tls if tls is not None else _shared_tls()
        self._connector: _MarkingConnector | None = None
        self._inner = AiohttpTransport(verify=self._tls, trust_env=False, proxy=self._proxy, client=self._session)
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpTransport(max_connections={self._max_connections}, proxy={self._proxy_name})"

    @property
    def open_connections(self) -> int:
        """Connections that are open now, busy and idle ones."""
        return 0 if self._connector is None else self._connector.open_connections

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one call over HTTP.

        Raises:
            NeverSent, MaybeApplied: as the port says.
        """
        return await carry(request, self._tokens, self._exchange)

    async def aclose(self) -> None:
        """Close every connection; calls under way end as Unreachable."""
        self._closed = True
        await self._inner.aclose()

    def _session(self) -> aiohttp.ClientSession:
        bounded = self._max_connections is not None
        self._connector = _MarkingConnector(
            limit=self._max_connections or 0,
            ssl=self._tls,
            **({"force_close": True} if bounded else {"keepalive_timeout": self._keepalive_s}),
        )
        return aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def _exchange(self, request: ControlRequest, headers: dict[str, str], delivery: Delivery) -> ControlReply:
        if self._closed:
            raise ExchangeFailed("the transport is closed")
        marked = _DELIVERY.set(delivery)
        try:
            response = await self._inner.handle_async_request(self._outgoing(request, headers))
            try:
                return await _read(request, response)
            finally:
                await response.aclose()
        except ExchangeFailed:
            raise
        except asyncio.CancelledError:
            if caller_is_cancelled():
                raise
            reason = "the transport was closed while the call waited for a connection"
        except Exception as error:  # noqa: BLE001 - the libraries leak exceptions of several families
            reason = self._reason(error)
        finally:
            _DELIVERY.reset(marked)
        raise ExchangeFailed(reason)

    def _outgoing(self, request: ControlRequest, headers: Mapping[str, str]) -> httpx.Request:
        url = _parsed(request.url)
        if request.query:
            url = url.copy_merge_params(dict(request.query))
        # With a stream of our own, httpx adds no header: host and length are aiohttp's work anyway.
        body = request.body or b""
        connecting = {"timeout": {"connect": self._connect_timeout_s}}
        if len(body) > REQUEST_SLICE_SIZE:
            sized = {**headers, "content-length": str(len(body))}
            return httpx.Request(request.method, url, headers=sized, stream=_Slices(body), extensions=connecting)
        stream = httpx.ByteStream(body)
        outgoing = httpx.Request(request.method, url, headers=headers, stream=stream, extensions=connecting)
        outgoing.read()
        return outgoing

    def _reason(self, error: Exception) -> str:
        if self._closed:
            return "the transport was closed during the call"
        return reason_for(error, proxy=self._proxy_name)

    @property
    def _proxy_name(self) -> str | None:
        return None if self._proxy is None else str(self._proxy.url)


class _MarkingConnector(aiohttp.TCPConnector):
    """A connector that marks the delivery as begun when it hands out a connection: until then nothing is sent."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        _DELIVERY.get().begun = True
        return connection

    @property
    def open_connections(self) -> int:
        return len(self._acquired) + sum(len(idle) for idle in self._conns.values())


class _Slices(httpx.AsyncByteStream):
    """A large request body, written in slices between which the loop is free."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), REQUEST_SLICE_SIZE):
            yield self._body[start : start + REQUEST_SLICE_SIZE]


async def _read(request: ControlRequest, response: httpx.Response) -> ControlReply:
    headers = read_headers(response.headers.raw)
    body = CappedBody(request.body_cap)
    try:
        body.expect(headers.get("content-length", ""))
        async with aclosing(_chunks(response)) as chunks:
            async for chunk in chunks:
                body.add(chunk)
    except OverCap:
        too_large = f"the reply is larger than the {request.body_cap} bytes that are read of it"
    else:
        return ControlReply(response.status_code, headers, body.complete())
    raise ExchangeFailed(too_large)


def _chunks(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    # An abandoned generator is finished by the garbage collector, in a task of its own: we want to close it here.
    return cast("AsyncGenerator[bytes, None]", aiter(cast("httpx.AsyncByteStream", response.stream)))


@functools.lru_cache(maxsize=4096)
def _parsed(url: str) -> httpx.URL:
    return httpx.URL(url)


@functools.cache
def _shared_tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _proxy_of(url: str | None) -> httpx.Proxy | None:
    if url is None:
        return None
    try:
        proxy = httpx.Proxy(url)
    except (httpx.InvalidURL, ValueError):
        proxy = None
    if proxy is None or proxy.url.scheme not in {"http", "https"} or not proxy.url.host:
        raise ConfigurationError("the proxy is no URL of the form http://host:port")
    if proxy.auth is not None:
        raise ConfigurationError("the proxy's URL has credentials, which are not supported; give it without them")
    return proxy
