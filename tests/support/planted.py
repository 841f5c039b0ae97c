"""The kit's servers with one bug each: what authors of servers get wrong (wire-protocol 4 and 9, F13 to F23).

A bug is planted in a copy: a table with other rows, or a part of one fresh server that behaves otherwise. What ships is
not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from quiesce.fsm.tables.fence import FENCE, FenceEvent, FencePhase, FenceVariant
from quiesce.fsm.tables.fence_calls import build_table
from quiesce.fsm.tables.fence_vocabulary import FenceRow
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import KitSource
from quiesce.fuzz.kit import KitServer, build_kit_server
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import Answer, ok
from quiesce.participants.server.fence import Call
from quiesce.transport.inprocess import AsgiApplication

E = FenceEvent
P = FencePhase
Patch = Callable[[KitServer], None]


@dataclass(frozen=True)
class Planted:
    """One bug: in whose server, what it is, and the rules of which one at least must name it."""

    name: str
    role: Role
    rules: frozenset[str]
    plant: Patch

    @property
    def source(self) -> KitSource:
        """Fresh servers with the bug."""

        def make(clock: VirtualClock) -> AsgiApplication:
            kit = build_kit_server(self.role, clock=clock)
            self.plant(kit)
            return kit.app

        return make


class Altered:
    """Something that is as it was, but for the members that are given."""

    def __init__(self, original: object, **members: object) -> None:
        self._original = original
        self._members = members

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the original has
        return self._members[name] if name in self._members else getattr(self._original, name)


# ---- other rows


def with_rows(change: Callable[[FenceRow], Iterable[FenceRow]]) -> Patch:
    """The strict table with each row replaced by what ``change`` makes of it."""

    def plant(kit: KitServer) -> None:
        table = FENCE[FenceVariant.STRICT, kit.role]
        rows = _reachable([changed for row in table.rows for changed in change(row)])
        kit.app.fence._table = build_table(f"{table.name} with a bug", table.title, rows, final=table.final)

    return plant


def _reachable(rows: list[FenceRow]) -> tuple[FenceRow, ...]:
    """The rows of states that can be reached: a bug may cut one off."""
    reached = {P.IDLE}
    while True:
        found = reached | {row.target for row in rows if row.source in reached}
        if found == reached:
            return tuple(row for row in rows if row.source in reached)
        reached = found


def answering(row: FenceRow, *effects: str, target: FencePhase | None = None) -> FenceRow:
    """The row with another answer."""
    refusal = bool(effects) and effects[0].startswith("refuse_")
    return replace(row, effects=effects, target=target or row.target, refusal=refusal)


def is_row(row: FenceRow, event: FenceEvent, source: FencePhase, answer: str) -> bool:
    """Whether this is the row of a pair with this answer."""
    return row.event is event and row.source is source and row.effects[-1:] == (answer,)


def resume_from_idle_refused(row: FenceRow) -> Iterable[FenceRow]:
    """A resume from idle is refused."""
    if is_row(row, E.RESUME, P.IDLE, "answer_now"):
        yield answering(row, "refuse_invalid_phase")
    else:
        yield row


def closed_after_failed_prepare(row: FenceRow) -> Iterable[FenceRow]:
    """A failed prepare leaves admission closed."""
    if is_row(row, E.PREPARE_FAILED, P.PREPARING, "answer_outcome"):
        yield answering(row, *(effect for effect in row.effects if effect != "open_admission"))
    else:
        yield row


def resume_ends_no_prepare(row: FenceRow) -> Iterable[FenceRow]:
    """A resume lets a waiting prepare wait on."""
    yield answering(row, *(effect for effect in row.effects if effect != "end_waiting_prepare"))


def commit_while_draining(row: FenceRow) -> Iterable[FenceRow]:
    """A commit runs before the cut is complete."""
    if is_row(row, E.COMMIT, P.PREPARING, "refuse_invalid_phase"):
        yield answering(row, "start_operation", target=P.COMMITTING)
    else:
        yield row


def deadline_ignored(row: FenceRow) -> Iterable[FenceRow]:
    """A passed deadline stops nothing."""
    if "deadline_passed" not in row.guards:
        yield replace(row, guards=tuple(guard for guard in row.guards if guard != "!deadline_passed"))


def late_end_leaves_an_orphan(row: FenceRow) -> Iterable[FenceRow]:
    """A late end leaves a fence that belongs to nobody."""
    late = row.event in {E.PREPARE_FAILED, E.PREPARE_READY} and row.effects[-1] == "refuse_stale_checkpoint"
    yield replace(row, target=P.PREPARING) if late and row.source is P.IDLE else row


def commit_runs_again(row: FenceRow) -> Iterable[FenceRow]:
    """A repeated commit is refused instead of replayed."""
    if is_row(row, E.COMMIT, P.COMMITTED_PAUSED, "replay_reply"):
        yield answering(row, "refuse_invalid_phase")
    else:
        yield row


def repeated_resume_is_stale(row: FenceRow) -> Iterable[FenceRow]:
    """A repeated resume is stale instead of replayed."""
    if is_row(row, E.RESUME, row.source, "replay_reply"):
        yield answering(row, "refuse_stale_checkpoint")
    else:
        yield row


def incomplete_prepare_forgotten(row: FenceRow) -> Iterable[FenceRow]:
    """An incomplete prepare gives its id up."""
    if is_row(row, E.PREPARE_INCOMPLETE, P.PREPARING, "answer_outcome"):
        yield answering(row, "clear_active", *row.effects, target=P.IDLE)
    else:
        yield row


def failed_restore_opens_the_policy(row: FenceRow) -> Iterable[FenceRow]:
    """A failed restore opens the policy."""
    if is_row(row, E.RESTORE_FAILED, P.RESTORING, "answer_outcome"):
        yield answering(row, "open_admission", "clear_active", *row.effects, target=P.IDLE)
    else:
        yield row


# ---- other parts


def _calls_changed(kit: KitServer, change: Callable[[Call], Call]) -> None:
    fence = kit.app.fence
    decide = fence._decide

    def changed(call: Call) -> Any:  # noqa: ANN401 - an answer, now or later
        return decide(change(call))

    fence._decide = changed  # type: ignore[method-assign]  # one server is spoiled on purpose


def drain_guard_dropped(kit: KitServer) -> None:
    """Whatever is in flight, the fence hears that nothing is."""
    kit.app.fence._door = Altered(kit.app.fence._door, is_drained=lambda: True)


def id_not_compared(kit: KitServer) -> None:
    """A call of another id is taken for one of the id that holds the fence."""
    fence = kit.app.fence

    def of_the_holder(call: Call) -> Call:
        holder = fence.state.active
        return call if holder is None else replace(call, checkpoint_id=str(holder))

    _calls_changed(kit, of_the_holder)


def finished_id_acts_again(kit: KitServer) -> None:
    """Nothing is remembered of used-up ids."""
    fence = kit.app.fence

    def forget(call: Call) -> Call:
        fence._state = replace(fence._state, finished=frozenset())
        return call

    _calls_changed(kit, forget)


def old_ids_forgotten(kit: KitServer) -> None:
    """Only the last few used-up ids are remembered, as by a cache."""
    fence, order = kit.app.fence, list[Hashable]()

    def forget(call: Call) -> Call:
        order.extend(id_ for id_ in fence._state.finished if id_ not in order)
        fence._state = replace(fence._state, finished=frozenset(order[-3:]))
        return call

    _calls_changed(kit, forget)


def body_not_compared(kit: KitServer) -> None:
    """All bodies look the same."""
    _calls_changed(kit, lambda call: replace(call, body="the same"))


def token_compared_loosely(kit: KitServer) -> None:
    """Upper and lower case are the same."""
    expected = kit.app._bearer._expected.lower()  # type: ignore[union-attr]  # it has a token

    def admits(headers: Iterable[tuple[bytes, bytes]]) -> bool:
        return any(name.lower() == b"authorization" and value.lower() == expected for name, value in headers)

    kit.app._bearer = Altered(kit.app._bearer, admits=admits)  # type: ignore[assignment]  # spoiled on purpose


def _endpoint_changed(kit: KitServer, route: str, change: Callable[[Answer], Answer]) -> None:
    endpoints = dict(kit.app._endpoints)
    original = endpoints[route]

    async def changed(asked: BaseModel) -> Answer:
        return change(await original(asked))

    endpoints[route] = changed
    kit.app._endpoints = endpoints


def _fields(answer: Answer, **members: object) -> Answer:
    if answer.status != 200 or not isinstance(answer.content, dict):
        return answer
    return replace(answer, content={**answer.content, **members})


def status_lies_paused(kit: KitServer) -> None:
    """The status says paused while calls are in flight."""
    lie = {
        "state": "paused",
        "inflight_total": 0,
        "inflight": [],
        "per_worker": {"0": {"state": "paused", "inflight": 0}},
    }
    _endpoint_changed(kit, "model_status", lambda answer: _fields(answer, **lie))


def tombstone_ignored(kit: KitServer) -> None:
    """An aborted attempt may go on calling."""
    gate: Any = kit.app.app
    gate.store = Altered(gate.store, is_fenced=lambda _attempt: False)


def abort_cuts_off_everybody(kit: KitServer) -> None:
    """An abort of one attempt ends the calls of all."""
    gate: Any = kit.app.app
    original = gate.store.fence

    def fence(attempt: AttemptId) -> None:
        original(attempt)
        for ticket in gate._tickets:
            ticket.cut_off = True
            if ticket.work is not None:
                ticket.work.cancel()

    gate.store = Altered(gate.store, fence=fence)


def unknown_receipt_taken(kit: KitServer) -> None:
    """Every receipt is acknowledged."""
    endpoints = dict(kit.app._endpoints)

    async def acknowledge(_asked: BaseModel) -> Answer:
        return ok({"acknowledged": True, "idempotent": False})

    endpoints["acknowledge"] = acknowledge
    kit.app._endpoints = endpoints


def digest_made_up(kit: KitServer) -> None:
    """The digest in the commit's reply is not that of the manifest."""
    _endpoint_changed(kit, "resources_commit", lambda answer: _fields(answer, manifest_digest="0" * 64))


