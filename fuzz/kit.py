"""Servers of the kit in process, around the smallest applications that a fuzzer can drive.

Each application takes what ``kit_traffic`` sends, and its work lasts ``work_s`` seconds of the given clock; in virtual
time (``quiesce.fuzz.virtual_time``) that costs nothing.

This module needs the extra ``server``; nothing else of ``quiesce.fuzz`` imports it before it is asked for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.errors import MissingExtra
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.identity import AttemptId

try:
    from quiesce.participants import server
    from quiesce.participants.server.answers import Answer, ASGIApp, Receive, Scope, Send, send_answer
    from quiesce.participants.server.headers import attempt_of
    from quiesce.participants.server.ports import Clock
    from quiesce.participants.server.storage import OsFiles
except ModuleNotFoundError as error:
    raise MissingExtra("the in-process kit", str(error.name)) from error

__all__ = ["KIT_ORIGIN", "KIT_TOKEN", "KitServer", "build_kit_server"]

KIT_ORIGIN: Final = "http://kit.invalid"
KIT_TOKEN: Final = "in-process"  # noqa: S105 - it guards nothing but servers inside this process
WORK_S: Final = 6.0
BODY_BYTES_MAX: Final = 2**20
NAMES: Final = {Role.POLICY: "policy_model", Role.AUXILIARY: "judge", Role.AGENT: "agent", Role.RESOURCES: "tools"}


@dataclass(frozen=True, slots=True)
class KitServer:
    """One server, and the parts that it is made of.

    Attributes:
        app: the ASGI application.
        role: what it is.
        runs, sessions: an agent's executions, a resource server's sessions.
    """

    app: server.MountedServer
    role: Role
    runs: server.Runs | None = None
    sessions: server.Sessions | None = None


def build_kit_server(
    role: Role,
    fence: FenceVariant = FenceVariant.STRICT,
    *,
    clock: Clock | None = None,
    work_s: float = WORK_S,
    restore_expected: bool = False,
    workers: int = 2,
    lease: server.Lease | None = None,
) -> KitServer:
    """A fresh server of a role. The fence ``gym_a_coordinator`` (policies only) answers for ``workers`` workers.

    Raises:
        ConfigurationError: there is no such fence for the role.
    """
    clock = VirtualClock() if clock is None else clock
    recorded = fence is not FenceVariant.STRICT
    name = NAMES[role]
    match role:
        case Role.POLICY:
            ledger = server.ModelLedger(name, files=_ThrownAway())
            if fence is FenceVariant.GYM_A_COORDINATOR:
                crew = server.Workers(workers)
                pair = server.mount_coordinator(
                    _model(work_s), ledger=ledger, workers=crew, token=KIT_TOKEN, clock=clock
                )
                return KitServer(pair.control, role)
            app = server.mount_policy(
                _model(work_s), ledger=ledger, token=KIT_TOKEN, fence=fence, clock=clock, lease=lease
            )
            return KitServer(app, role)
        case Role.AUXILIARY:
            app = server.mount_auxiliary(_model(0.0), name=name, token=KIT_TOKEN, fence=fence, clock=clock)
            return KitServer(app, role)
        case Role.AGENT:
            # recorded agents have no boundary before their first one (wire-protocol F22)
            runs = server.Runs(name, clock=clock, files=_ThrownAway(), boundary_at_begin=not recorded)
            app = server.mount_agent(_agent(runs, work_s), runs, token=KIT_TOKEN, fence=fence, clock=clock, lease=lease)
            return KitServer(app, role, runs=runs)
        case Role.RESOURCES:
            counters = _Counters()
            hooks = server.SessionHooks(counters.export, counters.restore, counters.retire)
            sessions = server.Sessions(
                name,
                hooks=hooks,
                clock=clock,
                files=_ThrownAway(),
                restore_expected=restore_expected,
                require_identity=not recorded,
            )
            app = server.mount_sessions(
                _tool(counters, work_s), sessions, token=KIT_TOKEN, fence=fence, clock=clock, lease=lease
            )
            return KitServer(app, role, sessions=sessions)


class _ThrownAway(OsFiles):
    """Files that nobody needs after the test: no write waits for the disk."""

    def write(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)

    def sync_directory(self, directory: Path) -> None:
        """There is nothing to wait for."""


@dataclass(slots=True)
class _Counters:
    """A number a session."""

    values: dict[AttemptId, int] = field(default_factory=dict)

    def export(self, attempt: AttemptId) -> Mapping[str, object]:
        return {"value": self.values.get(attempt, 0)}

    def restore(self, attempt: AttemptId, state: Mapping[str, object]) -> None:
        self.values[attempt] = int(str(state["value"]))

    def retire(self, attempt: AttemptId) -> None:
        self.values.pop(attempt, None)


def _model(work_s: float) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if _is_post(scope, "/v1/responses"):
            await _body(receive)
            await asyncio.sleep(work_s)
            await send_answer(send, Answer(200, {"output_text": "done"}))
        else:
            await _elsewhere(scope, receive, send)

    return app


def _agent(runs: server.Runs, work_s: float) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        attempt = attempt_of(scope.get("headers", ()))
        if not _is_post(scope, "/run") or attempt is None:
            await _elsewhere(scope, receive, send)
            return
        turns = int(str((await _body(receive)).get("turns", 1)))
        try:
            await send_answer(send, Answer(200, await _roll(runs, attempt, turns, work_s)))
        except server.ControlRefusal as refusal:
            error = {"code": refusal.code.value, "detail": refusal.detail}
            await send_answer(send, Answer(refusal.status, {"error": error}))

    return app


async def _roll(runs: server.Runs, attempt: AttemptId, turns: int, work_s: float) -> dict[str, object]:
    async with runs.begin(attempt) as execution:
        for turn in range(1, turns + 1):
            await asyncio.sleep(work_s)
            await execution.commit_boundary(turn_index=turn, agent_state={"turn": turn})
        result: dict[str, object] = {"id": f"result-{attempt.rollout_id}", "turns": turns}
        execution.finish(result)
    return result


def _tool(counters: _Counters, work_s: float) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        attempt = attempt_of(scope.get("headers", ()))
        path = scope.get("path", "")
        if attempt is None or not any(_is_post(scope, known) for known in ("/seed_session", "/append", "/verify")):
            await _elsewhere(scope, receive, send)
            return
        await _body(receive)
        if path == "/append":
            await asyncio.sleep(work_s)
        counters.values[attempt] = counters.values.get(attempt, -1) + 1
        await send_answer(send, Answer(200, {"value": counters.values[attempt]}))

    return app


def _is_post(scope: Scope, path: str) -> bool:
    return bool(scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == path)


async def _body(receive: Receive) -> Mapping[str, object]:
    message = await receive()
    content = message.get("body", b"")
    found: object = json.loads(content) if 0 < len(content) <= BODY_BYTES_MAX else {}
    return found if isinstance(found, dict) else {}


async def _elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        for done in ("lifespan.startup.complete", "lifespan.shutdown.complete"):
            await receive()
            await send({"type": done})
    else:
        await send_answer(send, Answer(404, {"detail": "Not Found"}))
