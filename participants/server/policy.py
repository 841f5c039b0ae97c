"""What the control routes of a model server do: a policy's, and an auxiliary's refusals (wire-protocol 2.2 to 2.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from quiesce.fsm.tables.fence import FenceEvent
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.server.answers import Answer, ok
from quiesce.participants.server.errors import RefusalCode
from quiesce.participants.server.fence import Call, LiveFence
from quiesce.participants.server.operations import (
    Endpoint,
    attempt_in,
    directory_in,
    fenced,
    typed,
    writing,
)
from quiesce.participants.server.policy_gate import PolicyGate
from quiesce.participants.server.ports import Clock, ModelStore

__all__ = ["AlwaysOpen", "PolicyControl", "auxiliary_endpoints"]

_WORKERS: Final = {"acknowledged": 1, "expected": 1}


@dataclass(frozen=True, slots=True)
class PolicyControl:
    """The operations of one policy server."""

    fence: LiveFence
    gate: PolicyGate
    store: ModelStore
    clock: Clock

    def endpoints(self) -> Mapping[str, Endpoint]:
        """One endpoint for each route name."""
        return {
            "pause": typed(wire.ControlEnvelope, self.pause),
            "model_status": typed(wire.StatusQuery, self.status),
            "model_resume": typed(wire.ControlEnvelope, self.resume),
            "abort_inflight": typed(wire.AbortInflightRequest, self.abort_inflight),
            "model_commit": typed(wire.ModelCommitRequest, self.commit),
            "model_restore": typed(wire.ModelRestoreRequest, self.restore),
        }

    async def pause(self, asked: wire.ControlEnvelope) -> Answer:
        """Close admission and say how far the drain is; it does not wait (2.2)."""

        def act(_let_go: int) -> Answer:
            return ok({"state": self.gate.state.value, "workers": _WORKERS, **self._totals()})

        return await self.fence.call(fenced(FenceEvent.PREPARE, asked, act))

    async def status(self, asked: wire.StatusQuery) -> Answer:
        """Where the drain is; on request, wait for its end, for at most what is left of the deadline (2.3, 5.2)."""
        call = Call(FenceEvent.STATUS, asked.checkpoint_id, asked.deadline_ts, act=lambda _: self._status(asked))
        answer = await self.fence.call(call)
        patience_s = min(asked.timeout_s, asked.deadline_ts - self.clock.now_ts())
        if answer.status != 200 or asked.wait_state is None or patience_s <= 0 or self.gate.is_drained():  # noqa: PLR2004 - OK
            return answer
        await self.gate.wait_drained(patience_s)
        return await self.fence.call(call)

    async def resume(self, asked: wire.ControlEnvelope) -> Answer:
        """Open admission and use the id up; completion, abort and rollback alike (2.5)."""

        def act(let_go: int) -> Answer:
            return ok({"state": "accepting", "workers": _WORKERS, "released_waiters": let_go})

        return await self.fence.call(fenced(FenceEvent.RESUME, asked, act))

    async def abort_inflight(self, asked: wire.AbortInflightRequest) -> Answer:
        """Fence an attempt and cut off its calls (2.6)."""
        attempt = attempt_in(asked)

        def act(_let_go: int) -> Answer:
            aborted = self.gate.cut_off(attempt)
            totals = {"aborted_inflight": aborted, "inflight_total": self._totals()["inflight_total"]}
            return ok({"state": self.gate.state.value, **totals})

        event = FenceEvent.ABORT_INFLIGHT
        key = (event.value, *attempt)
        return await self.fence.call(Call(event, asked.checkpoint_id, asked.deadline_ts, operation=key, act=act))

    async def commit(self, asked: wire.ModelCommitRequest) -> Answer:
        """Export the lineage that the agents' continuation indexes name (2.7)."""
        directory = directory_in(asked.checkpoint_dir, RefusalCode.LEDGER_MISMATCH)
        indexes = [index.model_dump(mode="json") for index in asked.continuation_indexes]
        call = writing(
            FenceEvent.COMMIT,
            asked,
            lambda: self.store.export(
                checkpoint_id=asked.checkpoint_id, directory=directory, continuation_indexes=indexes
            ),
        )
        return await self.fence.call(call)

    async def restore(self, asked: wire.ModelRestoreRequest) -> Answer:
        """Install a saved ledger (2.8)."""
        directory = directory_in(asked.checkpoint_dir, RefusalCode.LEDGER_MISMATCH)
        return await self.fence.call(
            writing(FenceEvent.RESTORE, asked, lambda: self.store.restore(directory=directory))
        )

    def _totals(self) -> dict[str, int]:
        inflight = len(self.gate.inflight())
        return {
            "inflight_total": inflight,
            "response_inflight_total": inflight,
            "generation_pending_total": inflight,
            "waiters_total": self.gate.held,
        }

    def _status(self, asked: wire.StatusQuery) -> Answer:
        calls, state = self.gate.inflight(), self.gate.state.value
        return ok(
            {
                "checkpoint_id": asked.checkpoint_id,
                "state": state,
                "per_worker": {"0": {"state": state, "inflight": len(calls)}},
                **self._totals(),
                "inflight": calls,
                "tombstones": [attempt._asdict() for attempt in self.store.tombstones()],
            }
        )


class AlwaysOpen:
    """The door of an auxiliary server: it serves during the whole checkpoint."""

    def close(self) -> None:
        """Never asked for: no row of an auxiliary's table closes anything."""

    def open(self) -> int:
        return 0

    def is_drained(self) -> bool:
        return True

    def owes_restore(self) -> bool:
        return False


def auxiliary_endpoints(fence: LiveFence) -> Mapping[str, Endpoint]:
    """The routes of an auxiliary model: the table refuses each of them."""
    events = {
        "pause": FenceEvent.PREPARE,
        "model_status": FenceEvent.STATUS,
        "model_resume": FenceEvent.RESUME,
        "abort_inflight": FenceEvent.ABORT_INFLIGHT,
        "model_commit": FenceEvent.COMMIT,
        "model_restore": FenceEvent.RESTORE,
    }

    def refusing(event: FenceEvent) -> Endpoint:
        async def endpoint(asked: BaseModel) -> Answer:
            if not isinstance(asked, wire.ControlEnvelope | wire.StatusQuery):
                raise TypeError(f"the route validated a {type(asked).__name__}")
            return await fence.call(Call(event, asked.checkpoint_id, asked.deadline_ts))

        return endpoint

    return {name: refusing(event) for name, event in events.items()}
