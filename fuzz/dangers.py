"""Sequences that are known to hurt: each names a danger of the protocol and leads straight into it.

They are written as steps' text and are tried before anything random. ``F13`` to ``F23`` and ``9 #n`` are the places of
wire-protocol that tell of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.steps import Step, parse_step

__all__ = ["DANGERS", "Danger", "dangers_of"]

_P, _A, _R, _X = Role.POLICY, Role.AGENT, Role.RESOURCES, Role.AUXILIARY


@dataclass(frozen=True, slots=True)
class Danger:
    """A named sequence; ``text`` has its steps, separated by semicolons."""

    name: str
    section: str
    roles: frozenset[Role]
    text: str

    @property
    def steps(self) -> tuple[Step, ...]:
        """The sequence."""
        return tuple(parse_step(line) for line in self.text.split(";"))


def _danger(name: str, section: str, roles: Iterable[Role], *steps: str) -> Danger:
    return Danger(name, section, frozenset(roles), "; ".join(steps))


DANGERS: Final[tuple[Danger, ...]] = (
    _danger("resume from idle", "9 #1", (_P, _A, _R), "resume a", "prepare a", "resume a", "prepare b", "resume b"),
    _danger("resume ends the waiting prepare", "F13", (_A,), "work begin p", "prepare a send=start", "resume a"),
    _danger(
        "resume ends the waiting prepare",
        "F13",
        (_R,),
        "work seed p",
        "work begin p",
        "prepare a send=start",
        "resume a",
        "work probe q",
    ),
    _danger("resume races a commit", "F5, F13", (_P, _A, _R), "prepare a", "commit a send=at_once", "resume a"),
    _danger("commit races a resume", "F5, 9 #21", (_P, _A, _R), "prepare a", "resume a send=at_once", "commit a"),
    _danger(
        "a late end under another id that is prepared",
        "F14",
        (_A,),
        "work begin p",
        "prepare a send=start",
        "resume a",
        "prepare b",
        "wait calls",
        "commit b",
    ),
    _danger(
        "a late time-out under another id",
        "F15",
        (_A,),
        "work begin p",
        "prepare a deadline=short send=start",
        "resume a",
        "prepare b send=start",
        "wait deadlines",
        "prepare c",
    ),
    _danger(
        "a late end while nobody holds the fence",
        "F16",
        (_A,),
        "work begin p",
        "prepare a send=start",
        "resume a",
        "retire b p",
        "wait calls",
        "prepare c",
    ),
    _danger(
        "a late end of a prepare whose client left",
        "F17",
        (_A,),
        "work begin p",
        "prepare a deadline=short send=leave",
        "resume a",
        "wait deadlines",
        "prepare b",
    ),
    _danger(
        "the oldest of many used-up ids", "F1, F12", (_P, _A, _R), *(f"resume {id_}" for id_ in "abcdefgh"), "prepare a"
    ),
    _danger("a client that leaves its pause", "F17, 9 #17", (_P, _A, _R), "prepare a send=leave", "resume a"),
    _danger(
        "a client that leaves its commit", "F17, 9 #24", (_P, _A, _R), "prepare a", "commit a send=leave", "resume a"
    ),
    _danger(
        "a prepare that was resumed before", "9 #17", (_P, _A, _R), "resume a", "prepare a deadline=past", "prepare a"
    ),
    _danger(
        "an incomplete prepare is polled",
        "9 #7, 9 #8",
        (_A,),
        "work begin p",
        "prepare a deadline=short",
        "status a",
        "prepare a",
        "commit a",
    ),
    _danger(
        "an incomplete prepare is given up",
        "9 #7",
        (_A,),
        "work begin p",
        "prepare a deadline=short",
        "work probe q",
        "wait grace",
        "work probe r",
        "prepare a",
    ),
    _danger(
        "a prepare fails", "9 #10", (_R,), "work seed p", "work begin p", "prepare a deadline=short", "work probe q"
    ),
    _danger(
        "a failed prepare is tried again",
        "9 #10",
        (_R,),
        "work seed p",
        "work begin p",
        "prepare a deadline=short",
        "wait work",
        "prepare a",
        "commit a",
    ),
    _danger("the drain ends and nobody asks", "9 #6", (_P,), "work begin p", "prepare a", "wait work", "commit a"),
    _danger(
        "a commit while calls are in flight",
        "2.7",
        (_P,),
        "work begin p",
        "prepare a",
        "commit a",
        "status a",
        "commit a",
    ),
    _danger("a status that waits for the drain", "5.2", (_P,), "work begin p", "prepare a", "status a long_poll=yes"),
    _danger(
        "a replayed pause still says draining",
        "9 #5",
        (_P,),
        "work begin p",
        "prepare a",
        "wait work",
        "prepare a",
        "status a",
        "commit a",
        "prepare a",
    ),
    _danger(
        "an aborted attempt among others",
        "2.6, 2.20",
        (_P,),
        "work begin p",
        "work begin q",
        "prepare a",
        "abort_inflight a p",
        "wait work",
    ),
    _danger(
        "an aborted attempt",
        "2.6",
        (_P,),
        "work begin p",
        "prepare a",
        "abort_inflight a p",
        "abort_inflight a p",
        "status a",
        "work probe p",
        "wait work",
        "commit a",
        "resume a",
        "work probe p",
        "work probe q",
    ),
    _danger(
        "resume while draining", "4.3", (_P,), "work begin p", "prepare a", "resume a", "wait work", "work probe q"
    ),
    _danger(
        "new work while closed",
        "2.20",
        (_P,),
        "prepare a",
        "work probe p",
        "commit a",
        "work probe q",
        "resume a",
        "work probe r",
    ),
    _danger("new work while closed", "2.20", (_A,), "prepare a", "work probe p", "commit a", "work probe q"),
    _danger("new work after a resume", "2.20", (_A,), "prepare a", "resume a", "work begin p", "status b"),
    _danger(
        "new work while closed",
        "2.20",
        (_R,),
        "work seed p",
        "prepare a",
        "work begin p",
        "work probe q",
        "commit a",
        "work probe r",
        "resume a",
        "work probe s",
        "work begin p",
    ),
    _danger("half an identity", "0.3", (_P, _A, _R), "work half_named p", "prepare a", "resume a"),
    _danger(
        "a retired attempt",
        "2.14",
        (_A,),
        "work begin p",
        "retire a p",
        "work probe p",
        "prepare a",
        "retire a q",
        "work probe q",
        "work probe p",
    ),
    _danger(
        "a retired attempt",
        "2.19",
        (_R,),
        "work seed p",
        "prepare a",
        "retire a p",
        "work begin p",
        "commit a",
        "resume a",
        "work begin p",
        "work seed p",
    ),
    _danger(
        "results that nobody acknowledged",
        "2.15",
        (_A,),
        "work finish p",
        "status a",
        "prepare a deadline=short",
        "acknowledge p receipt=altered",
        "acknowledge_completed p receipt=mixed",
        "prepare a deadline=short",
        "acknowledge p",
        "acknowledge p",
        "acknowledge_completed p",
        "prepare a",
        "commit a",
    ),
    _danger(
        "a receipt that nobody gave out",
        "2.15",
        (_A,),
        "acknowledge p receipt=unknown",
        "acknowledge_completed p receipt=unknown",
        "prepare a",
        "acknowledge p receipt=unknown",
    ),
    _danger("a commit fails and is tried again", "F9", (_P,), "prepare a", "commit a roots=unknown", "commit a"),
    _danger("a commit into a file", "F9", (_P, _A, _R), "prepare a", "commit a directory=file", "commit a", "resume a"),
    _danger(
        "a commit into another id's directory",
        "6.6 P4",
        (_P, _A, _R),
        "prepare a",
        "commit a",
        "resume a",
        "prepare b",
        "commit b",
        "commit b directory=d2",
    ),
    _danger(
        "a replay with another body",
        "9 #20",
        (_P, _A, _R),
        "prepare a",
        "commit a",
        "commit a directory=d2",
        "commit a",
    ),
    _danger("an absurd deadline", "2.0", (_P, _A, _R), "prepare a deadline=distant", "resume a deadline=zero"),
    _danger(
        "a deadline that has passed",
        "9 #25",
        (_P, _A, _R),
        "prepare a deadline=past",
        "prepare a",
        "resume a deadline=past",
    ),
    _danger(
        "duplicates at once", "F3", (_P, _A, _R), "prepare a send=twice", "commit a send=twice", "resume a send=twice"
    ),
    _danger(
        "duplicates while a prepare waits",
        "F3",
        (_A,),
        "work begin p",
        "prepare a send=twice",
        "prepare a",
        "prepare b",
    ),
    _danger(
        "a restore that finds nothing",
        "F21, 9 #13",
        (_P, _A, _R),
        "restore a directory=missing",
        "work probe p",
        "restore a directory=missing",
        "prepare b",
        "resume a",
    ),
    _danger(
        "a restore, asked about",
        "2.8, 9 #14",
        (_P, _A, _R),
        "prepare a",
        "commit a",
        "resume a",
        "restore b",
        "status b",
        "restore b",
        "restore b directory=d2",
        "prepare b",
        "commit b",
        "status c",
        "resume b",
    ),
    _danger(
        "a discard between restore and resume",
        "2.16",
        (_A,),
        "prepare a",
        "commit a",
        "resume a",
        "discard b p",
        "restore b",
        "discard b p",
        "resume b",
    ),
    _danger(
        "an auxiliary model is asked everything",
        "1.1",
        (_X,),
        "prepare a",
        "status a",
        "abort_inflight a p",
        "commit a",
        "restore a",
        "resume a",
        "work probe p",
    ),
)
"""In the order in which they are tried."""


def dangers_of(role: Role) -> tuple[Danger, ...]:
    """The sequences for a participant of this role."""
    return tuple(danger for danger in DANGERS if role in danger.roles)
