"""What a caller gets back from a cut or a restore: plain values that also go into ``--json`` output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quiesce.participants.identity import AttemptId

__all__ = ["CutResult", "PhaseTiming", "RestoreResult", "Timings"]


@dataclass(frozen=True, slots=True)
class PhaseTiming:
    """How long one phase took, for one participant or (``participant`` empty) as a whole.

    ``started_s`` counts from the transaction's begin. Both are monotonic seconds.
    """

    phase: str
    participant: str
    started_s: float
    duration_s: float

    def to_json(self) -> dict[str, object]:
        """A plain mapping; seconds are rounded to microseconds."""
        return {
            "phase": self.phase,
            "participant": self.participant or None,
            "started_s": round(self.started_s, 6),
            "duration_s": round(self.duration_s, 6),
        }


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of a transaction went.

    ``paused_s`` is from the first call that may have closed somebody to the last proof that everybody is open again.
    """

    phases: tuple[PhaseTiming, ...]
    total_s: float
    paused_s: float

    def slowest(self, phase: str) -> PhaseTiming | None:
        """The participant that took longest in a phase, or None where none was timed."""
        timed = [timing for timing in self.phases if timing.phase == phase and timing.participant]
        return max(timed, key=lambda timing: timing.duration_s, default=None)

    def to_json(self) -> dict[str, object]:
        """A plain mapping."""
        return {
            "total_s": round(self.total_s, 6),
            "paused_s": round(self.paused_s, 6),
            "phases": [timing.to_json() for timing in self.phases],
        }


@dataclass(frozen=True, slots=True)
class CutResult:
    """A cut that was published and after which everybody accepts work again.

    Attributes:
        label: what the caller named it.
        wire_id: what the participants saw; the name of the snapshot's folder.
        directory: the published snapshot.
        rollouts: every attempt that was live at the cut and is in the snapshot.
        restarting: attempts that were live but start over from their input after a restore.
        storage_keys: rows of the trainer's token storage that must stay alive as long as the snapshot does.
        notes: what was noticed and changed nothing, each a sentence.
    """

    label: str
    wire_id: str
    directory: Path
    rollouts: tuple[AttemptId, ...]
    restarting: tuple[AttemptId, ...]
    storage_keys: tuple[str, ...]
    timings: Timings
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "label": self.label,
            "wire_id": self.wire_id,
            "directory": str(self.directory),
            "rollouts": _attempts(self.rollouts),
            "restarting": _attempts(self.restarting),
            "storage_keys": list(self.storage_keys),
            "timings": self.timings.to_json(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """A restore after which everybody accepts work.

    Attributes:
        label: of the snapshot.
        wire_id: of this restore.
        source_wire_id: of the snapshot that was restored.
        directory: the snapshot.
        rollouts: attempts that go on from their boundary, as they stood at the cut; each runs on as attempt n + 1.
        restarting: attempts that start over from their input.
        discarded: continuations that the trainer did not want.
        storage_keys, notes: as in CutResult.
    """

    label: str
    wire_id: str
    source_wire_id: str
    directory: Path
    rollouts: tuple[AttemptId, ...]
    restarting: tuple[AttemptId, ...]
    discarded: tuple[AttemptId, ...]
    storage_keys: tuple[str, ...]
    timings: Timings
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "label": self.label,
            "wire_id": self.wire_id,
            "source_wire_id": self.source_wire_id,
            "directory": str(self.directory),
            "rollouts": _attempts(self.rollouts),
            "restarting": _attempts(self.restarting),
            "discarded": _attempts(self.discarded),
            "storage_keys": list(self.storage_keys),
            "timings": self.timings.to_json(),
            "notes": list(self.notes),
        }


def _attempts(attempts: tuple[AttemptId, ...]) -> list[Mapping[str, object]]:
    """Attempts as a list of ``{"rollout_id", "attempt_index"}``."""
    return [{"rollout_id": attempt.rollout_id, "attempt_index": attempt.attempt_index} for attempt in attempts]
