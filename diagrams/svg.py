"""The little of SVG that the sequence and the timeline need: shapes with a class, and colors for light and dark pages.

The light colors stand in attributes, which every viewer knows; the dark ones in a style sheet, which browsers follow.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Final

from quiesce.diagrams.dot import FONT
from quiesce.diagrams.escape import xml_text

__all__ = ["COLORS", "document", "folded", "line", "rectangle", "shortened", "style", "text", "text_width"]

COLORS: Final[Mapping[str, tuple[str, str]]] = {
    "page": ("#ffffff", "#1b1c1f"),
    "ink": ("#202124", "#e8eaed"),
    "faint": ("#5f6368", "#a9afb6"),
    "print": ("#202124", "#1b1c1f"),
    "rule": ("#c4c7cc", "#4a4d52"),
    "band": ("#eef1f5", "#2b2d31"),
    "call": ("#0b57d0", "#8ab4f8"),
    "reply": ("#1b7f3b", "#5ad17f"),
    "lost": ("#c0281c", "#ff8a7a"),
    "asked": ("#9db7e8", "#5f7fbd"),
    "draining": ("#e5a23d", "#c98a2b"),
    "paused": ("#7a5cc9", "#9a80e6"),
    "committed": ("#3f9b5f", "#4fb473"),
    "restored": ("#2b8c9e", "#3fa9bd"),
    "reopening": ("#b8c4a0", "#7f8b66"),
    "doubt": ("#c0281c", "#ff6b57"),
}
"""Class to its color on a light and on a dark page."""

_AVERAGE_EM: Final = 0.62
_WIDE_EM: Final = 1.1


def text_width(words: str, size: float) -> float:
    """About how wide a text is drawn, in pixels; rather too wide than too narrow."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in words)
    return size * (_AVERAGE_EM * (len(words) - wide) + _WIDE_EM * wide)


def folded(words: str, width: float, size: float) -> list[str]:
    """``words`` in lines of at most ``width`` pixels; a longer word is broken."""
    characters = max(4, int(width / (size * _AVERAGE_EM)))
    lines = wrap(words, characters, break_on_hyphens=False) or [""]
    return [half for part in lines for half in _halved(part, width, size)]


def shortened(words: str, width: float, size: float) -> str:
    """``words``, cut with an ellipsis where they would be wider than ``width`` pixels."""
    if text_width(words, size) <= width:
        return words
    kept = words
    while kept and text_width(f"{kept}…", size) > width:
        kept = kept[:-1]
    return f"{kept}…"


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A whole picture with its own colors, ending in a line break. It shrinks to the width that it is given."""
    size = f'width="{_number(width)}" height="{_number(height)}" viewBox="0 0 {_number(width)} {_number(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" role="img">'
    inside = (f"<title>{xml_text(title)}</title>", f"<style>{''.join(style())}</style>", *parts)
    return "\n".join((head, *inside, "</svg>", ""))


def style() -> Iterator[str]:
    """The dark colors."""
    yield "@media (prefers-color-scheme: dark) {"
    for name, (_, dark) in COLORS.items():
        yield f" .f-{name} {{ fill: {dark} }} .s-{name} {{ stroke: {dark} }}"
    yield " }"


def rectangle(x: float, y: float, width: float, height: float, fill: str, *, tip: str = "", radius: float = 0) -> str:
    """A filled box; ``tip`` is shown when a pointer rests on it."""
    rounded = f' rx="{_number(radius)}"' if radius else ""
    box = f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"{rounded}'
    looks = f' class="f-{fill}" fill="{COLORS[fill][0]}"'
    return f"{box}{looks}><title>{xml_text(tip)}</title></rect>" if tip else f"{box}{looks}/>"


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, *, dash: str = "", width: float = 1) -> str:
    """A straight line."""
    ends = f'x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" y2="{_number(y2)}"'
    broken = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line {ends} class="s-{stroke}" stroke="{COLORS[stroke][0]}" stroke-width="{_number(width)}"{broken}/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 12,
    fill: str = "ink",
    anchor: str = "start",
    bold: bool = False,
    over: str = "",
) -> str:
    """One line of text; ``y`` is its baseline. Where it lies on lines, ``over`` is the color that keeps them off it."""
    classes = f"f-{fill} s-{over}" if over else f"f-{fill}"
    looks = f' class="{classes}" fill="{COLORS[fill][0]}" font-size="{_number(size)}"'
    looks += f' stroke="{COLORS[over][0]}" stroke-width="4" paint-order="stroke"' if over else ""
    looks += f' text-anchor="{anchor}"' if anchor != "start" else ""
    looks += ' font-weight="bold"' if bold else ""
    return f'<text x="{_number(x)}" y="{_number(y)}"{looks}>{xml_text(words)}</text>'


def _halved(words: str, width: float, size: float) -> Iterator[str]:
    while len(words) > 1 and text_width(words, size) > width:
        half = max(1, int(len(words) * width / text_width(words, size)))
        yield words[:half]
        words = words[half:]
    yield words


def _number(value: float) -> str:
    """At most two decimals, and none that say nothing."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
