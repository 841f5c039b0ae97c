"""What the renewal of a lease is answered with, by where the fence stands (docs/leases.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quiesce.fsm.tables.fence import FencePhase
from quiesce.fuzz.calls import Call
from quiesce.fuzz.seen import CONFLICT, OK, Seen
from quiesce.fuzz.steps import Deadline
from quiesce.fuzz.worlds import World

__all__ = ["renewal_problem"]

_RESTORING: Final = frozenset({FencePhase.RESTORING, FencePhase.RESTORED_PAUSED, FencePhase.RESTORE_FAILED_PAUSED})
_MAY_HAVE_PASSED: Final = frozenset({Deadline.PAST, Deadline.ZERO, Deadline.SHORT})
_HAS_PASSED: Final = frozenset({Deadline.PAST, Deadline.ZERO})
_TOLERANCE_S: Final = 1.0
"""Of clocks that are read one after the other."""
_HELD: Final = str(OK)


def renewal_problem(call: Call, seen: Seen, worlds: Iterable[World], wire_id: str) -> tuple[str, str] | None:
    """What was expected and what came; None where the answer fits some world."""
    step, possible = call.asked.step, tuple(worlds)
    expected = dict.fromkeys(answer for world in possible for answer in _answers(world, step.id, step.deadline))
    answer = _HELD if seen.status == OK else f"{CONFLICT} {seen.code}"
    if answer not in expected:
        return " or ".join(expected), str(seen)
    return None if seen.status != OK else _untrue(call, seen, possible, wire_id)


def _answers(world: World, id_: str, deadline: Deadline) -> list[str]:
    fence = world.fence
    if id_ in fence.finished:
        found = [f"{CONFLICT} stale_checkpoint"]
    elif fence.active != id_:
        found = [f"{CONFLICT} {'invalid_phase' if fence.active is None else 'checkpoint_conflict'}"]
    else:
        found = [] if deadline in _HAS_PASSED else [_HELD]
    return [*found, f"{CONFLICT} deadline_exceeded"] if deadline in _MAY_HAVE_PASSED else found


def _untrue(call: Call, seen: Seen, worlds: tuple[World, ...], wire_id: str) -> tuple[str, str] | None:
    """What is not so in a successful reply."""
    got = seen.fields.get("checkpoint_id")
    if got != wire_id:
        return wire_id, str(got)
    expires_at = seen.fields.get("lease_expires_at")
    restoring = {world.fence.phase in _RESTORING for world in worlds}
    if restoring == {True} and expires_at is not None:
        return "lease_expires_at null: a restore has no lease", str(expires_at)
    if restoring == {False} and call.asked.step.deadline in {Deadline.FAR, Deadline.SHORT}:
        least = call.asked.deadline_ts - _TOLERANCE_S
        if not isinstance(expires_at, int | float) or expires_at < least:
            return "lease_expires_at not before the deadline of the renewal", str(expires_at)
    return None
