"""Rows, guards and tables: what a declaration must be, and what a step of it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.fsm.engine import TableEngine, require
from quiesce.fsm.errors import DefinitionError, GuardRefused, IllegalTransition, QuiesceError
from quiesce.fsm.rows import (
    Accepted,
    AllOf,
    AnyOf,
    Equal,
    Expression,
    Guard,
    IsTrue,
    IsZero,
    Negation,
    Refused,
    Row,
    Table,
)
from quiesce.fsm.vocabulary import DeadlineClass


class Door(Enum):
    """States of the door."""

    SHUT = "shut"
    OPEN = "open"
    GONE = "gone"


class Push(Enum):
    """What is done to it."""

    PUSH = "push"
    PULL = "pull"
    BREAK = "break"


DoorTable = Table[Door, Push]
DoorRow = Row[Door, Push]

UNLOCKED = Guard("unlocked", IsTrue("key_turned"), "the lock is open", "the lock is shut")
CLEAR = Guard("clear", IsZero("people_in_the_way"), "nobody stands in the way", "somebody stands in the way")

OPENS = Row(Door.SHUT, Push.PUSH, ("unlocked",), Door.OPEN, ("creak",), "an open lock lets it swing")
SHUTS = Row(Door.OPEN, Push.PULL, ("clear",), Door.SHUT, (), "it falls shut")
BREAKS = Row(Door.OPEN, Push.BREAK, (), Door.GONE, (), "nothing is left")
STAYS = Row(Door.SHUT, Push.PUSH, ("!unlocked",), Door.SHUT, (), "a locked door stays", refusal=True)

DOOR: DoorTable = Table(
    name="DOOR",
    title="A door",
    states=Door,
    events=Push,
    initial=Door.SHUT,
    guards=(UNLOCKED, CLEAR),
    effects=("creak",),
    rows=(OPENS, SHUTS, BREAKS),
    final=frozenset({Door.GONE}),
)


def rebuilt(**changes: Any) -> DoorTable:  # noqa: ANN401 - any field of the declaration
    """The door, declared with some parts exchanged."""
    fields = ("name", "title", "states", "events", "initial", "guards", "effects", "rows", "final")
    declared: dict[str, Any] = {name: getattr(DOOR, name) for name in fields}
    return Table(**(declared | changes))


# what is refused when a table is built


def _with(*rows: DoorRow) -> tuple[DoorRow, ...]:
    return (*DOOR.rows, *rows)


MANY = tuple(Guard(f"g{n}", IsTrue(f"f{n}"), f"{n} holds", f"{n} does not hold") for n in range(7))

FAULTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown guard": (
        {"rows": _with(replace(OPENS, source=Door.OPEN, guards=("oiled",)))},
        ("row 4", "unknown guard", "oiled", "declare it"),
    ),
    "unknown effect": (
        {"rows": _with(replace(BREAKS, source=Door.SHUT, effects=("bang",)))},
        ("row 4", "unknown effect", "bang", "declare it"),
    ),
    "guard beside its opposite": (
        {"rows": _with(replace(BREAKS, source=Door.SHUT, guards=("clear", "!clear")))},
        ("row 4", "twice, or with its own opposite"),
    ),
    "guard named twice": (
        {"rows": _with(replace(BREAKS, source=Door.SHUT, guards=("clear", "clear")))},
        ("row 4", "twice"),
    ),
    "guard declared twice": ({"guards": (UNLOCKED, CLEAR, CLEAR)}, ("declared twice", "clear")),
    "unread guard": ({"guards": (*DOOR.guards, MANY[0])}, ("no row reads guard 'g0'", "remove")),
    "unused effect": ({"effects": ("creak", "bang")}, ("no row has effect 'bang'", "remove")),
    "no reason": ({"rows": _with(replace(BREAKS, source=Door.SHUT, reason=""))}, ("row 4", "reason")),
    "refusal that moves": (
        {"rows": _with(replace(STAYS, target=Door.OPEN))},
        ("row 4", "a refusal leaves the state as it was"),
    ),
    "unused state in a row": ({"unused_states": frozenset({Door.GONE})}, ("row 3", "declares unused")),
    "state that is none": (
        {"rows": _with(replace(BREAKS, source="shut"))},  # type: ignore[arg-type]  # the fault under test
        ("row 4", "members of Door"),
    ),
    "event that is none": (
        {"rows": _with(replace(BREAKS, source=Door.SHUT, event="break"))},  # type: ignore[arg-type]  # the fault
        ("row 4", "member of Push"),
    ),
    "event of another machine": (
        {"rows": _with(replace(BREAKS, source=Door.SHUT, event=Door.SHUT))},  # type: ignore[arg-type]  # the fault
        ("row 4", "member of Push"),
    ),
    "two rows, no guard": ({"rows": _with(replace(BREAKS, target=Door.SHUT))}, ("two rows hold", "exclude each other")),
    "two rows, one verdict": (
        {"rows": _with(Row(Door.SHUT, Push.PUSH, ("clear",), Door.GONE, (), "overlaps"))},
        ("two rows hold", "'unlocked': True", "'clear': True"),
    ),
    "the same row twice": ({"rows": _with(OPENS)}, ("two rows hold",)),
    "too many guards": (
        {
            "guards": (*DOOR.guards, *MANY),
            "rows": _with(Row(Door.SHUT, Push.PULL, tuple(g.name for g in MANY), Door.OPEN, (), "much at once")),
        },
        ("reads 7 guards", "at most 6", "Split"),
    ),
    "unreachable": (
        {"rows": (OPENS, SHUTS, replace(BREAKS, source=Door.GONE, target=Door.OPEN)), "final": frozenset()},
        ("'gone' cannot be reached from 'shut'", "add a row that leads there"),
    ),
    "dead end": ({"final": frozenset()}, ("'gone' is a dead end", "mark it final or add a row")),
    "final and left": (
        {"rows": _with(replace(BREAKS, source=Door.GONE, target=Door.SHUT))},
        ("'gone' is final but is left by", "remove one or the other"),
    ),
    "waits without a deadline": ({"waiting": {Door.OPEN: DeadlineClass.NONE}}, ("'open' waits without a deadline",)),
    "abort missing": (
        {"abort_event": Push.BREAK, "abortable_from": frozenset({Door.OPEN, Door.SHUT})},
        ("'shut' has no row for 'break'", "abort must be possible"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_declaration_is_refused_with_the_row_and_the_remedy(fault: str) -> None:
    """Each fault of a declaration raises DefinitionError when the table is built, and the text says where and what."""
    changes, words = FAULTS[fault]
    with pytest.raises(DefinitionError) as refused:
        rebuilt(**changes)
    assert "table DOOR" in str(refused.value)
    assert [word for word in words if word not in str(refused.value)] == []


def test_what_is_wrong_with_the_table_as_a_whole_is_told_at_once() -> None:
    """Without the row that breaks it nobody gets there, and a guard that only the row behind it reads is no cure."""
    with pytest.raises(DefinitionError) as caught:
        rebuilt(rows=(replace(OPENS, guards=()), BREAKS, replace(SHUTS, source=Door.SHUT, guards=())))
    assert str(caught.value) == (
        "table DOOR: no row reads guard 'unlocked'; remove it; and no row reads guard 'clear'; remove it"
    )
    with pytest.raises(DefinitionError) as caught:
        rebuilt(rows=(OPENS, replace(SHUTS, guards=())))
    assert str(caught.value).startswith("table DOOR: 'gone' cannot be reached from 'shut'; add a row that leads there")
    assert str(caught.value).endswith("; and no row reads guard 'clear'; remove it")


def test_the_declaration_without_a_fault_is_accepted() -> None:
    """The door that the faults are made from is right, also with all its optional parts."""
    assert rebuilt(
        rows=_with(STAYS, replace(BREAKS, source=Door.SHUT)),
        waiting={Door.OPEN: DeadlineClass.HOLD},
        abort_event=Push.BREAK,
        abortable_from=frozenset({Door.OPEN, Door.SHUT}),
        resting=frozenset({Door.SHUT}),
    ).rows


def test_six_guards_of_one_pair_are_allowed() -> None:
    """The bound on guards is six, not fewer: all 64 verdicts of such a pair have a result."""
    six = MANY[:6]
    table = rebuilt(
        guards=(*DOOR.guards, *six),
        rows=_with(Row(Door.SHUT, Push.PULL, tuple(g.name for g in six), Door.OPEN, (), "all six")),
    )
    results = [table.result_for(Door.SHUT, Push.PULL, mask) for mask in range(64)]
    assert [isinstance(result, Accepted) for result in results] == [False] * 63 + [True]


# what a step does


def test_a_step_names_the_row() -> None:
    """A step whose guards hold gives the declared row itself."""
    result = DOOR.step(Door.SHUT, Push.PUSH, {"key_turned": True})
    assert isinstance(result, Accepted)
    assert result.row is OPENS
    assert result.target is Door.OPEN


def test_a_guard_that_fails_is_named_with_its_sentence() -> None:
    """A refused step says which guard failed and why; the pair is known, so it is a GuardRefused."""
    result = DOOR.step(Door.SHUT, Push.PUSH, {})
    assert isinstance(result, Refused)
    assert result.failed == ("unlocked",)
    assert "the lock is shut" in result.reason
    with pytest.raises(GuardRefused) as raised:
        require(result)
    assert (raised.value.machine, raised.value.state, raised.value.event) == ("DOOR", "shut", "push")
    assert raised.value.failed == ("unlocked",)


def test_a_pair_without_rows_says_what_is_possible() -> None:
    """A pair that the table lacks is an IllegalTransition that lists the state's events."""
    result = DOOR.step(Door.OPEN, Push.PUSH, {"key_turned": True})
    assert isinstance(result, Refused)
    assert result.verdicts == ()
    assert "possible there: break, pull" in result.reason
    with pytest.raises(IllegalTransition) as raised:
        require(result)
    assert not isinstance(raised.value, GuardRefused)
    assert isinstance(raised.value, QuiesceError)


