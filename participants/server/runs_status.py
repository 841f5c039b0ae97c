"""How the executions of an agent stand, as the prepare and status replies tell it (wire-protocol 2.9, 2.10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

from quiesce.participants.server.completions import Completions
from quiesce.participants.server.execution import Execution, ExecutionState

__all__ = ["RunCounts", "status_fields"]


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The executions, sorted by attempt, and which of them are where."""

    executions: tuple[Execution, ...]
    completions: Completions
    active: tuple[Execution, ...]
    parked_with_boundary: tuple[Execution, ...]
    parked_without_boundary: tuple[Execution, ...]
    completed: tuple[Execution, ...]

    @classmethod
    def of(cls, executions: Iterable[Execution], completions: Completions) -> Self:
        """Sort the executions into the groups that the replies count."""
        known = tuple(execution for execution in executions if execution.state is not ExecutionState.RETIRED)
        parked = [execution for execution in known if execution.state is ExecutionState.PARKED]
        return cls(
            executions=known,
            completions=completions,
            active=tuple(execution for execution in known if execution.live),
            parked_with_boundary=tuple(execution for execution in parked if execution.can_be_exported),
            parked_without_boundary=tuple(execution for execution in parked if not execution.can_be_exported),
            completed=tuple(execution for execution in known if not execution.live),
        )

    @property
    def running(self) -> int:
        """Executions that run, those that were asked to park among them."""
        return sum(1 for execution in self.active if execution.runs)

    @property
    def ready(self) -> bool:
        """Nothing runs, nothing is parked without a boundary, no finished result is unacknowledged."""
        return not (self.running or self.parked_without_boundary or self.completed)

    def sentence(self) -> str:
        """What holds up a cut, in the words of the recorded servers."""
        return (
            f"running={self.running}, parked_without_boundary={len(self.parked_without_boundary)}, "
            f"completed_unacknowledged={len(self.completed)}"
        )


def status_fields(counts: RunCounts, *, closed: bool, acknowledged: int) -> dict[str, object]:
    """The members of the prepare reply; ``acknowledged`` counts the results that were let go."""
    parked_with, parked_without = counts.parked_with_boundary, counts.parked_without_boundary
    blocking = [execution for execution in counts.active if not execution.can_be_exported]
    entries = {execution.attempt: _entry(execution, counts.completions) for execution in counts.executions}
    return {
        "state": "preparing" if closed else "accepting",
        "ready_to_commit": counts.ready,
        "running": counts.running,
        "parked": len(parked_with) + len(parked_without),
        "parked_with_boundary": len(parked_with),
        "parked_without_boundary": len(parked_without),
        "completed_unacknowledged": len(counts.completed),
        "acknowledged_completed": acknowledged,
        "active": len(counts.active),
        "blocking_attempts": [entries[execution.attempt] for execution in blocking],
        "completed_unacknowledged_attempts": [entries[execution.attempt] for execution in counts.completed],
        "selected_boundaries": [_identified(execution) | _position(execution) for execution in parked_with],
        "executions": list(entries.values()),
    }


def _entry(execution: Execution, completions: Completions) -> dict[str, object]:
    entry = _identified(execution) | {
        "generation": execution.generation,
        "state": execution.state.value,
        "parked_boundary_state": _parked_state(execution),
        **_position(execution),
    }
    stored = completions.stored(execution.attempt)
    if stored is not None:
        entry["completion_receipt"] = asdict(stored[0])
    entry["age_seconds"] = round(execution.age_s, 3)
    return entry


def _identified(execution: Execution) -> dict[str, object]:
    return {"rollout_id": execution.attempt.rollout_id, "attempt_index": execution.attempt.attempt_index}


def _parked_state(execution: Execution) -> str | None:
    if execution.state is not ExecutionState.PARKED:
        return None
    return "parked_with_boundary" if execution.can_be_exported else "parked_without_boundary"


def _position(execution: Execution) -> dict[str, object]:
    record = execution.boundary
    if record is None:
        return {"boundary_index": None, "turn_index": None, "boundary_kind": None, "resource_state_revisions": {}}
    return {
        "boundary_index": record.boundary_index,
        "turn_index": record.turn,
        "boundary_kind": record.boundary_kind,
        "resource_state_revisions": dict(record.resource_state_revisions),
    }
