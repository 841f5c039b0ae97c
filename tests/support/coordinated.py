"""A model service of two workers behind a recorded coordinator, around the small applications of ``support.kit``."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.asgi import Caller, Json, calling
from support.kit import CONTROL, TOKEN, Work, identity
from support.virtual_loop import VirtualClock

from quiesce.participants.identity import AttemptId
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.ledger import ModelLedger
from quiesce.participants.server.mount import mount_coordinator
from quiesce.participants.server.policy_gate import WhenClosed
from quiesce.participants.server.workers import Workers


@dataclass
class CoordinatedKit:
    """Two workers ``w0`` and ``w1``, their coordinator, and the model server beside it."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    token: str | None = TOKEN
    acknowledge_timeout_s: float = 0.4
    when_closed: WhenClosed = "refuse"
    work: Work = field(default_factory=Work)

    def __post_init__(self) -> None:
        self.ledger = ModelLedger("policy")
        self.workers = Workers(2, acknowledge_timeout_s=self.acknowledge_timeout_s)
        self.control, self.model_server = mount_coordinator(
            self.work.model_app(),
            ledger=self.ledger,
            workers=self.workers,
            token=self.token,
            when_closed=self.when_closed,
            clock=self.clock,
        )

    def server(self, component: str) -> MountedServer:
        """The server by its name in the recordings."""
        return {"coordinator": self.control}[component]

    def deadline(self, seconds: float) -> float:
        return self.clock.now_ts() + seconds

    def bearer(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def sending(
        self, path: str, id_: str = "x", *, in_s: float = 30.0, at: MountedServer | None = None, **members: Json
    ) -> Caller:
        """A control POST to the coordinator (or to ``at``) on its way."""
        body = {"checkpoint_id": id_, "deadline_ts": self.deadline(in_s), **members}
        return calling(at or self.control, "POST", CONTROL + path, json_body=body, headers=self.bearer())

    async def post(
        self, path: str, id_: str = "x", *, in_s: float = 30.0, at: MountedServer | None = None, **members: Json
    ) -> Caller:
        """The same with its reply."""
        return await self.sending(path, id_, in_s=in_s, at=at, **members).done()

    async def pause(self, id_: str = "x", *, in_s: float = 30.0) -> Caller:
        return await self.post("/model-admission/pause", id_, in_s=in_s)

    async def resume(self, id_: str = "x") -> Caller:
        return await self.post("/model-admission/resume", id_)

    def asking(self, id_: str = "x", **query: object) -> Caller:
        """A status call on its way."""
        path = CONTROL + "/model-admission/status"
        return calling(self.control, "GET", path, query={"checkpoint_id": id_, **query}, headers=self.bearer())

    async def status(self, id_: str = "x", **query: object) -> Caller:
        """The same with its reply."""
        return await self.asking(id_, **query).done()

    def work_call(self, worker: str, attempt: AttemptId | None = None) -> Caller:
        """A model call at one worker, on its way."""
        named = {} if attempt is None else identity(attempt)
        return calling(self.workers[worker].gate, "POST", "/v1/responses", json_body={}, headers=named)

    def where(self) -> tuple[str, object, list[bool]]:
        """Phase and active id of the coordinator's fence, and which workers' gates are closed."""
        state = self.control.fence.state
        return state.phase.value, state.active, [worker.gate.closed for worker in self.workers]
