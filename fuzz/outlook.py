"""What only the participant sees, as far as it can be known from outside: whether it drains, how operations may end."""

from __future__ import annotations

import math

from quiesce.fsm.fence import Handler
from quiesce.fsm.tables.fence import FenceEvent
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.account import Account
from quiesce.fuzz.place import Place
from quiesce.fuzz.steps import Roots
from quiesce.fuzz.surroundings import Surroundings
from quiesce.fuzz.worlds import Circumstances

__all__ = ["Outlook"]

_EITHER_RESUME = (FenceEvent.RESUME_DONE, FenceEvent.RESUME_FAILED)


class Outlook:
    """The circumstances of one run, at any moment of it.

    Attributes:
        polled_until: when an incomplete prepare may have been given up, on the monotonic clock.
    """

    def __init__(self, place: Place, surroundings: Surroundings, account: Account) -> None:
        self._place = place
        self._surroundings = surroundings
        self._account = account
        self._was_idle = True
        self.polled_until = math.inf

    def next_step(self) -> None:
        """A step begins: what was busy at its beginning may have been busy until a moment ago."""
        self._was_idle = self.is_quiet()

    def is_quiet(self) -> bool:
        """Whether nothing of ours is served, and nobody else uses the participant."""
        return self._place.alone and self._surroundings.is_quiet(self._place.clock.monotonic())

    def drained(self, *, served: bool, quiet: bool) -> bool | None:
        """The verdict on "nothing is in flight": ``served`` and ``quiet`` held during all of what it is wanted for."""
        if self._place.subject.role is not Role.POLICY:
            return True  # no other role's table asks
        return False if served else True if quiet else None

    def circumstances(self, *, drained: bool | None = None) -> Circumstances:
        """What can happen by itself now. What is surely being served has not drained."""
        if self._place.subject.role is not Role.POLICY:
            drained = True
        elif drained is None and self._surroundings.surely_served():
            drained = False
        over = self._place.clock.monotonic() >= self.polled_until
        return Circumstances(drained, self._ends, grace_may_be_over=over)

    def _ends(self, handler: Handler) -> tuple[FenceEvent, ...]:
        """How an operation that runs can end, as far as what was asked decides it."""
        event = handler.operation
        if event is FenceEvent.PREPARE:
            return self._prepare_ends()
        if event is FenceEvent.RESUME:
            return _EITHER_RESUME
        directory, roots = handler.body if isinstance(handler.body, tuple) else ("", Roots.NONE)
        writer = self._account.written.get(directory)
        if event is FenceEvent.COMMIT:
            usable = roots is Roots.NONE and directory != "file" and writer in {None, handler.id}
            if usable and not self._place.root_is_shared:
                return (FenceEvent.COMMIT_DONE, FenceEvent.COMMIT_FAILED)
            return (FenceEvent.COMMIT_DONE,) if usable else (FenceEvent.COMMIT_FAILED,)
        if writer is None:
            return (FenceEvent.RESTORE_FAILED,)
        return (FenceEvent.RESTORE_DONE, FenceEvent.RESTORE_FAILED)

    def _prepare_ends(self) -> tuple[FenceEvent, ...]:
        busy = not (self._was_idle and self.is_quiet())
        match self._place.subject.role:
            case Role.AGENT if self._surroundings.finished:
                return (FenceEvent.PREPARE_INCOMPLETE,)
            case Role.AGENT:
                return (FenceEvent.PREPARE_READY, *((FenceEvent.PREPARE_INCOMPLETE,) if busy else ()))
            case Role.RESOURCES:
                return (FenceEvent.PREPARE_READY, *((FenceEvent.PREPARE_FAILED,) if busy else ()))
        return (FenceEvent.PREPARE_READY, FenceEvent.PREPARE_DRAINING, FenceEvent.PREPARE_FAILED)
