"""Small Starlette servers that declare something and refuse the rest, as real participants do while idle.

Enough for discovery: capabilities, 422 to an empty request (before the bearer is looked at), 401 to a wrong bearer, and
409 ``invalid_phase`` to a status call while idle. ``requests`` lists what arrived, with the body.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as StarletteRoute
from support.recordings import exchanges_of

from quiesce.fsm.vocabulary import Role
from quiesce.participants.dialects.gym_a.routes import ROUTES, Route, routes_served_by

__all__ = ["IdleParticipant", "capabilities_of"]

RECORDED = {
    Role.POLICY: "capabilities_policy_single",
    Role.AUXILIARY: "capabilities_auxiliary",
    Role.AGENT: "capabilities_agent",
    Role.RESOURCES: "capabilities_resources",
}

Capabilities = dict[str, Any]
"""A capabilities reply: JSON of several types."""


def capabilities_of(role: Role, **changes: object) -> Capabilities:
    """The recorded capabilities of an idle server of this role, with changes."""
    reply = next(exchange.reply for exchange in exchanges_of(RECORDED[role]) if exchange.status == 200)
    return {**reply, **changes}


class IdleParticipant:
    """One server. ``without`` names routes (of the route table) that it lacks.

    ``instead`` answers every request in place of all of this.
    """

    def __init__(
        self,
        role: Role,
        *,
        token: str = "right",  # noqa: S107 - no secret
        without: Collection[str] = (),
        instance: str | None = None,
        instead: Callable[[], Awaitable[Response]] | None = None,
        **changes: object,
    ) -> None:
        self.capabilities = capabilities_of(role, **changes)
        self.requests: list[tuple[str, str]] = []
        self.inside = 0
        self.inside_peak = 0
        self.delay_s = 0.0
        self._bearer = f"Bearer {token}"
        self._instance = instance
        self.instead = instead
        served = [route for route in routes_served_by(role) if route.name not in without]
        self.app = Starlette(routes=[self._mounted(route) for route in served])

    def calls(self) -> list[str]:
        """Names of the routes that were called, in order."""
        names = {(route.method, route.path): route.name for route in ROUTES}
        return [names[request.split(" ")[0], request.split(" ")[1]] for request, _ in self.requests]

    def _mounted(self, route: Route) -> StarletteRoute:
        async def answer(request: Request) -> Response:
            body = (await request.body()).decode()
            self.requests.append((f"{request.method} {request.url.path} {request.url.query}", body))
            self.inside += 1
            self.inside_peak = max(self.inside_peak, self.inside)
            try:
                await asyncio.sleep(self.delay_s)
                return await self.instead() if self.instead else self._answer(route, request, body)
            finally:
                self.inside -= 1

        return StarletteRoute(route.path, answer, methods=[route.method])

    def _answer(self, route: Route, request: Request, body: str) -> Response:
        if route.name == "capabilities":
            named = {} if self._instance is None else {"x-quiesce-instance": self._instance}
            return JSONResponse(self.capabilities, headers=named)
        if not (json.loads(body) if body else dict(request.query_params)):
            return JSONResponse({"detail": [{"type": "missing", "loc": ["checkpoint_id"]}]}, 422)
        if request.headers.get("authorization") != self._bearer:
            return JSONResponse({"detail": "Invalid or missing checkpoint control token"}, 401)
        return JSONResponse({"error": {"code": "invalid_phase", "detail": "nothing is active"}}, 409)
