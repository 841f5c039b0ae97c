"""Faults of our own: a transaction is undone, and where even that fails it ends and names whoever may be closed."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TypeVar

import pytest
from support.fleet import Fleet
from support.virtual_loop import virtual_time

from quiesce.controller import InDoubt
from quiesce.fsm.engine import TableEngine
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.rows import Accepted, Facts, Refused, Table

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class FailingEngine(TableEngine):
    """Raises at its nth step, once or from then on."""

    def __init__(self, at: int, *, lasting: bool) -> None:
        self._at = at
        self._lasting = lasting
        self.steps = 0

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        self.steps += 1
        if self.steps == self._at or (self._lasting and self.steps > self._at):
            raise RuntimeError("a fault of ours")
        return super().step(table, state, event, facts)


def errors_of(error: BaseException) -> list[BaseException]:
    """The leaves of a group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in errors_of(inner)]
    return [error]


async def cut_with(engine: FailingEngine, root: Path) -> tuple[Fleet, list[BaseException]]:
    """One cut with this engine; what it raised."""
    fleet = Fleet()
    controller = fleet.controller(root)
    controller._engine = engine
    try:
        async with controller, controller.cut("first"):
            pass
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return fleet, errors_of(error)
    return fleet, []


@pytest.mark.parametrize("at", range(8, 60, 4))
@virtual_time
async def test_a_single_fault_of_ours_undoes_the_cut(tmp_path: Path, at: int) -> None:
    """Whichever step it strikes: the cut is undone and everybody accepts work, or it had been published."""
    fleet, errors = await cut_with(FailingEngine(at, lasting=False), tmp_path)
    assert await fleet.everybody_accepts(), errors


@pytest.mark.parametrize("at", range(8, 60, 8))
@virtual_time
async def test_a_lasting_fault_of_ours_ends_and_names_who_may_be_closed(tmp_path: Path, at: int) -> None:
    """It neither hangs nor goes round; whoever is closed stands in the error."""
    fleet, errors = await cut_with(FailingEngine(at, lasting=True), tmp_path)
    assert any(isinstance(error, QuiesceError) and "unforeseen fault" in str(error) for error in errors)
    closed = {f"main/{name}" for name, app in fleet.apps.items() if app.fence.state.active is not None}
    named = {str(key) for error in errors if isinstance(error, InDoubt) for key in error.owed}
    assert closed <= named
