"""The live fence: one a server. It steps the FENCE table, runs what the table starts, and remembers the replies.

All decisions are the table's (``quiesce.fsm.fence``); this module performs them. A step and everything that follows
from it at once happen without an await, so that no other call comes between. What runs, runs in a task of its own:
neither a caller that disconnects (F17) nor one that joined (F3) can cancel it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from quiesce.fsm.fence import FenceSignal, FenceState, FenceStep, fence_step
from quiesce.fsm.tables.fence import FENCE, FenceEvent, FencePhase, FenceTable, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.participants.server.answers import CRASHED, Answer, refused
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.ports import Clock

__all__ = ["Call", "Door", "Ending", "LeasePort", "LiveFence", "Members"]

_log: Final = logging.getLogger(__name__)

_FAILED: Final = {
    FenceEvent.PREPARE: FenceEvent.PREPARE_FAILED,
    FenceEvent.COMMIT: FenceEvent.COMMIT_FAILED,
    FenceEvent.RESTORE: FenceEvent.RESTORE_FAILED,
    FenceEvent.RESUME: FenceEvent.RESUME_FAILED,
}
_RECORDS: Final = frozenset({"record_reply", "record_draining_reply", "finish_id"})
_SUCCESS: Final = 200
_LAPSED: Final = Answer(_SUCCESS, {})
"""The answer to a resume that nobody sent."""
_BEGINS: Final = frozenset({"start_operation", "answer_now", "wait_for_running"})


class Door(Protocol):
    """The admission that a fence closes and opens."""

    def close(self) -> None:
        """Admit nothing new."""
        ...

    def open(self) -> int:
        """Admit again; how many that waited or were parked were let go."""
        ...

    def is_drained(self) -> bool:
        """Whether nothing is in flight."""
        ...

    def owes_restore(self) -> bool:
        """Whether only a restore may open it."""
        ...


class LeasePort(Protocol):
    """What a fence tells its lease (``quiesce.participants.server.lease``)."""

    def follow(self, state: FenceState) -> None:
        """The fence has taken a step."""
        ...

    def extend(self, deadline_ts: float | None = None) -> None:
        """A controller is there, and will be until ``deadline_ts``."""
        ...


class Members(Protocol):
    """The workers that a coordinator's fence answers for."""

    @property
    def are_connected(self) -> bool:
        """Whether exactly the expected number is connected."""
        ...

    @property
    def head_count(self) -> str:
        """How many are expected and how many are there, as a phrase."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """How an operation that ran came out: the event of the table, and what to answer if the table agrees."""

    event: FenceEvent
    answer: Answer


@dataclass(frozen=True, slots=True)
class Call:
    """One control call as the fence sees it.

    ``act`` answers at once (given how many were let go), ``run`` is started as a task, ``later`` reads or acts beside
    the fence and may wait. ``body`` is whatever makes two bodies differ; ``operation`` defaults to the event.
    ``recorded`` is false where nobody is there to ask for the answer again.
    """

    event: FenceEvent
    checkpoint_id: str
    deadline_ts: float | None = None
    body: Hashable = None
    operation: Hashable = None
    act: Callable[[int], Answer] | None = None
    run: Callable[[float], Awaitable[Ending]] | None = None
    recorded: bool = True
    later: Callable[[float], Awaitable[Answer]] | None = None

    @property
    def key(self) -> tuple[str, Hashable]:
        return self.checkpoint_id, self.event if self.operation is None else self.operation


class LiveFence:
    """The fence of one running server.

    ``prepare_grace_s`` bounds how long an incomplete prepare keeps admission closed when nobody polls it any more, from
    its deadline on (strict agents only). ``members`` are the workers that a coordinator answers for.
    """

    def __init__(
        self,
        table: FenceTable,
        door: Door,
        clock: Clock,
        *,
        prepare_grace_s: float,
        closed: bool,
        members: Members | None = None,
    ) -> None:
        self._members = members
        self._table = table
        self._door = door
        self._clock = clock
        self._grace_s = prepare_grace_s
        self._events = frozenset(row.event for row in table.rows)
        self._state = FenceState(closed=closed)
        self._deadline_ts: float | None = None
        self._replies: dict[tuple[str, Hashable], Answer | asyncio.Future[Answer]] = {}
        self._tasks: dict[tuple[str, Hashable], asyncio.Task[Answer]] = {}
        self._inner: dict[tuple[str, Hashable], asyncio.Future[Ending]] = {}
        self._waiting: list[tuple[Call, asyncio.Future[Answer]]] = []
        self._grace: asyncio.TimerHandle | None = None
        self.lease: LeasePort | None = None
        """Opens a fence whose controller is gone; None where nothing does (wire-protocol 4.7)."""

    @property
    def state(self) -> FenceState:
        """Where the fence stands; a value that never changes."""
        return self._state

    @property
    def tells_what_it_owes(self) -> bool:
        """Whether it waits for a restore and says so; the recorded fences never do."""
        return self._table is FENCE[FenceVariant.STRICT, Role.RESOURCES] and self._door.owes_restore()

    @property
    def deadline_ts(self) -> float | None:
        """Deadline of the prepare that holds the fence, None when none does (wire-protocol 2.1)."""
        return self._deadline_ts

    @property
    def polls_prepare(self) -> bool:
        """Whether an incomplete prepare keeps its hold between polls."""
        return FenceEvent.GRACE_PASSED in self._events

    async def call(self, call: Call) -> Answer:
        """Decide a control call and answer it. Cancelling this wait cancels nothing but the wait."""
        decided = self._decide(call)
        return decided if isinstance(decided, Answer) else await asyncio.shield(decided)

    def drained(self) -> None:
        """Nothing is in flight any more. Where the drain itself completes the cut, it does."""
        signal = FenceSignal(FenceEvent.DRAINED, self._state.active)
        if any(row.event is signal.event and row.source is self._state.phase for row in self._table.rows):
            self._deliver(signal)

    def lapse(self) -> None:
        """The lease ran out: whoever holds the fence is resumed, as if it had asked for that itself."""
        if self._state.active is not None:
            _log.warning("the lease of checkpoint %s lapsed in phase %s", self._state.active, self._state.phase.value)
            self._decide(Call(FenceEvent.RESUME, str(self._state.active), act=lambda _: _LAPSED, recorded=False))

    # ---- deciding

    def _decide(self, call: Call) -> Answer | asyncio.Future[Answer]:
        step, let_go = self._deliver(self._arrival(call))
        if call.event is FenceEvent.PREPARE and "set_active" in step.effects:
            self._deadline_ts = call.deadline_ts
        if call.event is FenceEvent.PREPARE and self.lease is not None and step.state.active == call.checkpoint_id:
            self.lease.extend(call.deadline_ts)
        match step.answer:
            case "start_operation":
                return self._start(call)
            case "join_running":
                return self._tasks[call.key]
            case "wait_for_running":
                waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                self._waiting.append((call, waiting))
                return waiting
        return self._answered(call, step, let_go)

    def _answered(self, call: Call, step: FenceStep, let_go: int) -> Answer | asyncio.Future[Answer]:
        match step.answer:
            case "replay_reply":
                return self._replies.get(call.key) or self._perform(call, 0, records=call.later is not None)
            case "answer_now":
                return self._perform(call, let_go, records=bool(_RECORDS & set(step.effects)))
            case "answer_crash":
                return CRASHED
        return refused(self._refusal(step, call))

    def _arrival(self, call: Call) -> FenceSignal:
        return FenceSignal(
            call.event,
            call.checkpoint_id,
            operation=call.operation,
            body=call.body,
            deadline_passed=call.deadline_ts is not None and call.deadline_ts <= self._clock.now_ts(),
            drained=self._door.is_drained(),
            owes_restore=self._door.owes_restore(),
            members_connected=self._members is None or self._members.are_connected,
        )

    def _deliver(self, signal: FenceSignal) -> tuple[FenceStep, int]:
        """Take one step and perform its effects; how many were let go."""
        step = fence_step(self._table, self._state, signal)
        self._state = step.state
        let_go = 0
        for effect in step.effects:
            match effect:
                case "close_admission":
                    self._door.close()
                case "open_admission":
                    let_go = self._door.open()
                case "end_waiting_prepare":
                    self._end_prepare(str(signal.id))
                case "finish_id":
                    self._replies = {key: reply for key, reply in self._replies.items() if key[0] != signal.id}
        if step.state.active is None:
            self._deadline_ts = None
        self._arm_grace()
        if self.lease is not None:
            self.lease.follow(step.state)
        return step, let_go

    def _perform(self, call: Call, let_go: int, *, records: bool) -> Answer | asyncio.Future[Answer]:
        """Do what is answered at once, or beside the fence; a repetition shares the answer where it is recorded."""
        answer: Answer | asyncio.Future[Answer]
        if call.later is not None:
            answer = asyncio.ensure_future(_contained(call.later(self._deadline(call))))
        else:
            answer = self._act(call, let_go)
        if records and call.recorded:
            self._replies[call.key] = answer
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(lambda done: self._forget_failure(call, done))
        return answer

    def _forget_failure(self, call: Call, done: asyncio.Future[Answer]) -> None:
        """What was refused beside the fence is done anew when it is asked for again (F9)."""
        if self._replies.get(call.key) is done and (done.cancelled() or done.result().status != _SUCCESS):
            del self._replies[call.key]

    def _act(self, call: Call, let_go: int) -> Answer:
        if call.act is None:
            raise TypeError(f"{call.event.value} has nothing to answer at once")
        try:
            return call.act(let_go)
        except ControlRefusal as refusal:
            return refused(refusal)
        except Exception:  # noqa: BLE001 - what a store raises is a crash to the caller, never to another call
            _log.exception("a control call crashed")
            return CRASHED

    def _deadline(self, call: Call) -> float:
        """The instant of the monotonic clock at which the call's deadline passes."""
        remaining_s = 0.0 if call.deadline_ts is None else call.deadline_ts - self._clock.now_ts()
        return self._clock.monotonic() + max(0.0, remaining_s)

    # ---- running

    def _start(self, call: Call) -> asyncio.Task[Answer]:
        if call.run is None:
            raise TypeError(f"{call.event.value} has nothing to run")
        inner = asyncio.ensure_future(call.run(self._deadline(call)))
        self._inner[call.key] = inner
        task = asyncio.ensure_future(self._until_ended(call, inner))
        self._tasks[call.key] = task
        return task

    async def _until_ended(self, call: Call, inner: asyncio.Future[Ending]) -> Answer:
        """Wait for an operation, then deliver its end in the same turn of the loop."""
        ending = await _outcome(inner, _FAILED[call.event])
        del self._tasks[call.key], self._inner[call.key]
        signal = FenceSignal(
            ending.event,
            call.checkpoint_id,
            operation=call.operation,
            drained=self._door.is_drained(),
            owes_restore=self._door.owes_restore(),
        )
        step, _ = self._deliver(signal)
        if _RECORDS & set(step.effects):
            self._replies[call.key] = ending.answer
        if self.lease is not None:
            self.lease.extend()
        answer = ending.answer if step.answer == "answer_outcome" else refused(self._refusal(step, call))
        self._wake()
        return answer

    def _wake(self) -> None:
        """Deliver the resumes that waited for what has just ended, before anything else can arrive."""
        awake = self._state.awake
        waiting, self._waiting = self._waiting, [one for one in self._waiting if one[0].checkpoint_id not in awake]
        for call, answered in waiting:
            if call.checkpoint_id in awake:
                _pass_on(self._decide(call), answered)

    def _end_prepare(self, checkpoint_id: str) -> None:
        inner = self._inner.get((checkpoint_id, FenceEvent.PREPARE))
        if inner is not None:
            inner.cancel()

    # ---- the grace of an incomplete prepare

    def _arm_grace(self) -> None:
        """Run the timer exactly while an incomplete prepare waits to be polled again."""
        polled_out = self.polls_prepare and self._state.phase is FencePhase.PREPARING and self._state.unattended
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if polled_out:
            deadline_ts = self._clock.now_ts() if self._deadline_ts is None else self._deadline_ts
            delay_s = max(0.0, deadline_ts - self._clock.now_ts()) + self._grace_s
            self._grace = asyncio.get_running_loop().call_at(self._clock.monotonic() + delay_s, self._grace_passed)

    def _grace_passed(self) -> None:
        self._grace = None
        self._deliver(FenceSignal(FenceEvent.GRACE_PASSED, self._state.active))

    # ---- saying why

    def _refusal(self, step: FenceStep, call: Call) -> ControlRefusal:
        code = RefusalCode(str(step.refusal))
        id_, holder, phase = call.checkpoint_id, self._state.active, self._state.phase.value
        match code:
            case RefusalCode.STALE_CHECKPOINT:
                why = (
                    f"checkpoint '{id_}' already finished with outcome 'resumed'; this call is from a stale coordinator"
                )
            case RefusalCode.CHECKPOINT_CONFLICT if holder != id_:
                why = f"checkpoint '{holder}' is active in phase '{phase}'; refusing operation for '{id_}'"
            case RefusalCode.CHECKPOINT_CONFLICT:
                why = f"checkpoint '{id_}' was already asked for {call.event.value} with another body; repeat that one"
            case RefusalCode.INVALID_PHASE:
                why = f"operation not valid in phase '{phase}' (valid from: {self._valid_from(call.event)})"
            case RefusalCode.MISSING_WORKERS if self._members is not None:
                why = f"cannot freeze checkpoint worker membership: {self._members.head_count}"
            case RefusalCode.DEADLINE_EXCEEDED:
                why = f"the deadline of this {call.event.value} had passed when it arrived; nothing was done"
            case _:
                why = step.row.reason
        return ControlRefusal(code, why)

    def _valid_from(self, event: FenceEvent) -> list[str]:
        begins = (row for row in self._table.rows if row.event is event and row.effects[-1] in _BEGINS)
        return sorted({row.source.value for row in begins})


async def _outcome(inner: asyncio.Future[Ending], failed: FenceEvent) -> Ending:
    """What an operation came to, as a value. Being ended by a resume is a failure that nobody hears of."""
    try:
        return await inner
    except ControlRefusal as refusal:
        return Ending(failed, refused(refusal))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Ending(failed, CRASHED)
    except Exception:  # noqa: BLE001 - whatever a store or a hook raises is a crash to the caller, and is logged
        _log.exception("a checkpoint operation crashed")
        return Ending(failed, CRASHED)


async def _contained(work: Awaitable[Answer]) -> Answer:
    """The answer of work beside the fence, with its refusals and crashes as answers."""
    try:
        return await work
    except ControlRefusal as refusal:
        return refused(refusal)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("a control call crashed")
        return CRASHED


def _pass_on(decided: Answer | asyncio.Future[Answer], answered: asyncio.Future[Answer]) -> None:
    def settle(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    if isinstance(decided, Answer):
        settle(decided)
    else:
        decided.add_done_callback(lambda done: settle(done.result()))
