"""How a reader says that a reply cannot be believed; the caller turns it into a ProtocolViolation."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from quiesce.participants.dialects.base import CallSpec, Reading

__all__ = ["Reader", "Unbelievable", "require_equal"]


class Unbelievable(Exception):
    """``changed`` marks a reply of another incarnation or declaration; ``payload`` is what was understood anyway."""

    def __init__(self, reason: str, *, changed: bool = False, payload: object | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.changed = changed
        self.payload = payload


Reader = Callable[[CallSpec, BaseModel], Reading]
"""Reads a reply whose status is 200 and whose types are right."""


def require_equal(what: str, expected: object, found: object) -> None:
    """Raises Unbelievable naming both values unless they are equal."""
    if expected != found:
        raise Unbelievable(f"{what} should be {expected!a}, but is {found!a}")
