"""What follows from the reply to a control call: which rules it is held against, and what is known afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel, ValidationError

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.account import Account
from quiesce.fuzz.calls import Call
from quiesce.fuzz.exports import export_problem, restore_problem
from quiesce.fuzz.judge import Judge
from quiesce.fuzz.leases import renewal_problem
from quiesce.fuzz.place import Place
from quiesce.fuzz.seen import CONFLICT, OK, Seen
from quiesce.fuzz.steps import Bearer, Deadline, Operation, Receipt, Send
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.truth import Standing, untruths
from quiesce.fuzz.wording import Bindings
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.routes import Route
from quiesce.participants.identity import AttemptId
from quiesce.participants.validation import first_problems

__all__ = ["Replies"]

UNAUTHORIZED: Final = 401
INVALID: Final = 422
_READS: Final = frozenset({Operation.STATUS, Operation.RETIRE, Operation.DISCARD})
_FENCING: Final = frozenset({Operation.ABORT_INFLIGHT, Operation.RETIRE})
_DECIDING: Final = frozenset({Operation.PREPARE, Operation.COMMIT, Operation.RESTORE, Operation.RESUME})
_MAY_HAVE_PASSED: Final = frozenset({Deadline.PAST, Deadline.ZERO, Deadline.SHORT})
_INCOMPLETE: Final = "agent_prepare_incomplete"
_ACKNOWLEDGEMENT_ERROR: Final = "completed_execution_acknowledgement_error"
_NEARLY: Final = 0.9
_CUTS: Final = ("generation_cut_proof", "generation_cut_summary")


class Replies:
    """Judges the replies of one run."""

    def __init__(
        self, place: Place, bindings: Bindings, judge: Judge, surroundings: Surroundings, account: Account
    ) -> None:
        self._place = place
        self._bindings = bindings
        self._judge = judge
        self._surroundings = surroundings
        self._account = account

    async def taken(
        self, call: Call, seen: Seen, *, served: Iterable[AttemptId], drained: bool | None, overtaken: bool
    ) -> None:
        """Judge a reply of the fence. ``served``, ``drained``: what surely held while the call was decided.

        ``overtaken``: another call was sent before the reply was read, so that it may tell of what held before that.
        """
        judge, operation = self._judge, call.asked.step.operation
        if not judge.sound(seen, call.asked.sent, call.number):
            if operation in _FENCING:  # it may have acted all the same
                self._surroundings.perhaps_fenced.add(call.asked.step.attempt)
            if operation in _READS:
                judge.abandoned(call.number)
            else:
                judge.lose()
            return
        reply = self._shaped(call.asked.route, seen)
        key = call.arrival.key if call.arrival is not None else None
        recorded = None if key is None else self._account.first_replies.get(key)
        late = call.asked.step.deadline in _MAY_HAVE_PASSED
        fresh = judge.replied(call.number, seen, recorded, late=late)
        if operation in _DECIDING:
            self._account.polled = seen.code == _INCOMPLETE
        if seen.status != OK:
            return
        if key is not None:
            self._account.first_replies.setdefault(key, seen.json)
        self._note(call, reply)
        fresh = fresh or (not judge.strict and operation is Operation.STATUS)
        if fresh and reply is not None:
            self._check_truth(reply, seen, served, drained=drained, overtaken=overtaken)
            await self._check_files(call, seen)
        if call.asked.step.long_poll:
            self._check_long_poll(call, seen)
        if operation is Operation.STATUS and reply is not None and "checkpoint_id" in type(reply).model_fields:
            expected, got = self._bindings.id(call.asked.step.id), seen.fields.get("checkpoint_id")
            judge.check("reply.same-id", holds=got == expected, expected=expected, got=str(got))

    def refused(self, call: Call, seen: Seen) -> None:
        """Judge the reply to a call that was malformed, or had the wrong bearer."""
        step, rule_id = call.asked.step, call.asked.spoiling_rule
        spoiled_bearer = step.bearer is not Bearer.GOOD
        wanted: tuple[int, ...]
        if rule_id and spoiled_bearer:
            rule_id, wanted = "bearer.last", (INVALID, UNAUTHORIZED)
        elif rule_id:
            wanted = (INVALID,)
        else:
            rule_id, wanted = call.bearer_rule, (UNAUTHORIZED,)
        holds = seen.status in wanted
        self._judge.check(rule_id, holds=holds, expected=" or ".join(map(str, wanted)), got=str(seen))

    def acknowledged(self, call: Call, seen: Seen) -> None:
        """Judge the reply to an acknowledgement, which no fence decides (wire-protocol 2.15)."""
        if not self._judge.sound(seen, call.asked.sent):
            return
        self._shaped(call.asked.route, seen)
        step, account = call.asked.step, self._account
        can = step.receipt is Receipt.KNOWN and step.attempt in account.receipts
        if not can:
            mixed = step.receipt is Receipt.MIXED and step.attempt in account.receipts
            rule_id = "agent.all-or-none" if mixed else "agent.unknown-receipt"
            refused = seen.status == CONFLICT and seen.code == _ACKNOWLEDGEMENT_ERROR
            self._judge.check(rule_id, holds=refused, expected=f"409 {_ACKNOWLEDGEMENT_ERROR}", got=str(seen))
            return
        again = step.attempt in account.acknowledged
        single = step.operation is Operation.ACKNOWLEDGE
        told = not single or seen.fields.get("idempotent") is again
        expected = f"200, idempotent {again}" if single else str(OK)
        self._judge.check("agent.acknowledged", holds=seen.status == OK and told, expected=expected, got=_brief(seen))
        if seen.status == OK:
            account.acknowledged.add(step.attempt)
            self._surroundings.finished.discard(step.attempt)

    def renewed(self, call: Call, seen: Seen) -> None:
        """Judge the reply to the renewal of a lease (docs/leases.md), which moves no fence."""
        if not self._judge.sound(seen, call.asked.sent):
            return
        self._shaped(call.asked.route, seen)
        step = call.asked.step
        if call.raced or step.send not in {Send.WAIT, Send.TWICE} or not self._judge.strict:
            return
        problem = renewal_problem(call, seen, self._judge.strict.worlds, self._bindings.id(step.id))
        expected, got = problem or ("", "")
        self._judge.check("lease.renew", holds=problem is None, expected=expected, got=got)

    # ---- what a success means

    def _note(self, call: Call, reply: BaseModel | None) -> None:
        step, account = call.asked.step, self._account
        match step.operation:
            case Operation.COMMIT:
                account.written.setdefault(step.directory, step.id)
            case Operation.RESTORE:
                account.restored = True
            case Operation.RESUME:
                account.open_ids = [id_ for id_ in account.open_ids if id_ != step.id]
                account.used_up.add(self._bindings.id(step.id))
            case Operation.ABORT_INFLIGHT:
                account.aborted.add(step.attempt)
                self._fence(step.attempt)
            case Operation.RETIRE:
                if not isinstance(reply, wire.AgentRetireReply) or reply.tombstoned:
                    self._fence(step.attempt)
        if isinstance(reply, wire.AgentPrepareReply):
            self._note_receipts(reply)

    def _fence(self, symbol: str) -> None:
        self._surroundings.fenced.add(symbol)
        self._surroundings.sessions.discard(symbol)
        for work in self._surroundings.works:
            work.cut_off = work.cut_off or work.symbol == symbol

    def _note_receipts(self, reply: wire.AgentPrepareReply) -> None:
        symbols = {work.attempt: work.symbol for work in self._surroundings.works}
        for execution in (*reply.executions, *reply.completed_unacknowledged_attempts):
            symbol = symbols.get(AttemptId(execution.rollout_id, execution.attempt_index))
            if symbol is not None and execution.completion_receipt is not None:
                self._account.receipts[symbol] = execution.completion_receipt.model_dump(mode="json")

    # ---- rules of successful replies

    def _shaped(self, route: Route, seen: Seen) -> BaseModel | None:
        if seen.status != OK:
            return None
        coordinated = self._place.subject.coordinated and route.coordinator_reply is not None
        model = route.coordinator_reply if coordinated and route.coordinator_reply is not None else route.reply
        problem = ""
        reply: BaseModel | None = None
        if not isinstance(seen.json, dict):
            problem = "no JSON object"
        else:
            try:
                reply = model.model_validate_json(seen.body)
            except ValidationError as error:
                problem = first_problems(error)
        self._judge.check("reply.shape", holds=not problem, expected=f"the fields of {model.__name__}", got=problem)
        return reply

    def _check_truth(
        self, reply: BaseModel, seen: Seen, served: Iterable[AttemptId], *, drained: bool | None, overtaken: bool
    ) -> None:
        judge, surroundings = self._judge, self._surroundings
        standing = Standing(
            served=tuple(served),
            drained=drained,
            alone=self._place.alone,
            closed=frozenset({False, True}) if overtaken else judge.closed,
            polled=not overtaken and (judge.polled if judge.strict else self._account.polled),
            aborted=tuple(self._bindings.attempt(symbol) for symbol in sorted(self._account.aborted)),
            sessions=tuple(self._bindings.attempt(symbol) for symbol in sorted(surroundings.sessions)),
            unacknowledged=tuple(self._bindings.attempt(symbol) for symbol in sorted(surroundings.finished)),
            cut=any(seen.fields.get(name) for name in _CUTS),
        )
        judge.exercised |= _TRUTHS_OF[self._place.subject.role]
        if standing.served and isinstance(reply, wire.AgentPrepareReply):
            judge.exercised |= {"agent.boundary"} | ({"agent.park-kept"} if standing.polled else set())
        for broken in untruths(reply, standing):
            judge.check(broken.rule_id, holds=False, expected=broken.expected, got=broken.got)

    def _check_long_poll(self, call: Call, seen: Seen) -> None:
        """It may say draining only when its time is over, and must not dally once the drain is."""
        now, durations = self._place.clock.monotonic(), self._place.durations
        waited_s, state = now - call.sent_at, seen.fields.get("state")
        early = state == "draining" and waited_s < durations.long_poll_s * _NEARLY
        ends = [work.ended_at for work in self._surroundings.works if work.ended_at is not None]
        live = bool(self._surroundings.live()) or not self._place.alone
        late = not live and waited_s > durations.prompt_s and now - max(ends, default=now) > durations.prompt_s
        expected = f"paused as soon as it is, or draining after {durations.long_poll_s:g} s"
        got = f"{state} after {waited_s:.1f} s"
        self._judge.check("truth.long-poll", holds=not (early or late), expected=expected, got=got)

    async def _check_files(self, call: Call, seen: Seen) -> None:
        step, place = call.asked.step, self._place
        directory, wire_id = self._bindings.local(step.directory), self._bindings.id(step.id)
        if directory is None or not place.root_is_shared:
            return
        if step.operation is Operation.COMMIT:
            problem = await asyncio.to_thread(export_problem, place.subject, wire_id, seen, directory)
            self._judge.check("export.verifies", holds=not problem, expected="an export that verifies", got=problem)
        elif step.operation is Operation.RESTORE and step.directory in self._account.written:
            source = self._bindings.id(self._account.written[step.directory])
            problem = restore_problem(place.subject, wire_id, source, seen)
            self._judge.check("export.source", holds=not problem, expected="the save that was named", got=problem)


_TRUTHS_OF: Final = {
    Role.POLICY: frozenset({"truth.counts", "truth.in-flight", "truth.admission", "truth.tombstones"}),
    Role.AUXILIARY: frozenset[str](),
    Role.AGENT: frozenset({"truth.counts", "truth.in-flight", "truth.admission", "agent.ready"}),
    Role.RESOURCES: frozenset({"truth.counts", "truth.in-flight", "truth.admission"}),
}


def _brief(seen: Seen) -> str:
    return f"{seen}, idempotent {seen.fields.get('idempotent')}" if "idempotent" in seen.fields else str(seen)
