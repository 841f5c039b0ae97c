"""Tables of numbers as Promela: arrays that are no part of the state, and sparse ones that are packed into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

__all__ = ["NOTHING", "Sparse", "array", "comment", "flat"]

V = TypeVar("V")

NOTHING: Final = 2_147_483_647
"""What stands for no number at all: an initializer of Promela holds no negative ones."""

# Spin's parser takes just under 10,000 numbers in one initializer
_CHUNK: Final = 9_000
_NUMBERS_A_LINE: Final = 24


def comment(*lines: str) -> Iterator[str]:
    """A comment, whatever the lines hold."""
    for number, line in enumerate(lines):
        opened = f"{'/*' if number == 0 else ' *'} {_harmless(line)}".rstrip()
        yield f"{opened} */" if number == len(lines) - 1 else opened


def flat(rows: Mapping[int, Sequence[V]], size: int) -> tuple[list[V], list[int]]:
    """The items of all rows one after the other, and where each of ``size`` rows begins and the last one ends."""
    items: list[V] = []
    begins = [0]
    for number in range(size):
        items += rows.get(number, ())
        begins.append(len(items))
    return items, begins


def array(name: str, values: Sequence[int], notes: Sequence[str] | None = None) -> Iterator[str]:
    """Numbers that ``name(i)`` reads and that are no part of the state; with notes, one on a line with its number."""
    if notes is None and len(set(values)) <= 1:
        yield f"#define {name}(i) {int(values[0]) if values else 0}"
        return
    chunks = [range(start, min(start + _CHUNK, len(values))) for start in range(0, len(values), _CHUNK)] or [range(1)]
    for number, places in enumerate(chunks):
        yield f"hidden int {name}_{number}[{len(places)}] = {{"
        if notes is None:
            yield from _numbers([int(value) for value in values[places.start : places.stop]])
        else:
            yield from _noted(places, values or [0], notes or ["nothing"])
        yield "};"
    yield f"#define {name}(i) {_chosen(name, len(chunks))}"


def _numbers(values: Sequence[int]) -> Iterator[str]:
    for start in range(0, len(values), _NUMBERS_A_LINE):
        line = ", ".join(str(value) for value in values[start : start + _NUMBERS_A_LINE])
        yield f"  {line}{',' if start + _NUMBERS_A_LINE < len(values) else ''}"


def _noted(places: range, values: Sequence[int], notes: Sequence[str]) -> Iterator[str]:
    for place in places:
        comma = "," if place + 1 < places.stop else ""
        yield f"  {values[place]}{comma} /* {place}: {_harmless(notes[place])} */"


def _chosen(name: str, chunks: int) -> str:
    """The array that holds place ``i``."""
    chosen = f"{name}_{chunks - 1}[(i) - {(chunks - 1) * _CHUNK}]" if chunks > 1 else f"{name}_0[i]"
    for number in reversed(range(chunks - 1)):
        chosen = f"((i) < {(number + 1) * _CHUNK} -> {name}_{number}[(i) - {number * _CHUNK}] : {chosen})"
    return chosen


def _harmless(text: str) -> str:
    """``text`` where neither Promela nor the C preprocessor finds anything to read."""
    line = text.replace("*/", "* /").replace("/*", "/ *")
    return "".join(char if char.isprintable() and char != "\\" else "?" for char in line)


class Sparse:
    """A table of few numbers in many rows and columns, as ``name(row, column)``; NOTHING where there is none.

    Rows are laid over each other where their numbers do not meet (row displacement), each at the first place that is
    free, and every place says which row it belongs to.
    """

    def __init__(self, name: str, entries: Mapping[tuple[int, int], int], *, rows: int, columns: int) -> None:
        self.name = name
        self.base = [0] * rows
        by_row: dict[int, dict[int, int]] = {}
        for (row, column), value in sorted(entries.items()):
            by_row.setdefault(row, {})[column] = value
        placed: dict[int, tuple[int, int]] = {}
        taken = 0
        # full rows first: they find the fewest places
        for row, found in sorted(by_row.items(), key=lambda item: (-len(item[1]), item[0])):
            self.base[row] = base = _first_free(taken, found)
            for column, value in found.items():
                placed[base + column] = (row, value)
                taken |= 1 << base + column
        length = max(self.base, default=0) + columns
        self.owner = [placed.get(place, (NOTHING, NOTHING))[0] for place in range(length)]
        self.value = [placed.get(place, (NOTHING, NOTHING))[1] for place in range(length)]

    def lines(self) -> Iterator[str]:
        """Its arrays and its macro."""
        yield from array(f"{self.name}_base", self.base)
        yield from array(f"{self.name}_owner", self.owner)
        yield from array(f"{self.name}_value", self.value)
        at = f"{self.name}_base(row) + (column)"
        found = f"{self.name}_owner({at}) == (row) -> {self.name}_value({at}) : {NOTHING}"
        yield f"#define {self.name}(row, column) ({found})"


def _first_free(taken: int, columns: Mapping[int, int]) -> int:
    """The smallest shift at which no column meets a bit of ``taken``."""
    blocked = 0
    for column in columns:
        blocked |= taken >> column
    return (~blocked & blocked + 1).bit_length() - 1
