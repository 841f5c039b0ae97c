"""The steps of the data plane: beginning work, and what its answers say of admission and of fenced attempts."""

from __future__ import annotations

from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.judge import Judge
from quiesce.fuzz.patience import given_time
from quiesce.fuzz.place import Place
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Send, WorkKind, WorkStep
from quiesce.fuzz.surroundings import CLOSED_CODES, Surroundings, Work
from quiesce.fuzz.watch import Watch
from quiesce.fuzz.wording import Bindings

__all__ = ["NO_SUCH_WORK", "WorkSteps"]

NO_SUCH_WORK: Final = "the traffic has no such call"

SUCCESS_BELOW: Final = 400
_STALE: Final = "stale_attempt"
_PARKED: Final = "checkpoint_parked"
_MISMATCH: Final = "execution_identity_mismatch"
_PROTOCOL: Final = CLOSED_CODES | {_STALE}
_ANSWERED: Final = frozenset({WorkKind.PROBE, WorkKind.FINISH, WorkKind.SEED, WorkKind.HALF_NAMED})


class WorkSteps:
    """Carries out the work steps of one run and judges what comes back."""

    def __init__(
        self, place: Place, bindings: Bindings, judge: Judge, surroundings: Surroundings, watch: Watch
    ) -> None:
        self._place = place
        self._bindings = bindings
        self._judge = judge
        self._surroundings = surroundings
        self._watch = watch

    async def perform(self, step: WorkStep, *, racing: bool = False) -> str:
        """Begin the work of a step, wait for its answer where it has a short one, and say what came of it.

        ``racing``: control calls were sent of which nobody knows yet whether they came before it.
        """
        attempt, at_once = self._bindings.attempt(step.attempt), step.send is Send.AT_ONCE
        work = await self._surroundings.begin(step.attempt, attempt, step.kind, at_once=at_once)
        if work is None:
            return NO_SUCH_WORK
        work.overtaken = racing
        if at_once:
            return "sent"
        if step.kind in _ANSWERED and not self._runs_long(work):
            await self._surroundings.answered([work])
        if not work.task.done() and not racing:
            await self._look_at_unanswered(work)
        return "in flight" if work.seen is None else str(work.seen)

    def look(self) -> None:
        """Judge the answers that have come since the last look."""
        for work in self._surroundings.works:
            if work.task.done() and not work.told:
                work.told = True
                if work.seen is not None:
                    self._judge_answer(work, work.seen)

    def _runs_long(self, work: Work) -> bool:
        return self._place.subject.role is Role.AGENT and work.kind is WorkKind.PROBE

    async def _look_at_unanswered(self, work: Work) -> None:
        closed = self._judge.closed
        if closed == frozenset({False}):
            work.sure = True
        elif closed == frozenset({True}) and self._place.subject.role is not Role.POLICY:
            # a policy may hold the call until resume; the others refuse it
            await given_time([work.task], self._place.durations.prompt_s)
            if not work.task.done():
                work.sure = True
                self._judge.admission(closed=False, got="admitted: it runs")

    def _judge_answer(self, work: Work, seen: Seen) -> None:
        judge = self._judge
        if self._place.subject.role is Role.AUXILIARY:
            judge.check("data.auxiliary", holds=seen.status < SUCCESS_BELOW, expected="it serves", got=str(seen))
            return
        if work.kind is WorkKind.HALF_NAMED:
            judge.check("data.half-named", holds=seen.code == _MISMATCH, expected=f"409 {_MISMATCH}", got=str(seen))
            return
        if work.cut_off and work.sure:
            return  # aborted while it was served: any answer will do
        if work.symbol in self._surroundings.perhaps_fenced and seen.code == _STALE:
            return
        if work.symbol in self._surroundings.fenced:
            judge.check("data.fenced", holds=seen.code == _STALE, expected=f"409 {_STALE}", got=str(seen))
            return
        if work.sure:
            self._judge_served(work, seen)
            return
        self._judge_admission(work, seen)

    def _judge_served(self, work: Work, seen: Seen) -> None:
        """It was admitted, so it is to run to its end."""
        if self._place.subject.role is Role.POLICY:
            drained = seen.code not in _PROTOCOL
            self._judge.check("data.drained", holds=drained, expected="the answer to the call", got=str(seen))
        self._note_end(work, seen)

    def _judge_admission(self, work: Work, seen: Seen) -> None:
        if work.overtaken:  # admission may have been open and closed while it was on its way
            self._note_end(work, seen)
        elif seen.code in CLOSED_CODES:
            self._judge.admission(closed=True, got=str(seen))
            if self._watch.seems_free and not self._judge.strict:
                expected = "admitted: no id holds it"
                self._judge.check("data.closed-for-nobody", holds=False, expected=expected, got=str(seen))
            if seen.code == _PARKED:
                there = "retry-after" in seen.headers
                self._judge.check("data.retry-after", holds=there, expected="a retry-after header", got="none")
        elif seen.code == _STALE and not self._is_used_up(work):
            self._judge.check("data.open", holds=False, expected="admitted", got=str(seen))
        elif seen.status < SUCCESS_BELOW:
            if not self._is_used_up(work):  # else it may be the result of then, which is no new work
                self._judge.admission(closed=False, got=f"{seen.status}: admitted")
            self._note_end(work, seen)

    def _is_used_up(self, work: Work) -> bool:
        """Whether an agent has run the attempt to some end before, a failure of those whom it calls included."""
        return self._place.subject.role is Role.AGENT and any(
            other is not work and other.symbol == work.symbol and other.seen and other.seen.code not in _PROTOCOL
            for other in self._surroundings.works
        )

    def _note_end(self, work: Work, seen: Seen) -> None:
        if seen.status >= SUCCESS_BELOW:
            return
        if work.kind is WorkKind.SEED or (self._place.subject.role is Role.RESOURCES and work.kind is WorkKind.PROBE):
            self._surroundings.sessions.add(work.symbol)
        elif self._place.subject.role is Role.AGENT:
            self._surroundings.finished.add(work.symbol)
