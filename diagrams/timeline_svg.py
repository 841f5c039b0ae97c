"""A timeline as SVG, without any program: one lane a participant, and above them the states of the transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from quiesce.diagrams.escape import one_line
from quiesce.diagrams.run_record import seconds
from quiesce.diagrams.svg import document, line, rectangle, shortened, text, text_width
from quiesce.diagrams.timeline import Lane, PhaseSpan, Span, Stage, Timeline

__all__ = ["STAGE_COLORS", "timeline_svg"]

STAGE_COLORS: Final[Mapping[Stage, str]] = {stage: "doubt" if stage is Stage.DOUBT else stage.value for stage in Stage}
"""The color of each stage, by its name in ``svg.COLORS``."""

_WIDTH: Final = 1000.0
_MARGIN: Final = 16.0
_NAME_WIDTH_MAX: Final = 240.0
_SIZE: Final = 11.0
_ROW: Final = 20.0
_BAR: Final = 12.0
_PHASE_ROW: Final = 16.0
_TICKS: Final = 5


def timeline_svg(timeline: Timeline) -> str:
    """The run as one ``<svg>`` element, ending in a line break; the same run gives the same bytes."""
    names = max((text_width(one_line(lane.subject), _SIZE) for lane in timeline.lanes), default=0.0)
    left = _MARGIN + max(90.0, min(names, _NAME_WIDTH_MAX)) + 8
    scale = (_WIDTH - _MARGIN - left) / (timeline.duration_s or 1.0)
    top = 76 + _PHASE_ROW * len(timeline.phases)
    height = top + _ROW * len(timeline.lanes) + _MARGIN
    title = f"{one_line(timeline.name)}: {timeline.state} after {seconds(timeline.duration_s)}"
    parts = [rectangle(0, 0, _WIDTH, height, "page"), text(_MARGIN, 24, title, size=15, bold=True)]
    parts += [*_legend(timeline), *_ticks(timeline, left, scale, height)]
    for number, phase in enumerate(timeline.phases):
        parts += _phase(phase, left, scale, 56 + _PHASE_ROW * (number + 1))
    for number, lane in enumerate(timeline.lanes):
        parts += _lane(lane, left, scale, top + _ROW * number)
    return document(_WIDTH, height, title, parts)


def _legend(timeline: Timeline) -> Iterator[str]:
    used = {span.stage for lane in timeline.lanes for span in lane.spans}
    x = _MARGIN
    for stage in Stage:
        if stage in used:
            yield rectangle(x, 34, 12, 12, STAGE_COLORS[stage], radius=2)
            yield text(x + 16, 44, stage.value, size=_SIZE)
            x += 32 + text_width(stage.value, _SIZE)


def _ticks(timeline: Timeline, left: float, scale: float, height: float) -> Iterator[str]:
    for number in range(_TICKS):
        at_s = timeline.duration_s * number / (_TICKS - 1)
        x = left + at_s * scale
        anchor = "end" if number == _TICKS - 1 else "middle" if number else "start"
        yield line(x, 62, x, height - _MARGIN / 2, "rule", dash="2 4")
        yield text(x, 60, seconds(at_s), size=10, fill="faint", anchor=anchor)


def _phase(phase: PhaseSpan, left: float, scale: float, y: float) -> Iterator[str]:
    width = max(phase.duration_s * scale, 2.0)
    x = left + phase.begin_s * scale
    held = f", waited {seconds(phase.held_for_s)} for {one_line(phase.held_by)}" if phase.held_by else ""
    tip = f"{phase.state}: {seconds(phase.begin_s)} to {seconds(phase.end_s)}{held}"
    yield text(_MARGIN, y + 9, phase.state, size=10, fill="faint")
    yield rectangle(x, y + 3, width, 6, "faint", tip=tip, radius=2)


def _lane(lane: Lane, left: float, scale: float, y: float) -> Iterator[str]:
    yield text(_MARGIN, y + 11, shortened(one_line(lane.subject), left - _MARGIN - 8, _SIZE), size=_SIZE)
    for span in lane.spans:
        yield _span(span, left, scale, y + 1)
    if not lane.spans:
        yield text(left, y + 11, "not closed", size=10, fill="faint")


def _span(span: Span, left: float, scale: float, y: float) -> str:
    width = max((span.end_s - span.begin_s) * scale, 1.0)
    tip = f"{span.stage.value}: {seconds(span.begin_s)} to {seconds(span.end_s)}"
    return rectangle(left + span.begin_s * scale, y, width, _BAR, STAGE_COLORS[span.stage], tip=tip)
