"""The control plane of one server: routes, validation, bearer, and what each route asks of the fence.

The order of checks is that of the wire (2.0): body or query (422), bearer (401), then the fence's table, which also
knows the role (409), then the operation. Control routes are never gated by admission. Every reply names the
incarnation of this process in a header, so that a client can tell a restarted server from the one it paused.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import RESTORE_OWED_FEATURE
from quiesce.participants.dialects.gym_a.routes import INSTANCE_HEADER, LEASE_ROUTE, Route, routes_served_by
from quiesce.participants.server.answers import (
    Answer,
    ASGIApp,
    Receive,
    Scope,
    Send,
    ok,
    refused,
    send_answer,
    unauthorized,
)
from quiesce.participants.server.auth import Bearer
from quiesce.participants.server.declare import declaration, live
from quiesce.participants.server.errors import ControlRefusal
from quiesce.participants.server.fence import LiveFence
from quiesce.participants.server.lease import LeaseControl
from quiesce.participants.server.operations import Endpoint

__all__ = ["BODY_BYTES_MAX", "Face", "MountedServer"]

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
PROBLEMS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Face:
    """One application of a model service of several workers: for how many it answers, and on which routes."""

    workers: int
    routes: Sequence[Route]


class MountedServer:
    """An application with its control routes: an ASGI application in its stead.

    ``gate`` is the application behind its admission gate; without a control token nothing ever closes it, and it is
    left out. ``face`` is given for the applications of a service of several workers, ``lease`` where the fence has one.

    Attributes:
        app: the application, behind its gate where there is one.
        role, name: what it declares.
        instance: names this incarnation; new with each process.
        fence: where its fence stands; always idle without a control token.
    """

    def __init__(  # noqa: PLR0913 - what a server is made of, every part of it named
        self,
        app: ASGIApp,
        role: Role,
        name: str,
        *,
        gate: ASGIApp,
        fence: LiveFence,
        bearer: Bearer | None,
        endpoints: Mapping[str, Endpoint],
        face: Face | None = None,
        lease: LeaseControl | None = None,
    ) -> None:
        self.app = app if bearer is None else gate
        self.role = role
        self.name = name
        self.instance = secrets.token_hex(8)
        self.fence = fence
        self._bearer = bearer
        self._endpoints = endpoints if lease is None else {**endpoints, **lease.endpoints()}
        workers = None if face is None else face.workers
        self._declaration = declaration(
            role, name, controlled=bearer is not None, coordinated=workers, leased=lease is not None
        )
        # a starlette router here would put itself into the scope, where the application looks for its own
        served = routes_served_by(role) if face is None else face.routes
        if lease is not None:
            served = (*served, LEASE_ROUTE)
        self._routes = {route.path: route for route in served if bearer is not None or not route.authorized}
        known = {route.path for route in (*routes_served_by(role), LEASE_ROUTE)}
        self._absent = known - {route.path for route in served}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        route = self._routes.get(path)
        if route is None:
            if path in self._absent:
                await send_answer(send, Answer(404, {"detail": "Not Found"}))
            else:
                await self.app(scope, receive, send)
            return
        try:
            answer = await self._respond(route, Request(scope, receive))
        except ClientDisconnect:
            return
        await send_answer(send, replace(answer, headers={**answer.headers, INSTANCE_HEADER: self.instance}))

    def capabilities(self) -> dict[str, object]:
        """The capabilities reply as it stands now."""
        return {**self._declaration, **live(self.fence), **self._debt()}

    def _debt(self) -> dict[str, object]:
        features = self._declaration["features"]
        if not (self.fence.tells_what_it_owes and isinstance(features, list)):
            return {}
        return {"features": [*features, RESTORE_OWED_FEATURE]}

    async def _respond(self, route: Route, request: Request) -> Answer:
        if request.method != route.method:
            return Answer(405, {"detail": "Method Not Allowed"}, headers={"allow": route.method})
        if not route.authorized:
            return ok(self.capabilities())
        return await self._carry_out(route, request)

    async def _carry_out(self, route: Route, request: Request) -> Answer:
        """Check a request in the order of the wire and do what it asks."""
        try:
            asked = await _validated(route, request)
        except ValidationError as error:
            return Answer(422, {"detail": _problems(error, "query" if route.request is None else "body")})
        except _TooLarge:
            return Answer(413, {"detail": f"a control request is at most {BODY_BYTES_MAX} bytes"})
        if self._bearer is None or not self._bearer.admits(request.headers.raw):
            return unauthorized()
        try:
            return await self._endpoints[route.name](asked)
        except ControlRefusal as refusal:
            return refused(refusal)


class _TooLarge(Exception):
    """The body exceeds the limit."""


async def _validated(route: Route, request: Request) -> BaseModel:
    if route.request is not None:
        return route.request.model_validate_json(await _body(request))
    if route.query is None:
        raise TypeError(f"route {route.name} has neither body nor query")
    return route.query.model_validate(dict(request.query_params))


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise _TooLarge
    return bytes(body)


def _problems(error: ValidationError, place: str) -> list[dict[str, object]]:
    """What is wrong with a request, as the web framework of real servers lists it, without echoing the input."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        {"type": problem["type"], "loc": [place, *problem["loc"]], "msg": problem["msg"]}
        for problem in found[:PROBLEMS_MAX]
    ]
