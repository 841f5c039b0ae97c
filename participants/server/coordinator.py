"""What the control routes of a recorded coordinator do, and of the model server beside it (wire-protocol 2.2 to 2.8).

The coordinator speaks for its workers: it tells them to close or open and waits until each has acknowledged
(wire-protocol 4.4, 5.4). Its status names neither the id nor the calls. It neither commits nor restores (F23): the
model server beside it does, which is a process with a fence of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.tables.fence import FenceEvent, FencePhase
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.server.answers import Answer, ok
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.fence import Call, Ending, LiveFence
from quiesce.participants.server.operations import (
    Endpoint,
    attempt_in,
    body_digest,
    directory_in,
    typed,
    writing,
)
from quiesce.participants.server.ports import Clock, Fields, ModelStore
from quiesce.participants.server.worker import Worker
from quiesce.participants.server.workers import Workers

__all__ = ["CoordinatorControl", "ModelServerControl"]

LEAST_WAIT_S: Final = 0.001
"""What a pause gives the workers whose deadline is already past (2.2)."""
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class CoordinatorControl:
    """The operations of one coordinator."""

    fence: LiveFence
    workers: Workers
    store: ModelStore
    clock: Clock

    def endpoints(self) -> Mapping[str, Endpoint]:
        """One endpoint for each route name."""
        return {
            "pause": typed(wire.ControlEnvelope, self.pause),
            "model_status": typed(wire.CoordinatorStatusQuery, self.status),
            "model_resume": typed(wire.ControlEnvelope, self.resume),
            "abort_inflight": typed(wire.AbortInflightRequest, self.abort_inflight),
        }

    async def pause(self, asked: wire.ControlEnvelope) -> Answer:
        """Close every worker and wait until each says that it is closed; it does not wait for the drain (2.2)."""
        return await self.fence.call(_running(FenceEvent.PREPARE, asked, self._closed))

    async def _closed(self, deadline: float) -> Ending:
        timeout_s = min(self.workers.acknowledge_timeout_s, deadline - self.clock.monotonic())
        await self.workers.settle(max(LEAST_WAIT_S, timeout_s))
        drained = self.workers.is_drained()
        reply = {"state": self.workers.state.value, "workers": self.workers.counts(), **self._totals()}
        return Ending(FenceEvent.PREPARE_READY if drained else FenceEvent.PREPARE_DRAINING, ok(reply))

    async def status(self, asked: wire.CoordinatorStatusQuery) -> Answer:
        """Where the drain is; on request, wait for its end, for as long as is asked, whatever the deadline (2.4)."""
        call = Call(FenceEvent.STATUS, asked.checkpoint_id, act=lambda _: ok(self._status()))
        answer = await self.fence.call(call)
        waits = asked.wait_state == "paused" and asked.timeout_s > 0
        if answer.status != _OK or not waits or self.workers.is_drained():
            return answer
        await self.workers.wait_drained(asked.timeout_s)
        return await self.fence.call(call)

    async def resume(self, asked: wire.ControlEnvelope) -> Answer:
        """Open every worker, wait until each says that it is open, and use the id up (2.5, F19)."""
        return await self.fence.call(_running(FenceEvent.RESUME, asked, self._opened))

    async def _opened(self, _deadline: float) -> Ending:
        await self.workers.settle(self.workers.acknowledge_timeout_s)
        reply = {"state": "accepting", "workers": self.workers.counts(), "released_waiters": 0}
        return Ending(FenceEvent.RESUME_DONE, ok(reply))

    async def abort_inflight(self, asked: wire.AbortInflightRequest) -> Answer:
        """Fence an attempt, have every worker cut off its calls, and wait until each has (2.6)."""
        attempt = attempt_in(asked)

        async def cut_off(_deadline: float) -> Answer:
            self.store.fence(attempt)
            self.workers.cut_off(attempt)
            await self.workers.settle(self.workers.acknowledge_timeout_s)
            return ok({"state": self.workers.state.value, "inflight_total": self.workers.inflight})

        event = FenceEvent.ABORT_INFLIGHT
        key = (event.value, *attempt)
        return await self.fence.call(Call(event, asked.checkpoint_id, asked.deadline_ts, operation=key, later=cut_off))

    def _totals(self) -> Fields:
        inflight = self.workers.inflight
        return {
            "inflight_total": inflight,
            "response_inflight_total": inflight,
            "generation_pending_total": inflight,
            "waiters_total": self.workers.waiting,
        }

    def _status(self) -> Fields:
        return {
            "state": self.workers.state.value,
            "workers": {**self.workers.counts(), "live": len(self.workers.live)},
            "missing_workers": self.workers.missing,
            **self._totals(),
            "per_worker": {worker.name: _reported(worker) for worker in self.workers},
        }


def _reported(worker: Worker) -> Fields:
    return {
        "acked_seq": worker.acknowledged,
        "inflight": worker.inflight,
        "generation_pending": worker.inflight,
        "proof_error": None,
        "connected": worker.connected,
    }


def _running(event: FenceEvent, asked: wire.ControlEnvelope, run: Callable[[float], Awaitable[Ending]]) -> Call:
    return Call(event, asked.checkpoint_id, asked.deadline_ts, body_digest(asked), run=run)


@dataclass(frozen=True, slots=True)
class ModelServerControl:
    """Commit and restore of the model server beside a coordinator.

    ``coordinator`` is the fence of the coordinator, which it looks at and never touches.
    """

    fence: LiveFence
    coordinator: LiveFence
    workers: Workers
    store: ModelStore

    def endpoints(self) -> Mapping[str, Endpoint]:
        """One endpoint for each route name."""
        return {
            "model_commit": typed(wire.ModelCommitRequest, self.commit),
            "model_restore": typed(wire.ModelRestoreRequest, self.restore),
        }

    async def commit(self, asked: wire.ModelCommitRequest) -> Answer:
        """Export the lineage that the agents' continuation indexes name, while every worker stands still (2.7)."""
        directory = directory_in(asked.checkpoint_dir, RefusalCode.LEDGER_MISMATCH)
        indexes = [index.model_dump(mode="json") for index in asked.continuation_indexes]

        async def export() -> Fields:
            self._check_quiescent(asked.checkpoint_id)
            return await self.store.export(
                checkpoint_id=asked.checkpoint_id, directory=directory, continuation_indexes=indexes
            )

        return await self.fence.call(writing(FenceEvent.COMMIT, asked, export))

    async def restore(self, asked: wire.ModelRestoreRequest) -> Answer:
        """Install a saved ledger. It closes nobody: the coordinator's admission is not its own (2.8)."""
        directory = directory_in(asked.checkpoint_dir, RefusalCode.LEDGER_MISMATCH)
        return await self.fence.call(
            writing(FenceEvent.RESTORE, asked, lambda: self.store.restore(directory=directory))
        )

    def _check_quiescent(self, checkpoint_id: str) -> None:
        held = self.coordinator.state
        if held.active == checkpoint_id and held.phase is FencePhase.PREPARED and self.workers.is_drained():
            return
        raise ControlRefusal(
            RefusalCode.LEDGER_NOT_QUIESCENT,
            f"the workers do not stand still for checkpoint {checkpoint_id!r}: state {self.workers.state.value}, "
            f"phase {held.phase.value}, {self.workers.head_count}",
        )
