"""One execution of an agent: what the author of an agent server drives, and where a cut can catch it.

    async with runs.begin(attempt, agent_state={"task": task}) as execution:
        while not done:
            reply = await execution.call(lambda: ask_the_model(...))
            await execution.commit_boundary(last_committed_model_call_id=..., agent_state=...)
        execution.finish(result)

``commit_boundary`` is where an execution parks while a cut is taken; ``call`` parks it as well when a closed server
refuses the call, and sends it again afterwards. Sources: wire-protocol 2.9 to 2.15, 2.20, 4.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self, TypeVar, Unpack

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.artefact_records import BoundaryRecord
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt
from quiesce.participants.server.boundaries import Boundary, BoundaryFields, first_boundary, next_boundary
from quiesce.participants.server.completions import receipt_for
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.parking import CallParked, is_parking_reply
from quiesce.participants.server.ports import Clock

__all__ = ["CallParked", "Execution", "ExecutionRetired", "ExecutionState", "is_parking_reply"]

T = TypeVar("T")


class ExecutionState(StrEnum):
    """Where an execution is (wire-protocol 2.9)."""

    RUNNING = "running"
    PARK_REQUESTED = "park_requested"
    PARKED = "parked"
    COMPLETED = "completed"
    RETIRED = "retired"


class ExecutionRetired(ControlRefusal):
    """The execution was retired while it ran: its attempt is fenced and its work is void."""

    def __init__(self, attempt: AttemptId) -> None:
        super().__init__(RefusalCode.STALE_ATTEMPT, f"{attempt} was retired")


class Registry(Protocol):
    """What an execution tells those who keep it."""

    @property
    def closed(self) -> bool: ...

    def changed(self) -> None:
        """The execution's state or boundary is another."""
        ...

    def completed(self, execution: Execution, receipt: CompletionReceipt, result: object) -> None: ...

    def retired(self, execution: Execution) -> None: ...


