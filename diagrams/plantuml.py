"""A table as a PlantUML state diagram. It keeps to what the PlantUML of Debian 12 (1.2020) knows."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, TypeVar

from quiesce.diagrams.annotations import PathKind
from quiesce.diagrams.compose import draw
from quiesce.diagrams.drawing import Arrow, Drawing, Label, Node
from quiesce.diagrams.escape import plantuml_text
from quiesce.diagrams.marks import STROKES, Stroke, inner_lines, legend, lines, stroke_of
from quiesce.fsm.rows import Table

__all__ = ["plantuml_of", "render_plantuml"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

_ARROW_CHARACTERS: Final = 40
_BOX_CHARACTERS: Final = 60
_BOLD: Final = frozenset({"landmark", "events"})
_BREAK: Final = r"\n"
_PATHS: Final = (PathKind.HAPPY, PathKind.FAILURE, PathKind.RECOVERY)
_HEAD: Final = (
    "hide empty description",
    "hide stereotype",
    "skinparam defaultTextAlignment left",
    "skinparam state {",
    "  BackgroundColor #ffffff",
    "  BorderColor #3c4043",
    "  ArrowFontSize 10",
    "  AttributeFontSize 10",
    *(f"  BorderColor<<{path.value}>> {STROKES[path.value].color}" for path in _PATHS),
    "  BorderColor<<gathers>> #8a8f96",
    "  BackgroundColor<<gathers>> #f1f3f4",
    "}",
)


def render_plantuml(table: Table[S, E]) -> str:
    """The picture of ``table``, ending in a line break; the same table gives the same bytes."""
    return plantuml_of(draw(table))


def plantuml_of(drawing: Drawing) -> str:
    """A drawing as PlantUML, ending in a line break."""
    found = [*_HEAD, f"title {plantuml_text(drawing.title) or '(untitled)'}"]
    meaning = legend(drawing)
    if meaning:
        words = [f"<color:{STROKES[name].color}>{plantuml_text(text)}</color>" for name, text in meaning]
        found += ["legend top", *words, "endlegend"]
    for node in drawing.nodes:
        found += _node(node)
    found += [f"[*] --> {node.name}" for node in drawing.nodes if node.is_initial]
    found += [_arrow(arrow) for arrow in drawing.arrows]
    found += [f"{node.name} --> [*]" for node in drawing.nodes if node.is_final]
    return "".join(f"{line}\n" for line in ("@startuml", *found, "@enduml"))


def _node(node: Node) -> Iterator[str]:
    kind = "gathers" if node.gathers else node.path.value if node.path in _PATHS else ""
    border = f" ##[{'dashed' if node.is_resting else 'bold'}]" if node.is_resting or node.is_final else ""
    yield f'state "{plantuml_text(node.title)}" as {node.name}{f" <<{kind}>>" if kind else ""}{border}'
    found = [f"waits @{plantuml_text(node.waits)}"] if node.waits else []
    found += [plantuml_text(line) for line in inner_lines(node)]
    found += [plantuml_text(title) for title in node.gathers]
    found += [line for label in node.inside for line in _lines(label, _BOX_CHARACTERS)]
    found += [node.hidden_text] if node.hidden else []
    # a box of a title alone has no broken border
    found += ["at rest"] if node.is_resting and not found else []
    yield from (f"{node.name} : {line}" for line in found)


def _arrow(arrow: Arrow) -> str:
    text = _BREAK.join(line for label in arrow.labels for line in _lines(label, _ARROW_CHARACTERS))
    return f"{arrow.source} -{_looks(stroke_of(arrow))}-> {arrow.target} : {text}"


def _looks(stroke: Stroke) -> str:
    style = "" if stroke.style == "solid" else f",{stroke.style}"
    return f"[{stroke.color}{style},thickness={max(1, round(stroke.width))}]"


def _lines(label: Label, width: int) -> Iterator[str]:
    for line in lines(label, width=width):
        yield " ".join(_bold(text) if name in _BOLD else plantuml_text(text) for name, text in line)


def _bold(text: str) -> str:
    return f"<b>{plantuml_text(text)}</b>"
