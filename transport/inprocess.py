"""Control calls to ASGI applications in the same process: the demo without sockets, and tests without ports.

The client behaves as one behind a real server does. When it gives up, the handler is told (``http.disconnect``) and
runs on (wire-protocol F17); what it still sends is dropped. A handler that raises before its reply began is a 500, one
that raises in the middle of its reply cuts it. Lifespan events are the caller's business.
"""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import Context
from typing import Any, Final

import httpx

from quiesce.participants.errors import ConfigurationError
from quiesce.transport.delivery import Delivery, ExchangeFailed, carry
from quiesce.transport.limits import CappedBody, OverCap
from quiesce.transport.logs import log_named
from quiesce.transport.port import ControlReply, ControlRequest
from quiesce.transport.reply_headers import read_headers
from quiesce.transport.token import TokenProvider

__all__ = ["AsgiApplication", "AsgiTransport"]

Message = MutableMapping[str, Any]
"""An ASGI message; its values are of many types by specification."""

AsgiApplication = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""An ASGI 3 application; the same shape as Starlette's own."""

JOIN_TIMEOUT_S: Final = 5.0
"""Seconds for which ``aclose`` lets handlers finish before it cancels them."""

_CRASHED: Final = 500
_PORTS: Final = {"http": 80, "https": 443}
_ADDRESSES_KEPT: Final = 4096
"""The same addresses are called again and again; to parse one takes a tenth of the time of a call."""
_log = log_named("quiesce.transport")


