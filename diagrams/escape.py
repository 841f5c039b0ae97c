"""How names get into a picture or a table without being taken for syntax.

Names of a user's own table can hold anything: quotes, angle brackets, keywords, line breaks, any script.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar

__all__ = ["display_name", "markdown_cell", "markdown_code", "mermaid_identifiers", "mermaid_text", "one_line"]

S = TypeVar("S", bound=Enum)

_PLAIN_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
# keywords of Mermaid's lexer, and names that its layout engine keeps for itself
_RESERVED: Final = re.compile(
    "(acctitle|accdescr|statediagram).*|as|choice|class|classdef|click|constructor|default|direction|end|fork|hide|href"
    "|join|left|note|of|right|root|scale|state|style"
)
_TEXT_SAFE: Final = frozenset(" !()+,./=?@[]_-'")
# Mermaid reads labels as Markdown: an underscore is harmless only inside a word
_EMPHASIS: Final = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
# a table repeats its names and sentences hundreds of times
_REMEMBERED: Final = 4096
_MARKDOWN_ACTIVE: Final = frozenset("\\`*_{}[]<>#|!~$&")


@lru_cache(_REMEMBERED)
def one_line(text: str) -> str:
    r"""``text`` on one line, without characters that cannot be seen or encoded.

    >>> one_line("a\n  b\u202e")
    'a b'
    """
    return " ".join("".join(map(_visible, text)).split())


def display_name(member: Enum) -> str:
    """The text of a state or an event: its value on one line, or ``(empty)``."""
    return one_line(str(member.value)) or "(empty)"


def mermaid_identifiers(members: Iterable[S]) -> Mapping[S, str]:
    """One identifier for each member: readable where the name allows it, never a keyword, never given twice."""
    chosen: dict[S, str] = {}
    taken: set[str] = set()
    for number, member in enumerate(members, start=1):
        name = str(member.value)
        plain = _PLAIN_IDENTIFIER.fullmatch(name) and not _RESERVED.fullmatch(name)
        readable = name if plain else f"s_{re.sub(r'[^a-z0-9]+', '_', name.lower(), flags=re.ASCII).strip('_')}"
        unique = readable if readable not in taken else f"{readable}_{number}"
        while unique in taken:
            unique += "_"
        chosen[member] = unique
        taken.add(unique)
    return chosen


@lru_cache(_REMEMBERED)
def mermaid_text(text: str) -> str:
    """``text`` as Mermaid shows it and never reads it: what is no letter, digit or harmless mark is a numeric entity.

    >>> mermaid_text('a "b" <c>; end')
    'a #34;b#34; #60;c#62;#59; end'
    """
    escaped = "".join(char if char.isalnum() or char in _TEXT_SAFE else f"#{ord(char)};" for char in text)
    return _EMPHASIS.sub("#95;", escaped)


@lru_cache(_REMEMBERED)
def markdown_cell(text: str) -> str:
    r"""``text`` as plain words of one table cell.

    >>> print(markdown_cell("a|b *c*"))
    a\|b \*c\*
    """
    return "".join(_markdown_character(char) for char in one_line(text))


@lru_cache(_REMEMBERED)
def markdown_code(text: str) -> str:
    """``text`` as code in a table cell; nothing for nothing.

    >>> markdown_code("in_doubt")
    '`in_doubt`'
    """
    flat = one_line(text)
    if not flat:
        return ""
    if set(flat) & {"`", "|", "\\"}:
        # a code span cannot hold these in a table that every renderer reads alike
        return markdown_cell(flat)
    return f"`{flat}`"


def _visible(char: str) -> str:
    if char.isspace():
        return " "
    return "" if unicodedata.category(char).startswith("C") else char


def _markdown_character(char: str) -> str:
    if char == "<":
        return "&lt;"
    if char == "&":
        return "&amp;"
    return f"\\{char}" if char in _MARKDOWN_ACTIVE else char
