"""What a danger is: a sequence with a name that is known to hurt, and the place that tells of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.steps import Step, parse_step

__all__ = ["Danger", "danger"]


@dataclass(frozen=True, slots=True)
class Danger:
    """A named sequence; ``text`` has its steps, separated by semicolons. ``section`` is a place of wire-protocol."""

    name: str
    section: str
    roles: frozenset[Role]
    text: str

    @property
    def steps(self) -> tuple[Step, ...]:
        """The sequence."""
        return tuple(parse_step(line) for line in self.text.split(";"))


def danger(name: str, section: str, roles: Iterable[Role], *steps: str) -> Danger:
    """A danger to participants of these roles, from the text of its steps."""
    return Danger(name, section, frozenset(roles), "; ".join(steps))
