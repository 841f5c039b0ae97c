"""The kit's stores as tests want them: the recorded set-up, a workload with state, and files that fail on demand."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.virtual_loop import VirtualClock

from quiesce.participants.identity import AttemptId
from quiesce.participants.server.execution import Execution
from quiesce.participants.server.ledger import ModelLedger
from quiesce.participants.server.lineage import LineageStore
from quiesce.participants.server.runs import Runs
from quiesce.participants.server.session import SessionHooks
from quiesce.participants.server.sessions import Sessions
from quiesce.participants.server.storage import FilePort, OsFiles

A0 = AttemptId("rollout-a", 0)
A1 = AttemptId("rollout-a", 1)
B0 = AttemptId("rollout-b", 0)
B1 = AttemptId("rollout-b", 1)

RECORDED_AT = 1767225600.0
FAR = 1_000_000.0
"""A deadline that does not come (seconds of the loop)."""


class TakenAt(VirtualClock):
    """A clock whose wall time stands still, so that files that name it can be compared byte for byte."""

    def __init__(self, now_ts: float) -> None:
        super().__init__()
        self._now_ts = now_ts

    def now_ts(self) -> float:
        return self._now_ts


@dataclass
class Counters:
    """A resource server's own state: one number a session. ``freed`` lists the sessions that it was told to free."""

    values: dict[AttemptId, int] = field(default_factory=dict)
    freed: list[AttemptId] = field(default_factory=list)

    def hooks(self) -> SessionHooks:
        return SessionHooks(export=self.export, restore=self.restore, retire=self.retire)

    def export(self, attempt: AttemptId) -> Mapping[str, object]:
        return {"value": self.values[attempt]}

    async def restore(self, attempt: AttemptId, state: Mapping[str, object]) -> None:
        await asyncio.sleep(0)
        value = state["value"]
        assert isinstance(value, int)
        self.values[attempt] = value

    def retire(self, attempt: AttemptId) -> None:
        self.freed.append(attempt)
        self.values.pop(attempt, None)


@dataclass
class Servers:
    """The stores of one deployment: a policy, an agent and a resource server with their recorded names."""

    ledger: ModelLedger
    runs: Runs
    sessions: Sessions
    counters: Counters
    clock: VirtualClock

    def store(self, name: str) -> ModelLedger | Runs | Sessions:
        """One of them, by the name of its component in the recordings or of its folder in an export."""
        stores: dict[str, ModelLedger | Runs | Sessions] = {
            "policy": self.ledger,
            "model-ledger": self.ledger,
            "agent": self.runs,
            "resources": self.sessions,
        }
        return stores[name]

    async def seed(self, attempt: AttemptId, *, mutations: int = 0) -> int:
        """A session with that many mutations; its revision."""
        revision = await self.post("/seed_session", attempt)
        for _ in range(mutations):
            revision = await self.post("/mutate", attempt)
        return revision

    async def post(self, route: str, attempt: AttemptId, *, status: int = 200) -> int:
        """One data call that ends with ``status``; the new revision, -1 where there is none."""
        ticket = await self.sessions.enter(route, attempt)
        try:
            if route == "/seed_session":
                self.counters.values.setdefault(attempt, 0)
            elif route == "/mutate" and status < 400:
                self.counters.values[attempt] += 1
            revision = self.sessions.settle(ticket, status)
        finally:
            self.sessions.leave(ticket)
        return -1 if revision is None else revision

    async def freeze_all(self) -> None:
        """Prepare the agent and the resource server as their control routes do."""
        self.runs.close()
        self.runs.request_park()
        assert await self.runs.wait_ready(FAR)
        self.sessions.close()
        await self.sessions.freeze(FAR)

    async def save(self, directory: Path, checkpoint_id: str = "ck-1") -> dict[str, dict[str, object]]:
        """Commit all three in the order of the wire; their replies."""
        agent = await self.runs.export(checkpoint_id=checkpoint_id, directory=directory)
        index = agent["continuation_index"]
        assert isinstance(index, dict)
        policy = await self.ledger.export(
            checkpoint_id=checkpoint_id, directory=directory, continuation_indexes=[index]
        )
        resources = await self.sessions.export(checkpoint_id=checkpoint_id, directory=directory)
        return {"agent": agent, "policy": policy, "resources": resources}

    async def load(self, directory: Path) -> dict[str, dict[str, object]]:
        """Restore all three in the order of the wire, and open them; their replies."""
        policy = await self.ledger.restore(directory=directory)
        self.runs.close()
        agent = await self.runs.restore(directory=directory)
        self.sessions.close()
        resources = await self.sessions.restore(directory=directory)
        self.sessions.open()
        self.runs.open()
        return {"agent": agent, "policy": policy, "resources": resources}


def fresh_servers(
    *, clock: VirtualClock | None = None, files: FilePort | None = None, lineage: LineageStore | None = None
) -> Servers:
    """Three servers that have just started."""
    ticking = VirtualClock() if clock is None else clock
    counters = Counters()
    return Servers(
        ledger=ModelLedger("policy", files=files, lineage=lineage),
        runs=Runs("agent", clock=ticking, files=files),
        sessions=Sessions("resources", hooks=counters.hooks(), clock=ticking, files=files),
        counters=counters,
        clock=ticking,
    )


