"""What a table is declared of, before what it says is looked at: every value has its type, and names somebody wrote.

A declaration is written by hand, and a missing comma or a text in place of a member must not surface as an
AttributeError somewhere in a search. Each fault is told with where it stands, what is there, and what to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, EnumMeta
from typing import Any, Final

from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.guards import AllOf, AnyOf, Equal, Guard, IsTrue, IsZero, Negation
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["check_types"]

_NESTED_MAX: Final = 50
"""Levels of an expression; nobody could read one that is deeper."""
_SHOWN_MAX: Final = 60
_SETS: Final = ("final", "resting", "abortable_from", "unused_states")


def check_types(table: Any, row_type: type) -> None:  # noqa: ANN401 - it may hold anything: that is what is checked
    """Refuse a table that holds a value of another type than it is declared with.

    Raises:
        DefinitionError: with the place, what stands there, and what to write instead.
    """
    for fault in _faults(table, row_type):
        raise DefinitionError(f"table {table.name if isinstance(table.name, str) else _shown(table.name)}: {fault}")


def _faults(table: Any, row_type: type) -> Iterator[str]:  # noqa: ANN401 - as above
    for name in ("name", "title"):
        if not isinstance(getattr(table, name), str):
            yield f"{name} is {_shown(getattr(table, name))}; write a text"
    for name in ("states", "events"):
        yield from _enum_faults(name, getattr(table, name))
    yield from _member_faults("initial", table.initial, table.states)
    yield from _tuple_faults("guards", table.guards, Guard, "(Guard(...), Guard(...))")
    for number, guard in enumerate(table.guards, start=1):
        for fault in _guard_faults(guard):
            yield f"guard {number} ({_shown(guard.name)}): {fault}"
    yield from _text_tuple_faults("effects", table.effects)
    yield from _tuple_faults("rows", table.rows, row_type, "(Row(...), Row(...))")
    for number, row in enumerate(table.rows, start=1):
        for fault in _row_faults(table, row):
            yield f"row {number} ({_described(row)}): {fault}"
    yield from _state_faults(table)


def _enum_faults(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, EnumMeta) or not len(value):
        yield f"{name} is {_shown(value)}; write a class of enum.Enum that has members, not the members themselves"
        return
    members: Mapping[str, Enum] = value.__members__
    for member_name, member in members.items():
        if not isinstance(member.value, str):
            yield (
                f"{value.__name__}.{member_name} has the value {_shown(member.value)}; give it a text: that is what is "
                "drawn, logged and compared"
            )
        if member.name != member_name:
            yield f"{value.__name__}.{member_name} has the value of {member.name}, and so is the same; give it its own"


def _member_faults(what: str, value: object, members: type[Enum]) -> Iterator[str]:
    if not isinstance(value, members):
        example = next(iter(members)).name
        yield f"{what} is {_shown(value)}; it must be a member of {members.__name__}, as {members.__name__}.{example}"


def _tuple_faults(what: str, value: object, of: type, example: str) -> Iterator[str]:
    if not isinstance(value, tuple):
        comma = " (one alone is a tuple only with a comma behind it)" if isinstance(value, of) else ""
        yield f"{what} is {_shown(value)}; write a tuple: {example}{comma}"
        return
    for number, one in enumerate(value, start=1):
        if not isinstance(one, of):
            yield f"{what}: number {number} is {_shown(one)}; write a {of.__name__}(...)"


def _text_tuple_faults(what: str, value: object) -> Iterator[str]:
    if not isinstance(value, tuple):
        example = f"({_shown(value)},)" if isinstance(value, str) else "('one', 'another')"
        yield f"{what} is {_shown(value)}; write a tuple of names, with a comma also behind one alone: {example}"
        return
    for number, one in enumerate(value, start=1):
        if not _is_text(one):
            yield f"{what}: number {number} is {_shown(one)}; write a name"


def _guard_faults(guard: Guard) -> Iterator[str]:
    if not _is_text(guard.name) or guard.name.startswith("!"):
        yield f"its name is {_shown(guard.name)}; write a text without '!' before it (a row says '!name' to deny it)"
    for name in ("meaning", "otherwise"):
        if not _is_text(getattr(guard, name)):
            yield f"{name} is {_shown(getattr(guard, name))}; write the sentence that a reader is told"
    yield from _expression_faults(guard.test)


def _expression_faults(test: object) -> Iterator[str]:
    waiting: list[tuple[object, int]] = [(test, 1)]
    while waiting:
        part, level = waiting.pop()
        if level > _NESTED_MAX:
            yield f"its test is nested deeper than {_NESTED_MAX} levels; name parts of it as guards of their own"
            return
        match part:
            case IsTrue() | IsZero():
                facts: tuple[object, ...] = (part.fact,)
            case Equal():
                facts = (part.left, part.right)
            case Negation():
                facts = ()
                waiting.append((part.inner, level + 1))
            case AllOf() | AnyOf() if isinstance(part.parts, tuple):
                facts = ()
                waiting.extend((inner, level + 1) for inner in part.parts)
            case AllOf() | AnyOf():
                yield f"{type(part).__name__} is given {_shown(part.parts)}; write a tuple: (IsTrue('a'), IsZero('b'))"
                return
            case _:
                yield f"its test is {_shown(part)}; write IsTrue, IsZero, Equal, Negation, AllOf or AnyOf over facts"
                return
        for fact in facts:
            if not _is_text(fact):
                yield f"{type(part).__name__} reads the fact {_shown(fact)}; write the name of a fact"


def _row_faults(table: Any, row: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    states, events = table.states, table.events
    if not isinstance(row.source, states) or not isinstance(row.target, states):
        yield f"source and target must be members of {states.__name__}"
    if not isinstance(row.event, events):
        yield f"the event must be a member of {events.__name__}"
    yield from _text_tuple_faults("guards", row.guards)
    yield from _text_tuple_faults("effects", row.effects)
    if not _is_text(row.reason):
        yield f"a row needs a one-line reason, and this is {_shown(row.reason)}; write why the step is right"
    if not isinstance(row.deadline, DeadlineClass):
        yield f"deadline is {_shown(row.deadline)}; write a member of DeadlineClass"
    if not isinstance(row.refusal, bool):
        yield f"refusal is {_shown(row.refusal)}; write True or False"
    if not isinstance(row.source_ref, str):
        yield f"source_ref is {_shown(row.source_ref)}; write a text, or leave it out"


def _state_faults(table: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    states = table.states
    for name in _SETS:
        value = getattr(table, name)
        if not isinstance(value, frozenset):
            yield f"{name} is {_shown(value)}; write frozenset({{{states.__name__}.{next(iter(states)).name}, ...}})"
            continue
        for one in value:
            yield from _member_faults(f"one of {name}", one, states)
    if not isinstance(table.waiting, Mapping):
        yield f"waiting is {_shown(table.waiting)}; write a dictionary from states to members of DeadlineClass"
    else:
        for state, deadline in table.waiting.items():
            yield from _member_faults("a key of waiting", state, states)
            if not isinstance(deadline, DeadlineClass):
                yield f"waiting in {_shown(state)} has {_shown(deadline)}; write a member of DeadlineClass"
    if table.abort_event is not None:
        yield from _member_faults("abort_event", table.abort_event, table.events)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _described(row: Any) -> str:  # noqa: ANN401 - as above
    """A row that may hold anything, as rows are named."""
    source, event, target = (
        one.value if isinstance(one, Enum) else _shown(one) for one in (row.source, row.event, row.target)
    )
    names = (
        [one if isinstance(one, str) else _shown(one) for one in row.guards] if isinstance(row.guards, tuple) else []
    )
    guards = f" [{', '.join(names)}]" if names else ""
    return f"{source} --{event}{guards}--> {target}"


def _shown(value: object) -> str:
    """A value in an error; what cannot even be printed is named by its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a foreign object may raise anything
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... (a {type(value).__name__})"
