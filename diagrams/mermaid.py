"""A table as a Mermaid state diagram (``stateDiagram-v2``).

An arrow reads ``event, event [guard, not guard] / effect, effect @deadline``, behind the mark of its path. A step that
stays in its state stands inside the state's box, and so does the budget that bounds a wait there; a refusal stands in
no picture, only in the Markdown table. A step that is the same from several states goes out from a box that lists
them. A resting state has a broken border, a final one a thick border and an arrow to the end.

What an arrow reads stands in a borderless box on it, in the color of its path: Mermaid lays labels of arrows over one
another, which it never does to boxes, and it colors no label. Hosts refuse more than 500 arrows; where the halves would
come near that, labels are labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from textwrap import wrap
from typing import Final, TypeVar

from quiesce.diagrams.annotations import PathKind
from quiesce.diagrams.compose import draw
from quiesce.diagrams.drawing import Drawing, Label
from quiesce.diagrams.escape import mermaid_text
from quiesce.diagrams.marks import LANDMARK, STROKES, inner_lines, legend, marked, stroke_of
from quiesce.fsm.rows import Table

__all__ = ["mermaid_of", "render_mermaid"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

_INDENT: Final = "    "
_BREAK: Final = "<br/>"
_BOX_CHARACTERS: Final = 100
_SPACING: Final = '"state": {"nodeSpacing": 15, "rankSpacing": 25}'
"""Gaps are around what an arrow reads, too; as Mermaid chooses them, pictures are too wide."""
_OWN_FOLDS: Final = '"flowchart": {"wrappingWidth": 400}'
"""Boxes of states are folded by Mermaid as those of flowcharts are, at 200 px: within lines that are folded here."""
_INIT: Final = f"%%{{init: {{{_SPACING}, {_OWN_FOLDS}}}}}%%"
_STEP_CHARACTERS: Final = 32
_HALVED_MAX: Final = 200
_FOLDED: Final = 4 * chr(0xA0)
_PATHS: Final = (PathKind.HAPPY, PathKind.FAILURE, PathKind.RECOVERY)
# strokes only: a fill would have to suit a light page and a dark one
_STYLES: Final = {
    "resting": "stroke-dasharray:6 4,stroke-width:2px",
    "final": "stroke-width:4px",
    **{path.value: f"stroke:{STROKES[path.value].color}" for path in _PATHS},
}

# between light and dark, for pages of either kind
_INKS: Final = {
    PathKind.HAPPY.value: "#2a9450",
    PathKind.FAILURE.value: "#d9483d",
    PathKind.RECOVERY.value: "#bf7014",
    LANDMARK: "#8b55ee",
    "same": "#8a8f96",
    "here": "#3b7de8",
    "there": "#d9483d",
}


def render_mermaid(table: Table[S, E]) -> str:
    """The picture of ``table``, ending in a line break; the same table gives the same bytes.

    >>> from quiesce.fsm.rows import Row, Table
    >>> from enum import Enum
    >>> Lamp = Enum("Lamp", {"OFF": "off", "ON": "on"})
    >>> Press = Enum("Press", {"PRESS": "press"})
    >>> rows = (
    ...     Row(Lamp.OFF, Press.PRESS, (), Lamp.ON, (), "light"),
    ...     Row(Lamp.ON, Press.PRESS, (), Lamp.OFF, (), "dark"),
    ... )
    >>> lamp = Table("lamp", "A lamp", Lamp, Press, Lamp.OFF, (), (), rows)
    >>> print(render_mermaid(lamp), end="")
    stateDiagram-v2
        %%{init: {"state": {"nodeSpacing": 15, "rankSpacing": 25}, "flowchart": {"wrappingWidth": 400}}}%%
        direction TB
        state "off" as off
        state "on" as on
        [*] --> off
        state "press" as step_1
        off --> step_1
        step_1 --> on
        state "press" as step_2
        on --> step_2
        step_2 --> off
        classDef step fill:none,stroke:none,font-size:13px
        class step_1,step_2 step
    """
    return mermaid_of(draw(table))


def mermaid_of(drawing: Drawing) -> str:
    """A drawing as Mermaid, ending in a line break."""
    meaning = legend(drawing)
    lines = [f"%% {', '.join(text for _, text in meaning)}"] if meaning else []
    lines += [_INIT, "direction TB"]
    lines += [f'state "{mermaid_text(node.title)}" as {node.name}' for node in drawing.nodes]
    lines += _boxes(drawing)
    lines += [f"[*] --> {node.name}" for node in drawing.nodes if node.is_initial]
    lines += _steps(drawing) if len(drawing.arrows) <= _HALVED_MAX else _labelled(drawing)
    lines += [f"{node.name} --> [*]" for node in drawing.nodes if node.is_final]
    lines += _classes(drawing)
    return "stateDiagram-v2\n" + "".join(f"{_INDENT}{line}\n" for line in lines)


def _boxes(drawing: Drawing) -> Iterator[str]:
    """What is written inside the states: the budget that bounds a wait, and the steps that stay."""
    for node in drawing.nodes:
        if node.waits:
            yield f"{node.name} : waits @{mermaid_text(node.waits)}"
        for line in inner_lines(node):
            yield f"{node.name} : {mermaid_text(line)}"
        if node.gathers:
            yield f"{node.name} : {_BREAK.join(map(mermaid_text, node.gathers))}"
        for label in node.inside:
            lines = wrap(
                marked(label),
                _BOX_CHARACTERS,
                subsequent_indent=_FOLDED,
                break_long_words=False,
                break_on_hyphens=False,
            )
            yield f"{node.name} : {_BREAK.join(mermaid_text(line) for line in lines)}"
        if node.hidden:
            yield f"{node.name} : {node.hidden_text}"


def _steps(drawing: Drawing) -> Iterator[str]:
    """Every arrow in two halves, with a box between them that says what it reads."""
    names = _step_names(drawing)
    colored: dict[str, list[str]] = {}
    for name, arrow in zip(names, drawing.arrows, strict=True):
        labels = [_folded_step(marked(label)) for label in arrow.labels]
        if len(labels) > 1:
            labels = [[f"• {first}", *rest] for first, *rest in labels]
        yield f'state "{_BREAK.join(mermaid_text(line) for lines in labels for line in lines)}" as {name}'
        yield f"{arrow.source} --> {name}"
        yield f"{name} --> {arrow.target}"
        stroke = stroke_of(arrow)
        kind = "step" if stroke is STROKES[PathKind.PLAIN.value] else f"step{stroke.name}"
        colored.setdefault(kind, []).append(name)
    for kind, members in colored.items():
        color = f",color:{_INKS[kind.removeprefix('step')]}" if kind != "step" else ""
        yield f"classDef {kind} fill:none,stroke:none,font-size:13px{color}"
        yield f"class {','.join(members)} {kind}"


def _folded_step(text: str) -> list[str]:
    return wrap(text, _STEP_CHARACTERS, break_long_words=False, break_on_hyphens=False) or [text]


def _step_names(drawing: Drawing) -> list[str]:
    taken = {node.name for node in drawing.nodes}
    prefix = "step"
    while any(name.startswith(f"{prefix}_") for name in taken):
        prefix += "_"
    return [f"{prefix}_{number}" for number in range(1, len(drawing.arrows) + 1)]


def _labelled(drawing: Drawing) -> Iterator[str]:
    """Arrows with labels; those of one source and target are drawn as one."""
    pairs: dict[tuple[str, str], list[Label]] = {}
    for arrow in drawing.arrows:
        pairs.setdefault((arrow.source, arrow.target), []).extend(arrow.labels)
    for (source, target), found in pairs.items():
        labels = [mermaid_text(marked(label)) for label in found]
        # Mermaid folds long labels: where there are several, a mark tells a new one from a folded one
        text = labels[0] if len(labels) == 1 else _BREAK.join(f"• {label}" for label in labels)
        yield f"{source} --> {target} : {text}"


def _classes(drawing: Drawing) -> Iterator[str]:
    members = {
        "resting": [node.name for node in drawing.nodes if node.is_resting],
        "final": [node.name for node in drawing.nodes if node.is_final],
        **{path.value: [node.name for node in drawing.nodes if node.path is path] for path in _PATHS},
    }
    used = {kind: names for kind, names in members.items() if names}
    yield from (f"classDef {kind} {_STYLES[kind]}" for kind in used)
    yield from (f"class {','.join(names)} {kind}" for kind, names in used.items())
