"""Leaving a participant open, whatever was done to it.

Every id that may hold something is resumed, work that was begun is ended, operations that may still run are waited
for, and at last the capabilities must say idle, held by nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pydantic import ValidationError

from quiesce.fsm.tables.fence import FencePhase
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.account import Account
from quiesce.fuzz.own_calls import ask, post
from quiesce.fuzz.place import Place
from quiesce.fuzz.seen import OK
from quiesce.fuzz.steps import Operation, WorkKind
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.wording import Bindings
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.errors import ConfigurationError, Unreachable
from quiesce.participants.identity import AttemptId

__all__ = ["Recovery"]

TRIES: Final = 12
ATTEMPTS_AT_ONCE: Final = 100
_IDLE: Final = (FencePhase.IDLE, None)
_PHASES: Final = frozenset(phase.value for phase in FencePhase)


class Recovery:
    """Leaves one participant open after one run.

    Attributes:
        stranger: the id of somebody else that holds it; what is not ours is not resumed.
        unanswered: the call that came to nothing, where one did and it was given up for that.
    """

    def __init__(self, place: Place, bindings: Bindings, account: Account, surroundings: Surroundings) -> None:
        self._place = place
        self._bindings = bindings
        self._account = account
        self._surroundings = surroundings
        self.stranger = ""
        self.unanswered: Unreachable | None = None

    async def leave_open(self, outstanding: Sequence[asyncio.Task[object]], over_at: float, *, gone: bool) -> str:
        """Open the participant. Why it could not be done; empty when it is open.

        ``outstanding`` are calls whose replies nobody needs any more; what they started has ended at ``over_at``.
        """
        try:
            if gone:
                return ""
            with self._place.line.at_once():  # nobody stays closed for the sake of a rate
                return await self._open(outstanding, over_at)
        except Unreachable as error:
            self.unanswered = error
            return f"it does not answer any more: {error.reason}{self._what_to_do()}"
        finally:
            for task in outstanding:
                task.cancel()
            await self._surroundings.forsake()

    async def _open(self, outstanding: Sequence[asyncio.Task[object]], over_at: float) -> str:
        refused = [symbol for symbol in self._account.open_ids if not await self._resumes(symbol)]
        await self._resume_holder()
        with suppress(ConfigurationError):  # the traffic is at fault: what it cannot end is left as it is
            await self._end_work()
        if outstanding or over_at > self._place.clock.monotonic():
            await self._outlast(outstanding, over_at)
        for symbol in refused:
            # what ran then may have failed since, and have left admission closed for nobody (9 #7, 9 #10)
            await self._resumes(symbol)
        problem = await self._resume_holder()
        if self._place.subject.role is Role.AGENT and self._surroundings.works:
            await self._acknowledge()
        return problem

    async def _resumes(self, symbol: str) -> bool:
        checkpoint_id = self._bindings.id(symbol)
        seen = await post(self._place, Operation.RESUME, checkpoint_id)
        if seen.status == OK:
            self._account.used_up.add(checkpoint_id)
        return seen.status == OK

    async def _resume_holder(self) -> str:
        phase, active = await self._standing()
        for _ in range(TRIES):
            if (phase, active) == _IDLE:
                return ""
            if active is not None and not self._place.is_ours(active):
                self.stranger = active
                return ""
            seen = await post(self._place, Operation.RESUME, active or self._place.own_id())
            if seen.status != OK:
                await self._place.clock.sleep(self._place.durations.prompt_s)
            phase, active = await self._standing()
        if (phase, active) == _IDLE:
            return ""
        if phase is None:
            return f"its capabilities do not tell whether it is open{self._what_to_do()}"
        stance = f"phase {phase.value}, held by {active or 'nobody'}"
        return f"it could not be opened: {stance}; resume {'that id' if active else 'any id'}, or restart the server"

    async def _standing(self) -> tuple[FencePhase | None, str | None]:
        """Phase and holder; no phase where the capabilities do not tell."""
        fields = (await ask(self._place, Operation.CAPABILITIES)).fields
        phase, active = fields.get("phase"), fields.get("active_checkpoint_id", "")
        if phase not in _PHASES or not (active is None or isinstance(active, str)):
            return None, None
        return FencePhase(phase), active

    def _what_to_do(self) -> str:
        held = sorted(self._bindings.id(symbol) for symbol in self._account.open_ids)
        return f"; resume {' or '.join(held)}, or restart the server" if held else ""

    async def _end_work(self) -> None:
        surroundings, role = self._surroundings, self._place.subject.role
        if role is Role.AGENT:
            for work in surroundings.live():
                work.cut_off = True
                await post(self._place, Operation.RETIRE, self._place.own_id(), work.attempt)
        elif role is Role.RESOURCES:
            for symbol in sorted(surroundings.sessions):
                await surroundings.begin(symbol, self._bindings.attempt(symbol), WorkKind.END)
        await surroundings.answered(surroundings.live())

    async def _outlast(self, outstanding: Sequence[asyncio.Task[object]], over_at: float) -> None:
        """Wait for what still runs, so that no late end of it meets what comes next (wire-protocol F14 to F17)."""
        left_s = over_at - self._place.clock.monotonic()
        if left_s > 0 and not outstanding:
            await self._place.clock.sleep(left_s + self._place.durations.settle_s)
        elif outstanding:
            await asyncio.wait(outstanding, timeout=max(0.0, left_s) + self._place.durations.prompt_s)

    async def _acknowledge(self) -> None:
        """Let go of the results of our own executions, which would block every later cut."""
        if not self._place.subject.has(Operation.ACKNOWLEDGE_COMPLETED):
            return
        seen = await ask(self._place, Operation.STATUS, query={"checkpoint_id": self._place.own_id()})
        try:
            status = wire.AgentStatusReply.model_validate_json(seen.body)
        except ValidationError:
            return
        ours = {work.attempt for work in self._surroundings.works}
        receipts = [
            execution.completion_receipt.model_dump(mode="json")
            for execution in status.executions
            if execution.completion_receipt is not None
            and AttemptId(execution.rollout_id, execution.attempt_index) in ours
        ]
        if receipts:
            body = {"executions": receipts[:ATTEMPTS_AT_ONCE]}
            await ask(self._place, Operation.ACKNOWLEDGE_COMPLETED, body=body)
