"""A sequence as SVG, without any program: lifelines from left to right, steps from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.diagrams.escape import one_line
from quiesce.diagrams.sequence import Sequence, SequenceStep, StepKind, names_of
from quiesce.diagrams.svg import COLORS, document, folded, line, rectangle, text, text_width

__all__ = ["sequence_svg"]

_MARGIN: Final = 16.0
_TITLE_SIZE: Final = 15.0
_NAME_SIZE: Final = 12.0
_LABEL_SIZE: Final = 11.0
_LINE: Final = 14.0
_COLUMN_MIN: Final = 130.0
_COLUMN_MAX: Final = 260.0
_HEAD: Final = 66.0
_ARROW: Final = 7.0
_PAD: Final = 12.0
_KINDS: Final = {StepKind.CALL: ("call", ""), StepKind.REPLY: ("reply", "5 3"), StepKind.LOST: ("lost", "2 3")}


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the lifelines stand."""

    columns: Mapping[str, float]
    width: float
    column: float


def sequence_svg(sequence: Sequence) -> str:
    """The sequence as one ``<svg>`` element, ending in a line break; the same sequence gives the same bytes."""
    frame = _frame(sequence)
    parts: list[str] = []
    y = _HEAD
    for step in sequence.steps:
        drawn, y = _step(step, frame, y)
        parts += drawn
    height = y + _MARGIN
    back = [
        rectangle(0, 0, frame.width, height, "page"),
        text(_MARGIN, 24, one_line(sequence.title), size=_TITLE_SIZE, bold=True),
    ]
    return document(frame.width, height, sequence.title, [*back, *_lifelines(sequence, frame, y), *parts])


def _frame(sequence: Sequence) -> _Frame:
    widest = max(text_width(shown, _NAME_SIZE) for shown in names_of(sequence.lifelines).values()) + 2 * _PAD
    labels = max(
        (text_width(step.label, _LABEL_SIZE) + 2 * _PAD for step in sequence.steps if step.kind in _KINDS), default=0
    )
    column = min(max(_COLUMN_MIN, widest, labels), _COLUMN_MAX)
    columns = {name: _MARGIN + column * (number + 0.5) for number, name in enumerate(sequence.lifelines)}
    title = text_width(sequence.title, _TITLE_SIZE) + 2 * _MARGIN
    return _Frame(columns, max(2 * _MARGIN + column * len(columns), title), column)


def _lifelines(sequence: Sequence, frame: _Frame, bottom: float) -> Iterator[str]:
    shown = names_of(sequence.lifelines)
    for name, x in frame.columns.items():
        yield line(x, _HEAD - 6, x, bottom, "rule")
        names = folded(shown[name], frame.column - 8, _NAME_SIZE)[:2]
        yield rectangle(x - frame.column / 2 + 4, 34, frame.column - 8, 4 + _LINE * len(names), "band", radius=4)
        for number, words in enumerate(names):
            yield text(x, 46 + _LINE * number, words, size=_NAME_SIZE, anchor="middle", bold=True)


def _step(step: SequenceStep, frame: _Frame, y: float) -> tuple[list[str], float]:
    """What is drawn of a step, and where the next one begins."""
    if step.kind is StepKind.STAGE:
        return _stage(step, frame, y)
    start, end = frame.columns[step.source], frame.columns[step.target]
    if step.kind is StepKind.NOTE or start == end:
        return _note(step, frame, start, y)
    lines = folded(one_line(step.label), abs(end - start) - _PAD, _LABEL_SIZE)
    parts = [
        text((start + end) / 2, y + _LINE * number, words, size=_LABEL_SIZE, anchor="middle", over="page")
        for number, words in enumerate(lines, start=1)
    ]
    below = y + _LINE * len(lines) + 5
    return [*parts, *_arrow(step.kind, start, end, below)], below + 5


def _arrow(kind: StepKind, start: float, end: float, y: float) -> Iterator[str]:
    color, dash = _KINDS[kind]
    back = -_ARROW if end > start else _ARROW
    yield line(start, y, end, y, color, dash=dash, width=1.5)
    if kind is StepKind.LOST:
        yield line(end + back, y - 4, end, y + 4, color, width=1.5)
        yield line(end + back, y + 4, end, y - 4, color, width=1.5)
        return
    points = f"{end:g},{y:g} {end + back:g},{y - 4:g} {end + back:g},{y + 4:g}"
    yield f'<polygon points="{points}" class="f-{color}" fill="{COLORS[color][0]}"/>'


def _stage(step: SequenceStep, frame: _Frame, y: float) -> tuple[list[str], float]:
    lines = folded(one_line(step.label), frame.width - 2 * _MARGIN - 2 * _PAD, _LABEL_SIZE)
    height = _LINE * len(lines) + 8
    parts = [rectangle(_MARGIN, y + 6, frame.width - 2 * _MARGIN, height, "band", radius=3)]
    parts += [
        text(_MARGIN + _PAD, y + 6 + _LINE * number, words, size=_LABEL_SIZE, bold=True)
        for number, words in enumerate(lines, start=1)
    ]
    return parts, y + height + 10


def _note(step: SequenceStep, frame: _Frame, x: float, y: float) -> tuple[list[str], float]:
    lines = folded(one_line(step.label), frame.column - 2 * _PAD, _LABEL_SIZE)
    height = _LINE * len(lines) + 6
    parts = [rectangle(x - frame.column / 2 + 4, y + 4, frame.column - 8, height, "band", radius=3)]
    parts += [
        text(x, y + 4 + _LINE * number, words, size=_LABEL_SIZE, fill="faint", anchor="middle")
        for number, words in enumerate(lines, start=1)
    ]
    return parts, y + height + 6
