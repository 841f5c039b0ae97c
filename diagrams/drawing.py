"""What there is to draw of a table, before any format: nodes, arrows and labels, in an order that never changes.

A label reads ``event, event [guard, not guard] / effect, effect @deadline``. Rows of one source, target, path and
landmark share an arrow, with a label for each combination of guards, effects and deadline. A step that stays in its
state stands inside the state's box. A refusal stands in no picture, except where it is what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quiesce.diagrams.annotations import PathKind

__all__ = ["Arrow", "Change", "Drawing", "Label", "Node"]


class Change(StrEnum):
    """How a row stands to the table that a drawing is compared with."""

    NONE = ""
    """The drawing is compared with none."""
    SAME = "same"
    HERE = "only here"
    THERE = "only there"


@dataclass(frozen=True, slots=True)
class Label:
    """Rows that differ in their events alone. Names are one line each and not escaped for any format."""

    events: tuple[str, ...]
    guards: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    deadline: str = ""
    path: PathKind = PathKind.PLAIN
    landmark: str = ""
    change: Change = Change.NONE
    references: tuple[str, ...] = ()
    """Where a row that differs comes from."""
    refuses: bool = False

    @property
    def guard_text(self) -> str:
        """`` [guard, not guard]`` or nothing."""
        return f" [{', '.join(self.guards)}]" if self.guards else ""

    @property
    def effect_text(self) -> str:
        """`` / effect, effect`` or nothing."""
        return f" / {', '.join(self.effects)}" if self.effects else ""

    @property
    def deadline_text(self) -> str:
        """`` @deadline`` or nothing."""
        return f" @{self.deadline}" if self.deadline else ""

    @property
    def text(self) -> str:
        """The whole label on one line, without path and change."""
        return f"{', '.join(self.events)}{self.guard_text}{self.effect_text}{self.deadline_text}"


@dataclass(frozen=True, slots=True)
class Node:
    """One state.

    Attributes:
        name: an identifier that every format takes.
        title: what the table calls it, on one line.
        waits: the deadline class that bounds a wait there, or nothing.
        inner: what goes on inside, in lines.
        inside: steps that stay in the state.
        hidden: how many rows lead from here to states that are not drawn, or from them to here.
        gathers: titles of the states that this box stands for; a state's own box stands for none.
        is_rest: whether it stands for all states but those that it gathers.
    """

    name: str
    title: str
    is_initial: bool = False
    is_resting: bool = False
    is_final: bool = False
    waits: str = ""
    inner: tuple[str, ...] = ()
    inside: tuple[Label, ...] = ()
    hidden: int = 0
    path: PathKind = PathKind.PLAIN
    gathers: tuple[str, ...] = ()
    is_rest: bool = False

    def stands_for(self, title: str) -> bool:
        """Whether steps of the state that is called so leave from here."""
        if not self.gathers:
            return self.title == title
        return (title in self.gathers) is not self.is_rest

    @property
    def hidden_text(self) -> str:
        """What is said where steps are left out."""
        return f"{self.hidden} more step{'' if self.hidden == 1 else 's'} from or to here"


@dataclass(frozen=True, slots=True)
class Arrow:
    """Steps from one state to another; ``source`` and ``target`` are names of nodes."""

    source: str
    target: str
    labels: tuple[Label, ...]
    path: PathKind = PathKind.PLAIN
    landmark: str = ""
    change: Change = Change.NONE


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything that is drawn of one table. Two drawings of equal tables are equal."""

    name: str
    title: str
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]

    @property
    def is_difference(self) -> bool:
        """Whether it shows how its table differs from another."""
        return any(arrow.change for arrow in self.arrows) or any(
            one.change for node in self.nodes for one in node.inside
        )