def finished_call(ledger: ModelLedger, attempt: AttemptId, call_id: str = "call-1") -> None:
    """One finished model call as the recordings have it."""
    ledger.record_call(
        attempt,
        model_call_id=call_id,
        delta_len=3,
        staging_key=f"stage/{attempt.rollout_id}/{call_id}",
        weight_version=7,
    )


class Turns:
    """A rollout on the agent: it commits a boundary each time it is told to, and finishes when it is told to.

    ``execution`` is there once it has begun. ``outcome`` is what ``/run`` would answer.
    """

    execution: Execution

    def __init__(self, servers: Servers, attempt: AttemptId) -> None:
        self._servers = servers
        self._attempt = attempt
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self.outcome = asyncio.ensure_future(self._run())

    async def _run(self) -> object:
        self.execution = self._servers.runs.begin(self._attempt, agent_state={"step": 0})
        async with self.execution:
            while (order := await self._orders.get()) is not None:
                await self._turn(order)
            result = {"id": f"response-{self._attempt.rollout_id}"}
            self.execution.finish(result)
            return result

    async def _turn(self, order: Order) -> None:
        before = self.execution.boundary
        step = (0 if before is None else before.boundary_index) + 1
        if order.revision is not None:
            self.execution.note_revision("resources", order.revision)
        await self.execution.commit_boundary(
            output_items=order.items or [{"type": "message", "role": "assistant", "content": f"turn {step}"}],
            last_committed_model_call_id=order.call_id,
            agent_state=order.state or {"step": step},
            created_at=order.created_at,
        )

    async def turn(
        self,
        *,
        call_id: str | None = None,
        revision: int | None = None,
        created_at: float | None = None,
        state: Mapping[str, object] | None = None,
        items: Sequence[object] | None = None,
    ) -> None:
        """Let it take one turn and commit its boundary."""
        self._orders.put_nowait(Order(call_id, revision, created_at, state, items))
        await settle()

    async def finish(self) -> None:
        """Let it finish."""
        self._orders.put_nowait(None)
        await settle()


@dataclass(frozen=True)
class Order:
    """One turn: the model call that it committed, the session's revision after it, and what the boundary says."""

    call_id: str | None
    revision: int | None
    created_at: float | None
    state: Mapping[str, object] | None
    items: Sequence[object] | None


async def started(servers: Servers, attempt: AttemptId) -> Turns:
    """A rollout that runs."""
    rollout = Turns(servers, attempt)
    await settle()
    return rollout


async def settle(turns: int = 50) -> None:
    """Let every task go as far as it can without time passing."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def recorded_rollouts(servers: Servers) -> Turns:
    """The set-up of the recorded checkpoints; rollout-a, which runs.

    rollout-a and rollout-b each made one finished model call; rollout-a runs on the agent and has a resources session
    at revision 3. Asked to park, it commits its turn-1 boundary.
    """
    for attempt in (A0, B0):
        servers.ledger.note_call(attempt)
        finished_call(servers.ledger, attempt)
    assert await servers.seed(A0, mutations=2) == 3
    return await started(servers, A0)


async def prepare_recorded(servers: Servers, rollout: Turns) -> None:
    """Prepare as recorded: the rollout parks at its turn-1 boundary."""
    servers.runs.close()
    servers.runs.request_park()
    await rollout.turn(call_id="call-1", revision=3, created_at=RECORDED_AT)
    await servers.freeze_all()


def tree(directory: Path) -> dict[str, bytes]:
    """Every file below ``directory``, by relative POSIX name."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@dataclass
class FailingFiles:
    """The operating system's files, failing at the ``fail_at``-th operation that changes something (from 1).

    With ``lasting`` every later one fails too. ``operations`` lists what was asked for.
    """

    fail_at: int | None = None
    lasting: bool = True
    operations: list[str] = field(default_factory=list)
    real: OsFiles = field(default_factory=OsFiles)

    def make_directories(self, directory: Path) -> None:
        self._count("make_directories", directory)
        self.real.make_directories(directory)

    def write(self, path: Path, content: bytes) -> None:
        try:
            self._count("write", path)
        except OSError:
            # a full disk takes a part
            path.write_bytes(content[: len(content) // 2])
            raise
        self.real.write(path, content)

    def append(self, path: Path, content: bytes) -> None:
        self._count("append", path)
        self.real.append(path, content)

    def replace(self, source: Path, target: Path) -> None:
        self._count("replace", target)
        self.real.replace(source, target)

    def remove(self, path: Path) -> None:
        self._count("remove", path)
        self.real.remove(path)

    def sync_directory(self, directory: Path) -> None:
        self._count("sync_directory", directory)
        self.real.sync_directory(directory)

    def read(self, path: Path, *, bytes_max: int = 1 << 30) -> bytes:
        return self.real.read(path, bytes_max=bytes_max)

    def names(self, directory: Path) -> tuple[str, ...]:
        return self.real.names(directory)

    def _count(self, operation: str, path: Path) -> None:
        self.operations.append(f"{operation} {path.name}")
        number = len(self.operations)
        if self.fail_at is not None and (number == self.fail_at or (self.lasting and number > self.fail_at)):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
