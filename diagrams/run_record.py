"""What the pictures of a run are drawn from: its trace records with their times, whoever wrote them down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quiesce.fsm.trace import TraceRecord

__all__ = ["RunRecord", "seconds", "since_begin"]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One step of one machine and when it was taken.

    Attributes:
        time_ts: Unix seconds.
        trace: the step.
        call: the last control call to the participant, None where there was none.
        reply: what it came to.
    """

    time_ts: float
    trace: TraceRecord
    call: str | None = None
    reply: str | None = None


def since_begin(records: Iterable[RunRecord]) -> Iterator[tuple[float, RunRecord]]:
    """Each record with the seconds since the first one. A wall clock that was set back stands still instead."""
    begin_ts: float | None = None
    elapsed_s = 0.0
    for record in records:
        begin_ts = record.time_ts if begin_ts is None else begin_ts
        elapsed_s = max(elapsed_s, record.time_ts - begin_ts)
        yield elapsed_s, record


def seconds(duration_s: float) -> str:
    """A duration for people: three figures and a unit.

    >>> [seconds(value) for value in (0, 0.0042, 0.26, 5.04, 123.4, 7380)]
    ['0 ms', '4.2 ms', '260 ms', '5.04 s', '123 s', '123 min']
    """
    for limit, factor, unit in ((0.9995, 1e3, "ms"), (999.5, 1.0, "s")):
        if duration_s < limit:
            return f"{_three_figures(duration_s * factor)} {unit}"
    return f"{duration_s / 60:.0f} min"


def _three_figures(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004 - one, two or three figures before the point
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
