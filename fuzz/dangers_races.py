"""Dangers that show only while something lasts which is soon over; each is tried several times, behind all others."""

from __future__ import annotations

from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.danger import Danger, danger

__all__ = ["DANGERS_OF_RACES"]

_A, _R = Role.AGENT, Role.RESOURCES

DANGERS_OF_RACES: Final[tuple[Danger, ...]] = (
    danger(
        "resume ends the prepare that waits for work which is soon over",
        "F13",
        (_R,),
        "work seed p",
        "work begin p send=at_once",
        "prepare a send=at_once",
        "resume a",
        "work probe q",
    ),
    danger(
        "a prepare fails for work that is soon over",
        "9 #10",
        (_R,),
        "work seed p",
        "work begin p send=at_once",
        "prepare a deadline=short",
        "work probe q",
    ),
    danger(
        "resume races a commit of many sessions",
        "F5, F13",
        (_R,),
        *(f"work seed {attempt}" for attempt in "pqrstu"),
        "prepare a",
        "commit a send=at_once",
        "resume a",
    ),
    danger(
        "resume races a commit of many executions",
        "F5, F13",
        (_A,),
        *(f"work begin {attempt}" for attempt in "pqrs"),
        "prepare a",
        "commit a send=at_once",
        "resume a",
    ),
)
