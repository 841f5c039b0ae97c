"""The data plane of a participant while it is under test: what was begun, what surely is in flight, what has ended.

Only the participant knows exactly; what is said here errs on the side of not knowing. A call that was begun while
admission was open and has not been answered some time later is surely being served: ``sure``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.line import Line
from quiesce.fuzz.patience import given_time
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import WorkKind
from quiesce.fuzz.subject import Subject
from quiesce.fuzz.traffic import Traffic, work_call
from quiesce.fuzz.wording import REPLY_BODY_CAP, Durations
from quiesce.participants.errors import Unreachable
from quiesce.participants.identity import AttemptId
from quiesce.transport.port import ControlRequest

__all__ = ["CLOSED_CODES", "Surroundings", "Work"]

CLOSED_CODES: Final = frozenset({"checkpoint_parked", "agent_admission_closed", "resources_admission_closed"})
"""With what the data planes refuse new work while admission is closed (wire-protocol 2.20)."""
SUCCESS_BELOW: Final = 400
_ROLLOUT_HEADER: Final = "x-nemo-gym-rollout-id"
_ATTEMPT_HEADER: Final = "x-nemo-gym-attempt-index"


@dataclass(eq=False, slots=True)
class Work:
    """One call of the data plane that was begun.

    Attributes:
        symbol, attempt, kind: whose it is, and what.
        task: ends with the reply, None where there was none.
        sure: it was admitted, and is being served until it is answered.
        cut_off: it was aborted or retired, so that its answer may be anything.
        overtaken: a control call was sent after it and before its answer came, or right before it, so that it may have
            been decided upon either side of that call.
        told: its answer was looked at.
        ended_at: when it was answered, on the loop's clock.
    """

    symbol: str
    attempt: AttemptId
    kind: WorkKind
    task: asyncio.Task[Seen | None]
    sure: bool = False
    cut_off: bool = False
    overtaken: bool = False
    told: bool = False
    ended_at: float | None = None

    @property
    def seen(self) -> Seen | None:
        """The reply, None while there is none."""
        return self.task.result() if self.task.done() and not self.task.cancelled() else None

    @property
    def admitted(self) -> bool:
        """Whether it was answered as done."""
        return self.seen is not None and self.seen.status < SUCCESS_BELOW


class Surroundings:
    """Begins work on the data plane of one participant and keeps account of it for one run of a sequence."""

    def __init__(self, subject: Subject, line: Line, traffic: Traffic, durations: Durations) -> None:
        self._subject = subject
        self._line = line
        self._traffic = traffic
        self._durations = durations
        self.works: list[Work] = []
        self.sessions: set[str] = set()
        self.fenced: set[str] = set()
        self.perhaps_fenced: set[str] = set()
        self.finished: set[str] = set()

    def can(self, kind: WorkKind) -> bool:
        """Whether the traffic has such a call."""
        return work_call(self._traffic, self._subject.role, kind, AttemptId("x", 0)) is not None

    async def begin(self, symbol: str, attempt: AttemptId, kind: WorkKind, *, at_once: bool = False) -> Work | None:
        """Send a call and give it time to be refused, unless ``at_once``. None: the traffic has no such call."""
        call = work_call(self._traffic, self._subject.role, kind, attempt)
        if call is None:
            return None
        request = self._request(call.path, call.content(), attempt, named=kind is not WorkKind.HALF_NAMED)
        await self._line.free()
        work = Work(symbol, attempt, kind, asyncio.create_task(self._sent(request)))
        work.task.add_done_callback(lambda _: _note_end(work))
        self.works.append(work)
        if at_once:
            await asyncio.sleep(0)  # it takes its turn on the line before whatever is sent next
        else:
            await given_time([work.task], self._durations.settle_s)
        return work

    async def answered(self, works: Iterable[Work]) -> None:
        """Wait until these calls are answered, for as long as work lasts at most."""
        await given_time([work.task for work in works], self._durations.work_s)

    def overtake(self) -> None:
        """A control call is being sent."""
        for work in self.live():
            work.overtaken = True

    def live(self) -> list[Work]:
        """The calls that were not answered yet."""
        return [work for work in self.works if not work.task.done()]

    def is_quiet(self, now: float) -> bool:
        """Whether every call was answered, and that some time ago."""
        settled = now - self._durations.settle_s
        return all(work.ended_at is not None and work.ended_at <= settled for work in self.works)

    def surely_served(self) -> list[Work]:
        """The calls that are being served, for all that can be known."""
        return [work for work in self.live() if work.sure and not work.cut_off]

    async def still_served(self, before: Sequence[Work]) -> list[Work]:
        """Those of ``before`` that are being served still, some time after what has just been answered."""
        await given_time([work.task for work in before], self._durations.settle_s)
        return [work for work in before if not work.task.done() and not work.cut_off]

    async def forsake(self) -> None:
        """Hang up on every call that still runs."""
        tasks = [work.task for work in self.works if not work.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _sent(self, request: ControlRequest) -> Seen | None:
        try:
            return await self._line.send(request)
        except Unreachable:
            return None

    def _request(self, path: str, content: bytes, attempt: AttemptId, *, named: bool) -> ControlRequest:
        headers = {"content-type": "application/json", _ROLLOUT_HEADER: attempt.rollout_id}
        if named:
            headers[_ATTEMPT_HEADER] = str(attempt.attempt_index)
        return ControlRequest(
            participant=self._subject.name,
            method="POST",
            url=self._subject.url.rstrip("/") + path,
            timeout_s=self._patience_s(),
            body=content,
            headers=headers,
            body_cap=REPLY_BODY_CAP,
        )

    def _patience_s(self) -> float:
        """A long run of an agent is never answered; it is hung up on when the sequence is over."""
        return self._durations.far_s * 10 if self._subject.role is Role.AGENT else self._durations.work_s * 4


def _note_end(work: Work) -> None:
    work.ended_at = asyncio.get_running_loop().time()
