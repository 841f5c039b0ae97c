"""How paths and changes are told apart in every format: by a mark that can be read, and by a stroke and a color.

No meaning hangs on a color alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from quiesce.diagrams.annotations import PathKind
from quiesce.diagrams.drawing import Arrow, Change, Drawing, Label, Node

__all__ = [
    "CHANGE_MARKS",
    "LANDMARK",
    "LANDMARK_MARK",
    "PATH_MARKS",
    "STROKES",
    "Stroke",
    "inner_lines",
    "legend",
    "lines",
    "marked",
    "parts",
    "stroke_of",
]

PATH_MARKS: Final[Mapping[PathKind, str]] = {
    PathKind.HAPPY: "✓",
    PathKind.FAILURE: "✗",
    PathKind.RECOVERY: "↺",
    PathKind.PLAIN: "",
}
CHANGE_MARKS: Final[Mapping[Change, str]] = {Change.NONE: "", Change.SAME: "=", Change.HERE: "+", Change.THERE: "–"}
LANDMARK_MARK: Final = "★"
LANDMARK: Final = "landmark"


@dataclass(frozen=True, slots=True)
class Stroke:
    """How an arrow is drawn: a color for light pages, one for dark pages, a dash pattern and a width in points."""

    name: str
    color: str
    dark: str
    style: str = "solid"
    width: float = 1.2


STROKES: Final[Mapping[str, Stroke]] = {
    stroke.name: stroke
    for stroke in (
        Stroke(PathKind.HAPPY.value, "#1b7f3b", "#5ad17f", width=2.4),
        Stroke(PathKind.FAILURE.value, "#c0281c", "#ff8a7a", "dashed", 1.4),
        Stroke(PathKind.RECOVERY.value, "#a65300", "#ffb35c", "dotted", 2.0),
        Stroke(PathKind.PLAIN.value, "#5f6368", "#b0b6bd"),
        Stroke(LANDMARK, "#6d28d9", "#c4a5ff", width=3.2),
        Stroke("same", "#8a8f96", "#8a8f96", width=0.8),
        Stroke("here", "#0b57d0", "#8ab4f8", width=2.2),
        Stroke("there", "#c0281c", "#ff8a7a", "dashed", 1.4),
    )
}
"""By the name that is also the class of what is drawn with it."""

_BEGINNING: Final = frozenset({"landmark", "events"})
_CHANGED: Final = {Change.SAME: "same", Change.HERE: "here", Change.THERE: "there"}

_CLOSING: Final = ",;)]"
"""Marks that never begin a line."""


def stroke_of(one: Arrow | Label) -> Stroke:
    """The stroke of an arrow or a label: of its change where it has one, of its landmark, else of its path."""
    if one.change:
        return STROKES[_CHANGED[one.change]]
    return STROKES[LANDMARK if one.landmark else one.path.value]


def marked(label: Label) -> str:
    """The whole label on one line, with the mark of its change or path before it and its references behind."""
    return " ".join(text for _, text in parts(label, width=0))


def inner_lines(node: Node) -> tuple[str, ...]:
    """What goes on inside a state, in lines; the mark by which it is found stands before the first."""
    return tuple(f"{LANDMARK_MARK} {line}" if not number else line for number, line in enumerate(node.inner))


def parts(label: Label, *, width: int) -> Iterator[tuple[str, str]]:
    """The label as lines of at most ``width`` characters (0: any number), each with the name of what it says.

    The names are ``landmark``, ``events``, ``guards``, ``effects``, ``deadline`` and ``references``.
    """
    mark = CHANGE_MARKS[label.change] or PATH_MARKS[label.path]
    if label.landmark:
        yield from _folded("landmark", f"{LANDMARK_MARK} {label.landmark}:", width)
    refused = "refused: " if label.refuses else ""
    yield from _folded("events", f"{mark} {refused}{', '.join(label.events)}".lstrip(), width)
    for name, text in (
        ("guards", label.guard_text),
        ("effects", label.effect_text),
        ("deadline", label.deadline_text),
        ("references", f"({'; '.join(label.references)})" if label.references else ""),
    ):
        if text:
            yield from _folded(name, text.lstrip(), width)


def lines(label: Label, *, width: int) -> Iterator[tuple[tuple[str, str], ...]]:
    """The parts of the label as lines, where what is short goes on behind what is before it."""
    line: list[tuple[str, str]] = []
    length = 0
    for name, text in parts(label, width=width):
        if line and (name in _BEGINNING or length + 1 + len(text) > width):
            yield tuple(line)
            line, length = [], 0
        line.append((name, text))
        length += 1 + len(text)
    yield tuple(line)


def legend(drawing: Drawing) -> tuple[tuple[str, str], ...]:
    """What the strokes that occur in a drawing mean, as pairs of a stroke's name and its words."""
    words = {
        PathKind.HAPPY.value: f"{PATH_MARKS[PathKind.HAPPY]} happy path",
        PathKind.FAILURE.value: f"{PATH_MARKS[PathKind.FAILURE]} failure",
        PathKind.RECOVERY.value: f"{PATH_MARKS[PathKind.RECOVERY]} recovery",
        LANDMARK: f"{LANDMARK_MARK} {', '.join(_landmarks(drawing))}",
        "here": f"{CHANGE_MARKS[Change.HERE]} only here",
        "there": f"{CHANGE_MARKS[Change.THERE]} only there",
        "same": f"{CHANGE_MARKS[Change.SAME]} the same on both sides",
    }
    used = {stroke_of(arrow).name for arrow in drawing.arrows}
    used |= {stroke_of(label).name for node in drawing.nodes for label in node.inside}
    return tuple((name, text) for name, text in words.items() if name in used)


def _landmarks(drawing: Drawing) -> dict[str, None]:
    named = [arrow.landmark for arrow in drawing.arrows if arrow.landmark]
    return dict.fromkeys(name.rpartition(" ")[0] if "/" in name.rpartition(" ")[2] else name for name in named)


def _folded(name: str, text: str, width: int) -> Iterator[tuple[str, str]]:
    if not width or len(text) <= width:
        yield name, text
        return
    kept: list[str] = []
    for line in wrap(text, width, break_long_words=len(text) > 2 * width, break_on_hyphens=False):
        rest = line.lstrip(_CLOSING)
        if kept:
            # a name as long as the line has its comma behind it, not alone on the next line
            kept[-1] += line[: len(line) - len(rest)]
            rest = rest.lstrip()
        else:
            rest = line
        if rest:
            kept.append(rest)
    yield from ((name, line) for line in kept)
