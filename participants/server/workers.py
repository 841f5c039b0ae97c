"""The workers of one model service, and what their coordinator tells them and hears of them (wire-protocol 5.4).

Each worker has an admission gate and a count of its own. The coordinator numbers what it tells; a worker does it, in
order, and acknowledges with the number. A worker that is gone, or does not acknowledge, may hold calls in flight and is
never counted as drained. Here all of them live in one process, and each can be told to be as a bad one is: to leave, to
come back, to fall silent, to be slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from quiesce.participants.capabilities import AdmissionState
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId, check_identity
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.policy_gate import PolicyGate
from quiesce.participants.server.worker import Order, Worker

__all__ = ["ACKNOWLEDGE_TIMEOUT_S", "WORKERS_MAX", "Workers"]

ACKNOWLEDGE_TIMEOUT_S: Final = 10.0
WORKERS_MAX: Final = 1024


class Workers:
    """The workers of one service, as their coordinator sees them. They are connected from the start.

    Args:
        names: their ids, or their number.
        acknowledge_timeout_s: how long the coordinator waits for acknowledgements.

    Raises:
        ConfigurationError: none, too many, or one named twice; InvalidIdentity: a name that may not be used.
    """

    def __init__(self, names: Sequence[str] | int, *, acknowledge_timeout_s: float = ACKNOWLEDGE_TIMEOUT_S) -> None:
        listed = [f"w{number}" for number in range(names)] if isinstance(names, int) else list(names)
        if not 1 <= len(listed) <= WORKERS_MAX or len(set(listed)) < len(listed):
            raise ConfigurationError(
                f"{len(listed)} workers, {len(set(listed))} of them by different names: give 1 to {WORKERS_MAX}, "
                "each its own name"
            )
        self.expected = len(listed)
        self.acknowledge_timeout_s = acknowledge_timeout_s
        self.closed = False
        self.number = 0
        self._gate_of: Callable[[], PolicyGate] | None = None
        self._watchers: list[asyncio.Future[None]] = []
        self._workers: dict[str, Worker] = {}
        for name in listed:
            self.register(name)

    def __getitem__(self, name: str) -> Worker:
        return self._workers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._workers

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    # ---- membership

    def register(self, name: str) -> Worker:
        """Connect a worker: one that has left, or a new one, which is then one too many.

        Raises:
            ControlRefusal: ``worker_registration_rejected``: admission is closed and its membership frozen. The worker
                closes itself (wire-protocol 5.4).
        """
        name = check_identity(name, field="worker")
        if name not in self._workers and len(self._workers) >= WORKERS_MAX:
            raise ConfigurationError(f"{WORKERS_MAX} workers are known already; worker {name!r} is one too many")
        worker = self._workers.setdefault(name, Worker(name, self._tell_watchers))
        if self._gate_of is not None and not worker.serves:
            worker.serve_at(self._gate_of())
        if self.closed:
            worker.gate.close()
            raise ControlRefusal(
                RefusalCode.WORKER_REGISTRATION_REJECTED, f"worker {name!r} came while the membership is frozen"
            )
        if not worker.connected:
            worker.connected = True
            worker.acknowledged = 0
            if self.number:
                worker.tell(self.number, PolicyGate.open)
        self._tell_watchers()
        return worker

    def mount(self, gate_of: Callable[[], PolicyGate]) -> None:
        """Give each worker a gate of its own."""
        if self._gate_of is not None:
            raise ConfigurationError("these workers have a coordinator already; give each coordinator its own")
        self._gate_of = gate_of
        for worker in self:
            worker.serve_at(gate_of())

    @property
    def live(self) -> tuple[Worker, ...]:
        """Those that are connected."""
        return tuple(worker for worker in self if worker.connected)

    @property
    def missing(self) -> int:
        """How many of the expected ones are not connected."""
        return max(0, self.expected - len(self.live))

    @property
    def are_connected(self) -> bool:
        return len(self.live) == self.expected

    @property
    def head_count(self) -> str:
        return f"expected {self.expected}, found {len(self.live)} connected workers"

    # ---- orders and acknowledgements

    def close(self) -> None:
        """Tell all of them to admit nothing new."""
        self.closed = True
        self._tell(PolicyGate.close)

    def open(self) -> int:
        """Tell all of them to admit again. Nobody knows yet whom that lets go, so the number is 0."""
        self.closed = False
        self._tell(PolicyGate.open)
        return 0

    def cut_off(self, attempt: AttemptId) -> None:
        """Tell all of them to cut off the calls of an attempt."""
        self._tell(lambda gate: gate.cut_off(attempt))

    def _tell(self, order: Order) -> None:
        self.number += 1
        for worker in self.live:
            worker.tell(self.number, order)

    @property
    def acknowledged(self) -> int:
        """How many of the connected ones have done the last order."""
        return sum(worker.acknowledged >= self.number for worker in self.live)

    async def settle(self, timeout_s: float) -> None:
        """Wait until every connected worker has done the last order and none is missing.

        Raises:
            ControlRefusal: ``missing_workers``: one is missing, or has not acknowledged in time.
        """
        await self._wait(lambda: self.acknowledged == len(self.live), timeout_s)
        if self.missing or self.acknowledged < len(self.live):
            raise ControlRefusal(
                RefusalCode.MISSING_WORKERS,
                f"{self.missing} of {self.expected} workers missing and {self.acknowledged}/{len(self.live)} live "
                "workers acknowledged; a missing worker may hold in-flight requests and cannot be counted as drained",
            )

    async def wait_drained(self, timeout_s: float) -> None:
        """Wait until all of them stand still, admission is opened, or the time is over; the caller looks which."""
        await self._wait(lambda: self.is_drained() or not self.closed, timeout_s)

    async def _wait(self, holds: Callable[[], bool], timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not holds() and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            try:
                await asyncio.wait({watcher}, timeout=left_s)
            finally:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

    def _tell_watchers(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    # ---- the door of the coordinator's fence, and what its status says

    def is_drained(self) -> bool:
        """Whether none is missing, all have acknowledged, and nothing is in flight at any of them."""
        return self.are_connected and self.acknowledged == self.expected and self.inflight == 0

    def owes_restore(self) -> bool:
        return False

    @property
    def inflight(self) -> int:
        """Calls in flight at the connected ones."""
        return sum(worker.inflight for worker in self.live)

    @property
    def waiting(self) -> int:
        """Calls that the connected ones keep waiting for resume."""
        return sum(worker.gate.held for worker in self.live)

    @property
    def state(self) -> AdmissionState:
        """``paused`` when all that were told to close stand still."""
        if not self.closed:
            return AdmissionState.ACCEPTING
        return AdmissionState.PAUSED if self.is_drained() else AdmissionState.DRAINING

    def counts(self) -> Mapping[str, int]:
        """Acknowledged and expected workers, as most replies have them."""
        return {"acknowledged": self.acknowledged, "expected": self.expected}
