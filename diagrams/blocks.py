"""Marked blocks in Markdown documents, ours and users', that are made anew in place.

A block looks so::

    <!-- quiesce:diagram transaction mermaid -->
    ... whatever stood here is replaced ...
    <!-- /quiesce -->

The opening mark names a machine (or ``module:NAME``), a format and, if wanted, ``focus=STATE:N``. Mermaid, DOT,
PlantUML, SCXML and XState become fenced code, Markdown its picture and tables, SVG an inline picture. A mark counts
only where it stands alone on its line and outside of fenced code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from quiesce.diagrams.catalog import find_sheet
from quiesce.diagrams.escape import markdown_cell
from quiesce.diagrams.focus import Focus
from quiesce.diagrams.formats import Format, render
from quiesce.diagrams.own_table import load_table, names_a_module
from quiesce.fsm.errors import QuiesceError

__all__ = ["BlockFault", "render_named", "update_blocks"]

_OPENING: Final = re.compile(r"[ ]{0,3}<!--\s*quiesce:diagram\s+(?P<request>.*?)\s*-->\s*")
_CLOSING: Final = re.compile(r"[ ]{0,3}<!--\s*/quiesce\s*-->\s*")
_FENCE: Final = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<rest>.*)")
_LANGUAGES: Final = {
    Format.MERMAID: "mermaid",
    Format.DOT: "dot",
    Format.PLANTUML: "plantuml",
    Format.SCXML: "xml",
    Format.XSTATE: "json",
    Format.PROMELA: "promela",
}
_TICKS_MIN: Final = 3
_BYTE_ORDER: Final = "\ufeff"
"""What some editors begin a file with; it is no part of the first line."""


class BlockFault(QuiesceError):
    """A marked block that cannot be made. The text names the line."""


@dataclass(frozen=True, slots=True)
class _Request:
    machine: str
    form: Format
    focus: Focus | None


def render_named(machine: str, form: Format, focus: Focus | None = None) -> str | bytes:
    """A machine of ours by its name, or a table ``module:NAME``, in a format.

    Raises:
        UnknownMachine, TableNotFound: there is none.
        NotInThisFormat, UnknownState, DotMissing, DotFailed: as :func:`quiesce.diagrams.render`.
    """
    if not names_a_module(machine):
        return find_sheet(machine).render(form, focus=focus)
    table, annotations = load_table(machine)
    found = render(table, form, annotations=annotations, focus=focus)
    return f"# {markdown_cell(f'{machine}: {table.title}')}\n\n{found!s}" if form is Format.MARKDOWN else found


def update_blocks(text: str) -> tuple[str, int]:
    """``text`` with every marked block made anew, and how many there are. Line ends stay as the document has them.

    Raises:
        BlockFault: a block is not closed, names what is not there, or asks for PNG; the text names its line.
    """
    found = [_BYTE_ORDER] if text.startswith(_BYTE_ORDER) else []
    count = 0
    lines = iter(enumerate(text.removeprefix(_BYTE_ORDER).splitlines(keepends=True), start=1))
    fence = ""
    for number, line in lines:
        found.append(line)
        fence = _fence_after(line, fence)
        opening = None if fence else _OPENING.fullmatch(line)
        if opening:
            closing = _skip_to_closing(lines, number)
            ending = "\r\n" if line.endswith("\r\n") else "\n"
            found += [_block(opening["request"], number).replace("\n", ending), closing]
            count += 1
        elif not fence and _CLOSING.fullmatch(line):
            raise BlockFault(f"line {number}: a block is closed here that was not opened")
    return "".join(found), count


def _fence_after(line: str, fence: str) -> str:
    """The mark of the fenced code that goes on behind this line, or nothing."""
    found = _FENCE.fullmatch(line.rstrip("\r\n"))
    if not found:
        return fence
    if not fence:
        return found["mark"]
    closes = found["mark"].startswith(fence) and not found["rest"].strip()
    return "" if closes else fence


def _skip_to_closing(lines: Iterator[tuple[int, str]], opened: int) -> str:
    fence = ""
    for number, line in lines:
        fence = _fence_after(line, fence)
        if not fence and _CLOSING.fullmatch(line):
            return line
        if not fence and _OPENING.fullmatch(line):
            raise BlockFault(f"line {number}: a block begins inside the one of line {opened}")
    raise BlockFault(f"line {opened}: the block is not closed by a line <!-- /quiesce -->")


def _block(request: str, number: int) -> str:
    try:
        asked = _parsed(request)
        text = render_named(asked.machine, asked.form, asked.focus)
    except BlockFault as error:
        raise BlockFault(f"line {number}: {error}") from None
    except QuiesceError as error:
        raise BlockFault(f"line {number}: {error}") from error
    if isinstance(text, bytes):
        raise BlockFault(f"line {number}: a document cannot hold PNG; ask for svg, or write the file with --output")
    return f"\n{_SHAPES.get(asked.form, _fenced)(text, asked.form)}\n"


def _parsed(request: str) -> _Request:
    machine, *rest = request.split()
    forms = [word for word in rest if not word.startswith("focus=")]
    wanted = [word.removeprefix("focus=") for word in rest if word.startswith("focus=")]
    known = ", ".join(form.value for form in Format if form is not Format.PNG)
    if len(forms) > 1 or len(wanted) > 1:
        raise BlockFault(f"'{request[:120]}' is not 'MACHINE FORMAT' or 'MACHINE FORMAT focus=STATE:N'")
    try:
        form = Format(forms[0]) if forms else Format.MERMAID
    except ValueError:
        raise BlockFault(f"there is no format '{forms[0][:40]}'; there are: {known}") from None
    return _Request(machine, form, Focus.parse(wanted[0]) if wanted else None)


def _fenced(text: str, form: Format) -> str:
    runs = [len(run) for run in re.findall("`+", text)]
    ticks = "`" * max(_TICKS_MIN, *(run + 1 for run in runs)) if runs else "`" * _TICKS_MIN
    return f"{ticks}{_LANGUAGES[form]}\n{text}{ticks}\n"


def _untitled(text: str, form: Format) -> str:
    """A page without its title, which is the document's matter, and its headings one level lower."""
    del form
    body = text.split("\n", 2)[2] if text.startswith("# ") else text
    return re.sub(r"^## ", "### ", body, flags=re.MULTILINE)


def _inline(text: str, form: Format) -> str:
    """HTML within Markdown ends at an empty line."""
    del form
    return "".join(f"{line}\n" for line in text.splitlines() if line.strip())


_SHAPES: Final[dict[Format, Callable[[str, Format], str]]] = {Format.MARKDOWN: _untitled, Format.SVG: _inline}
