"""One measured row, and timing that resists a noisy machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Measured", "interleaved_s"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A number beside its baseline. ``reach`` is the ratio that is to be met; None where the row only informs."""

    what: str
    measured: float
    baseline: float
    unit: str
    reach: float | None

    @property
    def ratio(self) -> float:
        return self.measured / self.baseline

    @property
    def is_reached(self) -> bool:
        return self.reach is None or self.ratio <= self.reach

    def to_markdown(self) -> str:
        """One row of a Markdown table."""
        reach = "" if self.reach is None else f"≤ {self.reach:g}"
        verdict = "" if self.reach is None else ("met" if self.is_reached else "**missed**")
        return (
            f"| {self.what} | {self.measured:.4g} {self.unit} | {self.baseline:.4g} {self.unit} | {self.ratio:.3g} "
            f"| {reach} | {verdict} |"
        )

    def to_json(self) -> dict[str, object]:
        """A plain mapping."""
        return {
            "what": self.what,
            "measured": self.measured,
            "baseline": self.baseline,
            "unit": self.unit,
            "ratio": self.ratio,
            "reach": self.reach,
            "reached": self.is_reached,
        }


def interleaved_s(*works: Callable[[], object], rounds: int) -> list[float]:
    """The median time of each of several works, in CPU seconds, measured in turns so that noise meets all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for slot, work in zip(times, works, strict=True):
            began_s = time.process_time()
            work()
            slot.append(time.process_time() - began_s)
    return [statistics.median(slot) for slot in times]