class Execution:
    """One attempt at one rollout, from ``Runs.begin`` to its end."""

    def __init__(self, attempt: AttemptId, registry: Registry, clock: Clock) -> None:
        self.attempt = attempt
        self.generation = 1
        self._registry = registry
        self._clock = clock
        self._admitted_at = clock.monotonic()
        self._state = ExecutionState.RUNNING
        self._boundary: Boundary | None = None
        self._restored: BoundaryRecord | None = None
        self._revisions: dict[str, int] = {}
        self._owner: asyncio.Task[object] | None = None
        self._cancellings = 0
        self._interrupted = False
        self._wake = asyncio.Event()
        self.begun = False
        self.caller_gone = False

    # ---- for the author of an agent server

    @property
    def state(self) -> ExecutionState:
        return self._state

    @property
    def restored(self) -> BoundaryRecord | None:
        """The boundary that this execution goes on from; None where it starts from its input."""
        return self._restored

    @property
    def boundary(self) -> BoundaryRecord | None:
        """The newest committed boundary."""
        return None if self._boundary is None else self._boundary.record

    async def commit_boundary(self, **fields: Unpack[BoundaryFields]) -> BoundaryRecord:
        """Commit a point from which another process could go on, and park here while a cut is being taken.

        Fields: see ``BoundaryFields``. Resource revisions are those that ``note_revision`` has seen, unless given.
        Committing the same boundary again is harmless.

        Raises:
            ExecutionRetired: the attempt was retired; the boundary counts for nothing.
            ControlRefusal: ``agent_checkpoint_error``: the index does not grow or a field is not JSON.
        """
        self._check_live()
        if fields.get("resource_state_revisions") is None:
            fields["resource_state_revisions"] = self._revisions
        self._boundary = next_boundary(self.attempt, self._boundary, self._clock.now_ts(), fields)
        self._revisions = dict(self._boundary.record.resource_state_revisions)
        await self._park_while_asked()
        return self._boundary.record

    async def call(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send a call to a server of the deployment; ``send`` raises ``CallParked`` where that server is closed.

        The execution then parks at its newest boundary and the call is sent again after the cut. Where this agent is
        not asked to park (the cut was given up before it came here), it is sent again after ``retry_after_s``.

        Raises:
            ExecutionRetired: the attempt was retired.
        """
        while True:
            self._check_live()
            try:
                return await send()
            except CallParked as refused:
                await self._park_until_open(refused.retry_after_s)

    def note_revision(self, server_name: str, revision: int) -> None:
        """Remember the state revision that a resource server sent with its reply.

        Until the next boundary the execution is then ahead of the newest one, and a call that is refused parks it
        without a boundary: going on from the old one would repeat the change.
        """
        self._revisions[server_name] = revision

    def finish(self, result: object) -> CompletionReceipt:
        """Complete with ``result``, the JSON value that ``/run`` answers; it is kept until it is acknowledged.

        Raises:
            ExecutionRetired: the attempt was retired; the result counts for nothing.
            TypeError, ValueError: the result is not JSON, or is null.
        """
        self._check_live()
        if result is None:
            raise ValueError("the result of a run is a JSON value other than null")
        receipt = receipt_for(self.attempt, self.generation, result)
        self._state = ExecutionState.COMPLETED
        self._registry.completed(self, receipt, result)
        return receipt

    async def __aenter__(self) -> Self:
        if self._state is ExecutionState.RETIRED:
            raise ExecutionRetired(self.attempt)
        # whoever begins it may leave the work to another task, and a retired execution must end that one
        self._owner = _current_task()
        self._cancellings = 0 if self._owner is None else self._owner.cancelling()
        if self._boundary is not None:
            await self._park_while_asked()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unfinished = self.live
        self._retire_unless_over()
        if self._interrupted and self._owner is not None:
            # the cancellation was ours: it ends here, and the caller learns why
            self._interrupted = False
            if self._owner.uncancel() <= self._cancellings and kind is asyncio.CancelledError:
                raise ExecutionRetired(self.attempt) from error
        if kind is None and self._state is ExecutionState.RETIRED:
            if unfinished:
                raise QuiesceError(f"{self.attempt} was left without finish(result); it is retired")
            raise ExecutionRetired(self.attempt)

    # ---- for those who keep the execution

    @property
    def committed(self) -> Boundary | None:
        """The newest committed boundary, with its capture key."""
        return self._boundary

    @property
    def age_s(self) -> float:
        return max(0.0, self._clock.monotonic() - self._admitted_at)

    @property
    def live(self) -> bool:
        """Neither completed nor retired."""
        return self._state not in {ExecutionState.COMPLETED, ExecutionState.RETIRED}

    @property
    def runs(self) -> bool:
        """Running, or asked to park and not there yet."""
        return self._state in {ExecutionState.RUNNING, ExecutionState.PARK_REQUESTED}

    @property
    def can_be_exported(self) -> bool:
        """Parked at a boundary that is its true state."""
        if self._state is not ExecutionState.PARKED or self._boundary is None:
            return False
        return self._revisions == self._boundary.record.resource_state_revisions

    def start(self, *, restored: Boundary | None, first_state: Mapping[str, object] | None) -> None:
        """The author has begun: at a restored boundary, or at boundary 0 with ``first_state``, or without one."""
        self.begun = True
        if restored is not None:
            self._boundary = restored
            self._restored = restored.record
            self._revisions = dict(restored.record.resource_state_revisions)
        elif first_state is not None:
            self._boundary = first_boundary(self.attempt, first_state, self._clock.now_ts())

    def request_park(self) -> None:
        if self._state is ExecutionState.RUNNING:
            self._state = ExecutionState.PARK_REQUESTED

    def cancel_park(self) -> None:
        if self._state is ExecutionState.PARK_REQUESTED:
            self._state = ExecutionState.RUNNING

    def release(self) -> None:
        """Let it go on from where it is parked."""
        self._state = ExecutionState.RUNNING
        self._wake.set()

    def retire(self) -> None:
        """End it from outside: a parked one wakes to the news, a running one is cancelled."""
        was_parked = self._state is ExecutionState.PARKED
        self._state = ExecutionState.RETIRED
        self._wake.set()
        owner = self._owner
        if not was_parked and owner is not None and not owner.done() and owner is not _current_task():
            self._interrupted = True
            owner.cancel()

    # ---- parking

    async def _park_while_asked(self) -> None:
        while self._state is ExecutionState.PARK_REQUESTED:
            self._park()
            await self._unless_cancelled(self._wake.wait())
            self._check_live()

    async def _park_until_open(self, retry_after_s: float) -> None:
        self._check_live()
        self._park()
        await self._unless_cancelled(self._wait_until_open(retry_after_s))
        self._check_live()
        await self._park_while_asked()

    async def _wait_until_open(self, retry_after_s: float) -> None:
        while self._state is ExecutionState.PARKED:
            try:
                async with asyncio.timeout(retry_after_s):
                    await self._wake.wait()
            except TimeoutError:
                self._go_on_unless_closed()

    def _park(self) -> None:
        self._state = ExecutionState.PARKED
        self._wake.clear()
        self._registry.changed()

    def _go_on_unless_closed(self) -> None:
        if self._state is ExecutionState.PARKED and not self._registry.closed:
            self._state = ExecutionState.RUNNING
            self._registry.changed()

    async def _unless_cancelled(self, parked: Awaitable[object]) -> None:
        try:
            await parked
        except asyncio.CancelledError:
            # whoever waited for the result is gone; the boundary is still a place to go on from
            self.caller_gone = True
            raise

    def _check_live(self) -> None:
        if self._state is ExecutionState.RETIRED:
            raise ExecutionRetired(self.attempt)
        if self._state is ExecutionState.COMPLETED:
            raise QuiesceError(f"{self.attempt} has finished; begin another attempt")

    def _retire_unless_over(self) -> None:
        if self.live and not self.can_be_exported:
            self._state = ExecutionState.RETIRED
            self._registry.retired(self)


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
