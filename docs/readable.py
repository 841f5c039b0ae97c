"""For the site's builder: pages say nothing that says nothing, and tables fit beside the navigation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes  # type: ignore[import-untyped]  # it has no types

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_TEXT = re.compile(r">[^<]+<")
# behind these a long name may go on in the next line
_JOINT = re.compile(r"(?<=[A-Za-z0-9\]])([_/]|\.(?=[a-z]))(?=[\w{])")


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls to install an extension."""
    app.connect("doctree-read", _without_object)
    app.connect("html-page-context", _breakable_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _without_object(_app: Sphinx, doctree: nodes.document) -> None:
    """Every class has the base ``object``."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        if paragraph.astext() == "Bases: object":
            paragraph.parent.remove(paragraph)


def _breakable_cells(_app: Sphinx, _page: str, _template: str, context: dict[str, object], _doctree: object) -> None:
    body = context.get("body")
    if isinstance(body, str):
        context["body"] = _CELL.sub(lambda cell: _TEXT.sub(_breakable, cell[0]), body)


def _breakable(text: re.Match[str]) -> str:
    return _JOINT.sub(r"\1<wbr>", text[0])
