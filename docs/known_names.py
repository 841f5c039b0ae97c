"""For the site's builder: a name in a signature that exists but has no entry of its own is shown as plain text.

So ``-n`` finds what it is for, names that do not exist, and no list of exceptions has to be kept.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel

_SEVERAL_NAMES = re.compile(r" {4}([a-z_]+(?:, [a-z_]+)+): (.*)")
_COMMON = ("collections.abc", "types", "pydantic")
"""Where names come from that stand in signatures without their module."""
_NO_PYTHON = re.compile(r"<(?:function (\w+)|[^<>]+)>")
_VALUES = {"attribute", "data", "property"}

if TYPE_CHECKING:
    from docutils.nodes import Element, TextElement  # type: ignore[import-untyped]  # it has no types
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls to install an extension."""
    app.connect("missing-reference", _plain_where_known)
    app.connect("autodoc-process-signature", _readable)
    app.connect("autodoc-skip-member", _is_setting)
    app.connect("autodoc-process-docstring", _prepare, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", _undo_type, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _plain_where_known(
    _app: Sphinx, _env: BuildEnvironment, node: pending_xref, content: TextElement
) -> Element | None:
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].lstrip("~.")
    return content if any(map(_exists, _spelled_out(target, node))) else None


def _spelled_out(target: str, node: pending_xref) -> Iterator[str]:
    yield target
    if "." not in target:
        yield from (f"{module}.{target}" for module in _COMMON)
    module, owner = node.get("py:module"), node.get("py:class")
    if module:
        yield f"{module}.{target}"
    if module and owner:
        yield f"{module}.{owner}.{target}"


@cache
def _exists(name: str) -> bool:
    """Whether this is a name of an installed module, or of something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None) or getattr(found, "__annotations__", {}).get(part)
            if found is None:
                return False
        return True
    return hasattr(importlib.import_module("builtins"), name)


def _prepare(_app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """``a, b: what both are`` becomes two entries of *Attributes*; napoleon would take ``a,`` for the type of ``b``.

    An indented block behind an empty line is an example, whether a double colon stands before it or not.
    """
    if lines and lines[0].startswith("Alias for field number "):  # what a named tuple says of itself
        lines.clear()
    lines[:] = [one for line in _marked_examples(lines) for one in _separated(line)]


def _marked_examples(lines: list[str]) -> Iterator[str]:
    last = ""
    for number, line in enumerate(lines):
        yield line
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if not line and following.startswith("    ") and last[:1] not in {"", " ", "-"} and not last.endswith("::"):
            yield from ("::", "")
        last = line or last


def _separated(line: str) -> list[str]:
    found = _SEVERAL_NAMES.fullmatch(line)
    return [f"    {name}: {found[2]}" for name in found[1].split(", ")] if found else [line]


def _undo_type(_app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon in the docstring of an attribute for its type; here it is prose."""
    typed = next((at for at, line in enumerate(lines) if line.startswith(":type: ")), None)
    if what in _VALUES and typed is not None:
        lines[0] = f"{lines[typed].removeprefix(':type: ')}: {lines[0]}"
        del lines[typed]


def _readable(
    _app: Sphinx, what: str, _name: str, obj: object, _options: object, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """A model is made from a document, and a protocol never; a default like ``<factory>`` is no Python for a parser."""
    if what == "class" and isinstance(obj, type) and (issubclass(obj, BaseModel) or Protocol in obj.__bases__):
        return "", None
    if not signature or not _NO_PYTHON.search(signature):
        return None
    return _NO_PYTHON.sub(lambda found: found[1] or "...", signature), returns


def _is_setting(_app: Sphinx, _what: str, name: str, *_more: object) -> bool | None:
    """Whether to leave out a member: how a model is set up is no part of what it holds."""
    return True if name == "model_config" else None
