"""A policy of several workers behind a recorded coordinator, on one port, whose workers can be told to go wrong.

Below ``/model-server`` answers the server beside the coordinator, which commits and restores (wire-protocol F23): the
``checkpoint_url`` of a configuration. ``/workload/workers`` is this workload's own, no control route, and asks for no
token: it lists the workers, and ``POST /workload/workers/NAME`` with ``{"be": ...}`` makes one

    away     it has lost its connection: it is missing, and serves nothing new
    back     it has registered again; refused while admission is closed
    silent   it does nothing that it is told and acknowledges nothing, but serves on
    awake    it does what it was told meanwhile
    slow     it takes ``lag_s`` seconds before it does what it is told; 0 makes it quick again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quiesce.cli.workload.bodies import BadBody, Body, read_body, refuse_body
from quiesce.participants import server
from quiesce.participants.server.answers import ASGIApp, Receive, Scope, Send

__all__ = ["MODEL_SERVER_PATH", "WORKERS_PATH", "CoordinatedPolicy"]

MODEL_SERVER_PATH: Final = "/model-server"
WORKERS_PATH: Final = "/workload/workers"
LAG_S_MAX: Final = 3600.0


class WorkerRequest(Body):
    """``POST /workload/workers/NAME``: how the worker is to be from now on."""

    be: Literal["away", "back", "silent", "awake", "slow"]
    lag_s: Annotated[float, Field(ge=0, le=LAG_S_MAX)] = 0.0


class CoordinatedPolicy:
    """The coordinator, the server beside it, and the route that is told about workers: one ASGI application."""

    def __init__(self, app: ASGIApp, *, ledger: server.ModelLedger, workers: int, token: str | None) -> None:
        self._workers = server.Workers(workers)
        self._control, self._model_server = server.mount_coordinator(
            app, ledger=ledger, workers=self._workers, token=token
        )
        self._told = Starlette(
            routes=[
                Route(WORKERS_PATH, self._list),
                Route(f"{WORKERS_PATH}/{{name}}", self._tell, methods=["POST"]),
            ],
            exception_handlers={BadBody: refuse_body},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.startswith(f"{MODEL_SERVER_PATH}/"):
            below = path.removeprefix(MODEL_SERVER_PATH)
            await self._model_server({**scope, "path": below, "raw_path": below.encode()}, receive, send)
        elif path == WORKERS_PATH or path.startswith(f"{WORKERS_PATH}/"):
            await self._told(scope, receive, send)
        else:
            await self._control(scope, receive, send)

    async def _list(self, _request: Request) -> Response:
        return JSONResponse({"workers": [_shown(worker) for worker in self._workers]})

    async def _tell(self, request: Request) -> Response:
        asked = await read_body(request, WorkerRequest)
        name = request.path_params["name"]
        if name not in self._workers:
            raise BadBody(404, f"there is no worker of this name; there are {[each.name for each in self._workers]}")
        worker = self._workers[name]
        become: Mapping[str, Callable[[], object]] = {
            "away": worker.leave,
            "back": lambda: self._workers.register(name),
            "silent": worker.fall_silent,
            "awake": worker.wake,
            "slow": lambda: worker.slow_down(asked.lag_s),
        }
        try:
            become[asked.be]()
        except server.ControlRefusal as refusal:
            return JSONResponse({"error": {"code": refusal.code.value, "detail": refusal.detail}}, refusal.status)
        return JSONResponse(_shown(worker))


def _shown(worker: server.Worker) -> dict[str, object]:
    return {
        "name": worker.name,
        "connected": worker.connected,
        "closed": worker.gate.closed,
        "acknowledged": worker.acknowledged,
        "inflight": worker.inflight,
        "silent": worker.silent,
        "lag_s": worker.lag_s,
    }