def test_a_final_state_says_that_it_is_final() -> None:
    """Nothing is possible in a final state, and the refusal says so."""
    result = DOOR.step(Door.GONE, Push.PUSH, {})
    assert isinstance(result, Refused)
    assert "it is final" in result.reason


def test_a_row_reads_as_one_line() -> None:
    """A row is printed as source, event, guards and target."""
    assert str(OPENS) == "shut --push [unlocked]--> open"
    assert str(BREAKS) == "open --break--> gone"


# guards


@pytest.mark.parametrize(
    ("test", "facts", "verdict"),
    [
        (IsTrue("a"), {"a": True}, True),
        (IsTrue("a"), {"a": 0}, False),
        (IsTrue("a"), {}, False),
        (IsZero("a"), {"a": 0}, True),
        (IsZero("a"), {"a": 1}, False),
        (IsZero("a"), {}, False),
        (IsZero("a"), {"a": None}, False),
        (Equal("a", "b"), {"a": "x", "b": "x"}, True),
        (Equal("a", "b"), {"a": "x", "b": "y"}, False),
        (Equal("a", "b"), {}, False),
        (Equal("a", "b"), {"a": None, "b": None}, False),
        (Negation(IsTrue("a")), {}, True),
        (AllOf((IsTrue("a"), IsZero("b"))), {"a": 1, "b": 0}, True),
        (AllOf((IsTrue("a"), IsZero("b"))), {"a": 1}, False),
        (AllOf(()), {}, True),
        (AnyOf((IsTrue("a"), IsZero("b"))), {"b": 0}, True),
        (AnyOf((IsTrue("a"), IsZero("b"))), {}, False),
        (AnyOf(()), {}, False),
    ],
)
def test_an_expression_is_total_and_an_unknown_fact_proves_nothing(
    test: Expression, facts: Mapping[str, object], *, verdict: bool
) -> None:
    """Every expression has a verdict for every facts; one that is absent makes what needs it fail."""
    assert test.holds(facts) is verdict


