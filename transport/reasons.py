"""What went wrong on the wire, in a sentence, from the exception that the HTTP libraries raised.

The types that reach us lie: a refused connection, a reset one and an untrusted certificate are all
``httpx.ConnectTimeout``, and garbage surfaces as an exception of aiohttp. The cause tells them apart. Texts are made
here rather than taken over: those of the libraries can hold the bytes of a reply and the headers of a request.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Final

import aiohttp
import httpx

__all__ = ["reason_for"]


def reason_for(error: Exception, *, proxy: str | None = None) -> str:
    """A sentence for ``error`` that holds neither a header nor a byte of a reply.

    Args:
        error: what the transport under us raised.
        proxy: the proxy in use, without credentials, to be named where it is to blame.
    """
    cause = error.__cause__ if isinstance(error, httpx.HTTPError) and error.__cause__ is not None else error
    for kind, describe in _DESCRIPTIONS:
        if isinstance(cause, kind):
            return describe(cause) + (f" (through the proxy {proxy})" if proxy else "")
    return f"the HTTP library failed ({type(cause).__name__})"


def _says(text: str) -> Callable[[BaseException], str]:
    return lambda _: text


def _with_os_error(text: str) -> Callable[[BaseException], str]:
    return lambda error: text + _os_error(error)


def _os_error(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return f": {os.strerror(number)}" if isinstance(number, int) and number > 0 else ""


def _certificate(error: BaseException) -> str:
    inner = getattr(error, "certificate_error", None)
    why = f": {inner.verify_message}" if isinstance(inner, ssl.SSLCertVerificationError) else ""
    return f"its TLS certificate is not trusted{why}"


def _tunnel(error: BaseException) -> str:
    return f"the proxy refused the tunnel with status {getattr(error, 'status', 'unknown')}"


_DESCRIPTIONS: Final[tuple[tuple[type[BaseException], Callable[[BaseException], str]], ...]] = (
    # from the special to the general: several of these derive from one another
    (aiohttp.ClientProxyConnectionError, _with_os_error("the proxy cannot be reached")),
    (aiohttp.ClientHttpProxyError, _tunnel),
    (aiohttp.ClientConnectorCertificateError, _certificate),
    (aiohttp.ClientConnectorDNSError, _says("its host name cannot be resolved")),
    (aiohttp.ClientConnectorSSLError, _says("the TLS handshake failed")),
    (aiohttp.ClientConnectorError, _with_os_error("it cannot be connected to")),
    (aiohttp.ConnectionTimeoutError, _says("connecting to it took too long")),
    (aiohttp.ServerTimeoutError, _says("it was silent for too long")),
    (aiohttp.ServerDisconnectedError, _says("it closed the connection before it replied")),
    (aiohttp.ClientPayloadError, _says("the reply was cut in its middle")),
    (aiohttp.ClientResponseError, _says("what it answered is not HTTP")),
    (aiohttp.InvalidURL, _says("its URL cannot be used")),
    (aiohttp.ClientOSError, _with_os_error("the connection broke")),
    (aiohttp.ClientConnectionError, _says("the connection was closed")),
    (OSError, _with_os_error("the connection broke")),
)
