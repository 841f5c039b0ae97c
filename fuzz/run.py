"""One run of a sequence on a live participant: every step is carried out, judged and looked at from outside.

Whatever happens in it, the participant is left open: a run ends with a resume of every id that it has used and with a
look at the capabilities (``quiesce.fuzz.recovery``), also when it is cancelled.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pydantic import ValidationError

from quiesce.fsm.fence import Handler
from quiesce.fsm.tables.fence import FenceEvent, FencePhase
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.account import Account
from quiesce.fuzz.calls import Call
from quiesce.fuzz.dataplane import DataPlane
from quiesce.fuzz.findings import Episode, TraceLine
from quiesce.fuzz.judge import Judge
from quiesce.fuzz.place import Place
from quiesce.fuzz.recovery import Recovery
from quiesce.fuzz.replies import Replies
from quiesce.fuzz.seen import OK, Seen
from quiesce.fuzz.steps import Bearer, CallStep, DataStep, Deadline, Operation, Roots, Send, Step, Until, WaitStep
from quiesce.fuzz.subject import EVENT_OF
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.wording import Asked, Wording
from quiesce.fuzz.worlds import Arrival, Circumstances
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.errors import MaybeApplied, NeverSent, Unreachable
from quiesce.participants.identity import AttemptId
from quiesce.participants.validation import first_problems

__all__ = ["Run"]

_PASSED: Final = frozenset({Deadline.PAST, Deadline.ZERO})
_ACKNOWLEDGEMENTS: Final = frozenset({Operation.ACKNOWLEDGE, Operation.ACKNOWLEDGE_COMPLETED})
_CLOSING: Final = frozenset({Operation.PREPARE, Operation.RESTORE})
_NOT_AWAITED: Final = frozenset({Send.START, Send.AT_ONCE, Send.LEAVE})


class Run:
    """Carries out one sequence. Used once."""

    def __init__(self, place: Place, steps: Sequence[Step], *, muted: Collection[str] = ()) -> None:
        self._place = place
        self._steps = tuple(steps)
        self._bindings = place.new_bindings()
        self._account = Account()
        self._judge = Judge(
            place.subject,
            place.profile,
            muted=muted,
            owes_restore=place.owes_restore,
            unnamed=self._bindings.unnamed,
        )
        self._surroundings = Surroundings(place.subject, place.line, place.traffic, place.durations)
        self._wording = Wording(place.subject, self._bindings, place.durations)
        self._replies = Replies(place, self._bindings, self._judge, self._surroundings, self._account)
        self._data = DataPlane(place, self._bindings, self._judge, self._surroundings)
        self._calls: list[Call] = []
        self._racing: list[Call] = []
        self._left_until = 0.0
        self._polled_until = math.inf
        self._was_idle = True
        self._numbers = 0
        self._trace: list[TraceLine] = []
        self._gone = ""

    async def execute(self) -> Episode:
        """Run the sequence up to its first finding, and leave the participant open."""
        done = 0
        try:
            for step in self._steps:
                await self._perform(step)
                done += 1
                if self._judge.finding is not None or self._gone:
                    break
            else:
                await self._finish()
        finally:
            await asyncio.shield(self._leave_open())
        return Episode(
            steps=self._steps[:done],
            trace=tuple(self._trace),
            finding=self._judge.finding,
            muted=tuple(self._judge.seen_again),
            exercised=frozenset(self._judge.exercised),
            gone=self._gone,
        )

    # ---- steps

    async def _perform(self, step: Step) -> None:
        self._judge.next_step()
        self._was_idle = self._is_idle()
        if isinstance(step, CallStep):
            outcome = await self._call(step)
        elif isinstance(step, DataStep):
            self._judge.passed(self._circumstances())
            outcome = await self._data.perform(step)
        else:
            outcome = await self._wait(step.until)
        await self._collect()
        seen = "" if self._gone or self._racing or _is_refused_unheard(step) else await self._observe()
        self._trace.append(TraceLine(step, self._bindings.unnamed(outcome), self._bindings.unnamed(seen)))

    async def _call(self, step: CallStep) -> str:
        if not self._place.subject.has(step.operation):
            return "it has no such route"
        if step.operation is Operation.CAPABILITIES:
            return "looked at"
        if step.operation in {Operation.COMMIT, Operation.RESTORE}:
            self._bindings.make_directory(step.directory)
        served, quiet = self._surroundings.surely_served(), self._is_quiet()
        calls = [self._started(step) for _ in range(2 if step.send is Send.TWICE else 1)]
        if step.send in _NOT_AWAITED:
            await self._give_time(step.send, calls)
        else:
            await asyncio.wait({call.task for call in calls})
        if step.send is Send.AT_ONCE:
            self._racing += calls
            return "sent"
        still = await self._surroundings.still_served(served)
        drained = self._drained(bool(still), quiet=quiet)
        arrivals = [call.arrival for call in (*self._racing, *calls) if call.arrival is not None and call.is_valid]
        self._judge.arrived(arrivals, self._circumstances(drained))
        self._judge.passed(self._circumstances())
        self._racing = []
        outcomes = [await self._settled(call, [work.attempt for work in still], drained) for call in calls]
        return " and ".join(outcomes)

    async def _give_time(self, send: Send, calls: Sequence[Call]) -> None:
        if send is Send.AT_ONCE:
            return
        await asyncio.wait({call.task for call in calls}, timeout=self._place.durations.settle_s)

    def _started(self, step: CallStep) -> Call:
        place = self._place
        asked = self._wording.asked(step, place.clock.now_ts(), self._account.receipts)
        self._numbers += 1
        call = Call(
            self._numbers,
            asked,
            self._arrival(step, self._numbers),
            asyncio.create_task(self._sent(asked)),
            place.clock.monotonic(),
        )
        if asked.route.method == "POST" and call.is_valid and step.operation not in _ACKNOWLEDGEMENTS:
            place.line.ids.add(self._bindings.id(step.id))
            if step.operation in _CLOSING and step.id not in self._account.open_ids:
                self._account.open_ids.append(step.id)
            if step.operation is Operation.PREPARE:
                self._polled_until = self._over_at(call) + place.durations.prompt_s
        self._calls.append(call)
        return call

    async def _sent(self, asked: Asked) -> Seen | Unreachable:
        try:
            return await self._place.line.send(asked.request, asked.step.bearer)
        except Unreachable as error:
            return error

    def _arrival(self, step: CallStep, number: int) -> Arrival | None:
        event = EVENT_OF.get(step.operation)
        if event is None:
            return None
        operation = (event, step.attempt) if event is FenceEvent.ABORT_INFLIGHT else None
        body = (step.directory, step.roots) if event in {FenceEvent.COMMIT, FenceEvent.RESTORE} else None
        return Arrival(number, event, step.id, operation, body, step.deadline in _PASSED)

    async def _settled(self, call: Call, served: Sequence[AttemptId], drained: bool | None) -> str:
        """What became of a call: its reply is judged, or somebody goes on waiting for it, or nobody does."""
        if call.task.done():
            return await self._take(call, served, drained)
        if call.asked.step.send is not Send.LEAVE:
            return "no answer yet"
        call.task.cancel()
        await asyncio.gather(call.task, return_exceptions=True)
        self._calls.remove(call)
        if call.is_valid and call.arrival is not None:
            self._judge.abandoned(call.number)
        self._left_until = max(self._left_until, self._over_at(call))
        return "the client has left"

    async def _take(self, call: Call, served: Sequence[AttemptId] = (), drained: bool | None = None) -> str:
        self._calls.remove(call)
        seen = call.task.result()
        if isinstance(seen, Unreachable):
            return await self._unanswered(call, seen)
        if not call.is_valid:
            self._replies.refused(call, seen)
        elif call.arrival is None:
            self._replies.acknowledged(call, seen)
        else:
            await self._replies.taken(call, seen, served=served, drained=drained)
            if call.asked.step.operation is Operation.RESUME and seen.status == OK:
                await self._expect_prepare_to_end(call)
        self._judge.check("reply.in-time", holds=True, expected="", got="")
        return str(seen)

    async def _unanswered(self, call: Call, error: Unreachable) -> str:
        self._judge.lose()
        if isinstance(error, NeverSent):
            self._lost(f"it cannot be reached any more: {error.reason}")
        elif await self._answers():
            waited_s = self._place.clock.monotonic() - call.sent_at
            late = waited_s >= call.asked.request.timeout_s * 0.9
            rule_id = "reply.in-time" if late else "reply.shape"
            wanted = f"an answer within {call.asked.request.timeout_s:g} s" if late else "a whole HTTP reply"
            self._judge.check(rule_id, holds=False, expected=wanted, got=error.reason)
        else:
            self._lost(f"it does not answer any more: {error.reason}")
        return "no answer"

    async def _answers(self) -> bool:
        try:
            await self._place.line.send(self._wording.asked(_LOOK, 0.0, {}).request)
        except Unreachable:
            return False
        return True

    def _lost(self, reason: str) -> None:
        self._gone = self._gone or reason
        self._judge.check("server.survives", holds=False, expected="it is still there", got=self._gone)

    async def _expect_prepare_to_end(self, resume: Call) -> None:
        """A resume ends the prepare that waits (strict); it is answered at once."""
        waiting = [
            call
            for call in self._calls
            if call.asked.step.operation is Operation.PREPARE and call.asked.step.id == resume.asked.step.id
        ]
        if not waiting or not self._judge.strict:
            return
        prompt_s = self._place.durations.prompt_s
        await asyncio.wait({call.task for call in waiting}, timeout=prompt_s)
        ended = all(call.task.done() for call in waiting)
        expected, got = "the waiting prepare is answered at once", f"it still waits after {prompt_s:g} s"
        self._judge.check_fence("fence.resume-ends-prepare", holds=ended, expected=expected, got=got)

    # ---- waiting

    async def _wait(self, until: Until) -> str:
        durations = self._place.durations
        match until:
            case Until.WORK:
                await self._surroundings.answered(self._surroundings.live())
                await self._place.clock.sleep(durations.settle_s)
            case Until.CALLS:
                await self._answered(self._calls)
            case Until.DEADLINES:
                over_at = max([self._left_until, *(self._over_at(call) for call in self._calls)])
                await self._place.clock.sleep(over_at - self._place.clock.monotonic() + durations.settle_s)
                await self._answered([call for call in self._calls if self._over_at(call) <= over_at])
            case Until.GRACE:
                await self._place.clock.sleep((durations.grace_s or 0.0) + durations.short_s + durations.settle_s)
                if durations.grace_s is not None:
                    self._judge.grace_is_over(self._circumstances())
        return "waited"

    async def _answered(self, calls: Iterable[Call]) -> None:
        tasks = {call.task for call in calls if not call.task.done()}
        if tasks:
            await asyncio.wait(tasks)

    def _over_at(self, call: Call) -> float:
        """When the call must have ended, on the monotonic clock."""
        step, durations = call.asked.step, self._place.durations
        waits_s = {Deadline.SHORT: durations.short_s, Deadline.FAR: durations.far_s, Deadline.DISTANT: durations.far_s}
        return call.sent_at + (waits_s.get(step.deadline, 0.0) if call.waits else durations.prompt_s)

    async def _collect(self) -> None:
        """Judge the replies that have come of calls that were started before."""
        await asyncio.sleep(0)
        for call in [call for call in self._calls if call.task.done() and call not in self._racing]:
            self._judge.passed(self._circumstances())
            await self._take(call)
        self._judge.passed(self._circumstances())
        self._data.look()

    async def _finish(self) -> None:
        """The sequence is over: what was started is answered, and how things stand then is looked at."""
        if self._racing:
            arrivals = [call.arrival for call in self._racing if call.arrival is not None]
            self._judge.arrived(arrivals, self._circumstances())
            self._racing = []
        if self._calls:
            self._judge.next_step()
            await self._answered(self._calls)
            await self._collect()
            if not self._gone:
                await self._observe()

    # ---- how things stand

    async def _observe(self) -> str:
        """Read the capabilities and hold them against what is believed."""
        served, quiet = self._surroundings.surely_served(), self._is_quiet()
        try:
            seen = await self._place.line.send(self._wording.asked(_LOOK, 0.0, {}).request)
        except Unreachable as error:
            await self._unseen(error)
            return "no answer"
        still = await self._surroundings.still_served(served)
        self._judge.passed(self._circumstances(self._drained(bool(still), quiet=quiet)))
        return self._stands(seen)

    async def _unseen(self, error: Unreachable) -> None:
        if isinstance(error, MaybeApplied) and await self._answers():
            self._judge.check("reply.in-time", holds=False, expected="the capabilities", got=error.reason)
        else:
            self._lost(f"it does not answer any more: {error.reason}")

    def _stands(self, seen: Seen) -> str:
        judge = self._judge
        try:
            if seen.status != OK or not isinstance(seen.json, dict):
                judge.check("capabilities.shape", holds=False, expected="200 and a JSON object", got=str(seen))
                return str(seen)
            found = wire.Capabilities.model_validate_json(seen.body)
        except ValidationError as error:
            judge.check("capabilities.shape", holds=False, expected="the fields of 2.1", got=first_problems(error))
            return str(seen)
        judge.check("capabilities.shape", holds=True, expected="", got="")
        same = found.declaration() == self._place.subject.declaration
        judge.check("capabilities.static", holds=same, expected="the declaration as it was", got="another one")
        active = None if found.active_checkpoint_id is None else self._bindings.symbol(found.active_checkpoint_id)
        judge.stands(found.phase, active)
        self._data.seems_free = found.phase is FencePhase.IDLE and active is None
        self._check_deadline(found)
        return f"{found.phase.value}, held by {active or 'nobody'}"

    def _check_deadline(self, found: wire.Capabilities) -> None:
        if self._place.subject.role is Role.AUXILIARY:
            return
        held = found.phase in {FencePhase.PREPARING, FencePhase.PREPARED} and found.active_checkpoint_id is not None
        idle = found.phase is FencePhase.IDLE and found.active_checkpoint_id is None
        holds = not (held and found.deadline_ts is None) and not (idle and found.deadline_ts is not None)
        expected = "a deadline while held, null while idle"
        self._judge.check("capabilities.deadline", holds=holds, expected=expected, got=str(found.deadline_ts))

    # ---- what only the participant sees

    def _is_quiet(self) -> bool:
        return self._place.alone and self._surroundings.is_quiet(self._place.clock.monotonic())

    def _drained(self, still_served: bool, *, quiet: bool) -> bool | None:  # noqa: FBT001 - one of two verdicts
        if self._place.subject.role is not Role.POLICY:
            return True  # no other role's table asks
        return False if still_served else True if quiet else None

    def _circumstances(self, drained: bool | None = None) -> Circumstances:  # noqa: FBT001 - None is a verdict as well
        if self._place.subject.role is not Role.POLICY:
            drained = True
        over = self._place.clock.monotonic() >= self._polled_until
        return Circumstances(drained, self._ends, grace_may_be_over=over)

    def _ends(self, handler: Handler) -> tuple[FenceEvent, ...]:
        """How an operation that runs can end, as far as what was asked decides it."""
        event = handler.operation
        if event is FenceEvent.PREPARE:
            return self._prepare_ends()
        if event is FenceEvent.RESUME:
            return (FenceEvent.RESUME_DONE, FenceEvent.RESUME_FAILED)
        directory, roots = handler.body if isinstance(handler.body, tuple) else ("", Roots.NONE)
        writer = self._account.written.get(directory)
        if event is FenceEvent.COMMIT:
            usable = roots is Roots.NONE and directory != "file" and writer in {None, handler.id}
            return (FenceEvent.COMMIT_DONE,) if usable else (FenceEvent.COMMIT_FAILED,)
        if writer is None:
            return (FenceEvent.RESTORE_FAILED,)
        return (FenceEvent.RESTORE_DONE, FenceEvent.RESTORE_FAILED)

    def _prepare_ends(self) -> tuple[FenceEvent, ...]:
        role = self._place.subject.role
        busy = not (self._place.alone and self._was_idle and self._is_idle())
        if role is Role.AGENT:
            if self._surroundings.finished:
                return (FenceEvent.PREPARE_INCOMPLETE,)
            return (FenceEvent.PREPARE_READY, *((FenceEvent.PREPARE_INCOMPLETE,) if busy else ()))
        if role is Role.RESOURCES:
            return (FenceEvent.PREPARE_READY, *((FenceEvent.PREPARE_FAILED,) if busy else ()))
        return (FenceEvent.PREPARE_READY, FenceEvent.PREPARE_DRAINING, FenceEvent.PREPARE_FAILED)

    def _is_idle(self) -> bool:
        return self._surroundings.is_quiet(self._place.clock.monotonic())

    # ---- leaving

    async def _leave_open(self) -> None:
        recovery = Recovery(self._place, self._bindings, self._account, self._surroundings)
        outstanding = [call.task for call in self._calls]
        over_at = max([self._left_until, *(self._over_at(call) for call in self._calls)], default=0.0)
        problem = await recovery.leave_open(outstanding, over_at, gone=bool(self._gone))
        if problem and not self._gone:
            self._gone = problem


_LOOK: Final = CallStep(operation=Operation.CAPABILITIES, bearer=Bearer.GOOD)


def _is_refused_unheard(step: Step) -> bool:
    """Whether a step is a malformed or unauthorized call: those come in long rows, and change nothing."""
    return isinstance(step, CallStep) and (bool(step.spoiled) or step.bearer is not Bearer.GOOD)
