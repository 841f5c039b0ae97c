"""Rules of the protocol as data: what each says, where it stands, how grave it is, and whom it binds.

A rule is a sentence that holds for every participant of its roles. Most of them stand for rows of the strict FENCE
tables (``rows``): when a participant answers otherwise than such a row, or shows another fence than the row leads to,
the rule is broken. The others are about requests, replies, the bearer, the data plane and exported files.

``known`` names a deviation that real servers are known to have, by profile: under that profile it is reported as known,
a rule of the fence only when the recorded servers' own table explains the whole sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from quiesce.fsm.tables.fence import ARRIVALS, FenceEvent, FencePhase
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.worlds import FenceRow

__all__ = ["EVERY_ROLE", "PARTICIPATING", "Known", "Need", "Profile", "RowMatch", "Rule", "Severity", "gym_a", "on"]

EVERY_ROLE: Final = frozenset(Role)
PARTICIPATING: Final = frozenset({Role.POLICY, Role.AGENT, Role.RESOURCES})
"""The roles that take part in a cut."""


class Severity(StrEnum):
    """How grave it is to break a rule."""

    ERROR = "error"
    """A controller that relies on it loses work, hangs, or leaves somebody closed."""
    WARNING = "warning"
    """Something is less clear or less robust than it should be."""


class Profile(StrEnum):
    """By which measure deviations count."""

    STRICT = "strict"
    GYM_A = "gym-a"
    """Deviations that recorded servers are known to have are reported as known."""


class Need(StrEnum):
    """What a rule cannot be tested without."""

    TRAFFIC = "traffic"
    """Calls of the data plane (``--traffic``)."""
    DIRECTORY = "a directory"
    """A place where the participant may export (``--checkpoint-dir``)."""
    RESTORE = "leave to restore"
    """Restores may be sent (``--allow-restore``)."""
    ANY_HEADER = "an in-process transport"
    """One that can carry a header that is not ASCII."""
    GRACE = "time to wait"
    """For an incomplete prepare to be given up (``--wait-grace-s``)."""

    LEASE = "a lease"
    """The extension of docs/leases.md."""


@dataclass(frozen=True, slots=True)
class Known:
    """A deviation that real servers are known to have: its name, and what they do."""

    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class RowMatch:
    """Which rows of a strict table a rule stands for; None matches everything.

    ``answer`` is the row's last effect, empty for rows without one. ``effect`` and ``guard`` must be among the row's.
    """

    events: frozenset[FenceEvent]
    answer: str | None = None
    sources: frozenset[FencePhase] | None = None
    effect: str | None = None
    guard: str | None = None

    def covers(self, row: FenceRow) -> bool:
        """Whether this is one of them."""
        answer = row.effects[-1] if row.effects else ""
        return (
            row.event in self.events
            and self.answer in {None, answer}
            and (self.sources is None or row.source in self.sources)
            and (self.effect is None or self.effect in row.effects)
            and (self.guard is None or self.guard in row.guards)
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        id: unique, two words with a dot: what it is about, and a name.
        sentence: what must hold.
        section: the sections of wire-protocol (and F numbers) that say so; a page of ``docs`` for an extension of ours.
        severity, roles: how grave, and for whom.
        known: the known deviation from it, by profile.
        needs: what it cannot be tested without.
        rows: the rows of the strict tables that it stands for.
    """

    id: str
    sentence: str
    section: str
    severity: Severity = Severity.ERROR
    roles: frozenset[Role] = PARTICIPATING
    known: Mapping[Profile, Known] = field(default_factory=dict)
    needs: frozenset[Need] = frozenset()
    rows: tuple[RowMatch, ...] = ()

    @property
    def source(self) -> str:
        """The document and the sections that say so."""
        return self.section if self.section.startswith("docs/") else f"wire-protocol {self.section}"

    def stands_for(self, role: Role, row: FenceRow) -> bool:
        """Whether the row of this role's strict table belongs to the rule."""
        return role in self.roles and any(match.covers(row) for match in self.rows)


def on(
    *events: FenceEvent,
    answer: str | None = None,
    sources: Iterable[FencePhase] | None = None,
    effect: str | None = None,
    guard: str | None = None,
) -> RowMatch:
    """A match over some events; over every arrival of a call where none is named."""
    phases = None if sources is None else frozenset(sources)
    return RowMatch(frozenset(events or ARRIVALS), answer, phases, effect, guard)


def gym_a(name: str, sentence: str) -> Mapping[Profile, Known]:
    """The deviation under this name that recorded servers of generation A have."""
    return {Profile.GYM_A: Known(name, sentence)}
