"""A table as a Mermaid state diagram (``stateDiagram-v2``).

An arrow reads ``event, event [guard, not guard] / effect, effect @deadline``, behind the mark of its path. A step that
stays in its state stands inside the state's box, and so does the budget that bounds a wait there; a refusal stands in
no picture, only in the Markdown table. Arrows of one source and target are drawn as one; a step that is the same from
several states goes out from a box that lists them. A resting state has a broken border, a final one a thick border and
an arrow to the end. Mermaid cannot color an arrow of a state diagram: there the
mark alone tells the paths apart.
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
from quiesce.diagrams.marks import STROKES, legend, marked
from quiesce.fsm.rows import Table

__all__ = ["mermaid_of", "render_mermaid"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

_INDENT: Final = "    "
_BREAK: Final = "<br/>"
_BOX_CHARACTERS: Final = 100
_FOLDED: Final = 4 * chr(0xA0)
_PATHS: Final = (PathKind.HAPPY, PathKind.FAILURE, PathKind.RECOVERY)
# strokes only: a fill would have to suit a light page and a dark one
_STYLES: Final = {
    "resting": "stroke-dasharray:6 4,stroke-width:2px",
    "final": "stroke-width:4px",
    **{path.value: f"stroke:{STROKES[path.value].color}" for path in _PATHS},
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
        direction TB
        state "off" as off
        state "on" as on
        [*] --> off
        off --> on : press
        on --> off : press
    """
    return mermaid_of(draw(table))


def mermaid_of(drawing: Drawing) -> str:
    """A drawing as Mermaid, ending in a line break."""
    meaning = legend(drawing)
    lines = [f"%% {', '.join(text for _, text in meaning)}"] if meaning else []
    lines += ["direction TB"]
    lines += [f'state "{mermaid_text(node.title)}" as {node.name}' for node in drawing.nodes]
    lines += _boxes(drawing)
    lines += [f"[*] --> {node.name}" for node in drawing.nodes if node.is_initial]
    lines += _arrows(drawing)
    lines += [f"{node.name} --> [*]" for node in drawing.nodes if node.is_final]
    lines += _classes(drawing)
    return "stateDiagram-v2\n" + "".join(f"{_INDENT}{line}\n" for line in lines)


def _boxes(drawing: Drawing) -> Iterator[str]:
    """What is written inside the states: the budget that bounds a wait, and the steps that stay."""
    for node in drawing.nodes:
        if node.waits:
            yield f"{node.name} : waits @{mermaid_text(node.waits)}"
        if node.inner:
            yield f"{node.name} : {mermaid_text(node.inner)}"
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


def _arrows(drawing: Drawing) -> Iterator[str]:
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
