"""Counterexamples of planted bugs: searched, and as files."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from support.planted import BUGS, Bug, named, searched, setups

from quiesce.fsm.explore import Verdict
from quiesce.fsm.explore_changes import RowChange
from quiesce.fuzz.counterexample import Counterexample

__all__ = ["counterexample_of", "row_bugs"]


def row_bugs() -> list[str]:
    """Names of the planted bugs that are rows of the controller's tables, so that a file can hold them."""
    return [name for name, bug in BUGS.items() if bug.is_of_the_controller]


@cache
def counterexample_of(name: str) -> Counterexample:
    """The counterexample that the search finds for a planted bug."""
    bug = BUGS[name]
    sound = setups()[bug.where]
    setup = sound if bug.budgets is None else replace(sound, budgets=bug.budgets)
    return Counterexample.of(setup, _verdict(bug), changes(bug))


def changes(bug: Bug) -> tuple[RowChange, ...]:
    """The rows that a bug changes, as a file names them."""
    return tuple(change for part in bug.parts() for change in part.row_changes())


def _verdict(bug: Bug) -> Verdict:
    return next(verdict for verdict in searched(bug).violations() if named(verdict) == bug.breaks)
