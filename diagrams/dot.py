"""A table in the language of Graphviz: the source of the SVG and PNG pictures.

A label is a node of its own, in the middle of its arrow: Graphviz keeps nodes apart and leads arrows around them, and
does neither for the labels of arrows. Nodes of states have names, those of labels have numbers.

A drawing with too many arrows that lead far is not laid out in layers, which would take minutes, and says so in itself:
whoever draws the source gets the same picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, TypeVar

from quiesce.diagrams.annotations import PathKind
from quiesce.diagrams.compose import draw
from quiesce.diagrams.drawing import Arrow, Drawing, Label, Node
from quiesce.diagrams.escape import quoted, xml_text
from quiesce.diagrams.marks import LANDMARK, STROKES, inner_lines, legend, lines, stroke_of
from quiesce.diagrams.tangle import is_tangled
from quiesce.fsm.rows import Table

__all__ = ["FONT", "dot_of", "render_dot"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

FONT: Final = "DejaVu Sans,Verdana,sans-serif"
"""The two have the same widths, so that a picture fits its boxes where only one of them is installed."""

_INDENT: Final = "    "
_ARROW_CHARACTERS: Final = 34
_BOX_CHARACTERS: Final = 44
_LEFT: Final = '<BR ALIGN="LEFT"/>'
_INNER: Final = f'<FONT COLOR="{STROKES[LANDMARK].color}"><I>{{}}</I></FONT>'
_START: Final = "0"
_LABEL: Final = "shape=plain, style=filled, fontsize=9"
_PAGE: Final = 'rankdir=TB, outputorder=edgesfirst, bgcolor="white", nodesep=0.35, ranksep=0.45, pad=0.3'
_BOX: Final = 'shape=box, style="rounded,filled", fillcolor="white", color="#3c4043", margin="0.14,0.08"'
# where layers would take minutes: boxes pushed apart, joined by straight lines
_TANGLED: Final = 'graph [layout=sfdp, overlap=prism, sep="+9", splines=line]'
_HEAD: Final = (
    f'graph [{_PAGE}, fontname="{FONT}", fontsize=11]',
    f'node [{_BOX}, fontname="{FONT}", fontsize=11]',
    "edge [arrowsize=0.8]",
)


def render_dot(table: Table[S, E]) -> str:
    """The picture of ``table`` for the program ``dot``, ending in a line break; the same table gives the same bytes."""
    return dot_of(draw(table))


def dot_of(drawing: Drawing) -> str:
    """A drawing in the language of Graphviz, ending in a line break."""
    found = [*_HEAD, f"graph [label={_title(drawing)}, labelloc=t, labeljust=l]"]
    found += [_TANGLED] if is_tangled(drawing) else []
    found += [_node(node) for node in drawing.nodes]
    found += [line for node in drawing.nodes if node.is_initial for line in _start(node)]
    found += [line for number, arrow in enumerate(drawing.arrows, start=1) for line in _arrow(arrow, number)]
    return f"digraph {quoted(drawing.name)} {{\n" + "".join(f"{_INDENT}{line}\n" for line in found) + "}\n"


def _start(node: Node) -> tuple[str, str]:
    dot = 'shape=circle, style=filled, fillcolor="#3c4043", width=0.18, label=""'
    return f'"{_START}" [{dot}, class="start"]', f'"{_START}" -> "{node.name}" [class="start"]'


def _title(drawing: Drawing) -> str:
    words = [f'<FONT COLOR="{STROKES[name].color}">{_text(text)}</FONT>' for name, text in legend(drawing)]
    below = f'<FONT POINT-SIZE="10">{"&#160;&#160;&#160;".join(words)}</FONT>{_LEFT}' if words else ""
    return f'<<FONT POINT-SIZE="14"><B>{_text(drawing.title)}</B></FONT>{_LEFT}{below}{_LEFT}>'


def _node(node: Node) -> str:
    head = [f"<B>{_text(node.title)}</B>"]
    head += [f"waits @{_text(node.waits)}"] if node.waits else []
    inner = [_INNER.format(_text(line)) for line in inner_lines(node)]
    head += inner[:1]
    inside = inner[1:]
    inside += [_tinted(label, line) for label in node.inside for line in _lines(label, _BOX_CHARACTERS)]
    inside += [_text(title) for title in node.gathers]
    hidden = [node.hidden_text] if node.hidden else []
    # behind the list where there is one: between a heading and what it heads it could not be read
    head, inside = (head, [*inside, *hidden]) if inside else ([*head, *hidden], inside)
    small = f'<FONT POINT-SIZE="9">{_stack(inside)}</FONT>' if inside else ""
    label = f"<{'<BR/>'.join(head)}{'<BR/>' if small else ''}{small}>"
    attributes = [f"label={label}", *_node_looks(node)]
    return f'"{node.name}" [{", ".join(attributes)}]'


def _node_looks(node: Node) -> Iterator[str]:
    classes = [node.path.value] if node.path is not PathKind.PLAIN else []
    if node.gathers:
        yield 'shape=note, style=filled, fillcolor="#f1f3f4", color="#8a8f96"'
        classes.append("gathers")
    elif node.path is not PathKind.PLAIN:
        yield f'color="{STROKES[node.path.value].color}"'
    if node.is_resting:
        yield 'style="rounded,filled,dashed", penwidth=1.6'
        classes.append("resting")
    if node.is_final:
        yield "peripheries=2"
        classes.append("final")
    if classes:
        yield f'class="{" ".join(classes)}"'


def _arrow(arrow: Arrow, number: int) -> Iterator[str]:
    stroke = stroke_of(arrow)
    label = _stack(line for label in arrow.labels for line in _lines(label, _ARROW_CHARACTERS))
    looks = f'color="{stroke.color}", style={stroke.style}, penwidth={stroke.width}, class="{stroke.name}"'
    if stroke.name == PathKind.HAPPY.value:
        # the happy path is kept straight, the rest goes around it
        looks += ", weight=12"
    yield f'"{number}" [{_LABEL}, label=<{label}>, fontcolor="{stroke.color}", class="label {stroke.name}"]'
    yield f'"{arrow.source}" -> "{number}" [{looks}, arrowhead=none]'
    yield f'"{number}" -> "{arrow.target}" [{looks}]'


def _text(words: str) -> str:
    # dot 2.43 takes a text of nothing but these for the beginning of the end of a CDATA section
    return xml_text(words) if words.strip("]") else "&#93;" * len(words)


def _stack(texts: Iterable[str]) -> str:
    """Lines below one another, a little away from the edge of their box."""
    return "".join(f"&#160;{text}&#160;{_LEFT}" for text in texts)


def _lines(label: Label, width: int) -> Iterator[str]:
    for line in lines(label, width=width):
        # one more than a space, since a viewer may draw bold letters wider than dot has measured them
        yield "&#160; ".join(_FACES.get(name, "{}").format(_text(text)) for name, text in line)


def _tinted(label: Label, line: str) -> str:
    """Inside the boxes color is for changes alone: paths are told by their marks there."""
    return f'<FONT COLOR="{stroke_of(label).color}">{line}</FONT>' if label.change else line


_FACES: Final = {"landmark": "<B>{}</B>", "events": "<B>{}</B>", "effects": "<I>{}</I>"}
