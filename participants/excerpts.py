"""Foreign text made safe for an error message: escaped, without control characters, and cut."""

from __future__ import annotations

from typing import Final

__all__ = ["BODY_CHARS_MAX", "body_excerpt", "escaped", "printable"]

BODY_CHARS_MAX: Final = 200
VALUE_CHARS_MAX: Final = 80


def printable(text: str, chars_max: int = BODY_CHARS_MAX) -> str:
    """``text`` with every character that is not printable replaced by a blank, at most ``chars_max`` long."""
    cut = text[: chars_max + 1]
    clean = "".join(character if character.isprintable() else " " for character in cut)
    return clean if len(clean) <= chars_max else f"{clean[: chars_max - 3]}..."


def body_excerpt(body: bytes, chars_max: int = BODY_CHARS_MAX) -> str:
    """The beginning of a reply body, at most ``chars_max`` characters, without control characters (F-27)."""
    # a character has at most four bytes, so this slice is enough and a huge body is never decoded
    return printable(body[: 4 * chars_max + 4].decode("utf-8", errors="replace"), chars_max)


def escaped(value: object, chars_max: int = VALUE_CHARS_MAX) -> str:
    """``value`` as an ASCII literal, at most ``chars_max`` characters (F-44); of a collection only its kind."""
    if not isinstance(value, str | bytes | int | float | None):
        return f"a {type(value).__name__}"
    text = ascii(value[: chars_max + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= chars_max else f"{text[: chars_max - 3]}..."
