"""How names get into a picture, a table or a document without being taken for syntax.

Names of a user's own table can hold anything: quotes, angle brackets, keywords, line breaks, any script.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar

__all__ = [
    "display_name",
    "identifiers",
    "markdown_cell",
    "markdown_code",
    "mermaid_text",
    "one_line",
    "plantuml_text",
    "quoted",
    "xml_text",
]

T = TypeVar("T", bound=Enum | str)

_PLAIN_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
# names that Mermaid, PlantUML, ECMAScript or the layout engine of one of them keeps for itself
_RESERVED: Final = re.compile(
    "(acctitle|accdescr|statediagram|skinparam).*|as|await|break|caption|case|catch|center|choice|class|classdef"
    "|click|concurrent|const|constructor|continue|debugger|default|delete|direction|do|down|else|end|endfooter"
    "|endheader|endlegend|endnote|endtitle|enduml|enum|export|extends|false|finally|footer|for|fork|frame|function"
    "|header|hide|href|if|import|in|instanceof|join|left|legend|let|new|newpage|note|null|of|package|page|remove"
    "|return|right|root|scale|show|state|static|style|super|switch|then|this|throw|title|together|true|try|typeof|up"
    "|var|void|while|with|yield"
)
_TEXT_SAFE: Final = frozenset(" !()+,./=?@[]_-'✓✗↺★–")
# Mermaid reads labels as Markdown: an underscore is harmless only inside a word
_EMPHASIS: Final = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
# a table repeats its names and sentences hundreds of times
_REMEMBERED: Final = 4096
# PlantUML reads its labels as Creole: these are harmless alone, most of them markup when doubled
_CREOLE_SAFE: Final = frozenset(" ,.?@()[]/=+'_")
_CREOLE_DOUBLED: Final = re.compile(r"([\[\]/=_.'+])\1+")
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


def identifiers(members: Iterable[T], *, besides: Collection[str] = ()) -> Mapping[T, str]:
    """One identifier for each member of an enum, or for each name: readable where possible, never given twice.

    None is a keyword; each begins with a letter and holds small ASCII letters, digits and underscores, which every
    format takes. None is one of ``besides``, which other things are called already.
    """
    chosen: dict[T, str] = {}
    taken = set(besides)
    for number, member in enumerate(members, start=1):
        name = str(member.value if isinstance(member, Enum) else member)
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
def plantuml_text(text: str) -> str:
    """``text`` as PlantUML shows it and never reads it: ASCII marks that could be markup are code points.

    >>> plantuml_text('a "b" <c> __d__')
    'a <U+0022>b<U+0022> <U+003C>c<U+003E> <U+005F><U+005F>d<U+005F><U+005F>'
    """
    escaped = "".join(c if c.isalnum() or not c.isascii() or c in _CREOLE_SAFE else _code_point(c) for c in text)
    return _CREOLE_DOUBLED.sub(lambda doubled: "".join(map(_code_point, doubled[0])), escaped)


def quoted(text: str) -> str:
    r"""``text`` as a string of DOT.

    >>> print(quoted('say "no"'))
    "say \"no\""
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@lru_cache(_REMEMBERED)
def xml_text(text: str) -> str:
    """``text`` as contents or as an attribute's value in XML, HTML or a label of DOT.

    >>> xml_text('a < "b"')
    'a &lt; &quot;b&quot;'
    """
    for plain, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(plain, entity)
    return text


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


def _code_point(char: str) -> str:
    return f"<U+{ord(char):04X}>"


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
