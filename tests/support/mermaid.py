"""A strict reader of the part of Mermaid that is drawn here: what it does not know is an error, not skipped."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_IDENTIFIER = r"[a-z][a-z0-9_]*"
_ENTITY = re.compile(r"#(\d+);")
_STATE = re.compile(rf'state "([^"]+)" as ({_IDENTIFIER})')
_STEP_CLASS = "step"
_BOX = re.compile(rf"({_IDENTIFIER}) : (.+)")
_ARROW = re.compile(rf"({_IDENTIFIER}) --> ({_IDENTIFIER}) : (.+)")
_HALF = re.compile(rf"({_IDENTIFIER}) --> ({_IDENTIFIER})")
_START = re.compile(rf"\[\*\] --> ({_IDENTIFIER})")
_END = re.compile(rf"({_IDENTIFIER}) --> \[\*\]")
_CLASS_DEFINITION = re.compile(r"classDef ([a-z]+) [a-z0-9:, #-]+")
_CLASS = re.compile(rf"class ({_IDENTIFIER}(?:,{_IDENTIFIER})*) ([a-z]+)")
_HARMLESS = re.compile(r"(?:[ !()+,./=?@\[\]•'✓✗↺★–-]|[^\W_]|(?<=[^\W_])_(?=[^\W_])|#\d+;)*")
_GAPS = re.compile(
    r'%%\{init: \{"state": \{"nodeSpacing": \d+, "rankSpacing": \d+\}, "flowchart": \{"wrappingWidth": \d+\}\}\}%%'
)
_LEGEND = re.compile(r"%% [^\n]+")
_LABEL = re.compile(
    r"(?:★ (?P<landmark>[^:]+): )?(?:(?P<path>[✓✗↺]) )?(?P<events>[^\[/@]+?)"
    r"(?: \[(?P<guards>[^\]]+)\])?(?: / (?P<effects>[^@]+?))?(?: @(?P<deadline>\w+))?"
)


@dataclass(frozen=True, slots=True)
class Label:
    """What one arrow or one line of a box says."""

    events: tuple[str, ...]
    guards: tuple[str, ...]
    effects: tuple[str, ...]
    deadline: str
    path: str = ""
    landmark: str = ""


@dataclass(slots=True)
class Picture:
    """What was drawn, by identifier; labels as they are shown."""

    titles: dict[str, str] = field(default_factory=dict)
    boxes: dict[str, list[str]] = field(default_factory=dict)
    gathers: dict[str, list[str]] = field(default_factory=dict)
    """Boxes that stand for several states, with the titles of these states."""
    arrows: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    starts: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    halves: list[tuple[str, str]] = field(default_factory=list)
    """Arrows without a label: into a box that says what an arrow reads, and out of it."""
    steps: dict[str, str] = field(default_factory=dict)
    """Such a box's identifier, to the class that colors it."""
    styles: set[str] = field(default_factory=set)
    classes: dict[str, list[str]] = field(default_factory=dict)


def read_picture(text: str) -> Picture:
    """The picture that ``text`` draws.

    Raises:
        ValueError: a line is not of the grammar, names a state that is not declared, or declares one twice.
    """
    first, *rest = text.removesuffix("\n").split("\n")
    if first != "stateDiagram-v2" or not text.endswith("\n"):
        raise ValueError(first)
    picture = Picture()
    for line in rest:
        if not line.startswith("    "):
            raise ValueError(line)
        _read_line(picture, line[4:])
    _check_names(picture)
    _join_halves(picture)
    return picture


def read_label(text: str) -> Label:
    """The parts of a label; names must be plain identifiers."""
    found = _LABEL.fullmatch(text)
    if not found:
        raise ValueError(text)
    parts = {name: tuple(value.split(", ")) if value else () for name, value in found.groupdict().items()}
    marks = found["path"] or "", found["landmark"] or ""
    return Label(parts["events"], parts["guards"], parts["effects"], found["deadline"] or "", *marks)


