"""Where in a JSON text a value stands: so that an error about a field can name its line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

__all__ = ["line_of"]

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line (from 1) of the value at ``path`` in a valid JSON text, or of what should hold it where it is absent."""
    place = _blank(text, 0)
    for step in path:
        found = _within(text, place, step)
        if found is None:
            break
        place = found
    return text.count("\n", 0, place) + 1


def _within(text: str, place: int, step: str | int) -> int | None:
    """Where a member of the object or array at ``place`` begins."""
    opening = text[place : place + 1]
    if opening not in {"{", "["}:
        return None
    place = _blank(text, place + 1)
    number = 0
    while text[place] not in "}]":
        name: object = number
        if opening == "{":
            name, place = _DECODER.raw_decode(text, place)
            place = _blank(text, _blank(text, place) + 1)  # the colon
        if name == step:
            return place
        _, place = _DECODER.raw_decode(text, place)
        place = _blank(text, place)
        if text[place] == ",":
            place = _blank(text, place + 1)
        number += 1
    return None


def _blank(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return place if found is None else found.end()