class AsgiTransport:
    """A transport to applications by origin; the contract is that of ``quiesce.transport.port``.

    Args:
        applications: from ``http://host:port`` to the application that answers there. A host that is not there is
            ``NeverSent``, as a refused connection is.
        tokens: where the bearer token comes from; None: authorized requests go without one.

    Raises:
        ConfigurationError: a key is not an origin.
    """

    def __init__(
        self, applications: Mapping[str, AsgiApplication] | None = None, tokens: TokenProvider | None = None
    ) -> None:
        self._tokens = tokens
        self._applications: dict[str, AsgiApplication] = {}
        self._running: dict[asyncio.Task[None], _Conversation] = {}
        self._closed = False
        for url, application in (applications or {}).items():
            self.mount(url, application)

    def __repr__(self) -> str:
        return f"AsgiTransport({', '.join(sorted(self._applications))})"

    @property
    def running(self) -> int:
        """Handlers that still run, those whose client has left among them."""
        return len(self._running)

    def mount(self, url: str, application: AsgiApplication) -> None:
        """Let an application answer at an origin, in place of the one that did so."""
        origin = _origin(url)
        if httpx.URL(url).path not in {"", "/"}:
            raise ConfigurationError(f"{url!r} has a path; applications are mounted by origin, as http://host:port")
        self._applications[origin] = application

    def unmount(self, url: str) -> None:
        """Let nobody answer at an origin any more; handlers that run are not touched."""
        self._applications.pop(_origin(url), None)

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one call to an application.

        Raises:
            NeverSent, MaybeApplied: as the port says.
        """
        return await carry(request, self._tokens, self._exchange)

    async def join(self) -> None:
        """Wait until no handler runs any more, however long that takes."""
        while self._running:
            await asyncio.wait(self._running)

    async def aclose(self) -> None:
        """End the calls under way; let their handlers finish for JOIN_TIMEOUT_S, then cancel them."""
        self._closed = True
        for conversation in self._running.values():
            conversation.fail("the transport was closed during the call")
        if self._running:
            await asyncio.wait(self._running, timeout=JOIN_TIMEOUT_S)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=JOIN_TIMEOUT_S)

    async def _exchange(self, request: ControlRequest, headers: dict[str, str], delivery: Delivery) -> ControlReply:
        application = self._application_at(request.url)
        conversation = _Conversation(request)
        scope = _scope(request, headers)
        delivery.begun = True
        # An empty context: a real server does not see the context variables of its client either.
        task = asyncio.create_task(
            _run(application, scope, conversation), name=f"{request.participant} {request.call}", context=Context()
        )
        self._running[task] = conversation
        task.add_done_callback(lambda done: self._running.pop(done, None))
        try:
            return await conversation.reply
        finally:
            conversation.leave()

    def _application_at(self, url: str) -> AsgiApplication:
        if self._closed:
            raise ExchangeFailed("the transport is closed")
        try:
            origin = _origin(url)
        except ConfigurationError as error:
            raise ExchangeFailed(str(error)) from error
        if origin not in self._applications:
            raise ExchangeFailed(f"no application is mounted at {origin}")
        return self._applications[origin]


async def _run(application: AsgiApplication, scope: Message, conversation: _Conversation) -> None:
    try:
        await application(scope, conversation.receive, conversation.send)
    except asyncio.CancelledError:
        conversation.ended()
        raise
    except Exception as error:  # noqa: BLE001 - whatever a handler raises, its server goes on
        _log.error(
            "in_process_handler_failed",
            participant=conversation.request.participant,
            call=conversation.request.call,
            # Formatted here: a renderer that shows local variables would show the authorization header.
            traceback="".join(traceback.format_exception(error)),
        )
        conversation.ended()
    else:
        conversation.ended()


class _Conversation:
    """One request and its reply, as the two ASGI callables see it."""

    def __init__(self, request: ControlRequest) -> None:
        self.request = request
        self.reply: asyncio.Future[ControlReply] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._asked = False
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._body = CappedBody(request.body_cap)

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self.request.body or b"", "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        # A turn for everybody else: a handler that only sends would otherwise never let its client give up.
        await asyncio.sleep(0)
        if self._over.is_set():
            return
        try:
            self._take(message)
        except OverCap:
            self.fail(f"the reply is larger than the {self.request.body_cap} bytes that are read of it")
        except ExchangeFailed as failure:
            self.fail(failure.reason)

    def ended(self) -> None:
        """The handler has ended; what it has not sent by now will not come."""
        if self._over.is_set():
            return
        if self._status is None:
            self._settle(ControlReply(_CRASHED, {"content-type": "text/plain"}, b"Internal Server Error"))
        else:
            self.fail("the reply was cut in its middle")

    def fail(self, reason: str) -> None:
        """The connection breaks, for both sides."""
        if not self.reply.done():
            self.reply.set_exception(ExchangeFailed(reason))
        self.leave()

    def leave(self) -> None:
        """The client is not interested any more."""
        self._over.set()

    def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = int(message["status"])
            self._headers = read_headers(message.get("headers", ()))
            self._body.expect(self._headers.get("content-length", ""))
        elif message["type"] == "http.response.body":
            self._body.add(message.get("body", b""))
            if not message.get("more_body", False) and self._status is not None:
                self._settle(ControlReply(self._status, self._headers, self._body.complete()))

    def _settle(self, reply: ControlReply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)
        self._over.set()


@functools.lru_cache(_ADDRESSES_KEPT)
def _parsed(url: str) -> httpx.URL:
    return httpx.URL(url)


@functools.lru_cache(_ADDRESSES_KEPT)
def _origin(url: str) -> str:
    try:
        parsed = _parsed(url)
        host = parsed.host
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigurationError(f"{url!r} is no URL: {error}") from error
    if parsed.scheme not in _PORTS or not host:
        raise ConfigurationError(f"{url!r} is no origin of the form http://host:port")
    return f"{parsed.scheme}://{host}:{parsed.port or _PORTS[parsed.scheme]}"


def _scope(request: ControlRequest, headers: Mapping[str, str]) -> Message:
    url = _parsed(request.url)
    if request.query:
        url = url.copy_merge_params(dict(request.query))
    sent = {"host": url.netloc.decode("ascii"), **headers}
    if request.body is not None:
        sent["content-length"] = str(len(request.body))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()],
        "client": ("127.0.0.1", 0),
        "server": (url.host, url.port or _PORTS[url.scheme]),
    }
