"""Which rows of the tables no search of two participants takes: ``python -m support.untaken_rows`` prints them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from quiesce.fsm.engine import TableEngine
from quiesce.fsm.explore import explore
from quiesce.fsm.explore_changes import tables_that_run
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_suites import SUITES, suite
from quiesce.fsm.rows import Accepted, Facts, Refused, Table

__all__ = ["untaken", "untaken_table"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class WatchingEngine(TableEngine):
    """The tables themselves, and which of their rows were chosen. The automata ask once for each of their steps."""

    def __init__(self) -> None:
        self.taken: set[tuple[str, str]] = set()

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        """What the table says, noted."""
        result = super().step(table, state, event, facts)
        if isinstance(result, Accepted):
            self.taken.add((table.name, str(result.row)))
        return result


@cache
def untaken() -> dict[str, tuple[str, ...]]:
    """By table, the rows that no search of ``quiesce check`` comes to, in the order of their declaration."""
    engine = WatchingEngine()
    for name in SUITES:
        for setup in _watched(suite(name), engine):
            explore(System(setup, reduced=True))
    used = {table for table, _ in engine.taken}
    return {
        name: tuple(str(row) for row in table.rows if (name, str(row)) not in engine.taken)
        for name, table in tables_that_run().items()
        if name in used
    }


def _watched(setups: Iterable[Setup], engine: WatchingEngine) -> Iterable[Setup]:
    """The same set-ups on the watching engine; automata that were shared still are."""
    known: dict[int, Any] = {}
    for setup in setups:
        controller = known.setdefault(id(setup.controller), replace(setup.controller, engine=engine))
        sites = known.setdefault(id(setup.sites), tuple(replace(site, engine=engine) for site in setup.sites))
        yield replace(setup, controller=controller, sites=sites)


def untaken_table() -> str:
    """How many rows of each table, and which of the controller's."""
    head = "| table | rows | taken by no search | which |\n| --- | ---: | ---: | --- |\n"
    return head + "".join(_line(name, rows) for name, rows in untaken().items())


def _line(name: str, rows: tuple[str, ...]) -> str:
    which = "" if name.startswith("FENCE") else "; ".join(f"`{row}`" for row in rows)
    return f"| {name} | {len(tables_that_run()[name].rows)} | {len(rows)} | {which} |\n"


if __name__ == "__main__":
    print(untaken_table(), end="")  # noqa: T201 - its one purpose