def sources(picture: Picture, name: str) -> list[str]:
    """The titles of the states that an arrow from this box leads from."""
    if name not in picture.gathers:
        return [picture.titles[name]]
    states = [title for other, title in picture.titles.items() if other not in picture.gathers]
    listed = picture.gathers[name]
    return {
        "any of": listed,
        "any but": [title for title in states if title not in listed],
        "any state": states,
    }[picture.titles[name]]


def shown(text: str) -> str:
    """What a reader sees: entities replaced.

    Raises:
        ValueError: a character stands there that could be taken for syntax.
    """
    if not _HARMLESS.fullmatch(text):
        raise ValueError(text)
    return _ENTITY.sub(lambda match: chr(int(match[1])), text)


def _read_line(picture: Picture, line: str) -> None:
    for pattern, read in _GRAMMAR:
        if found := pattern.fullmatch(line):
            return read(picture, found)
    raise ValueError(line)


def _read_state(picture: Picture, found: re.Match[str]) -> None:
    _once(picture.titles, found[2], " ".join(shown(line) for line in found[1].split("<br/>")))


def _join_halves(picture: Picture) -> None:
    """Each box of a step is the label of one arrow from where the half before it begins to where the other ends."""
    for kind in [kind for kind in picture.classes if kind.startswith(_STEP_CLASS)]:
        picture.steps.update(dict.fromkeys(picture.classes.pop(kind), kind))
    into = {target: source for source, target in picture.halves if target in picture.steps}
    out = {source: target for source, target in picture.halves if source in picture.steps}
    if not set(into) == set(out) == set(picture.steps) or len(picture.halves) != 2 * len(picture.steps):
        raise ValueError(picture.halves)
    for step in picture.steps:
        first, *others = re.split(r"(?:^| )• ", picture.titles.pop(step))
        labels = [label for label in (first, *others) if label]
        picture.arrows.setdefault((into[step], out[step]), []).extend(labels)


def _read_arrow(picture: Picture, found: re.Match[str]) -> None:
    labels = [shown(part).removeprefix("• ") for part in found[3].split("<br/>")]
    _once(picture.arrows, (found[1], found[2]), labels)


def _read_box(picture: Picture, found: re.Match[str]) -> None:
    if picture.titles.get(found[1]) in _GATHERING and found[1].startswith("any_"):
        picture.gathers[found[1]] = [shown(part) for part in found[2].split("<br/>")]
        return
    folded = " ".join(shown(part).strip() for part in found[2].split("<br/>"))
    picture.boxes.setdefault(found[1], []).append(folded)


def _read_class(picture: Picture, found: re.Match[str]) -> None:
    _once(picture.classes, found[2], found[1].split(","))


def _once(found: dict[K, V], key: K, value: V) -> None:
    if key in found:
        raise ValueError(key)
    found[key] = value


_GATHERING = ("any of", "any but", "any state")
_GRAMMAR: tuple[tuple[re.Pattern[str], Callable[[Picture, re.Match[str]], None]], ...] = (
    (re.compile("direction TB"), lambda _picture, _found: None),
    (_GAPS, lambda _picture, _found: None),
    (_LEGEND, lambda _picture, _found: None),
    (_STATE, _read_state),
    (_ARROW, _read_arrow),
    (_HALF, lambda picture, found: picture.halves.append((found[1], found[2]))),
    (_START, lambda picture, found: picture.starts.append(found[1])),
    (_END, lambda picture, found: picture.ends.append(found[1])),
    (_BOX, _read_box),
    (_CLASS_DEFINITION, lambda picture, found: picture.styles.add(found[1])),
    (_CLASS, _read_class),
)


def _check_names(picture: Picture) -> None:
    used = {name for pair in picture.arrows for name in pair} | set(picture.boxes)
    used |= {name for pair in picture.halves for name in pair}
    used |= {*picture.starts, *picture.ends, *(name for names in picture.classes.values() for name in names)}
    if strange := used - set(picture.titles):
        raise ValueError(strange)
    if strange := set(picture.classes) - picture.styles:
        raise ValueError(strange)
