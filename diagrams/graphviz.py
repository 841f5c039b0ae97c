"""Pictures through the program ``dot``: SVG that follows light and dark pages, and PNG."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

from quiesce.diagrams.marks import STROKES
from quiesce.fsm.errors import QuiesceError

__all__ = ["DotFailed", "DotMissing", "dark_style", "draw_png", "draw_svg", "has_dot"]

_PROGRAM: Final = "dot"
_PATIENCE_S: Final = 300
_INK_DARK, _PAGE_DARK = "#e8eaed", "#1b1c1f"
# what differs between releases of Graphviz and says nothing
_PROLOGUE: Final = re.compile(r"^.*?(?=<svg )", re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->\n?", re.DOTALL)


class DotMissing(QuiesceError):
    """SVG and PNG are drawn by the program ``dot``, which is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "SVG and PNG are drawn by the program 'dot', which is not found; install it (Debian: apt-get install"
            " graphviz), or ask for the format dot, mermaid or plantuml, which need no program"
        )


class DotFailed(QuiesceError):
    """The program ``dot`` did not draw what it was given; the text says what it said."""


def has_dot() -> bool:
    """Whether the program is installed."""
    return shutil.which(_PROGRAM) is not None


def draw_svg(source: str) -> str:
    """The picture of a graph of ours as one ``<svg>`` element, ending in a line break.

    Raises:
        DotMissing: the program is not installed.
        DotFailed: it refused the source, or took too long.
    """
    drawn = _COMMENT.sub("", _PROLOGUE.sub("", _run("svg", source).decode()))
    return drawn.replace(">", f">\n<style>\n{dark_style()}</style>", 1)


def draw_png(source: str) -> bytes:
    """The picture of a graph of ours, on white; raises as draw_svg."""
    return _run("png", source)


def _run(form: str, source: str) -> bytes:
    if not has_dot():
        raise DotMissing
    try:
        done = subprocess.run(  # noqa: S603 - arguments of ours; the graph goes in as text
            [_PROGRAM, f"-T{form}"],
            input=source.encode(),
            capture_output=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise DotFailed(f"dot has not drawn it after {_PATIENCE_S} s; a neighbourhood is drawn by --focus") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()[:500]
        raise DotFailed(f"dot ended with {error.returncode}: {said}") from None
    return done.stdout


def dark_style() -> str:
    """Rules for pages that are dark; a viewer without style sheets shows the light picture."""
    return "".join(_rules())


def _rules() -> Iterator[str]:
    yield "@media (prefers-color-scheme: dark) {\n"
    yield f"  .graph > polygon {{ fill: {_PAGE_DARK}; stroke: none }}\n"
    yield f"  .node path, .node polygon {{ fill: {_PAGE_DARK}; stroke: #9aa0a6 }}\n"
    # the outer line of a final state lies over the inner one
    yield '  .node path[fill="none"] { fill: none }\n'
    yield "  .gathers polygon, .gathers polyline { fill: #303134; stroke: #9aa0a6 }\n"
    yield f"  .start ellipse, .start polygon {{ fill: {_INK_DARK}; stroke: {_INK_DARK} }}\n"
    yield f"  .start path {{ stroke: {_INK_DARK} }}\n"
    yield f"  text {{ fill: {_INK_DARK} }}\n"
    for name, stroke in STROKES.items():
        yield f"  .{name} path, .node.{name} polygon {{ stroke: {stroke.dark} }}\n"
        yield f"  .edge.{name} polygon {{ fill: {stroke.dark}; stroke: {stroke.dark} }}\n"
        yield f'  .label.{name} text, text[fill="{stroke.color}"] {{ fill: {stroke.dark} }}\n'
    yield "  .node.label polygon { stroke: none }\n"
    yield "}\n"
