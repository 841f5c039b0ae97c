"""Tables that are made up, for tests of whatever takes any table."""

from __future__ import annotations

from enum import Enum
from typing import Any

from hypothesis import strategies as st

from quiesce.fsm.rows import Guard, IsTrue, Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

# Any: the members of these enums are made up while the test runs
AnyTable = Table[Any, Any]

ODD_NAMES = (
    "end",
    "state",
    "note",
    "class",
    "default",
    "direction",
    "fork",
    "as",
    "left of",
    "end note",
    "[*]",
    "-->",
    "a --> b : c",
    'say "no"',
    "<b>bold</b>",
    "<script>alert(1)</script>",
    "semi;colon",
    "a:b",
    ":::styled",
    "%% comment",
    "%%{init: {}}%%",
    "#35;",
    "#lt;",
    "&lt;",
    "back\\slash",
    "`tick`",
    "pipe|pipe",
    "{brace}",
    "]",
    "]]",
    "line\nbreak",
    "tab\tstop",
    " ",
    "",
    "--",
    "***",
    "état",
    "状態",
    "حالة",
    "🙂",
    "Idle",
    "idle",
    "IDLE",
    "i_dle",
    "0",
    "1.5",
    "constructor",
    "__proto__",
    "$&",
    "x" * 300,
)


def ring(names: tuple[str, ...], *, title: str = "A ring") -> AnyTable:
    """A machine that goes round through states of these names, each step an event of its state's name."""
    states, events = _enum("State", names), _enum("Event", names)
    rows = tuple(
        Row(state, event, (), states[(number + 1) % len(states)], (), f"step {number}")
        for number, (state, event) in enumerate(zip(states, events, strict=True))
    )
    return Table("RING", title, type(states[0]), type(events[0]), states[0], (), (), rows)


def _enum(name: str, values: tuple[str, ...]) -> list[Enum]:
    # the functional form is the only one that takes names made up at run time
    made = Enum(name, {f"M{number}": value for number, value in enumerate(values)})  # type: ignore[misc]  # as above
    return list(made)


@st.composite
def tables(draw: st.DrawFn, *, names: st.SearchStrategy[str]) -> AnyTable:
    """Any table that can be built: random states, events, guards, effects, refusals, deadlines and kinds of states."""
    states = _enum("State", tuple(draw(st.lists(names, min_size=2, max_size=6, unique=True))))
    events = _enum("Event", tuple(draw(st.lists(names, min_size=len(states), max_size=7, unique=True))))
    used: set[tuple[Enum, Enum]] = set()
    rows = [_step(draw, states[draw(st.integers(0, n - 1))], states[n], events, used) for n in range(1, len(states))]
    for _ in range(draw(st.integers(0, 6))):
        source, event = draw(st.sampled_from(states)), draw(st.sampled_from(events))
        if (source, event) not in used:
            used.add((source, event))
            rows += _branches(draw, source, draw(st.sampled_from(states)), event)
    return _built(draw, states, events, tuple(rows))


def _step(
    draw: st.DrawFn, source: Enum, target: Enum, events: list[Enum], used: set[tuple[Enum, Enum]]
) -> Row[Any, Any]:
    event = next(event for event in events if (source, event) not in used)
    used.add((source, event))
    return Row(source, event, (), target, _effects(draw), "reaches it", draw(st.sampled_from(DeadlineClass)))


def _branches(draw: st.DrawFn, source: Enum, target: Enum, event: Enum) -> tuple[Row[Any, Any], ...]:
    deadline = draw(st.sampled_from(DeadlineClass))
    yes = Row(source, event, ("allowed",), target, _effects(draw), "it is allowed", deadline)
    refusal = draw(st.booleans())
    no = Row(source, event, ("!allowed",), source, _effects(draw), "it is not", refusal=refusal, source_ref="F0")
    return yes, no


def _effects(draw: st.DrawFn) -> tuple[str, ...]:
    return tuple(draw(st.lists(st.sampled_from(("ring_bell", "open_door", "shut_door")), unique=True)))


def _built(draw: st.DrawFn, states: list[Enum], events: list[Enum], rows: tuple[Row[Any, Any], ...]) -> AnyTable:
    left = {row.source for row in rows if row.target is not row.source}
    guards = tuple(
        Guard(name, IsTrue(name), "it is allowed", "it is forbidden")
        for name in ("allowed",)
        if any(name in row.wants() for row in rows)
    )
    effects = tuple(dict.fromkeys(effect for row in rows for effect in row.effects))
    waits = draw(st.dictionaries(st.sampled_from(states), st.sampled_from(list(DeadlineClass)[1:])))
    return Table(
        name="MADE_UP",
        title="A machine that was made up",
        states=type(states[0]),
        events=type(events[0]),
        initial=states[0],
        guards=guards,
        effects=effects,
        rows=rows,
        final=frozenset(state for state in states if state not in left),
        resting=draw(st.frozensets(st.sampled_from(sorted(left, key=states.index)))),
        waiting=waits,
    )


def odd_everywhere() -> AnyTable:
    """A machine whose title, guards, effects, reasons and references have odd names, two rows for each of them."""
    names = tuple(name for name in ODD_NAMES if name.strip())
    states, events = _enum("State", names), _enum("Event", names)
    guards = tuple(Guard(_plain(name), IsTrue(f"fact {name}"), f"{name} holds", f"{name} does not") for name in names)
    rows = [
        row
        for number, (state, event, guard) in enumerate(zip(states, events, guards, strict=True))
        for row in (
            Row(state, event, (guard.name,), states[(number + 1) % len(states)], names[:2], f"because {names[number]}"),
            Row(state, event, (f"!{guard.name}",), state, (names[number],), "it stays", source_ref=names[number]),
        )
    ]
    kinds = type(states[0]), type(events[0]), states[0]
    effects = tuple(dict.fromkeys((*names[:2], *names)))
    return Table(ODD_NAMES[13], ODD_NAMES[14], *kinds, guards, effects, tuple(rows))


def _plain(name: str) -> str:
    """A guard's name must not begin with the mark that negates it."""
    return name.removeprefix("!") or "it"
