"""One run of a sequence on a live participant: every step is carried out, judged and looked at from outside.

Whatever happens in it, the participant is left open: a run ends with a resume of every id that it has used and with a
look at the capabilities (``quiesce.fuzz.recovery``), also when it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from quiesce.controller.cancellation import finish_first
from quiesce.fuzz.account import Account
from quiesce.fuzz.arrivals import arrival_of, as_arrived
from quiesce.fuzz.calls import Call
from quiesce.fuzz.earlier import earlier_id
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.findings import Episode, TraceLine
from quiesce.fuzz.judge import Judge
from quiesce.fuzz.outlook import Outlook
from quiesce.fuzz.patience import given_time
from quiesce.fuzz.place import Place
from quiesce.fuzz.recovery import Recovery
from quiesce.fuzz.replies import Replies
from quiesce.fuzz.seen import OK, Seen
from quiesce.fuzz.steps import EARLIER_ID, Bearer, CallStep, Deadline, Operation, Send, Step, Until, WorkStep
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.verdicts import LATE_SHARE, Verdict
from quiesce.fuzz.watch import Watch
from quiesce.fuzz.wording import Asked, Wording
from quiesce.fuzz.work_steps import NO_SUCH_WORK, WorkSteps
from quiesce.participants.errors import Unreachable
from quiesce.participants.identity import AttemptId

__all__ = ["NOT_SENT", "Run"]

NO_ROUTE: Final = "it has no such route"
NO_EARLIER_ID: Final = "no id was used up before"
NOT_SENT: Final = frozenset({NO_ROUTE, NO_EARLIER_ID, NO_SUCH_WORK})
"""The outcomes of steps that came to nothing, as there was nothing to send."""

_ACKNOWLEDGEMENTS: Final = frozenset({Operation.ACKNOWLEDGE, Operation.ACKNOWLEDGE_COMPLETED})
_CLOSING: Final = frozenset({Operation.PREPARE, Operation.RESTORE})
_NOT_AWAITED: Final = frozenset({Send.START, Send.AT_ONCE, Send.LEAVE})


class Run:
    """Carries out one sequence. Used once."""

    def __init__(self, place: Place, steps: Sequence[Step] = (), *, muted: Collection[str] = ()) -> None:
        self._place = place
        self._steps = tuple(steps)
        self._bindings = bindings = place.new_bindings()
        self._account = account = Account()
        self._judge = judge = Judge(
            place.subject, place.profile, muted=muted, owes_restore=place.owes_restore, unnamed=bindings.unnamed
        )
        self._surroundings = Surroundings(place.subject, place.line, place.traffic, place.durations)
        self._outlook = Outlook(place, self._surroundings, account)
        self._wording = Wording(place.subject, bindings, place.durations, place.silent)
        self._replies = Replies(place, bindings, judge, self._surroundings, account)
        self._watch = Watch(place, bindings, self._wording, judge)
        self._data = WorkSteps(place, bindings, judge, self._surroundings, self._watch)
        self._calls: list[Call] = []
        self._racing: list[Call] = []
        self._left_until = 0.0
        self._numbers = 0
        self._first_of_step = 0
        self._done: list[Step] = []
        self._trace: list[TraceLine] = []
        self._lost_at: int | None = None

    async def execute(self) -> Episode:
        """Run the sequence up to its first finding, and leave the participant open."""
        try:
            for step in self._steps:
                if not await self.perform(step):
                    break
            else:
                await self.finish()
        except BaseException:
            await self._end()
            self._check_open()
            raise
        await self._end()
        await self._place.line.free()  # it was opened at once; the rate is kept by waiting now
        return self.episode()

    async def _end(self) -> None:
        try:
            await self.leave_open()
        except asyncio.CancelledError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        """Whoever was ended before its end, but could not be opened, says so instead.

        Raises:
            StillClosed: it could not be opened, or nobody has seen that it is.
        """
        if self._watch.verdict not in {None, Verdict.SHARED}:
            raise StillClosed(f"{self._place.subject.name}: {self._watch.gone}") from None

    async def perform(self, step: Step) -> bool:
        """Carry out one step; whether the run can go on."""
        broken = len(self._judge.seen_again)
        self._judge.next_step()
        self._outlook.next_step()
        if isinstance(step, CallStep):
            outcome = await self._call(step)
        elif isinstance(step, WorkStep):
            self._pass_time()
            outcome = await self._data.perform(step, racing=bool(self._racing))
            self._pass_time()
        else:
            outcome = await self._wait(step.until)
        await self._collect()
        quiet = self._watch.verdict is not None or bool(self._racing) or _is_passed_over(step)
        seen = "" if quiet else await self._observe()
        if seen and self._watch.seems_free and self._is_under_way(step):
            self._judge.lose()  # the line is slow: nobody knows when that call will arrive, and what it will meet
        self._done.append(step)
        is_odd = len(self._judge.seen_again) > broken or not self._judge.strict
        self._trace.append(TraceLine(step, self._bindings.unnamed(outcome), self._bindings.unnamed(seen), is_odd))
        if not self._judge.strict and self._lost_at is None:
            self._lost_at = len(self._done) - 1
        return self._judge.finding is None and self._watch.verdict is None

    async def finish(self) -> None:
        """The sequence is over: what was started is answered, and how things stand then is looked at."""
        if self._racing:
            arrivals = [
                as_arrived(self._place, call, call.arrival) for call in self._racing if call.arrival is not None
            ]
            self._judge.arrived(arrivals, self._outlook.circumstances())
            self._racing = []
        if self._calls:
            self._judge.next_step()
            await self._answered(self._calls)
            await self._collect()
            if self._watch.verdict is None:
                await self._observe()

    async def leave_open(self) -> None:
        """Open the participant again, whatever was done to it, to the end of it whatever cancels the caller.

        The last thing that is done in a run.
        """
        await finish_first(self._leave_open())

    async def _leave_open(self) -> None:
        recovery = Recovery(self._place, self._bindings, self._account, self._surroundings)
        outstanding = [call.task for call in self._calls]
        over_at = max([self._left_until, *(self._over_at(call) for call in self._calls)], default=0.0)
        problem = await recovery.leave_open(
            outstanding, over_at, gone=self._watch.verdict not in {None, Verdict.SHARED}
        )
        if recovery.stranger:
            self._watch.meet(recovery.stranger)
        # who answers nothing at all any more is told from who answers and stays closed
        if problem and (recovery.unanswered is None or await self._watch.answers(recovery.unanswered)):
            self._watch.lost(Verdict.LEFT_CLOSED, problem)
        known = set(self._place.used_up)
        self._place.used_up.extend(sorted(self._account.used_up - known))

    def episode(self) -> Episode:
        """What came of it."""
        return Episode(
            steps=tuple(self._done),
            trace=tuple(self._trace),
            finding=self._judge.finding,
            muted=tuple(self._judge.seen_again),
            exercised=frozenset(self._judge.exercised),
            lost_at=self._lost_at,
            verdict=self._watch.verdict,
            gone=self._watch.gone,
        )

    # ---- control calls

    async def _call(self, step: CallStep) -> str:
        if not self._place.subject.has(step.operation):
            return NO_ROUTE
        if step.operation is Operation.CAPABILITIES:
            return "looked at"
        if step.id == EARLIER_ID and not await self._has_earlier():
            return NO_EARLIER_ID
        if step.operation in {Operation.COMMIT, Operation.RESTORE}:
            self._bindings.make_directory(step.directory)
        await self._place.line.free()
        served, quiet = self._surroundings.surely_served(), self._outlook.is_quiet()
        self._surroundings.overtake()
        self._first_of_step = self._numbers + 1
        calls = [self._started(step) for _ in range(2 if step.send is Send.TWICE else 1)]
        if step.send is Send.AT_ONCE:
            self._racing += calls
            return "sent"
        patience_s = self._place.durations.settle_s if step.send in _NOT_AWAITED else None
        await given_time([call.task for call in calls], patience_s)
        still = await self._surroundings.still_served(served)
        drained = self._outlook.drained(served=bool(still), quiet=quiet)
        arrivals = [
            as_arrived(self._place, call, call.arrival)
            for call in (*self._racing, *calls)
            if call.arrival is not None and call.is_valid
        ]
        self._racing = []
        self._judge.arrived(arrivals, self._outlook.circumstances(drained=drained))
        self._pass_time()
        outcomes = [await self._settled(call, [work.attempt for work in still], drained=drained) for call in calls]
        return " and ".join(outcomes)

    async def _has_earlier(self) -> bool:
        """Whether there is an id of an earlier run that can be asked about; one is chosen once in a run."""
        if not self._bindings.earlier:
            try:
                self._bindings.earlier = await earlier_id(self._place)
            except Unreachable as error:
                await self._watch.answers(error)
        return bool(self._bindings.earlier)

    def _started(self, step: CallStep) -> Call:
        place = self._place
        asked = self._wording.asked(step, place.clock.now_ts(), self._account.receipts)
        self._numbers += 1
        task = asyncio.create_task(self._sent(asked))
        arrival = arrival_of(step, self._numbers, place.subject.role)
        call = Call(self._numbers, asked, arrival, task, place.clock.monotonic(), bool(self._racing))
        self._calls.append(call)
        if asked.route.method == "POST" and call.is_valid and step.operation not in _ACKNOWLEDGEMENTS:
            self._note_sent(step, call)
        return call

    def _note_sent(self, step: CallStep, call: Call) -> None:
        self._place.line.ids.add(self._bindings.id(step.id))
        self._place.has_restored |= step.operation is Operation.RESTORE
        if step.operation in _CLOSING and step.id not in self._account.open_ids:
            self._account.open_ids.append(step.id)
        if step.operation is Operation.PREPARE:
            self._outlook.polled_until = self._over_at(call) + self._place.durations.prompt_s

    async def _sent(self, asked: Asked) -> Seen | Unreachable:
        try:
            return await self._place.line.send(asked.request, asked.step.bearer)
        except Unreachable as error:
            return error

    def _is_under_way(self, step: Step) -> bool:
        """Whether a call with a short deadline was sent in this step and is not answered yet."""
        short = isinstance(step, CallStep) and step.deadline is Deadline.SHORT
        return short and any(call.asked.step is step for call in self._calls)

    async def _settled(self, call: Call, served: Sequence[AttemptId], *, drained: bool | None) -> str:
        """What became of a call: its reply is judged, or somebody goes on waiting for it, or nobody does."""
        if call.task.done():
            return await self._take(call, served, drained=drained)
        if call.asked.step.send is not Send.LEAVE:
            return "no answer yet"
        call.task.cancel()
        await asyncio.gather(call.task, return_exceptions=True)
        self._calls.remove(call)
        if call.is_valid and call.arrival is not None:
            self._judge.abandoned(call.number)
        self._left_until = max(self._left_until, self._over_at(call))
        return "the client has left"

    async def _take(self, call: Call, served: Sequence[AttemptId] = (), *, drained: bool | None = None) -> str:
        self._calls.remove(call)
        seen = call.task.result()
        if isinstance(seen, Unreachable):
            return await self._unanswered(call, seen)
        self._judge.check("reply.in-time", holds=True, expected="", got="")
        if not call.is_valid:
            self._replies.refused(call, seen)
        elif call.asked.step.operation is Operation.RENEW:
            self._replies.renewed(call, seen)
        elif call.arrival is None:
            self._replies.acknowledged(call, seen)
        else:
            overtaken = call.number < self._first_of_step
            await self._replies.taken(call, seen, served=served, drained=drained, overtaken=overtaken)
            if call.asked.step.operation is Operation.RESUME and seen.status == OK:
                await self._expect_prepare_to_end(call)
        return str(seen)

    async def _unanswered(self, call: Call, error: Unreachable) -> str:
        self._judge.lose()
        if await self._watch.answers(error):
            timeout_s = call.asked.request.timeout_s
            late = self._place.clock.monotonic() - call.sent_at >= timeout_s * LATE_SHARE
            if late:
                silent, operation = self._place.silent, call.asked.step.operation
                silent[operation] = silent.get(operation, 0) + 1
            rule_id = "reply.in-time" if late else "reply.shape"
            wanted = f"an answer within {timeout_s:g} s" if late else "a whole HTTP reply"
            self._judge.check(rule_id, holds=False, expected=wanted, got=error.reason)
        return "no answer"

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
        await given_time([call.task for call in waiting], prompt_s)
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
            case Until.GRACE if durations.grace_s is not None:
                await self._place.clock.sleep(durations.grace_s + durations.short_s + durations.settle_s)
                self._judge.grace_is_over(self._outlook.circumstances())
        return "waited"

    async def _answered(self, calls: Iterable[Call]) -> None:
        await given_time([call.task for call in calls], None)

    def _over_at(self, call: Call) -> float:
        """When what the call started must have ended, on the monotonic clock."""
        step, durations = call.asked.step, self._place.durations
        waits_s = {Deadline.SHORT: durations.short_s, Deadline.FAR: durations.far_s, Deadline.DISTANT: durations.far_s}
        return call.sent_at + (waits_s.get(step.deadline, 0.0) if call.waits else durations.prompt_s)

    # ---- how things stand

    def _pass_time(self) -> None:
        self._judge.passed(self._outlook.circumstances())

    async def _collect(self) -> None:
        """Judge the replies that have come of calls that were started before."""
        await asyncio.sleep(0)
        for call in [call for call in self._calls if call.task.done() and call not in self._racing]:
            self._pass_time()
            await self._take(call)
        self._pass_time()
        self._data.look()

    async def _observe(self) -> str:
        """Read the capabilities and hold them against what is believed."""
        served, quiet = self._surroundings.surely_served(), self._outlook.is_quiet()
        seen = await self._watch.look()
        if seen is None:
            return "no answer"
        still = await self._surroundings.still_served(served)
        drained = self._outlook.drained(served=bool(still), quiet=quiet)
        self._judge.passed(self._outlook.circumstances(drained=drained))
        return self._watch.stands(seen)


def _is_passed_over(step: Step) -> bool:
    """Whether nobody looks behind a step.

    Malformed and unauthorized calls come in long rows and change nothing; work that is soon over would be over by then.
    """
    if isinstance(step, WorkStep):
        return step.send is Send.AT_ONCE
    return isinstance(step, CallStep) and (bool(step.spoiled) or step.bearer is not Bearer.GOOD)
