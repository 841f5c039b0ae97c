"""Code blocks of Markdown pages: what there is, and what hidden comments say about them.

A comment stands before the block that it is about::

    <!-- docs: with fleet -->         hidden set-up, by name (tests/support/page_sceneries.py)
    <!-- docs: exit 1 -->             the last command of the block ends so
    <!-- docs: shown because ... -->  the block is only shown, for this reason
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from support.house import ROOT

RUN = ("python", "console", "toml", "yaml")
"""Languages whose blocks run; of the others there is nothing to run."""
DRAWN = ("mermaid", "dot", "json", "text", "promela", "xml", "{toctree}", "{eval-rst}", "{figure}")

_MARK = re.compile(r"<!-- docs: (with|exit|shown) (.+?) -->")
_ANY_MARK = re.compile(r"<!--\s*docs:.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    scenery: tuple[str, ...] = ()
    exit_status: int = 0
    shown_because: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A command of a console block, and what the page shows as its output."""

    command: str
    output: str


def pages() -> list[Path]:
    """README and every page of the documentation, sorted."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page_name(path: Path) -> str:
    """A page's path from the root."""
    return path.relative_to(ROOT).as_posix()


def blocks(text: str, page: str) -> list[Block]:
    """The fenced blocks of a page, in order, also those inside of lists and quotes.

    Raises:
        ValueError: a mark is misspelled, or no block follows it.
    """
    found: list[Block] = []
    marks: list[tuple[str, str]] = []
    for token in MarkdownIt().parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            marks += _marks(token.content, page, line)
        elif token.type == "fence":
            found.append(_block(page, line + 1, token.info.strip(), token.content, marks))
            marks = []
        elif marks and token.type.endswith("_open"):
            raise ValueError(f"{page}:{line}: the mark before this is about no block: {marks}")
    if marks:
        raise ValueError(f"{page}: the last mark is about no block: {marks}")
    return found


def exchanges(text: str) -> list[Exchange]:
    """The commands of a console block, each with what is shown behind it.

    Raises:
        ValueError: it begins with output, or a line of a command that goes on stands alone.
    """
    found: list[Exchange] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Exchange(line[2:], ""))
        elif not found:
            raise ValueError(f"a console block begins with a command, not with {line!r}")
        elif line.startswith("> ") and not found[-1].output:
            found[-1] = Exchange(f"{found[-1].command}\n{line[2:]}", "")
        else:
            found[-1] = Exchange(found[-1].command, f"{found[-1].output}{line}\n")
    return found


def file_name(block: Block) -> str | None:
    """The file that a block is meant to be: its first line is a comment with nothing but the name."""
    found = re.match(r"# ([a-z_]+\.(?:py|toml))\n", block.text)
    return found[1] if found else None


def _marks(html: str, page: str, line: int) -> Iterator[tuple[str, str]]:
    for mark in _ANY_MARK.findall(html):
        found = _MARK.fullmatch(mark)
        if not found:
            raise ValueError(f"{page}:{line}: {mark} is no mark")
        yield found[1], found[2]


def _block(page: str, line: int, language: str, text: str, marks: list[tuple[str, str]]) -> Block:
    return Block(
        page,
        line,
        language.partition(" ")[0],
        text,
        scenery=tuple(word for kind, word in marks if kind == "with"),
        exit_status=next((int(word) for kind, word in marks if kind == "exit"), 0),
        shown_because=next((words.removeprefix("because ") for kind, words in marks if kind == "shown"), ""),
    )
