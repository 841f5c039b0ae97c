"""Whether a successful reply tells the truth: its counts agree, and they agree with what is known from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pydantic import BaseModel

from quiesce.participants.capabilities import AdmissionState
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.identity import AttemptId

__all__ = ["Broken", "Standing", "untruths"]

_OVER: Final = frozenset({"completed", "retired"})


class Broken(NamedTuple):
    """A rule that a reply breaks: which, what was expected, what was found."""

    rule_id: str
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known from outside at the moment of a reply.

    Attributes:
        served: attempts of ours that are surely being served: model calls, executions.
        drained: whether nothing is in flight; None: not known.
        alone: whether all work is ours.
        closed: every verdict that "admission is closed" can have.
        polled: whether an incomplete prepare surely holds an agent.
        aborted: attempts that were fenced by abort_inflight.
        sessions: attempts that surely have a session.
        unacknowledged: attempts whose result is surely waiting to be acknowledged.
        cut: the reply proves that the live calls are kept durably, so that it may be paused with calls in flight.
    """

    served: Sequence[AttemptId] = ()
    drained: bool | None = None
    alone: bool = True
    closed: frozenset[bool] = frozenset({False, True})
    polled: bool = False
    aborted: Sequence[AttemptId] = ()
    sessions: Sequence[AttemptId] = ()
    unacknowledged: Sequence[AttemptId] = ()
    cut: bool = False


def untruths(reply: BaseModel, standing: Standing) -> Iterator[Broken]:
    """Everything in a reply that is not so."""
    for model, check in _CHECKS.items():
        if isinstance(reply, model):
            yield from check(reply, standing)


# model servers -----------------------------------------------------------------------------------------------------


def _of_pause(reply: wire.PauseReply, standing: Standing) -> Iterator[Broken]:
    yield from _totals(reply.state, reply.inflight_total, standing)
    if reply.workers is not None and reply.workers.acknowledged > reply.workers.expected:
        yield Broken("truth.counts", "acknowledged <= expected", str(reply.workers))
    yield from _state(reply.state, standing)


def _of_status(reply: wire.SingleWorkerStatus, standing: Standing) -> Iterator[Broken]:
    yield from _totals(reply.state, reply.inflight_total, standing)
    if len(reply.inflight) != reply.inflight_total:
        yield Broken("truth.counts", f"{reply.inflight_total} entries in inflight", str(len(reply.inflight)))
    workers = sum(worker.inflight for worker in reply.per_worker.values())
    if workers != reply.inflight_total:
        yield Broken("truth.counts", f"{reply.inflight_total} in flight over all workers", str(workers))
    listed = {(entry.rollout_id, entry.attempt_index) for entry in reply.inflight}
    for attempt in standing.served:
        if attempt not in listed:
            yield Broken("truth.in-flight", f"an entry for {attempt} in inflight", str(sorted(map(str, listed))))
    yield from _state(reply.state, standing)
    tombstones = {(entry.rollout_id, entry.attempt_index) for entry in reply.tombstones}
    for attempt in standing.aborted:
        if attempt not in tombstones:
            yield Broken("truth.tombstones", f"a tombstone of {attempt}", f"{len(tombstones)} others")


def _of_workers(reply: wire.CoordinatorStatus, standing: Standing) -> Iterator[Broken]:
    yield from _totals(reply.state, reply.inflight_total, standing)
    workers = reply.workers
    if workers is not None and reply.missing_workers != workers.expected - workers.live:
        yield Broken("truth.counts", f"missing_workers {workers.expected - workers.live}", str(reply.missing_workers))
    yield from _state(reply.state, standing)


def _of_abort(reply: wire.AbortInflightReply, standing: Standing) -> Iterator[Broken]:
    yield from _state(reply.state, standing)


def _of_resume(reply: wire.ResumeReply, _standing: Standing) -> Iterator[Broken]:
    if reply.state is not AdmissionState.ACCEPTING:
        yield Broken("truth.admission", "state accepting", reply.state.value)


def _totals(state: AdmissionState, total: int, standing: Standing) -> Iterator[Broken]:
    if state is AdmissionState.PAUSED and total and not standing.cut:
        yield Broken("truth.counts", "nothing in flight while paused", f"{total} in flight")
    if state is AdmissionState.DRAINING and not total:
        yield Broken("truth.counts", "something in flight while draining", "0 in flight")
    if standing.served and (total < len(standing.served) or (state is AdmissionState.PAUSED and not standing.cut)):
        yield Broken(
            "truth.in-flight", f"draining, at least {len(standing.served)} in flight", f"{state.value}, {total}"
        )
    if standing.drained is True and standing.alone and total:
        yield Broken("truth.in-flight", "nothing in flight", f"{state.value}, {total}")


