"""The last look at a participant whose test was ended before its end: who holds it, read after every other call.

Whoever ends a test is told that the participant accepts work only where this was read; what is ours is resumed first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from quiesce.controller.cancellation import finish_first
from quiesce.fsm.tables.fence import FencePhase
from quiesce.fuzz.asking import Asking
from quiesce.fuzz.line import Line
from quiesce.fuzz.steps import Operation
from quiesce.fuzz.subject import Subject, routes_for
from quiesce.fuzz.wording import OWN_NAMES
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.routes import ROUTE_BY_NAME
from quiesce.participants.errors import Unreachable
from quiesce.participants.excerpts import printable
from quiesce.participants.validation import first_problems

__all__ = ["LastLook"]

TRIES: Final = 4
BETWEEN_S: Final = 0.5
_ID_LENGTH_MAX: Final = 128


@dataclass(slots=True)
class LastLook:
    """Looks at who holds the participant at ``url``, and resumes what is of the campaign ``nonce``.

    Attributes:
        said: how it is, in words, where that is known.
        is_open: whether it was read that nobody holds it.
        problem: why it is not known to accept work, and what to do; empty where it does, or is not ours to open.
    """

    url: str
    line: Line
    nonce: str
    answer_s: float
    said: str = ""
    is_open: bool = False
    problem: str = field(init=False)

    def __post_init__(self) -> None:
        self.problem = self._unknown("nobody has looked at it after the last call")

    async def take(self) -> None:
        """Look, to the end of it whatever cancels the caller meanwhile; :attr:`problem` says what came of it."""
        if not self.line.ids:
            self.said, self.problem = "nothing was closed by it", ""
            return
        try:
            with self.line.at_once():
                await finish_first(self._take())
        except asyncio.CancelledError:
            return  # whoever looks is being cancelled already, and says so when it has told what was found

    async def _take(self) -> None:
        try:
            for _ in range(TRIES):
                if await self._settled():
                    return
                await self.line.clock.sleep(BETWEEN_S)
        except Unreachable as error:
            self.problem = self._unknown(f"it does not answer any more: {error.reason}")

    async def _settled(self) -> bool:
        """Whether there is nothing more to be done."""
        asking = Asking(self.url, self.line, self.answer_s)
        seen = await asking.get(ROUTE_BY_NAME["capabilities"].path, authorized=True)
        try:
            found = wire.Capabilities.model_validate_json(seen.body)
        except ValidationError as error:
            self.problem = self._unknown(f"its capabilities cannot be read: {first_problems(error)}")
            return False
        holder = found.active_checkpoint_id
        if holder is None and found.phase is FencePhase.IDLE:
            self.said, self.problem, self.is_open = "it accepts work", "", True
            return True
        if holder is not None and not holder.startswith(f"{OWN_NAMES}{self.nonce}-"):
            self.said, self.problem = f"{printable(holder, _ID_LENGTH_MAX)} holds it, which is not of this test", ""
            return True
        self.problem = (
            f"it is left closed: phase {found.phase.value}, held by {holder or 'nobody'}; "
            f"resume {'that id' if holder else 'any fresh id'}, or restart the server"
        )
        declared = found.declaration()
        routes = routes_for(declared.role, coordinated=declared.coordinated)
        subject = Subject(self.url, self.url, declared.role, declared.coordinated, declared, routes)
        await asking.post(subject, Operation.RESUME, holder or f"{OWN_NAMES}{self.nonce}-last")
        return False

    def _unknown(self, why: str) -> str:
        return (
            f"it is not known whether it accepts work: {why}. The ids of this test begin with "
            f"{OWN_NAMES}{self.nonce}-: resume the one that holds it, or restart the server"
        )
