"""What the control routes of an agent server do (wire-protocol 2.9 to 2.16, 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.tables.fence import FenceEvent
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.server.answers import Answer, ok, refused
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.fence import Call, Ending, LiveFence
from quiesce.participants.server.operations import (
    Endpoint,
    attempt_in,
    body_digest,
    directory_in,
    fenced,
    typed,
    writing,
)
from quiesce.participants.server.ports import AgentRuns, Clock

__all__ = ["AgentControl"]

RECORDED_LOOK_S: Final = 0.05
_CODE: Final = RefusalCode.AGENT_CHECKPOINT_ERROR


@dataclass(frozen=True, slots=True)
class AgentControl:
    """The operations of one agent server."""

    fence: LiveFence
    runs: AgentRuns
    clock: Clock

    def endpoints(self) -> Mapping[str, Endpoint]:
        """One endpoint for each route name."""
        return {
            "agent_prepare": typed(wire.ControlEnvelope, self.prepare),
            "agent_status": typed(wire.IdQuery, self.status),
            "agent_commit": typed(wire.CommitRequest, self.commit),
            "agent_restore": typed(wire.RestoreRequest, self.restore),
            "agent_resume": typed(wire.ControlEnvelope, self.resume),
            "agent_retire": typed(wire.RetireRequest, self.retire),
            "acknowledge": typed(wire.CompletionReceipt, self.acknowledge),
            "acknowledge_completed": typed(wire.AcknowledgeCompletedRequest, self.acknowledge_completed),
            "discard": typed(wire.DiscardRequest, self.discard),
        }

    async def prepare(self, asked: wire.ControlEnvelope) -> Answer:
        """Park what runs; ready, or 409 ``agent_prepare_incomplete`` (2.9)."""
        event = FenceEvent.PREPARE
        call = Call(event, asked.checkpoint_id, asked.deadline_ts, body_digest(asked), run=self._park)
        return await self.fence.call(call)

    async def _park(self, deadline: float) -> Ending:
        self.runs.request_park()
        ready = await self._wait_ready(deadline)
        status = self.runs.status()
        if ready:
            return Ending(FenceEvent.PREPARE_READY, ok(status))
        if not self.fence.polls_prepare:
            # a recorded agent sets the executions running again that it had asked to park (4.5)
            self.runs.cancel_park()
        counts = ", ".join(
            f"{name}={status[name]}" for name in ("running", "parked_without_boundary", "completed_unacknowledged")
        )
        incomplete = ControlRefusal(RefusalCode.AGENT_PREPARE_INCOMPLETE, f"agent prepare is incomplete: {counts}")
        return Ending(FenceEvent.PREPARE_INCOMPLETE, refused(incomplete))

    async def _wait_ready(self, deadline: float) -> bool:
        if self.fence.polls_prepare:
            return await self.runs.wait_ready(deadline)
        # a recorded agent looks now and then, so that one prepare can end after another id's has (F14)
        while not self.runs.status()["ready_to_commit"]:
            if not await self.runs.wait_ready(deadline):
                return False
            await self.clock.sleep(RECORDED_LOOK_S)
        return True

    async def status(self, asked: wire.IdQuery) -> Answer:
        """Where every execution stands; also while idle, for an id that is not used up (2.10)."""

        def act(_let_go: int) -> Answer:
            return ok({"checkpoint_id": asked.checkpoint_id, **self.runs.status()})

        return await self.fence.call(Call(FenceEvent.STATUS, asked.checkpoint_id, act=act))

    async def commit(self, asked: wire.CommitRequest) -> Answer:
        """Export the boundaries of the parked executions (2.11)."""
        directory = directory_in(asked.checkpoint_dir, _CODE)
        call = writing(
            FenceEvent.COMMIT,
            asked,
            lambda: self.runs.export(checkpoint_id=asked.checkpoint_id, directory=directory),
        )
        return await self.fence.call(call)

    async def restore(self, asked: wire.RestoreRequest) -> Answer:
        """Install saved boundaries (2.12)."""
        directory = directory_in(asked.checkpoint_dir, _CODE)
        return await self.fence.call(writing(FenceEvent.RESTORE, asked, lambda: self.runs.restore(directory=directory)))

    async def resume(self, asked: wire.ControlEnvelope) -> Answer:
        """Open admission, let the parked executions go, use the id up (2.13)."""

        def act(let_go: int) -> Answer:
            return ok({"state": "accepting", "released": let_go})

        return await self.fence.call(fenced(FenceEvent.RESUME, asked, act))

    async def retire(self, asked: wire.RetireRequest) -> Answer:
        """Cancel and fence an attempt; beside the fence, also while a prepare waits (2.14)."""

        def act(_let_go: int) -> Answer:
            return ok(self.runs.retire(attempt_in(asked)))

        return await self.fence.call(fenced(FenceEvent.RETIRE, asked, act))

    async def discard(self, asked: wire.DiscardRequest) -> Answer:
        """Drop a restored continuation that the trainer does not want (2.16)."""

        def act(_let_go: int) -> Answer:
            return ok({"discarded": self.runs.discard(attempt_in(asked))})

        return await self.fence.call(fenced(FenceEvent.DISCARD, asked, act))

    async def acknowledge(self, asked: wire.CompletionReceipt) -> Answer:
        """Let go of one finished result; fenced by no checkpoint id (2.15)."""
        (new,) = self.runs.acknowledge([asked.model_dump()])
        return ok({"acknowledged": new, "idempotent": not new})

    async def acknowledge_completed(self, asked: wire.AcknowledgeCompletedRequest) -> Answer:
        """Let go of several finished results: all or none (2.15)."""
        receipts = [receipt.model_dump() for receipt in asked.executions]
        self.runs.acknowledge(receipts)
        return ok({"acknowledged": receipts})
