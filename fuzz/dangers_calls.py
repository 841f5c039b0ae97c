"""Dangers of the control calls alone: what they do to one another, whatever is in flight."""

from __future__ import annotations

from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.danger import Danger, danger

__all__ = ["DANGERS_OF_CALLS"]

_P, _A, _R = Role.POLICY, Role.AGENT, Role.RESOURCES

DANGERS_OF_CALLS: Final[tuple[Danger, ...]] = (
    danger("resume from idle", "9 #1", (_P, _A, _R), "resume a", "prepare a", "resume a", "prepare b", "resume b"),
    danger("resume races a commit", "F5, F13", (_P, _A, _R), "prepare a", "commit a send=at_once", "resume a"),
    danger("commit races a resume", "F5, 9 #21", (_P, _A, _R), "prepare a", "resume a send=at_once", "commit a"),
    danger(
        "the oldest of many used-up ids", "F1, F12", (_P, _A, _R), *(f"resume {id_}" for id_ in "abcdefgh"), "prepare a"
    ),
    danger("a client that leaves its pause", "F17, 9 #17", (_P, _A, _R), "prepare a send=leave", "resume a"),
    danger(
        "a client that leaves its commit", "F17, 9 #24", (_P, _A, _R), "prepare a", "commit a send=leave", "resume a"
    ),
    danger(
        "a prepare that was resumed before", "9 #17", (_P, _A, _R), "resume a", "prepare a deadline=past", "prepare a"
    ),
    danger(
        "a receipt that nobody gave out",
        "2.15",
        (_A,),
        "acknowledge p receipt=unknown",
        "acknowledge_completed p receipt=unknown",
        "prepare a",
        "acknowledge p receipt=unknown",
    ),
    danger(
        "a lease is renewed",
        "docs/leases.md",
        (_P, _A, _R),
        "renew a",
        "prepare a",
        "renew a",
        "renew b",
        "renew a deadline=past",
        "commit a",
        "renew a send=twice",
        "resume a",
        "renew a",
        "renew z",
    ),
    danger(
        "a restore that is asked for its lease",
        "docs/leases.md",
        (_P, _A, _R),
        "prepare a",
        "commit a",
        "resume a",
        "restore b",
        "renew b",
        "renew a",
        "resume b",
        "renew b",
    ),
    danger("a commit fails and is tried again", "F9", (_P,), "prepare a", "commit a roots=unknown", "commit a"),
    danger("a commit into a file", "F9", (_P, _A, _R), "prepare a", "commit a directory=file", "commit a", "resume a"),
    danger(
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
    danger(
        "a replay with another body",
        "9 #20",
        (_P, _A, _R),
        "prepare a",
        "commit a",
        "commit a directory=d2",
        "commit a",
    ),
    danger("an absurd deadline", "2.0", (_P, _A, _R), "prepare a deadline=distant", "resume a deadline=zero"),
    danger(
        "a deadline that has passed",
        "9 #25",
        (_P, _A, _R),
        "prepare a deadline=past",
        "prepare a",
        "resume a deadline=past",
    ),
    danger(
        "duplicates at once", "F3", (_P, _A, _R), "prepare a send=twice", "commit a send=twice", "resume a send=twice"
    ),
    danger(
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
    danger(
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
)
