"""Servers of the kit whose work and whose operations end when a script says so, not when they are done.

Each participant of a counterexample is a real server: its routes, gate and fence are those that ship. Two things are
in the script's hand: one piece of work that is in flight (a model call, an execution without a boundary), and the end
of every operation that a fence starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, Final

from quiesce.fsm.fence import FenceState
from quiesce.fsm.tables.fence import FenceEvent, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.counterexample import Taking
from quiesce.fuzz.errors import MissingExtra
from quiesce.fuzz.kit import KIT_TOKEN
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.dialects.gym_a.routes import INSTANCE_HEADER
from quiesce.participants.identity import AttemptId

try:
    from quiesce.participants import server
    from quiesce.participants.server.answers import Answer, ASGIApp, Receive, Scope, Send, send_answer
    from quiesce.participants.server.control import MountedServer
    from quiesce.participants.server.errors import RefusalCode
    from quiesce.participants.server.fence import Call, Ending
except ModuleNotFoundError as error:
    raise MissingExtra("a replay on real servers", str(error.name)) from error

__all__ = ["Actor"]

_HEADERS: Final = ((b"x-nemo-gym-attempt-index", b"0"), (b"content-type", b"application/json"))
_FAILURES: Final = {
    Role.POLICY: RefusalCode.LEDGER_MISMATCH,
    Role.AUXILIARY: RefusalCode.LEDGER_MISMATCH,
    Role.AGENT: RefusalCode.AGENT_CHECKPOINT_ERROR,
    Role.RESOURCES: RefusalCode.RESOURCES_CHECKPOINT_ERROR,
}
_SLICE_S: Final = 6.0
"""Longer than any slice of a prepare: what waits for work that does not end has given up by then."""


class Actor:
    """One participant: a server, the work at it, and the operations that it runs."""

    def __init__(self, taking: Taking, clock: VirtualClock, *, restore_expected: bool = False) -> None:
        self.taking = taking
        self._clock = clock
        self._gates: dict[tuple[str, FenceEvent], asyncio.Future[bool]] = {}
        self._work_ends = asyncio.Event()
        self._asked_to_park = asyncio.Event()
        """Told to the execution when a prepare begins to wait for it: one between two boundaries comes to the next."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._attempts = 0
        self._holds = True
        self._runs: server.Runs | None = None
        self._workers: server.Workers | None = None
        self.model_server: MountedServer | None = None
        """What commits and restores for a coordinator (F23)."""
        self.app: MountedServer = self._mounted(restore_expected=restore_expected)
        self._take_over_operations()

    @property
    def fence(self) -> FenceState:
        """Where its fence stands."""
        return self.app.fence.state

    def let_operations_run(self) -> None:
        """Hold nothing back any more."""
        self._holds = False

    def as_served(self) -> ASGIApp:
        """The application as it is called: recorded servers do not name their process in their replies."""
        return self.app if self.taking.fence is FenceVariant.STRICT else _nameless(self.app)

    # the script's hand

    def begin_work(self) -> None:
        """Put one piece of work in flight, as it can be wherever a participant is open."""
        self._work_ends = asyncio.Event()
        self._attempts += 1
        attempt = AttemptId(f"r{self._attempts}", 0)
        if self._runs is not None:
            self._start(self._roll(self._runs, attempt, self._work_ends))
        elif self.taking.role is not Role.RESOURCES:
            self._start(self._ask_model(attempt))

    def end_work(self) -> None:
        """Let what is in flight come to its end, or to a boundary."""
        self._work_ends.set()

    def busy_worker_leaves(self) -> bool:
        """Let a worker that has something in flight lose its coordinator; False where there is none."""
        busy = next((worker for worker in self._workers or () if worker.inflight and worker.connected), None)
        if busy is not None:
            busy.leave()
        return busy is not None

    def worker_is_back(self) -> bool:
        """Let a worker that has left come again; False where it is not let in."""
        away = [worker.name for worker in self._workers or () if not worker.connected]
        try:
            return bool([self._workers.register(name) for name in away]) if self._workers is not None else False
        except server.ControlRefusal:
            return False

    def end_operation(self, id_: str, operation: FenceEvent, *, fails: bool) -> bool:
        """Let a running operation go on to its end, or fail; False when no such operation was begun.

        One that its server has stopped meanwhile, as a resume does, is over.
        """
        gate = self._gates.pop((id_, operation), None)
        if gate is None or (gate.done() and not gate.cancelled()):
            return False
        if not gate.done():
            gate.set_result(not fails)
        return True

    def runs_operation(self, id_: str, operation: FenceEvent) -> bool:
        """Whether its fence still runs the operation."""
        return self.fence.handler(id_, operation) is not None

    async def let_a_slice_pass(self) -> None:
        """Let so much time pass that a prepare which waits for work gives up."""
        await self._clock.sleep(_SLICE_S)

    async def leave(self) -> None:
        """End everything that still runs here."""
        self._work_ends.set()
        for gate in self._gates.values():
            if not gate.done():
                gate.set_result(False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # the server

    def _mounted(self, *, restore_expected: bool) -> MountedServer:
        taking, clock = self.taking, self._clock
        shared: dict[str, Any] = {"token": KIT_TOKEN, "clock": clock}
        match taking.role:
            case Role.POLICY:
                ledger = server.ModelLedger(taking.name)
                if taking.fence is FenceVariant.GYM_A_COORDINATOR:
                    self._workers = server.Workers(2, acknowledge_timeout_s=1.0)
                    pair = server.mount_coordinator(self._model, ledger=ledger, workers=self._workers, **shared)
                    self.model_server = pair.model_server
                    return pair.control
                return server.mount_policy(self._model, ledger=ledger, fence=taking.fence, **shared)
            case Role.AUXILIARY:
                return server.mount_auxiliary(self._model, name=taking.name, fence=taking.fence, **shared)
            case Role.AGENT:
                self._runs = server.Runs(taking.name, clock=clock, boundary_at_begin=False)
                return server.mount_agent(self._model, self._runs, fence=taking.fence, **shared)
            case Role.RESOURCES:
                return server.mount_resources(
                    self._model,
                    name=taking.name,
                    export=_nothing,
                    restore=_no_restore,
                    retire=_no_retire,
                    restore_expected=restore_expected,
                    fence=taking.fence,
                    **shared,
                )

    def _take_over_operations(self) -> None:
        """Every operation that the fence starts waits for the script before it does anything."""
        real = self.app.fence.call

        async def call(asked: Call) -> Answer:
            held = asked.run is not None and self._holds
            return await real(replace(asked, run=self._held(asked)) if held else asked)

        self.app.fence.call = call  # type: ignore[method-assign,assignment]  # the one place where a call reaches a fence

    def _held(self, asked: Call) -> Any:  # noqa: ANN401 - Call.run's own type, which is optional there
        real = asked.run
        assert real is not None  # noqa: S101 - it was looked at by whoever asks

        async def run(deadline: float) -> Ending:
            gate: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._gates[asked.checkpoint_id, asked.event] = gate
            if not await gate:
                raise server.ControlRefusal(_failure(self.taking.role, asked.event), "it fails, as the script has it")
            self._asked_to_park.set()
            return await real(deadline)

        return run

    # the work

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _model(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await receive()
            await self._work_ends.wait()
            await send_answer(send, Answer(200, {"output_text": "done"}))

    async def _ask_model(self, attempt: AttemptId) -> None:
        headers = [(b"x-nemo-gym-rollout-id", attempt.rollout_id.encode()), *_HEADERS]
        scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": headers, "query_string": b""}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(_message: Mapping[str, Any]) -> None:
            return None

        await self.app(scope, receive, send)

    async def _roll(self, runs: server.Runs, attempt: AttemptId, ends: asyncio.Event) -> None:
        async with runs.begin(attempt) as execution:
            await ends.wait()
            if self.taking.keeps_results:
                execution.finish({"id": f"result-{attempt.rollout_id}"})
                return
            while True:
                await execution.commit_boundary(turn_index=1, agent_state={"turn": 1})
                await self._asked_to_park.wait()
                self._asked_to_park.clear()


def _failure(role: Role, event: FenceEvent) -> RefusalCode:
    """The code with which an operation of a role fails."""
    if role is Role.POLICY and event in {FenceEvent.PREPARE, FenceEvent.RESUME}:
        return RefusalCode.MISSING_WORKERS
    return _FAILURES[role]


def _nameless(app: ASGIApp) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: MutableMapping[str, Any]) -> None:
            named = INSTANCE_HEADER.encode()
            message["headers"] = [pair for pair in message.get("headers", ()) if pair[0].lower() != named]
            await send(message)

        await app(scope, receive, told)

    return served


async def _nothing(_attempt: AttemptId) -> Mapping[str, object]:
    return {}


async def _no_restore(_attempt: AttemptId, _state: Mapping[str, object]) -> None:
    return None


async def _no_retire(_attempt: AttemptId) -> None:
    return None