def test_a_guard_lists_the_facts_that_it_reads() -> None:
    """The declared inputs of a guard are the facts of its expression, each once: it can be drawn and emitted."""
    guard = Guard("g", AllOf((IsTrue("a"), AnyOf((Negation(IsZero("b")), Equal("a", "c"))))), "yes", "no")
    assert guard.reads() == ("a", "b", "c")
    assert str(guard.test) == "(a) and ((not (b = 0)) or (a = c))"


# random tables against the plain meaning of their rows

FACTS = ("a", "b", "c")


class Spot(Enum):
    """States of the random machines."""

    P = "p"
    Q = "q"
    R = "r"


class Nudge(Enum):
    """Their events."""

    X = "x"
    Y = "y"
    GO = "go"


def _expressions() -> st.SearchStrategy[Expression]:
    fact = st.sampled_from(FACTS)
    leaves: st.SearchStrategy[Expression] = st.one_of(
        st.builds(IsTrue, fact), st.builds(IsZero, fact), st.builds(Equal, fact, fact)
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Negation, inner),
            st.builds(AllOf, st.lists(inner, max_size=2).map(tuple)),
            st.builds(AnyOf, st.lists(inner, max_size=2).map(tuple)),
        ),
        max_leaves=4,
    )


GUARD_NAMES = ("g0", "g1", "g2")
AnyRow = Row[Spot, Nudge]


