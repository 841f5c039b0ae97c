"""A table of somebody's own, declared wrongly in any place: told with the place and the remedy, never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum, IntEnum, StrEnum
from typing import Any, Final

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from quiesce.diagrams import render_markdown, render_mermaid, render_promela
from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.guards import AllOf, AnyOf, Equal, Expression, Guard, IsTrue, IsZero, Negation
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.vocabulary import DeadlineClass


class Upload(StrEnum):
    """States of the upload."""

    EMPTY = "empty"
    FILLING = "filling"
    SEALED = "sealed"
    GONE = "gone"


class Step(StrEnum):
    """Its events."""

    PART_ARRIVED = "part_arrived"
    SEAL = "seal"
    GIVE_UP = "give_up"


class Numbered(IntEnum):
    """States that are numbers."""

    ONE = 1


class Twice(StrEnum):
    """Two names for one state."""

    HERE = "here"
    THERE = "here"


class Unprintable:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("nobody may print me")


COMPLETE = Guard(
    "complete",
    AllOf((IsZero("missing"), Negation(AnyOf((IsTrue("torn"), Equal("left", "right")))))),
    "every part is here",
    "parts are missing",
)
OWNER = Guard("owner_asks", IsTrue("asked_by_owner"), "its owner asks", "somebody else asks")
DECLARED: Final[dict[str, Any]] = {  # Any: arguments of several types
    "name": "UPLOAD",
    "title": "An upload in parts",
    "states": Upload,
    "events": Step,
    "initial": Upload.EMPTY,
    "guards": (COMPLETE, OWNER),
    "effects": ("store_part", "tell_owner"),
    "rows": (
        Row(Upload.EMPTY, Step.PART_ARRIVED, (), Upload.FILLING, ("store_part",), "the first", DeadlineClass.REACH),
        Row(Upload.FILLING, Step.PART_ARRIVED, ("!complete",), Upload.FILLING, ("store_part",), "one more"),
        Row(
            Upload.FILLING,
            Step.SEAL,
            ("complete", "owner_asks"),
            Upload.SEALED,
            ("tell_owner",),
            "whole",
            source_ref="1",
        ),
        Row(Upload.FILLING, Step.GIVE_UP, (), Upload.EMPTY, (), "it is not wanted any more"),
        Row(Upload.SEALED, Step.GIVE_UP, ("!owner_asks",), Upload.SEALED, (), "only its owner may", refusal=True),
    ),
    "final": frozenset({Upload.SEALED}),
    "resting": frozenset({Upload.EMPTY}),
    "waiting": {Upload.FILLING: DeadlineClass.REACH},
    "abort_event": Step.GIVE_UP,
    "abortable_from": frozenset({Upload.FILLING}),
    "unused_states": frozenset({Upload.GONE}),
}

# every place of the declaration: how to reach it, and how to put something else there

Place = tuple[str, Any, Callable[[Any], Any]]


def places(value: Any, at: str, put: Callable[[Any], Any]) -> Iterator[Place]:  # noqa: ANN401 - a declaration
    """This value and all that it consists of."""
    yield at, value, put
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):

            def put_field(new: object, name: str = one.name) -> Any:  # noqa: ANN401 - as above
                return put(replace(value, **{name: new}))

            yield from places(getattr(value, one.name), f"{at}.{one.name}", put_field)
    elif isinstance(value, tuple):
        for number, one in enumerate(value):

            def put_item(new: object, number: int = number) -> Any:  # noqa: ANN401 - as above
                return put((*value[:number], new, *value[number + 1 :]))

            yield from places(one, f"{at}[{number}]", put_item)
    elif isinstance(value, frozenset):
        yield f"{at}{{}}", next(iter(value)), lambda new: put(frozenset({new}))
    elif isinstance(value, dict):
        key, kept = next(iter(value.items()))
        yield f"{at} key", key, lambda new: put({new: kept})
        yield f"{at} value", kept, lambda new: put({key: new})


PLACES: Final = [
    place
    for name, value in DECLARED.items()
    for place in places(value, name, lambda new, name=name: {**DECLARED, name: new})  # type: ignore[misc]  # its default
]

_WRONG: Final[tuple[object, ...]] = (
    [],
    (),
    {},
    set(),
    frozenset(),
    object(),
    Unprintable(),
    Enum,
    Numbered,
    Numbered.ONE,
    Twice,
    Upload,
    Upload.EMPTY,
    Step.SEAL,
    DeadlineClass.NONE,
    COMPLETE,
    IsTrue("x"),
    AllOf(()),
    DECLARED["rows"][0],
    "a very long text " * 20,
    "two\nlines",
    len,
    int,
    {Upload.GONE: 1},
    (Upload.GONE,),
    ((),),
    (None,),
    None,
    True,
    0,
    1.5,
    b"x",
    "",
    " ",
)
_BENT: Final[tuple[Callable[[Any], object], ...]] = (
    list,
    str,
    repr,
    lambda value: (value,),
    lambda value: value[0],  # the comma that makes a tuple of one is missing
    lambda value: value * 2,
    lambda value: value.value,
    lambda value: value.name,
    set,
    dict.fromkeys,
    type,
)


class NotPossible(Exception):
    """Python itself does not let this be put there."""


def refused_or_runs(place: Place, bend: Callable[[Any], object]) -> None:
    """One value exchanged: a DefinitionError that can be read, or a table on which both engines and pictures agree."""
    _, value, put = place
    try:
        arguments = put(bend(value))
    except (TypeError, AttributeError, LookupError, ValueError) as error:
        raise NotPossible from error
    try:
        table = Table(**arguments)
    except DefinitionError as refused:
        text = str(refused)
        assert text.startswith("table "), text
        assert len(text) < 2000, text
        return
    engine = TransitionsEngine()
    for state in table.used_states():
        for event in table.events:
            assert engine.step(table, state, event, {}) == table.step(state, event, {})
    assert all((render_mermaid(table), render_markdown(table), render_promela(table)))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_whatever_stands_there_a_table_is_refused_or_runs(place: Place) -> None:
    """Every value of another type, and every slip of the pen, in every place."""
    bends: list[Callable[[Any], object]] = [*_BENT, *(lambda _, wrong=wrong: wrong for wrong in _WRONG)]
    tried = 0
    for bend in bends:
        with suppress(NotPossible):
            refused_or_runs(place, bend)
            tried += 1
    assert tried > len(_WRONG) // 2


@given(
    st.sampled_from(PLACES),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.sampled_from(Upload)),
        lambda inner: st.one_of(st.lists(inner, max_size=2), st.lists(inner, max_size=2).map(tuple)),
        max_leaves=3,
    ),
)
def test_so_does_whatever_else_somebody_writes_there(place: Place, wrong: object) -> None:
    """Values that nobody has thought of."""
    try:
        refused_or_runs(place, lambda _: wrong)
    except NotPossible:
        reject()


def test_every_argument_is_a_place() -> None:
    """The test above would pass silently over an argument that it does not know."""
    known = {name.partition("[")[0].partition(".")[0] for name, _, _ in PLACES}
    assert {one.name for one in fields(Table) if one.init} <= known
    assert {one.name for one in fields(Row)} <= {name.rpartition(".")[2] for name, _, _ in PLACES}
    assert {one.name for one in fields(Guard)} <= {name.rpartition(".")[2] for name, _, _ in PLACES}


# what a reader is told


def row(**changes: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any field
    """The declaration with another third row."""
    rows = DECLARED["rows"]
    return {"rows": (*rows[:2], replace(rows[2], **changes), *rows[3:])}


def guard(**changes: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any field
    """The declaration with another second guard."""
    return {"guards": (COMPLETE, replace(OWNER, **changes))}


def deep(levels: int) -> Expression:
    """Negations of negations."""
    test: Expression = IsTrue("x")
    for _ in range(levels):
        test = Negation(test)
    return test


FAULTS: Final[dict[str, tuple[Mapping[str, Any], str]]] = {
    "no name": ({"name": None}, "table None: name is None; write a text"),
    "title": ({"title": 3}, "title is 3; write a text"),
    "list of states": ({"states": list(Upload)}, "states is \\[.*; write a class of enum.Enum"),
    "no states": ({"states": Enum}, "states is <enum 'Enum'>; write a class of enum.Enum that has members"),
    "numbered states": ({"states": Numbered}, "Numbered.ONE has the value 1; give it a text"),
    "two names": ({"events": Twice}, "Twice.THERE has the value of HERE"),
    "initial is a text": ({"initial": "nope"}, "initial is 'nope'; it must be a member of Upload, as Upload.EMPTY"),
    "initial is unused": ({"initial": Upload.GONE}, "begins in 'gone', which it declares unused"),
    "rows as tuples": (
        {"rows": ((Upload.EMPTY, Step.SEAL, (), Upload.SEALED, (), "why"),)},
        r"rows: number 1 is \(.*; write a Row\(...\)",
    ),
    "one row": ({"rows": DECLARED["rows"][0]}, "write a tuple: .*only with a comma behind it"),
    "one guard": ({"guards": COMPLETE}, "guards is Guard.*only with a comma behind it"),
    "guards of a row": (row(guards="complete"), r"row 3 \(.*\): guards is 'complete'; .*: \('complete',\)"),
    "effects of a row": (row(effects="tell_owner"), r"row 3 \(.*\): effects is 'tell_owner'; .*: \('tell_owner',\)"),
    "an effect that is no name": (row(effects=(None,)), r"row 3 \(.*\): effects: number 1 is None; write a name"),
    "source": (row(source="filling "), r"row 3 \('filling ' --seal.*\): source and target must be members of Upload"),
    "event": (row(event=Upload.EMPTY), "row 3 .*the event must be a member of Step"),
    "reason": (row(reason=None), "row 3 .*a row needs a one-line reason, and this is None"),
    "deadline": (row(deadline="reach"), "row 3 .*deadline is 'reach'; write a member of DeadlineClass"),
    "refusal": (row(refusal="no"), "row 3 .*refusal is 'no'; write True or False"),
    "reference": (row(source_ref=2), "row 3 .*source_ref is 2"),
    "effects": ({"effects": "store_part"}, r"effects is 'store_part'; .*\('store_part',\)"),
    "name of a guard": (guard(name="!owner"), "guard 2 .*its name is '!owner'"),
    "sentence of a guard": (guard(otherwise=None), "guard 2 .*otherwise is None; write the sentence"),
    "test of a guard": (guard(test="asked"), "guard 2 .*its test is 'asked'; write IsTrue"),
    "a part of a test": (guard(test=AllOf(IsTrue("a"))), r"AllOf is given IsTrue.*; write a tuple"),  # type: ignore[arg-type]  # the fault
    "a fact of a test": (guard(test=Negation(IsZero(0))), "IsZero reads the fact 0"),  # type: ignore[arg-type]  # as above
    "a test without end": (guard(test=deep(100_000)), "nested deeper than 50 levels"),
    "final": ({"final": Upload.SEALED}, r"final is <Upload.SEALED: 'sealed'>; write frozenset\(\{Upload.EMPTY"),
    "final as a set": ({"final": {Upload.SEALED}}, r"final is \{<Upload.SEALED: 'sealed'>\}; write frozenset"),
    "a final state": ({"final": frozenset({"sealed!"})}, "one of final is 'sealed!'; it must be a member of Upload"),
    "waiting": ({"waiting": (Upload.FILLING,)}, "waiting is .*; write a dictionary"),
    "a state that waits": ({"waiting": {"filling!": DeadlineClass.REACH}}, "a key of waiting is 'filling!'"),
    "a deadline": ({"waiting": {Upload.FILLING: 3}}, "waiting in <Upload.FILLING: 'filling'> has 3"),
    "abort": ({"abort_event": "give_up!"}, "abort_event is 'give_up!'; it must be a member of Step"),
    "nothing aborts": ({"abort_event": None}, "abortable_from is given without abort_event"),
    "unprintable": ({"title": Unprintable()}, "title is a Unprintable; write a text"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_value_is_told_with_its_place_and_the_remedy(fault: str) -> None:
    """Which argument or which row, what stands there, and what to write."""
    changes, words = FAULTS[fault]
    with pytest.raises(DefinitionError, match=words):
        Table(**{**DECLARED, **changes})


def test_what_is_declared_rightly_is_accepted() -> None:
    """The declaration that all faults are made from."""
    assert Table(**DECLARED).rows == DECLARED["rows"]
