"""A control call that was sent: its request, what the fence sees of it, and the task that waits for its reply."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quiesce.fuzz.bearers import RULE_OF_BEARER
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Bearer, Operation
from quiesce.fuzz.wording import Asked
from quiesce.fuzz.worlds import Arrival
from quiesce.participants.errors import Unreachable

__all__ = ["Call"]


@dataclass(eq=False, slots=True)
class Call:
    """One call under way.

    Attributes:
        number: of the calls of its run.
        asked: its request.
        arrival: what the fence sees of it; None for a call that no fence decides.
        task: ends with the reply, or with why there is none.
        sent_at: on the monotonic clock, in seconds.
        raced: another call was under way to the participant when it was sent, so that nobody knows which came first.
        waits: it may be answered only when its deadline has come.
    """

    number: int
    asked: Asked
    arrival: Arrival | None
    task: asyncio.Task[Seen | Unreachable]
    sent_at: float
    raced: bool = False

    @property
    def waits(self) -> bool:
        step = self.asked.step
        return step.operation is Operation.PREPARE or step.long_poll

    @property
    def bearer_rule(self) -> str:
        """The rule that its bearer is about, empty for the right one."""
        return RULE_OF_BEARER.get(self.asked.step.bearer, "")

    @property
    def is_valid(self) -> bool:
        """Whether the participant can take it."""
        return not self.asked.spoiling_rule and self.asked.step.bearer is Bearer.GOOD
