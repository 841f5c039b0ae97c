"""A timeline for a terminal: lines of plain text, no wider than asked for."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final

from quiesce.diagrams.escape import one_line
from quiesce.diagrams.run_record import seconds
from quiesce.diagrams.timeline import Lane, PhaseSpan, Stage, Timeline

__all__ = ["lane_times", "timeline_text"]

_BLOCKS: Final[Mapping[Stage, str]] = {
    Stage.ASKED: "·",
    Stage.DRAINING: "░",
    Stage.PAUSED: "▒",
    Stage.COMMITTED: "▓",
    Stage.RESTORED: "█",
    Stage.REOPENING: "o",
    Stage.DOUBT: "?",
}
_LETTERS: Final[Mapping[Stage, str]] = {
    Stage.ASKED: ".",
    Stage.DRAINING: "d",
    Stage.PAUSED: "p",
    Stage.COMMITTED: "c",
    Stage.RESTORED: "r",
    Stage.REOPENING: "o",
    Stage.DOUBT: "?",
}
_NAME_MAX: Final = 32
_NAME_MIN: Final = 16
_GAPS: Final = 4
_BAR_MIN: Final = 16
_WIDTH_MIN: Final = 60
_LISTED_MAX: Final = 3


def timeline_text(timeline: Timeline, *, width: int = 100, lanes_max: int = 40, ascii_only: bool = False) -> str:
    """The run as lines of text, ending in a line break.

    Args:
        timeline: the run.
        width: columns of the terminal.
        lanes_max: how many participants are shown; of more the slowest are.
        ascii_only: letters instead of shaded blocks, for a terminal or a file that has none.
    """
    width = max(width, _WIDTH_MIN)
    marks = _LETTERS if ascii_only else _BLOCKS
    lines = [_headline(timeline), "", *_phase_lines(timeline, width)]
    shown = timeline.slowest(lanes_max)
    if shown:
        lines += ["", *_lane_lines(timeline, shown, width, marks)]
        used = {span.stage for lane in shown for span in lane.spans}
        lines += ["", "  ".join(f"{mark} {stage.value}" for stage, mark in marks.items() if stage in used)]
    if len(timeline.lanes) > len(shown):
        rest = len(timeline.lanes) - len(shown)
        lines.append(f"{rest} participants that were faster are not shown")
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _headline(timeline: Timeline) -> str:
    count = len(timeline.lanes)
    who = f"{count} participant{'' if count == 1 else 's'}"
    return f"{one_line(timeline.name)}: {timeline.state} after {seconds(timeline.duration_s)}, {who}"


def _phase_lines(timeline: Timeline, width: int) -> Iterator[str]:
    names = max((len(phase.state) for phase in timeline.phases), default=0)
    for phase in timeline.phases:
        begin = f"{phase.state:<{names}}  at {seconds(phase.begin_s):>8}  for {seconds(phase.duration_s):>8}"
        yield _cut(f"{begin}  {_held(phase)}", width)


def _held(phase: PhaseSpan) -> str:
    if phase.missing:
        named = ", ".join(map(one_line, phase.missing[:_LISTED_MAX]))
        more = f" and {len(phase.missing) - _LISTED_MAX} more" if len(phase.missing) > _LISTED_MAX else ""
        return f"not there: {named}{more}"
    if not phase.held_by:
        return ""
    return f"waited {seconds(phase.held_for_s)} for {one_line(phase.held_by)}"


def _lane_lines(timeline: Timeline, lanes: tuple[Lane, ...], width: int, marks: Mapping[Stage, str]) -> Iterator[str]:
    notes = {lane.subject: lane_times(lane) for lane in lanes}
    if width - max(map(len, notes.values())) < _NAME_MIN + _BAR_MIN + _GAPS:
        notes = {subject: note.partition(", ")[0] for subject, note in notes.items()}
    beside = max(map(len, notes.values()))
    longest = max(_columns(one_line(lane.subject)) for lane in lanes)
    names = min(_NAME_MAX, longest, width - beside - _GAPS - _BAR_MIN)
    bar = width - names - beside - _GAPS
    end = seconds(timeline.duration_s)
    yield f"{'':<{names}}  0{end:>{bar - 1}}"
    for lane in lanes:
        name = _padded(one_line(lane.subject), names)
        yield f"{name}  {_bar(lane, timeline.duration_s, bar, marks)}  {notes[lane.subject]}"


def lane_times(lane: Lane) -> str:
    """How long it took somebody to stand still, and when it was open again or how it was left."""
    if not lane.spans:
        return "not closed"
    open_s = lane.open_again_s
    ends = f"open at {seconds(open_s)}" if open_s is not None else lane.state
    took = seconds(lane.to_cut_s)
    if lane.stood_still is None:
        return f"not paused after {took}, {ends}"
    return f"{'restored' if lane.stood_still is Stage.RESTORED else 'paused'} {took} after asked, {ends}"


def _bar(lane: Lane, duration_s: float, width: int, marks: Mapping[Stage, str]) -> str:
    cells = [" "] * width
    for span in lane.spans:
        begin = int(span.begin_s / duration_s * width) if duration_s else 0
        # what is shorter than a cell is still to be seen
        end = max(begin + 1, int(span.end_s / duration_s * width) if duration_s else width)
        for at in range(min(begin, width - 1), min(end, width)):
            cells[at] = marks[span.stage]
    return "".join(cells)


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text)


def _padded(text: str, width: int) -> str:
    return _cut(text, width) + " " * (width - _columns(_cut(text, width)))


def _cut(text: str, width: int) -> str:
    if _columns(text) <= width:
        return text
    kept = text
    while _columns(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"
