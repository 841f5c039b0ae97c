"""Looking at a participant from outside: its capabilities after each step, and whether it is still there at all."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from quiesce.fsm.tables.fence import FencePhase
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.judge import Judge
from quiesce.fuzz.line import Line
from quiesce.fuzz.place import Place
from quiesce.fuzz.seen import OK, Seen
from quiesce.fuzz.steps import CallStep, Operation
from quiesce.fuzz.verdicts import Verdict, verdict_on
from quiesce.fuzz.wording import Bindings, Wording
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.errors import Unreachable
from quiesce.participants.excerpts import printable
from quiesce.participants.validation import first_problems

__all__ = ["Watch"]

_LOOK: Final = CallStep(operation=Operation.CAPABILITIES)
_HELD: Final = frozenset({FencePhase.PREPARING, FencePhase.PREPARED})


class Watch:
    """Watches one participant during one run.

    Attributes:
        verdict, gone: how it was lost, and in words; None and empty while it is there.
        seems_free: it was last seen idle, held by nobody.
    """

    def __init__(self, place: Place, bindings: Bindings, wording: Wording, judge: Judge) -> None:
        self._place = place
        self._bindings = bindings
        self._wording = wording
        self._judge = judge
        self.verdict: Verdict | None = None
        self.gone = ""
        self.seems_free = False

    async def look(self) -> Seen | None:
        """Read the capabilities. None: nothing came back, which was noted."""
        try:
            return await self._line.send(self._wording.asked(_LOOK, 0.0, {}).request)
        except Unreachable as error:
            if await self.answers(error):
                self._judge.check("reply.in-time", holds=False, expected="the capabilities", got=error.reason)
            return None

    async def answers(self, error: Unreachable) -> bool:
        """Whether it is still there after a call came to nothing."""
        request, clock = self._wording.asked(_LOOK, 0.0, {}).request, self._place.clock
        await self._line.free()
        asked_at = clock.monotonic()
        try:
            await self._line.send(request)
        except Unreachable as later:
            verdict = verdict_on(later, waited_s=clock.monotonic() - asked_at, timeout_s=request.timeout_s)
            self.lost(verdict, f"it does not answer any more: {error.reason}; then: {later.reason}")
            return False
        return True

    def lost(self, verdict: Verdict, reason: str) -> None:
        """The participant is gone."""
        if self.verdict is None:
            self.verdict, self.gone = verdict, reason
            holds = verdict is Verdict.LEFT_CLOSED
            self._judge.check("server.survives", holds=holds, expected="it is still there", got=reason)

    def meet(self, holder: str) -> None:
        """Somebody else's id holds the participant: what it does is no answer to us alone any more."""
        self._share(f"somebody else is using it: {printable(holder, 128)} holds it; test it when nobody does")

    def _share(self, reason: str) -> None:
        self._judge.dismiss()
        if self.verdict is None:
            self.verdict, self.gone = Verdict.SHARED, reason

    def stands(self, seen: Seen) -> str:
        """Hold the capabilities against what is believed, and say what they show."""
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
        now, before = found.declaration(), self._place.subject.declaration
        same = now.lasting == before.lasting
        judge.check("capabilities.static", holds=same, expected="the declaration as it was", got="another one")
        if before.owes_restore and not now.owes_restore and not self._place.has_restored:
            self._share(
                "somebody else is using it: it owes no restore any more, and none was sent to it; test it again"
            )
            return found.phase.value
        holder = found.active_checkpoint_id
        if holder is not None and not self._place.is_ours(holder):
            self.meet(holder)
            return f"{found.phase.value}, held by {printable(holder, 128)}"
        active = None if holder is None else self._bindings.symbol(holder)
        judge.stands(found.phase, active)
        self.seems_free = found.phase is FencePhase.IDLE and active is None
        self._check_deadline(found)
        return f"{found.phase.value}, held by {active or 'nobody'}"

    def _check_deadline(self, found: wire.Capabilities) -> None:
        if self._place.subject.role is Role.AUXILIARY:
            return
        held = found.phase in _HELD and found.active_checkpoint_id is not None
        wrong = (held and found.deadline_ts is None) or (self.seems_free and found.deadline_ts is not None)
        expected = "a deadline while held, null while idle"
        self._judge.check("capabilities.deadline", holds=not wrong, expected=expected, got=str(found.deadline_ts))

    @property
    def _line(self) -> Line:
        return self._place.line
