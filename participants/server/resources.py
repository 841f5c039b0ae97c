"""What the control routes of a resource server do (wire-protocol 2.17 to 2.19, 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.tables.fence import FenceEvent
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.server.answers import Answer, ok
from quiesce.participants.server.errors import RefusalCode
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
from quiesce.participants.server.ports import ResourceSessions

__all__ = ["ResourcesControl"]

_CODE: Final = RefusalCode.RESOURCES_CHECKPOINT_ERROR


@dataclass(frozen=True, slots=True)
class ResourcesControl:
    """The operations of one resource server."""

    fence: LiveFence
    sessions: ResourceSessions

    def endpoints(self) -> Mapping[str, Endpoint]:
        """One endpoint for each route name."""
        return {
            "resources_prepare": typed(wire.ControlEnvelope, self.prepare),
            "resources_status": typed(wire.ResourcesStatusQuery, self.status),
            "resources_commit": typed(wire.CommitRequest, self.commit),
            "resources_restore": typed(wire.RestoreRequest, self.restore),
            "resources_resume": typed(wire.ControlEnvelope, self.resume),
            "resources_retire": typed(wire.RetireRequest, self.retire),
        }

    async def prepare(self, asked: wire.ControlEnvelope) -> Answer:
        """Take the state of every session (2.17)."""
        event = FenceEvent.PREPARE
        call = Call(event, asked.checkpoint_id, asked.deadline_ts, body_digest(asked), run=self._freeze)
        return await self.fence.call(call)

    async def _freeze(self, deadline: float) -> Ending:
        return Ending(FenceEvent.PREPARE_READY, ok(await self.sessions.freeze(deadline)))

    async def status(self, asked: wire.ResourcesStatusQuery) -> Answer:
        """Where every session stands (2.18)."""

        def act(_let_go: int) -> Answer:
            return ok({"checkpoint_id": asked.checkpoint_id, **self.sessions.status()})

        return await self.fence.call(Call(FenceEvent.STATUS, asked.checkpoint_id, asked.deadline_ts, act=act))

    async def commit(self, asked: wire.CommitRequest) -> Answer:
        """Write what prepare took."""
        directory = directory_in(asked.checkpoint_dir, _CODE)
        call = writing(
            FenceEvent.COMMIT,
            asked,
            lambda: self.sessions.export(checkpoint_id=asked.checkpoint_id, directory=directory),
        )
        return await self.fence.call(call)

    async def restore(self, asked: wire.RestoreRequest) -> Answer:
        """Install saved sessions."""
        directory = directory_in(asked.checkpoint_dir, _CODE)
        return await self.fence.call(
            writing(FenceEvent.RESTORE, asked, lambda: self.sessions.restore(directory=directory))
        )

    async def resume(self, asked: wire.ControlEnvelope) -> Answer:
        """Open admission, drop what is held, use the id up."""
        return await self.fence.call(fenced(FenceEvent.RESUME, asked, lambda _: ok({"state": "accepting"})))

    async def retire(self, asked: wire.RetireRequest) -> Answer:
        """Fence an attempt and free its session; beside the fence, and it may wait for the session."""

        async def later(deadline: float) -> Answer:
            return ok(await self.sessions.retire(attempt_in(asked), deadline=deadline))

        return await self.fence.call(Call(FenceEvent.RETIRE, asked.checkpoint_id, asked.deadline_ts, later=later))
