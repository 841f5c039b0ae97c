"""JSON as it may be believed: UTF-8, bounded, no duplicate keys, no NaN, no bottomless nesting.

Python's parser takes the last of two equal keys and reads NaN; both would let two readers of one file disagree
(field cases F-47).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from quiesce.participants.excerpts import escaped

__all__ = ["NotStrictJson", "compact", "parse", "pretty"]

DEFAULT_BYTES_MAX: Final = 16 * 1024 * 1024


class NotStrictJson(ValueError):
    """The text is not JSON that may be believed; the message says why. Callers turn it into their own error."""


def parse(text: bytes, *, bytes_max: int = DEFAULT_BYTES_MAX) -> object:
    """The value that ``text`` holds.

    Raises:
        NotStrictJson: too long, empty, not UTF-8, not JSON, a duplicate key, NaN or an infinity, nested too deeply.
    """
    if len(text) > bytes_max:
        raise NotStrictJson(f"{len(text)} bytes; at most {bytes_max} are read")
    if not text.strip():
        raise NotStrictJson("it is empty")
    try:
        value: object = json.loads(
            text.decode("utf-8"), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except NotStrictJson:
        raise
    except UnicodeDecodeError as error:
        raise NotStrictJson(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise NotStrictJson("nested too deeply") from None
    except ValueError as error:
        raise NotStrictJson(f"not JSON: {error}") from None
    return value


def compact(value: object, *, sort_keys: bool = False) -> str:
    """``value`` on one line without blanks, non-ASCII escaped; ValueError for NaN and the infinities."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)


def pretty(value: object, *, indent: int, sort_keys: bool) -> str:
    """``value`` over several lines without a final newline; ValueError for NaN and the infinities."""
    return json.dumps(value, allow_nan=False, indent=indent, sort_keys=sort_keys)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise NotStrictJson(f"key {escaped(twice)} stands twice in one object")
    return found


def _refuse_constant(name: str) -> float:
    raise NotStrictJson(f"{name} is not JSON")
