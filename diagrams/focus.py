"""The neighbourhood of one state: what ``--focus STATE[:N]`` draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Final, TypeVar

from quiesce.diagrams.escape import display_name
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.rows import Table

__all__ = ["Focus", "UnknownState", "around"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

_LISTED_MAX: Final = 20


class UnknownState(QuiesceError):
    """A focus that names no state of the machine. The text lists those that there are."""


@dataclass(frozen=True, slots=True)
class Focus:
    """A state by its value or its name in the code, and how many steps away from it are drawn, in either direction."""

    state: str
    steps: int = 1

    @classmethod
    def parse(cls, text: str) -> Focus:
        """``STATE`` or ``STATE:N``; a state whose own name ends so is meant by ``STATE:N:M``.

        >>> Focus.parse("closing:2")
        Focus(state='closing', steps=2)
        """
        state, colon, steps = text.rpartition(":")
        # longer numbers than this mean the same: everything
        if colon and state and steps.isascii() and steps.isdecimal():
            return cls(state, int(steps[:6]))
        return cls(text)


def around(table: Table[S, E], focus: Focus) -> Mapping[S, int]:
    """The states at most so many steps away from the one in focus, along or against the rows, and how far each is.

    Raises:
        UnknownState: it is no state of the table.
    """
    joined: dict[S, set[S]] = {}
    for row in table.rows:
        joined.setdefault(row.source, set()).add(row.target)
        joined.setdefault(row.target, set()).add(row.source)
    frontier = {_state(table, focus.state)}
    found = dict.fromkeys(frontier, 0)
    for distance in range(1, focus.steps + 1):
        frontier = {other for state in frontier for other in joined.get(state, ())} - found.keys()
        if not frontier:
            break
        found |= dict.fromkeys(frontier, distance)
    return found


def _state(table: Table[S, E], wanted: str) -> S:
    states = table.used_states()
    for text in (wanted, wanted.lower().replace("-", "_")):
        for state in states:
            if text in (display_name(state), state.name, state.name.lower()):
                return state
    names = [display_name(state) for state in states]
    close = get_close_matches(wanted, names, n=3)
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    offer = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(names[:_LISTED_MAX])}{more}"
    raise UnknownState(f"{table.name} has no state '{wanted[:80]}'; {offer}")
