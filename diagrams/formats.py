"""Every format in which a table can be had, and one function that renders any table in any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Final, TypeVar

from quiesce.diagrams.annotations import Annotations
from quiesce.diagrams.compose import draw
from quiesce.diagrams.dot import dot_of
from quiesce.diagrams.drawing import Drawing
from quiesce.diagrams.escape import markdown_code
from quiesce.diagrams.focus import Focus, around
from quiesce.diagrams.graphviz import draw_png, draw_svg
from quiesce.diagrams.markdown import render_difference, render_markdown
from quiesce.diagrams.mermaid import mermaid_of
from quiesce.diagrams.plantuml import plantuml_of
from quiesce.diagrams.promela import render_promela
from quiesce.diagrams.scxml import render_scxml
from quiesce.diagrams.xstate import render_xstate
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.rows import Table

__all__ = ["LEGEND", "SUFFIXES", "Format", "NotInThisFormat", "render"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

LEGEND: Final = """\
An arrow reads `event, event [guard, not guard] / effect, effect @deadline`; ✓ is the happy path, ✗ a failure, ↺ a
recovery, ★ a way that is worth finding. What is the same from several states goes out once, from a box that lists them.
A step that stays in its state stands inside the state's box; a refusal stands only in the table of rows. A resting
state (broken border) reports an outcome and may be left again; a final one (thick border) is never left.
"""
_CHANGES: Final = """\
A blue `+` is only in {here}, with where it comes from; a red `–` is only in {there}; what is the same on both sides is
grey, and inside the boxes it is left out.
"""


class Format(StrEnum):
    """How a machine can be shown."""

    MERMAID = "mermaid"
    MARKDOWN = "markdown"
    DOT = "dot"
    PLANTUML = "plantuml"
    SVG = "svg"
    PNG = "png"
    SCXML = "scxml"
    XSTATE = "xstate"
    PROMELA = "promela"


SUFFIXES: Final[Mapping[Format, str]] = {
    Format.MERMAID: ".mmd",
    Format.MARKDOWN: ".md",
    Format.DOT: ".dot",
    Format.PLANTUML: ".puml",
    Format.SVG: ".svg",
    Format.PNG: ".png",
    Format.SCXML: ".scxml",
    Format.XSTATE: ".xstate.json",
    Format.PROMELA: ".pml",
}
"""The endings of the files."""

_PICTURES: Final[Mapping[Format, Callable[[Drawing], str | bytes]]] = {
    Format.MERMAID: mermaid_of,
    Format.DOT: dot_of,
    Format.PLANTUML: plantuml_of,
    Format.SVG: lambda drawing: draw_svg(dot_of(drawing)),
    Format.PNG: lambda drawing: draw_png(dot_of(drawing)),
}


class NotInThisFormat(QuiesceError):
    """What was asked for does not exist in this format. The text says in which it does."""


def render(
    table: Table[S, E],
    form: Format,
    *,
    annotations: Annotations[S, E] | None = None,
    focus: Focus | None = None,
    against: Table[S, E] | None = None,
) -> str | bytes:
    """``table`` in a format, ending in a line break; PNG is bytes. Arguments as of :func:`quiesce.diagrams.draw`.

    Raises:
        UnknownState: the focus names no state of the table.
        NotInThisFormat: a part or a difference was asked for where there are whole machines only.
        DotMissing, DotFailed: SVG and PNG only.
    """
    if form in _PICTURES:
        return _PICTURES[form](draw(table, annotations=annotations, focus=focus, against=against))
    if form is Format.MARKDOWN:
        return _page(table, annotations, focus, against)
    if focus or against is not None:
        wanted = "a neighbourhood" if focus else "a difference"
        raise NotInThisFormat(f"{form.value} holds whole machines; {wanted} can be had in {', '.join(_PICTURES)}")
    if form is Format.PROMELA:
        return render_promela(table)
    return render_scxml(table) if form is Format.SCXML else render_xstate(table, annotations=annotations)


def _page(
    table: Table[S, E], annotations: Annotations[S, E] | None, focus: Focus | None, against: Table[S, E] | None
) -> str:
    """Picture, legend and tables, without a title."""
    picture = mermaid_of(draw(table, annotations=annotations, focus=focus, against=against))
    head = f"```mermaid\n{picture}```\n\n{LEGEND}"
    if against is not None:
        changes = _CHANGES.format(here=markdown_code(table.name), there=markdown_code(against.name))
        return f"{head}{changes}\n{render_difference(table, against)}"
    only = around(table, focus).keys() if focus else None
    return f"{head}\n{render_markdown(table, only=only)}"
