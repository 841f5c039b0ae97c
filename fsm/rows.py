"""Rows, guards and tables: how a state machine is declared, checked and stepped.

A table is data. Its guards are closed expressions over named facts, its effects are names; nothing in it is
callable by the outside, so that one declaration can be run, drawn, emitted as Promela and explored.

Declare a table of your own::

    TABLE = Table(
        name="door", states=Door, events=Push, initial=Door.SHUT, final=frozenset(),
        guards=(Guard("unlocked", IsTrue("unlocked"), "the lock is open", "the lock is shut"),),
        effects=(), rows=(Row(Door.SHUT, Push.PUSH, ("unlocked",), Door.OPEN, (), "an open lock lets it swing"), ...),
    )

Building it checks it (DefinitionError): values of the right types, known names, at most six guards a pair, at most
one row for every verdict of the guards, every state reachable, no dead end, a deadline class for every state that is
declared as waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import Final, Generic, TypeVar

from quiesce.fsm.declaration import check_types
from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.guards import AllOf, AnyOf, Equal, Expression, Facts, Guard, IsTrue, IsZero, Negation
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = [
    "Accepted",
    "AllOf",
    "AnyOf",
    "Equal",
    "Expression",
    "Facts",
    "Guard",
    "IsTrue",
    "IsZero",
    "Negation",
    "Refused",
    "Row",
    "Table",
]

GUARDS_A_PAIR_MAX: Final = 6

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Row(Generic[S, E]):
    """One legal step: in ``source``, on ``event``, when every guard has its wanted verdict, go to ``target``.

    ``guards`` are names; ``!name`` wants the guard not to hold. ``effects`` are names of control calls and other
    consequences, in order. ``refusal`` marks a row that answers with a refusal and leaves the state as it was;
    renderers leave such rows out of pictures and keep them in tables. ``source_ref`` names the recording, the
    section or the F number that the row comes from, where there is one.
    """

    source: S
    event: E
    guards: tuple[str, ...]
    target: S
    effects: tuple[str, ...]
    reason: str
    deadline: DeadlineClass = DeadlineClass.NONE
    refusal: bool = False
    source_ref: str = ""

    def wants(self) -> dict[str, bool]:
        """Guard name to the verdict that this row needs."""
        return {name.removeprefix("!"): not name.startswith("!") for name in self.guards}

    def __str__(self) -> str:
        guards = f" [{', '.join(self.guards)}]" if self.guards else ""
        return f"{self.source.value} --{self.event.value}{guards}--> {self.target.value}"


@dataclass(frozen=True, slots=True)
class Accepted(Generic[S, E]):
    """The step was taken: ``row`` says where to and with which effects."""

    row: Row[S, E]

    @property
    def target(self) -> S:
        return self.row.target


@dataclass(frozen=True, slots=True)
class Refused:
    """The step was not taken and nothing changed. ``verdicts`` has every guard that the pair's rows read."""

    machine: str
    state: str
    event: str
    reason: str
    verdicts: tuple[tuple[str, bool], ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Guards that did not hold."""
        return tuple(name for name, verdict in self.verdicts if not verdict)


@dataclass(frozen=True, slots=True)
class _Cell(Generic[S, E]):
    """All that can happen for one (state, event): a preallocated result for each verdict of its guards."""

    guards: tuple[Guard, ...]
    results: tuple[Accepted[S, E] | Refused, ...]

    def step(self, facts: Facts) -> Accepted[S, E] | Refused:
        mask = 0
        bit = 1
        for guard in self.guards:
            if guard.test.holds(facts):
                mask |= bit
            bit <<= 1
        return self.results[mask]


@dataclass(frozen=True, eq=False)
class Table(Generic[S, E]):
    """A whole machine, checked when it is built.

    ``waiting`` states are those in which the machine waits for the outside: each needs a deadline class. Which they are
    is for whoever declares the table to know, and is not checked.
    ``resting`` states report an outcome but may be left again (in doubt, held closed). ``final`` states are
    never left. ``abort_event``, where there is one, must be possible in each state of ``abortable_from``.

    Raises:
        DefinitionError: the declaration is wrong; the message names the row and what to do, and all that is wrong with
            the table as a whole.
    """

    name: str
    title: str
    states: type[S]
    events: type[E]
    initial: S
    guards: tuple[Guard, ...]
    effects: tuple[str, ...]
    rows: tuple[Row[S, E], ...]
    final: frozenset[S] = frozenset()
    resting: frozenset[S] = frozenset()
    waiting: Mapping[S, DeadlineClass] = field(default_factory=dict)
    abort_event: E | None = None
    abortable_from: frozenset[S] = frozenset()
    unused_states: frozenset[S] = frozenset()
    """Members of ``states`` that this machine leaves out on purpose (a variant of a shared vocabulary)."""
    _cells: dict[tuple[S, E], _Cell[S, E]] = field(init=False, repr=False)
    _absent: dict[tuple[S, E], Refused] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_types(self, Row)
        object.__setattr__(self, "_cells", {})
        object.__setattr__(self, "_absent", {})
        _check_vocabulary(self)
        for pair, rows in _by_pair(self.rows).items():
            self._cells[pair] = _build_cell(self, pair[0], pair[1], rows)
        legal = _legal_events(self.rows)
        for state in self.states:
            for event in self.events:
                if (state, event) not in self._cells:
                    self._absent[(state, event)] = _no_row(self, state, event, legal.get(state, ()))
        # one change can do several at once: a row that is removed leaves its target unreached and its guard unread
        faults = dict.fromkeys((*_shape_faults(self), *_wait_faults(self), *_usage_faults(self)))
        if faults:
            raise DefinitionError(f"table {self.name}: {'; and '.join(faults)}")

    def step(self, state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        """The row that holds for these facts, or why none does. Pure; changes nothing.

        ``facts`` maps fact names to plain values; a fact that is absent makes a guard that needs it fail.
        """
        cell = self._cells.get((state, event))
        if cell is None:
            return self._absent[(state, event)]
        return cell.step(facts)

    def pair_guards(self, state: S, event: E) -> tuple[Guard, ...]:
        """The guards that the rows of this pair read, in the order of their verdict bits."""
        cell = self._cells.get((state, event))
        return cell.guards if cell else ()

    def result_for(self, state: S, event: E, mask: int) -> Accepted[S, E] | Refused:
        """The preallocated result for verdict bits ``mask`` (bit i belongs to guard i of :meth:`pair_guards`)."""
        cell = self._cells.get((state, event))
        return cell.results[mask] if cell else self._absent[(state, event)]

    def used_states(self) -> tuple[S, ...]:
        """States of this machine in declaration order."""
        return tuple(state for state in self.states if state not in self.unused_states)


def _by_pair(rows: Iterable[Row[S, E]]) -> dict[tuple[S, E], list[Row[S, E]]]:
    pairs: dict[tuple[S, E], list[Row[S, E]]] = {}
    for row in rows:
        pairs.setdefault((row.source, row.event), []).append(row)
    return pairs


def _build_cell(table: Table[S, E], state: S, event: E, rows: list[Row[S, E]]) -> _Cell[S, E]:
    known = {guard.name: guard for guard in table.guards}
    names = tuple(dict.fromkeys(name for row in rows for name in row.wants()))
    if len(names) > GUARDS_A_PAIR_MAX:
        raise DefinitionError(
            f"table {table.name}: ({state.value}, {event.value}) reads {len(names)} guards; at most "
            f"{GUARDS_A_PAIR_MAX} can be checked exhaustively. Split the event or join guards into one."
        )
    results: list[Accepted[S, E] | Refused] = []
    for verdicts in product((False, True), repeat=len(names)):
        # product varies the last name fastest; bit i must be guard i, so read it reversed
        by_name = dict(zip(names, reversed(verdicts), strict=True))
        holding = [row for row in rows if all(by_name[name] == wanted for name, wanted in row.wants().items())]
        if len(holding) > 1:
            raise DefinitionError(
                f"table {table.name}: two rows hold for ({state.value}, {event.value}) when {by_name}: "
                f"'{holding[0]}' and '{holding[1]}'. Make their guards exclude each other."
            )
        results.append(Accepted(holding[0]) if holding else _none_holds(table, state, event, by_name, known))
    return _Cell(tuple(known[name] for name in names), tuple(results))


def _none_holds(table: Table[S, E], state: S, event: E, verdicts: dict[str, bool], known: dict[str, Guard]) -> Refused:
    sentences = [known[name].meaning if verdict else known[name].otherwise for name, verdict in verdicts.items()]
    reason = f"{table.name}: '{event.value}' is refused in '{state.value}': {'; '.join(sentences)}"
    return Refused(table.name, state.value, event.value, reason, tuple(verdicts.items()))


def _legal_events(rows: Iterable[Row[S, E]]) -> Mapping[S, Sequence[str]]:
    """The events that each state has rows for, sorted. Once a table, not once a pair: a table may have 500 states."""
    found: dict[S, set[str]] = {}
    for row in rows:
        found.setdefault(row.source, set()).add(row.event.value)
    return {state: sorted(events) for state, events in found.items()}


def _no_row(table: Table[S, E], state: S, event: E, legal: Sequence[str]) -> Refused:
    legal_text = ", ".join(legal) if legal else "nothing: it is final"
    reason = f"{table.name}: '{event.value}' is not possible in '{state.value}' (possible there: {legal_text})"
    return Refused(table.name, state.value, event.value, reason, ())


def _check_vocabulary(table: Table[S, E]) -> None:
    guard_names = [guard.name for guard in table.guards]
    if len(set(guard_names)) != len(guard_names):
        raise DefinitionError(f"table {table.name}: a guard is declared twice: {sorted(guard_names)}; keep one")
    for number, row in enumerate(table.rows, start=1):
        fault = _row_fault(table, row, guard_names)
        if fault:
            raise DefinitionError(f"table {table.name}, row {number} ({row}): {fault}")


def _row_fault(table: Table[S, E], row: Row[S, E], guard_names: list[str]) -> str | None:
    """What is wrong with one row and what to do, or None."""
    unknown_guards = [name for name in row.wants() if name not in guard_names]
    unknown_effects = [effect for effect in row.effects if effect not in table.effects]
    faults = (
        (bool(unknown_guards), f"unknown guard {unknown_guards}; declare it in the table's guards"),
        (bool(unknown_effects), f"unknown effect {unknown_effects}; declare it in the table's effects"),
        (len(row.wants()) != len(row.guards), "names a guard twice, or with its own opposite"),
        (row.refusal and row.source is not row.target, "a refusal leaves the state as it was"),
        (
            row.source in table.unused_states or row.target in table.unused_states,
            "names a state that the table declares unused",
        ),
    )
    return next((text for is_fault, text in faults if is_fault), None)


def _usage_faults(table: Table[S, E]) -> Iterator[str]:
    read = {name for row in table.rows for name in row.wants()}
    for guard in table.guards:
        if guard.name not in read:
            yield f"no row reads guard '{guard.name}'; remove it"
    if table.initial in table.unused_states:
        yield f"it begins in '{table.initial.value}', which it declares unused"
    if table.abortable_from and table.abort_event is None:
        yield "abortable_from is given without abort_event; give both or neither"
    caused = {effect for row in table.rows for effect in row.effects}
    for effect in table.effects:
        if effect not in caused:
            yield f"no row has effect '{effect}'; remove it"


def _shape_faults(table: Table[S, E]) -> Iterator[str]:
    reached = {table.initial}
    frontier = [table.initial]
    while frontier:
        state = frontier.pop()
        for row in table.rows:
            if row.source is state and row.target not in reached:
                reached.add(row.target)
                frontier.append(row.target)
    for state in table.used_states():
        leaving = [row for row in table.rows if row.source is state and row.target is not state]
        if state not in reached:
            yield (
                f"'{state.value}' cannot be reached from '{table.initial.value}'; add a row that "
                "leads there, or declare it in unused_states"
            )
        if state in table.final and leaving:
            yield (f"'{state.value}' is final but is left by '{leaving[0]}'; remove one or the other")
        if state not in table.final and not leaving:
            yield f"'{state.value}' is a dead end; mark it final or add a row"


def _wait_faults(table: Table[S, E]) -> Iterator[str]:
    for state in table.used_states():
        if table.waiting.get(state) is DeadlineClass.NONE:
            yield f"'{state.value}' waits without a deadline class; give it one"
        if table.abort_event is None or state not in table.abortable_from:
            continue
        if not any(row.source is state and row.event is table.abort_event for row in table.rows):
            yield (f"'{state.value}' has no row for '{table.abort_event.value}'; an abort must be possible there")