@st.composite
def _rows(draw: st.DrawFn) -> tuple[AnyRow, ...]:
    # the round trip makes every state reachable and no dead end, so that only the random rows can be at fault
    trip = (
        Row(Spot.P, Nudge.GO, (), Spot.Q, (), "round"),
        Row(Spot.Q, Nudge.GO, (), Spot.R, (), "round"),
        Row(Spot.R, Nudge.GO, (), Spot.P, (), "round"),
    )
    wanted = st.lists(st.sampled_from(GUARD_NAMES), max_size=3, unique=True)
    drawn = draw(
        st.lists(
            st.tuples(st.sampled_from(Spot), st.sampled_from((Nudge.X, Nudge.Y)), wanted, st.sampled_from(Spot)),
            max_size=6,
        )
    )
    signs = st.sampled_from(("", "!"))
    return trip + tuple(
        Row(source, event, tuple(draw(signs) + name for name in names), target, (), f"row {number}")
        for number, (source, event, names, target) in enumerate(drawn)
    )


def _holding(rows: tuple[AnyRow, ...], state: Spot, event: Nudge, verdicts: Mapping[str, bool]) -> list[AnyRow]:
    """What the rows plainly say: those of the pair whose guards all have the wanted verdict."""
    return [
        row
        for row in rows
        if (row.source, row.event) == (state, event)
        and all(verdicts[name.removeprefix("!")] is not name.startswith("!") for name in row.guards)
    ]


def _ambiguous(rows: tuple[AnyRow, ...]) -> bool:
    return any(
        len(_holding(rows, state, event, dict(zip(GUARD_NAMES, verdicts, strict=True)))) > 1
        for state, event in product(Spot, Nudge)
        for verdicts in product((False, True), repeat=3)
    )


@given(rows=_rows(), expressions=st.tuples(*[_expressions()] * 3))
def test_a_table_means_what_its_rows_plainly_say(rows: tuple[AnyRow, ...], expressions: tuple[Expression, ...]) -> None:
    """A table is built exactly when no verdict lets two rows hold; each step is then the one that holds, or none."""
    read = {name for row in rows for name in row.wants()}
    guards = tuple(
        Guard(name, test, f"{name} holds", f"{name} fails")
        for name, test in zip(GUARD_NAMES, expressions, strict=True)
        if name in read
    )
    try:
        table = Table("RANDOM", "A random machine", Spot, Nudge, Spot.P, guards, (), rows)
    except DefinitionError as refused:
        assert _ambiguous(rows), refused  # noqa: PT017 - either outcome is right, for different rows
        return
    assert not _ambiguous(rows)
    for state, event in product(Spot, Nudge):
        for values in product((0, 1, None), repeat=3):
            facts = {name: value for name, value in zip(FACTS, values, strict=True) if value is not None}
            verdicts = {guard.name: guard.test.holds(facts) for guard in guards}
            holding = _holding(rows, state, event, dict.fromkeys(GUARD_NAMES, False) | verdicts)
            result = TableEngine().step(table, state, event, facts)
            assert [result.row] == holding if isinstance(result, Accepted) else holding == []
            if isinstance(result, Refused):
                assert dict(result.verdicts).items() <= verdicts.items()
