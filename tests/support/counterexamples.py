"""Counterexamples of planted bugs: searched, and as files."""

from __future__ import annotations

from functools import cache

from support.planted_bugs import BUGS, planted, verdict_of

from quiesce.fuzz.counterexample import Counterexample

__all__ = ["counterexample_of", "row_bugs"]


def row_bugs() -> list[str]:
    """Names of the planted bugs that are rows of the controller's tables, and of no fence, so that servers run them."""
    return [name for name, bug in BUGS.items() if bug.is_of_the_controller]


@cache
def counterexample_of(name: str) -> Counterexample:
    """The counterexample that the search finds for a planted bug."""
    bug, verdict = BUGS[name], verdict_of(name)
    assert verdict is not None
    return Counterexample.of(planted(bug), verdict, tuple(bug.changed()))
