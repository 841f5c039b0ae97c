"""Tables of numbers as Promela text say what they were made from."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.fsm import promela_text
from quiesce.fsm.promela_text import NOTHING, Sparse, array, comment, flat

ENTRIES = st.dictionaries(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.integers(0, 999), max_size=40)
_NUMBERS = re.compile(r"hidden int (\w+)\[(\d+)\] = \{\n(.*?)\n\};", re.DOTALL)
_MACRO = re.compile(r"#define (\w+)\((.*?)\) (.*)")


def evaluated(lines: list[str]) -> dict[str, Callable[..., int]]:
    """The macros of the text as functions: arrays are lists, and Promela's choice is Python's."""
    text = "\n".join(lines)
    names: dict[str, object] = {}
    for name, size, body in _NUMBERS.findall(text):
        numbers = [int(number) for number in re.findall(r"\d+", re.sub(r"/\*.*?\*/", "", body))]
        assert len(numbers) == int(size)
        names[name] = numbers
    for name, parameters, body in _MACRO.findall(text):
        python = re.sub(r"\((\(?.*?) -> (.*) : (.*)\)$", r"((\2) if (\1) else (\3))", body)
        names[name] = eval(f"lambda {parameters}: {python}", names)  # noqa: S307 - our own text
    return names  # type: ignore[return-value]  # lists are never asked for


@given(values=st.lists(st.integers(0, 9), max_size=30))
def test_an_array_reads_as_it_was_written(values: list[int]) -> None:
    """Each place of an array gives its number, whether all are equal or not."""
    read = evaluated(list(array("x", values)))["x"]
    assert [read(place) for place in range(len(values))] == values


@pytest.mark.parametrize("size", [1, 3, 4, 7, 9])
def test_a_long_array_is_cut_into_what_spin_can_parse(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer array than an initializer may hold is several, and reads as one."""
    monkeypatch.setattr(promela_text, "_CHUNK", 3)
    values = list(range(size))
    lines = list(array("x", values, [f"note {value}" for value in values]))
    assert sum(line.startswith("hidden") for line in lines) == -(-size // 3)
    macro = next(line for line in lines if line.startswith("#define"))
    for place in values:
        chunk = min(place // 3, (size - 1) // 3)
        assert f"x_{chunk}[" in macro
        assert f"  {place}{'' if place % 3 == 2 or place == size - 1 else ','} /* {place}: note {place} */" in lines


@given(entries=ENTRIES)
def test_a_sparse_table_reads_as_it_was_written(entries: dict[tuple[int, int], int]) -> None:
    """Every pair of a row and a column gives its number, or that there is none; rows that overlap do not mix."""
    read = evaluated(list(Sparse("X", entries, rows=10, columns=10).lines()))["X"]
    for row in range(10):
        for column in range(10):
            assert read(row, column) == entries.get((row, column), NOTHING)


@given(entries=ENTRIES)
def test_a_sparse_table_is_small(entries: dict[tuple[int, int], int]) -> None:
    """Rows are laid into each other: no more places than as if they stood one after the other."""
    table = Sparse("X", entries, rows=10, columns=10)
    assert len(table.owner) == len(table.value) <= 10 * (len({row for row, _ in entries}) or 1) + 10
    assert sum(owner != NOTHING for owner in table.owner) == len(entries)


def test_rows_are_found_by_their_bounds() -> None:
    """Flattened rows begin where the one before ends, empty ones too."""
    items, begins = flat({0: ["a", "b"], 2: ["c"]}, 4)
    assert items == ["a", "b", "c"]
    assert begins == [0, 2, 2, 3, 3]


def test_a_comment_ends_where_it_should() -> None:
    """Whatever a name holds, it neither ends the comment nor is read by the preprocessor."""
    lines = list(comment("a */ b /* c", 'quo"te \\', "new\nline"))
    assert lines == ["/* a * / b / * c", ' * quo"te ?', " * new?line */"]
