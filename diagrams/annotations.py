"""What a picture says beyond its table: the happy path, what is worth finding, what runs inside a state.

All of it is data beside the table, never a rule in a renderer. A table without annotations gets what the table itself
says: a step into a resting state or by the abort event is a failure, a step out of a resting state a recovery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Generic, TypeVar

from quiesce.diagrams.escape import one_line
from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.rows import Row, Table

__all__ = ["Annotations", "Landmark", "PathKind", "annotations_from", "check_annotations"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class PathKind(StrEnum):
    """What kind of step an arrow is."""

    HAPPY = "happy"
    FAILURE = "failure"
    RECOVERY = "recovery"
    PLAIN = "plain"
    """None of the three: a repetition, a look-up, a step that nobody classified."""


@dataclass(frozen=True, slots=True)
class Landmark(Generic[S, E]):
    """A named way through the machine that a reader comes to look for, as its steps in order.

    A step is (source, event, target); every row between them is part of the landmark.
    """

    name: str
    steps: tuple[tuple[S, E, S], ...]


@dataclass(frozen=True, slots=True)
class Annotations(Generic[S, E]):
    """The classification of a table's steps, its landmarks, and the machines that run inside its states.

    A step's path is what ``steps`` says of its (source, event, target), else ``targets`` of its target, else
    ``events`` of its event, else plain.
    """

    steps: Mapping[tuple[S, E, S], PathKind] = field(default_factory=dict)
    targets: Mapping[S, PathKind] = field(default_factory=dict)
    events: Mapping[E, PathKind] = field(default_factory=dict)
    landmarks: tuple[Landmark[S, E], ...] = ()
    inner: Mapping[S, tuple[str, ...]] = field(default_factory=dict)
    """State to lines on what goes on inside it, for example the machine that runs there."""

    def path_of(self, row: Row[S, E]) -> PathKind:
        """The path that a row belongs to."""
        return (
            self.steps.get((row.source, row.event, row.target))
            or self.targets.get(row.target)
            or self.events.get(row.event)
            or PathKind.PLAIN
        )

    def landmark_of(self, row: Row[S, E]) -> str:
        """``name 1/3`` where the row is the first of three steps of a landmark, empty where it is part of none."""
        for landmark in self.landmarks:
            for number, step in enumerate(landmark.steps, start=1):
                if step == (row.source, row.event, row.target):
                    of = f" {number}/{len(landmark.steps)}" if len(landmark.steps) > 1 else ""
                    return f"{one_line(landmark.name)}{of}"
        return ""


def annotations_from(table: Table[S, E]) -> Annotations[S, E]:
    """What the table itself says of its paths."""
    leaving = {
        (row.source, row.event, row.target): PathKind.RECOVERY for row in table.rows if row.source in table.resting
    }
    events = {} if table.abort_event is None else {table.abort_event: PathKind.FAILURE}
    return Annotations(steps=leaving, targets=dict.fromkeys(table.resting, PathKind.FAILURE), events=events)


def check_annotations(table: Table[S, E], annotations: Annotations[S, E]) -> None:
    """Hold annotations against their table: what they name must be there.

    Raises:
        DefinitionError: they name a step, a target or an event that no row has, or a state that is not used.
    """
    fault = next(_faults(table, annotations), None)
    if fault:
        raise DefinitionError(f"annotations of {table.name}: {fault}; change them with the table")


def _faults(table: Table[S, E], annotations: Annotations[S, E]) -> Iterator[str]:
    moves = {(row.source, row.event, row.target) for row in table.rows}
    events, targets = {row.event for row in table.rows}, {row.target for row in table.rows}
    yield from (f"no row is the step {step!r}" for step in annotations.steps.keys() - moves)
    yield from (f"no row leads to {target!r}" for target in annotations.targets.keys() - targets)
    yield from (f"no row has the event {event!r}" for event in annotations.events.keys() - events)
    yield from (f"{state!r} is no state of it" for state in annotations.inner.keys() - set(table.used_states()))
    for landmark in annotations.landmarks:
        missing = [step for step in landmark.steps if step not in moves]
        yield from (f"no row is the step {step!r} of '{landmark.name}'" for step in missing)
