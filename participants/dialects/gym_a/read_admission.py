"""Pause and status of a policy: whether admission is closed, drained and acknowledged (wire-protocol 5.3).

A policy is ready when its state is ``paused``, nothing is in flight and every configured worker acknowledged.
Generation cuts, which let a later server pause with calls in flight, are not accepted as ready.
"""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Outcome
from quiesce.participants.capabilities import AdmissionState
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.unbelievable import Unbelievable, require_equal
from quiesce.participants.replies import DrainProgress, InflightCall

__all__ = ["read_pause", "read_single_status", "read_worker_status"]


def read_pause(spec: CallSpec, reply: BaseModel) -> Reading:
    """CLOSE of a policy: PAUSED or DRAINING. A repeated pause may say ``draining`` after the drain has ended."""
    pause = cast("wire.PauseReply", reply)
    acknowledged, expected = _counted(spec, pause.workers)
    progress = DrainProgress(
        state=pause.state.value,
        inflight_total=pause.inflight_total,
        workers_acknowledged=acknowledged,
        workers_expected=expected,
    )
    return _judged(pause.state, progress, pause.generation_pending_total)


def read_single_status(spec: CallSpec, reply: BaseModel) -> Reading:
    """AWAIT_CUT of a single-worker policy; the acknowledgements are the workers that it lists."""
    status = cast("wire.SingleWorkerStatus", reply)
    require_equal("checkpoint_id", spec.checkpoint_id, status.checkpoint_id)
    progress = DrainProgress(
        state=status.state.value,
        inflight_total=max(status.inflight_total, sum(worker.inflight for worker in status.per_worker.values())),
        inflight=tuple(
            InflightCall(call.rollout_id, call.attempt_index, call.plane, call.age_seconds) for call in status.inflight
        ),
        workers_acknowledged=sum(worker.state is not AdmissionState.ACCEPTING for worker in status.per_worker.values()),
        workers_expected=_declared_workers(spec, 1),
    )
    return _judged(status.state, progress, status.generation_pending_total)


def read_worker_status(spec: CallSpec, reply: BaseModel) -> Reading:
    """AWAIT_CUT of a policy behind a coordinator; this shape names neither the id nor the calls."""
    status = cast("wire.CoordinatorStatus", reply)
    acknowledged, expected = _counted(spec, status.workers)
    progress = DrainProgress(
        state=status.state.value,
        inflight_total=max(status.inflight_total, sum(worker.inflight for worker in status.per_worker.values())),
        workers_acknowledged=acknowledged,
        workers_expected=expected,
        workers_missing=status.missing_workers,
    )
    return _judged(status.state, progress, status.generation_pending_total)


def _declared_workers(spec: CallSpec, otherwise: int) -> int:
    return otherwise if spec.expected is None else spec.expected.declaration.num_workers


def _counted(spec: CallSpec, workers: wire.WorkerCounts | None) -> tuple[int, int]:
    """Acknowledged and expected. A server that says nothing has one worker, or no acknowledgement (F-10)."""
    if workers is None:
        return (0 if spec.coordinator else 1), _declared_workers(spec, 1)
    expected = max(workers.expected, _declared_workers(spec, workers.expected))
    if workers.acknowledged > expected:
        raise Unbelievable(f"{workers.acknowledged} workers acknowledged, but only {expected} are expected")
    return workers.acknowledged, expected


def _judged(state: AdmissionState, progress: DrainProgress, generation_pending: int | None) -> Reading:
    if state is AdmissionState.ACCEPTING:
        raise Unbelievable("admission is open although it was closed under this id", payload=progress)
    drained = (
        state is AdmissionState.PAUSED
        and progress.inflight_total == 0
        and not generation_pending
        and progress.workers_missing == 0
        and progress.workers_acknowledged == progress.workers_expected
    )
    return Reading(Outcome.PAUSED if drained else Outcome.DRAINING, progress)
