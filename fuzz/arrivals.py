"""What the fence of a participant sees of a control call: which event arrives, and whether its deadline had passed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from quiesce.fsm.tables.fence import FenceEvent
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.calls import Call
from quiesce.fuzz.place import Place
from quiesce.fuzz.steps import CallStep, Deadline, Roots
from quiesce.fuzz.subject import EVENT_OF
from quiesce.fuzz.worlds import Arrival

__all__ = ["arrival_of", "as_arrived"]

_PASSED: Final = frozenset({Deadline.PAST, Deadline.ZERO})


def arrival_of(step: CallStep, number: int, role: Role) -> Arrival | None:
    """The event that a call is to the fence; None for a call that no fence decides."""
    event = EVENT_OF.get(step.operation)
    if event is None:
        return None
    operation = (event, step.attempt) if event is FenceEvent.ABORT_INFLIGHT else None
    roots = step.roots if role is Role.POLICY else Roots.NONE
    body = (step.directory, roots) if event in {FenceEvent.COMMIT, FenceEvent.RESTORE} else None
    passed = step.deadline in _PASSED
    said = event is not FenceEvent.ABORT_INFLIGHT  # no section says what a passed deadline is to such a call: either
    return Arrival(number, event, step.id, operation, body, passed if said or not passed else None)


def as_arrived(place: Place, call: Call, arrival: Arrival) -> Arrival:
    """What the fence has seen of a call. Only an answer shows that it came before its deadline was over."""
    deadline, durations = call.asked.step.deadline, place.durations
    lasts_s = {Deadline.SHORT: durations.short_s, Deadline.FAR: durations.far_s}.get(deadline)
    if lasts_s is None:
        return arrival
    is_over = place.clock.monotonic() >= call.sent_at + lasts_s
    surely_in_time = not is_over and (call.task.done() or deadline is Deadline.FAR)
    return arrival if surely_in_time else replace(arrival, deadline_passed=None)
