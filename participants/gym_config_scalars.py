"""Scalars of YAML 1.1, of which a server's settings need text, integers and truth values; the rest stays unread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import yaml

__all__ = ["Opaque", "scalar_value"]

NUMBER_CHARS_MAX: Final = 40
"""A longer plain scalar is text, whatever it looks like."""

_CORE: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is neither text nor an integer nor a truth value: a fraction, a date, whatever a tag asks for.

    Attributes:
        text: as it is written.
    """

    text: str = field(repr=False)


def scalar_value(event: yaml.ScalarEvent) -> str | int | bool | Opaque | None:
    """The value of a scalar. Nothing is ever built from a tag that is not one of YAML's own."""
    text: str = event.value
    given = event.tag if event.tag not in {None, "!"} else None
    match (given or _implicit_tag(text, event.implicit)).removeprefix(_CORE):
        case "str" | "value":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() in {"yes", "true", "on"}
        case "int":
            return _integer(text)
        case _:
            return Opaque(text)


class _Scalars(yaml.SafeLoader):
    """The safe loader's rules for scalars, without a text to load."""

    def __init__(self) -> None:
        super().__init__("")

    def tag_of(self, text: str) -> str:
        """The tag of a plain scalar."""
        tag: str = self.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # PyYAML's stubs
        return tag

    def integer(self, text: str) -> int:
        """The value of an integer; ValueError where it has no digit."""
        return int(self.construct_yaml_int(yaml.ScalarNode(f"{_CORE}int", text)))


_SCALARS: Final = _Scalars()


def _implicit_tag(text: str, implicit: tuple[bool, bool]) -> str:
    return _SCALARS.tag_of(text) if implicit[0] and len(text) <= NUMBER_CHARS_MAX else f"{_CORE}str"


def _integer(text: str) -> int | Opaque:
    try:
        return _SCALARS.integer(text)
    except (ValueError, yaml.YAMLError):
        return Opaque(text)
