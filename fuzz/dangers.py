"""Sequences that are known to hurt: each names a danger of the protocol and leads straight into it.

They are written as steps' text and are tried before anything random. ``F13`` to ``F23`` and ``9 #n`` are the places of
wire-protocol that tell of them.
"""

from __future__ import annotations

from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.danger import Danger
from quiesce.fuzz.dangers_calls import DANGERS_OF_CALLS
from quiesce.fuzz.dangers_races import DANGERS_OF_RACES
from quiesce.fuzz.dangers_work import DANGERS_OF_WORK

__all__ = ["DANGERS", "Danger", "dangers_of"]

DANGERS: Final[tuple[Danger, ...]] = (*DANGERS_OF_WORK, *DANGERS_OF_CALLS, *DANGERS_OF_RACES)
"""In the order in which they are tried."""


def dangers_of(role: Role) -> tuple[Danger, ...]:
    """The sequences for a participant of this role."""
    return tuple(danger for danger in DANGERS if role in danger.roles)