def _state(state: AdmissionState, standing: Standing) -> Iterator[Broken]:
    shown = state is not AdmissionState.ACCEPTING
    if shown not in standing.closed:
        wanted = "draining or paused" if standing.closed == frozenset({True}) else "accepting"
        yield Broken("truth.admission", f"state {wanted}", state.value)


# agents ------------------------------------------------------------------------------------------------------------


def _of_agent(reply: wire.AgentPrepareReply, standing: Standing) -> Iterator[Broken]:
    yield from _agent_counts(reply)
    if not isinstance(reply, wire.AgentStatusReply) and not reply.ready_to_commit:
        yield Broken("agent.ready", "200 with ready_to_commit true", "200 with ready_to_commit false")
    executions = {(execution.rollout_id, execution.attempt_index): execution for execution in reply.executions}
    for attempt in standing.served:
        execution = executions.get(attempt)
        if execution is None:
            yield Broken("truth.in-flight", f"{attempt} among the executions", f"{len(executions)} others")
            continue
        if standing.polled and execution.state == "running":
            yield Broken("agent.park-kept", "park_requested or parked between two polls", execution.state)
        if execution.state not in _OVER and execution.boundary_index is None:
            yield Broken("agent.boundary", "a boundary_index", "null")
    if reply.completed_unacknowledged < len(standing.unacknowledged):
        wanted = f"at least {len(standing.unacknowledged)} results unacknowledged"
        yield Broken("agent.acknowledged", wanted, str(reply.completed_unacknowledged))
    if (reply.state != "accepting") not in standing.closed:
        wanted = "preparing" if standing.closed == frozenset({True}) else "accepting"
        yield Broken("truth.admission", f"state {wanted}", reply.state)


def _agent_counts(reply: wire.AgentPrepareReply) -> Iterator[Broken]:
    parked = reply.parked_with_boundary + reply.parked_without_boundary
    if reply.parked != parked:
        yield Broken("truth.counts", f"parked {parked}", str(reply.parked))
    blocked = reply.running + reply.parked_without_boundary + reply.completed_unacknowledged
    if reply.ready_to_commit is not (blocked == 0):
        yield Broken("truth.counts", f"ready_to_commit {blocked == 0}", str(reply.ready_to_commit))
    if reply.active > len(reply.executions):
        yield Broken("truth.counts", f"at most {len(reply.executions)} active", str(reply.active))


# resource servers --------------------------------------------------------------------------------------------------


def _of_sessions(reply: wire.ResourcesPrepareReply, standing: Standing) -> Iterator[Broken]:
    if reply.inventory is not None and len(reply.inventory) != reply.sessions:
        yield Broken("truth.counts", f"{reply.sessions} entries in the inventory", str(len(reply.inventory)))
    yield from _sessions(reply.sessions, standing)


def _of_resources_status(reply: wire.ResourcesStatusReply, standing: Standing) -> Iterator[Broken]:
    if len(reply.per_session) != reply.sessions:
        yield Broken("truth.counts", f"{reply.sessions} entries in per_session", str(len(reply.per_session)))
    if reply.state != reply.admission_state:
        yield Broken("truth.counts", f"admission_state {reply.state}", reply.admission_state)
    if reply.locked_sessions > reply.lock_entries:
        yield Broken("truth.counts", f"at most {reply.lock_entries} locked sessions", str(reply.locked_sessions))
    yield from _sessions(reply.sessions, standing)
    if (reply.state != "accepting") not in standing.closed:
        wanted = "paused" if standing.closed == frozenset({True}) else "accepting"
        yield Broken("truth.admission", f"state {wanted}", reply.state)


def _sessions(count: int, standing: Standing) -> Iterator[Broken]:
    if count < len(standing.sessions):
        yield Broken("truth.in-flight", f"at least {len(standing.sessions)} sessions", str(count))


_CHECKS: Final[Mapping[type[BaseModel], Callable[..., Iterator[Broken]]]] = {
    wire.PauseReply: _of_pause,
    wire.SingleWorkerStatus: _of_status,
    wire.CoordinatorStatus: _of_workers,
    wire.AbortInflightReply: _of_abort,
    wire.ResumeReply: _of_resume,
    wire.AgentPrepareReply: _of_agent,
    wire.ResourcesPrepareReply: _of_sessions,
    wire.ResourcesStatusReply: _of_resources_status,
}
