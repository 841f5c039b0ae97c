"""The composed system in Promela, for the Spin model checker: the same automata, put together by somebody else.

What is emitted is what a finished search has enumerated from the real core, the real fences and their tables: each
part's states and steps in numbers. How the parts are put together (who may step, what a step costs, what is a
violation) is emitted as guarded commands, so that Spin composes and judges by itself. Its count of states and of
transitions must then be the explorer's, and its verdicts too. Whatever it composes that the explorer never met violates
an assertion of its own.

Spin has no word for *recoverable* (from everywhere a goal can be reached): that one is the explorer's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.explore import Exploration
from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_site import Flight
from quiesce.fsm.explore_tables import Local, Move, PartTables, SiteMarks, SystemTables, Told
from quiesce.fsm.promela_composition import Shape, composition
from quiesce.fsm.promela_text import NOTHING, Sparse, array, comment, flat

__all__ = ["ModelNotEmitted", "emit_model"]

_ENTRIES_MAX: Final = 1_000_000

Step = TypeVar("Step", Local, Told, Move)


class ModelNotEmitted(QuiesceError):
    """The search gives no model that Spin could be held against. The text says why."""


def emit_model(system: System, found: Exploration) -> str:
    """The composed system that ``found`` is a complete search of; the same search gives the same bytes.

    Raises:
        ModelNotEmitted: the search was bounded, the beginning is wrong already, or the model would be too large.
    """
    if not found.complete:
        raise ModelNotEmitted(f"{system.name}: the search ended before it had seen everything; let it see more states")
    emitted = _Emitted(system.tables())
    if system.broken(next(system.initial())):
        raise ModelNotEmitted(f"{system.name}: the first state breaks a property; there is nothing to compose")
    if emitted.entries > _ENTRIES_MAX:
        raise ModelNotEmitted(f"{system.name}: {emitted.entries:,} steps and pairs; Spin is given {_ENTRIES_MAX:,}")
    return "".join(f"{line}\n" for line in (*_head(system, found), *emitted.lines()))


def _head(system: System, found: Exploration) -> Iterator[str]:
    yield from comment(
        system.name,
        "",
        "Emitted by Quiesce from the tables and fences that run: change those, not this. The explorer counts",
        f"{found.states} states, {found.transitions} transitions, depth {found.depth}. So must Spin; its own count of",
        "transitions has one more, for the beginning:",
        "",
        "  spin -a MODEL.pml && gcc -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan -m1000000 -w20",
        "",
        "With -DWITNESS for spin and -c0 for pan, what some state must have is denied by an assertion, which must then",
        "be violated. With -DREACH for gcc and -i for pan the first trail is a shortest one.",
        "",
        "c is the state of the controller, s0, s1, ... of the participants, b what is left of the faults that may",
        "strike (two bits a class), v the violations that only a step shows. The numbers are those of the search. A",
        "trail prints of each step who steps, its number (notes beside told_event and s0_to, s1_to, ... name it),",
        "and 1 where the record of what the controller does about it fails.",
    )


@dataclass(frozen=True)
class _Emitted:
    """The tables of a system on their way to text. Steps that whole budgets do not allow are left out."""

    tables: SystemTables

    @cached_property
    def told(self) -> dict[int, list[Told]]:
        return {number: self._possible(steps) for number, steps in self.tables.told.items()}

    @cached_property
    def moves(self) -> dict[tuple[int, int], list[Move]]:
        return {pair: self._possible(moves) for pair, moves in sorted(self.tables.moves.items())}

    @cached_property
    def steps(self) -> tuple[dict[int, list[Local]], ...]:
        return tuple(
            {number: self._possible(steps) for number, steps in part.steps.items()} for part in self.tables.parts
        )

    @cached_property
    def flights(self) -> Mapping[Flight, int]:
        """Every call that ever leaves, numbered."""
        met = dict.fromkeys(flight for part in self.tables.parts for _, flight in part.added)
        return {flight: number for number, flight in enumerate(met)}

    @cached_property
    def controllers(self) -> int:
        """How many numbers the controller's states take."""
        targets = (move.target for moves in self.moves.values() for move in moves)
        return 1 + max((*self.told, *self.tables.published.values(), *targets))

    @cached_property
    def events(self) -> int:
        """How many numbers the events take."""
        told = (step.event for steps in self.told.values() for step in steps)
        heard = (step.event for steps in self.steps for found in steps.values() for step in found)
        return 1 + max((0, *told, *heard, *(event for _, event in self.moves)))

    @property
    def entries(self) -> int:
        """About how many numbers the text will hold."""
        parts = sum(len(part.added) + len(part.broken) for part in self.tables.parts)
        steps = sum(len(found) for steps in self.steps for found in steps.values())
        return parts + steps + sum(map(len, self.told.values())) + sum(map(len, self.moves.values()))

    def lines(self) -> Iterator[str]:
        """The model without its head."""
        yield from self._controller()
        yield from self._moves()
        for place in range(len(self.tables.parts)):
            yield from self._site(place)
        yield from composition(self._shape())

    def _possible(self, steps: Iterable[Step]) -> list[Step]:
        return [step for step in steps if not step.need or self.tables.first[-2] & step.need]

    def _shape(self) -> Shape:
        return Shape(
            first=self.tables.first,
            always=self.tables.always,
            sometimes=self.tables.sometimes,
            cut=self.tables.cut,
            exporting=self.tables.exporting,
            turns=self.tables.turns,
            steps=[_longest(steps) for steps in self.steps],
            told=_longest(self.told),
            alternatives=_longest(self.moves),
            sizes=(self.controllers, *map(_sites, self.tables.parts)),
        )

    def _controller(self) -> Iterator[str]:
        told, begins = flat(self.told, self.controllers)
        yield "\n/* the controller: what it meets by itself, and what its states are */"
        yield from array("told_from", begins)
        yield from array("told_event", [step.event for step in told], [step.action for step in told])
        yield from array("told_need", [step.need for step in told])
        yield from array("told_publishes", [step.publishes for step in told])
        yield from array("told_orphans", [step.orphans for step in told])
        for place in range(len(self.tables.parts)):
            yield from array(f"told_again{place}", [place in step.again for step in told])
        yield from array("told_waits", [_number(step.waits_for) for step in told])
        yield from array("c_published", _column(self.tables.published, self.controllers, NOTHING))
        for phase, numbers in self.tables.running.items():
            yield from array(f"c_in_{phase}", [number in numbers for number in range(self.controllers)])
        for name in ("broken", "reached", "rests"):
            marks = {number: int(getattr(mark, name)) for number, mark in self.tables.marks.items()}
            yield from array(f"c_{name}", _column(marks, self.controllers))

    def _moves(self) -> Iterator[str]:
        """Alternatives of one (controller, event) stand one after the other; the calls of each likewise."""
        moves = [move for alternatives in self.moves.values() for move in alternatives]
        first: dict[tuple[int, int], int] = {}
        more: list[int] = []
        for pair, alternatives in self.moves.items():
            first[pair] = len(more)
            more += reversed(range(len(alternatives)))
        calls, begins = flat(dict(enumerate(move.calls for move in moves)), len(moves))
        yield "\n/* the controller: where an event leads it, and the calls that leave; also if its record fails */"
        yield from Sparse("MOVE", first, rows=self.controllers, columns=self.events).lines()
        yield from array("move_to", [move.target for move in moves])
        yield from array("move_need", [move.need for move in moves])
        yield from array("move_more", more)
        yield from array("calls_from", begins)
        yield from array("call_place", [place for place, _ in calls])
        yield from array("call_flight", [self.flights[flight] for _, flight in calls], [str(call) for _, call in calls])

    def _site(self, place: int) -> Iterator[str]:
        part, s = self.tables.parts[place], f"s{place}"
        size = _sites(part)
        steps, begins = flat(self.steps[place], size)
        yield from ("", *comment(f"{s}: {part.name}"))
        yield from array(f"{s}_from", begins)
        yield from array(f"{s}_to", [step.target for step in steps], [step.action for step in steps])
        yield from array(f"{s}_need", [step.need for step in steps])
        yield from array(f"{s}_tells", [_number(step.event) for step in steps])
        for turn in self.tables.turns:
            first = [bool(step.sight and step.sight.begins is turn.phase) for step in steps]
            yield from array(f"{s}_begins_{turn.phase}", first)
        yield from array(f"{s}_reuses", [bool(step.sight and step.sight.finished_id_closes) for step in steps])
        for name in SiteMarks._fields:
            marks = {number: int(getattr(mark, name)) for number, mark in part.marks.items()}
            yield from array(f"{s}_{name}", _column(marks, size))
        yield from array(f"{s}_orphaned", _column(part.orphaned, size, NOTHING))
        yield from array(f"{s}_tried_again", _column(part.tried_again, size, NOTHING))
        added = {(site, self.flights[flight]): target for (site, flight), target in part.added.items()}
        yield from Sparse(f"ADD{place}", added, rows=size, columns=len(self.flights)).lines()
        yield from Sparse(f"BROKEN{place}", part.broken, rows=self.controllers, columns=size).lines()


def _longest(rows: Mapping[int, list[Step]] | Mapping[tuple[int, int], list[Step]]) -> int:
    return max(map(len, rows.values()), default=0)


def _number(found: int) -> int:
    return NOTHING if found < 0 else found


def _column(values: Mapping[int, int], size: int, otherwise: int = 0) -> list[int]:
    return [values.get(number, otherwise) for number in range(size)]


def _sites(part: PartTables) -> int:
    """How many numbers a participant's states take."""
    targets = (step.target for steps in part.steps.values() for step in steps)
    return 1 + max((*part.steps, *targets, *part.added.values(), *part.orphaned.values(), *part.tried_again.values()))