def unknown_fields_taken(kit: KitServer) -> None:
    """A pause may carry anything."""
    for path, route in list(kit.app._routes.items()):
        if route.request is not None:
            lenient = type(route.request.__name__, (route.request,), {"model_config": ConfigDict(extra="ignore")})
            kit.app._routes[path] = replace(route, request=lenient)


def refusal_without_envelope(kit: KitServer) -> None:
    """A refusal says its code somewhere else."""
    route = {Role.AGENT: "agent_commit", Role.POLICY: "model_commit", Role.RESOURCES: "resources_commit"}[kit.role]

    def change(answer: Answer) -> Answer:
        return answer if answer.status == 200 else replace(answer, content={"message": "no"})

    _endpoint_changed(kit, route, change)


def crashes_on_a_distant_deadline(kit: KitServer) -> None:
    """A careless computation with the deadline overflows."""

    def overflow(call: Call) -> Call:
        if call.deadline_ts is not None and call.deadline_ts > 1e12:
            raise OverflowError(call.deadline_ts)
        return call

    _calls_changed(kit, overflow)


def _planted(name: str, role: Role, plant: Patch, *rules: str) -> Planted:
    return Planted(name, role, frozenset(rules), plant)


PLANTED: tuple[Planted, ...] = (
    _planted("the drain guard is dropped", Role.POLICY, drain_guard_dropped, "fence.pause"),
    _planted("the id is not compared", Role.POLICY, id_not_compared, "fence.other-id"),
    _planted("a finished id acts again", Role.RESOURCES, finished_id_acts_again, "fence.used-up-id"),
    _planted("resume from idle is refused", Role.AGENT, with_rows(resume_from_idle_refused), "fence.resume-from-idle"),
    _planted("a replay with another body is answered", Role.RESOURCES, body_not_compared, "fence.other-body"),
    _planted(
        "admission is left closed after a failed prepare",
        Role.RESOURCES,
        with_rows(closed_after_failed_prepare),
        "data.closed-for-nobody",
        "fence.failed-prepare",
    ),
    _planted(
        "a resume does not end the waiting prepare",
        Role.AGENT,
        with_rows(resume_ends_no_prepare),
        "fence.resume-ends-prepare",
    ),
    _planted("a commit while draining", Role.POLICY, with_rows(commit_while_draining), "fence.commit-before-cut"),
    _planted("the deadline is ignored", Role.RESOURCES, with_rows(deadline_ignored), "fence.past-deadline"),
    _planted("a late end touches the fence", Role.AGENT, with_rows(late_end_leaves_an_orphan), "fence.late-end"),
    _planted("the token is compared loosely", Role.POLICY, token_compared_loosely, "bearer.exact"),
    _planted("the status lies", Role.POLICY, status_lies_paused, "truth.in-flight"),
    _planted("the tombstone is ignored", Role.POLICY, tombstone_ignored, "data.fenced"),
    _planted("an unknown receipt is taken", Role.AGENT, unknown_receipt_taken, "agent.unknown-receipt"),
    _planted("a repeated commit is refused", Role.POLICY, with_rows(commit_runs_again), "fence.replay"),
    _planted(
        "a repeated resume is stale", Role.RESOURCES, with_rows(repeated_resume_is_stale), "fence.repeated-resume"
    ),
    _planted(
        "an incomplete prepare is forgotten",
        Role.AGENT,
        with_rows(incomplete_prepare_forgotten),
        "fence.incomplete-prepare",
    ),
    _planted(
        "a failed restore opens the policy",
        Role.POLICY,
        with_rows(failed_restore_opens_the_policy),
        "fence.failed-restore",
    ),
    _planted("old ids are forgotten", Role.RESOURCES, old_ids_forgotten, "fence.used-up-id"),
    _planted("an abort cuts off everybody", Role.POLICY, abort_cuts_off_everybody, "data.drained"),
    _planted("a digest is made up", Role.RESOURCES, digest_made_up, "export.verifies"),
    _planted("unknown fields are taken", Role.AGENT, unknown_fields_taken, "request.unknown-field"),
    _planted("a refusal has no envelope", Role.AGENT, refusal_without_envelope, "reply.refusal"),
    _planted("a distant deadline crashes it", Role.POLICY, crashes_on_a_distant_deadline, "reply.crash"),
)
"""Fourteen that every fuzzer of this protocol must find, and more."""
