"""What all transports share: the token, the total time-out, and telling "never sent" from "maybe applied".

A transport provides an exchange: one attempt to deliver a request and to read its reply. It marks the delivery as
begun at the last moment at which nothing can have left yet, and raises ``ExchangeFailed``. All the rest is here, so
that two transports cannot differ in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from quiesce.participants.errors import MaybeApplied, NeverSent, QuiesceError, Unreachable
from quiesce.transport.port import ControlReply, ControlRequest
from quiesce.transport.token import Token, TokenProvider

__all__ = [
    "Delivery",
    "Exchange",
    "ExchangeFailed",
    "caller_is_cancelled",
    "carry",
    "maybe_applied",
    "never_sent",
]

_UNAUTHORIZED = 401


class ExchangeFailed(Exception):
    """An attempt brought no usable reply. Never leaves this package: ``carry`` turns it into an Unreachable."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Delivery:
    """Whether a byte of the request may have left. Proof, not a guess from an exception's type."""

    begun: bool = False


Exchange = Callable[[ControlRequest, dict[str, str], Delivery], Awaitable[ControlReply]]
"""One attempt, with the headers to send."""


def never_sent(request: ControlRequest, reason: str) -> NeverSent:
    """The error for a request that certainly did not arrive."""
    return NeverSent(participant=request.participant, call=request.call, reason=reason)


def maybe_applied(request: ControlRequest, reason: str) -> MaybeApplied:
    """The error for a request that may have arrived."""
    return MaybeApplied(participant=request.participant, call=request.call, reason=reason)


def caller_is_cancelled() -> bool:
    """Whether a CancelledError that was just caught is meant for the running task.

    Otherwise it comes from something that the task waited for and that was cancelled: for the caller that is a
    failure of the call, and must not look like its own cancellation.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def carry(request: ControlRequest, tokens: TokenProvider | None, exchange: Exchange) -> ControlReply:
    """Carry one request by the given exchange, within its time-out.

    The error is raised outside of the handler: the exceptions of HTTP libraries hold the request's headers, and
    neither a cause nor a context of ours may lead to a token.

    Raises:
        NeverSent, MaybeApplied: as the port says.
    """
    if request.timeout_s <= 0:
        raise never_sent(request, f"no time was left for it (timeout_s is {request.timeout_s:g})")
    delivery = Delivery()
    try:
        async with asyncio.timeout(request.timeout_s):
            return await _authorized(request, tokens, exchange, delivery)
    except TimeoutError:
        reason = _too_late(request, delivery)
    except ExchangeFailed as failure:
        reason = failure.reason
    raise _unreachable(request, delivery, reason)


async def _authorized(
    request: ControlRequest, tokens: TokenProvider | None, exchange: Exchange, delivery: Delivery
) -> ControlReply:
    if tokens is None or not request.authorized:
        return await exchange(request, _headers(request, None), delivery)
    token = await _ask(tokens.current)
    reply = await exchange(request, _headers(request, token), delivery)
    if reply.status != _UNAUTHORIZED:
        return reply
    try:
        newest = await _ask(tokens.refreshed)
    except ExchangeFailed:
        return reply
    if newest is None or newest == token:
        return reply
    # The bearer is checked before anything is done: the refused attempt has left no trace.
    delivery.begun = False
    return await exchange(request, _headers(request, newest), delivery)


async def _ask(source: Callable[[], Awaitable[Token | None]]) -> Token | None:
    try:
        return await source()
    except QuiesceError as error:
        reason = f"there is no usable token: {error}"
    except Exception as error:  # noqa: BLE001 - a provider is the embedder's code, and its text could hold the token
        reason = f"there is no usable token: the token provider raised {type(error).__name__}"
    raise ExchangeFailed(reason)


def _headers(request: ControlRequest, token: Token | None) -> dict[str, str]:
    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "quiesce"}
    if request.body is not None:
        headers["content-type"] = "application/json"
    headers.update(request.headers)
    if token is not None:
        headers["authorization"] = token.header()
    return headers


def _too_late(request: ControlRequest, delivery: Delivery) -> str:
    if delivery.begun:
        return f"no complete reply within {request.timeout_s:g} s"
    return f"no connection to it within {request.timeout_s:g} s"


def _unreachable(request: ControlRequest, delivery: Delivery, reason: str) -> Unreachable:
    return maybe_applied(request, reason) if delivery.begun else never_sent(request, reason)
