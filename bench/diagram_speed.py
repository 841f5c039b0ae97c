"""Drawing a table of 500 states in each format, over drawing one of 12 of the same kind: 42 times the states.

The tables are rings with a short cut at every third state, guards, effects, and a failure that is possible everywhere.
Wall time, since SVG and PNG are drawn by another program.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from enum import Enum, StrEnum
from functools import partial
from typing import Any

from measured import Measured

from quiesce.diagrams import Format, has_dot, render
from quiesce.fsm.rows import Guard, IsTrue, Row, Table

SMALL, LARGE = 12, 500
ROUNDS = 5
LINEAR = LARGE / SMALL
REACH = 2 * LINEAR
"""Text grows with the table and little more; how a layout grows is the program's matter."""


def measure() -> list[Measured]:
    """One row a format; without the program ``dot`` the formats that need none."""
    small, large = _table(SMALL), _table(LARGE)
    drawn = (Format.SVG, Format.PNG)
    return [
        Measured(
            f"{LARGE} states as {form.value}, over {SMALL}",
            _median_ms(partial(render, large, form)),
            _median_ms(partial(render, small, form)),
            "ms",
            None if form in drawn else REACH,
        )
        for form in Format
        if form not in drawn or has_dot()
    ]


def _median_ms(work: Callable[[], object]) -> float:
    work()  # names are escaped once and remembered
    times = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - began_s)
    return statistics.median(times) * 1e3


class Event(StrEnum):
    """What can happen."""

    GO = "go"
    SKIP = "skip"
    FAIL = "fail"


def _table(count: int) -> Table[Any, Any]:  # Any: the states are made here
    # the functional form is the only one that takes names made up at run time
    made = Enum("State", [(f"S{number}", f"state_{number}") for number in range(count)])  # type: ignore[misc]  # as above
    states = list(made)
    failed = states[-1]
    rows: list[Row[Any, Any]] = []
    for number, state in enumerate(states[:-1]):
        rows += [
            Row(state, Event.GO, ("ready",), states[(number + 1) % (count - 1)], ("step", "note"), "the next one"),
            Row(state, Event.FAIL, (), failed, ("note",), "it can fail anywhere"),
        ]
        if number % 3 == 0:
            rows.append(Row(state, Event.SKIP, (), states[(number + 3) % (count - 1)], (), "a short cut"))
    guards = (Guard("ready", IsTrue("ready"), "it is ready", "it is not ready"),)
    return Table(
        "RING",
        "A ring",
        type(states[0]),
        Event,
        states[0],
        guards,
        ("step", "note"),
        tuple(rows),
        final=frozenset({failed}),
    )
