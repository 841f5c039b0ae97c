"""What is said of a finding that does not come again at once: where calls race, it is tried a few times more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from quiesce.fuzz.findings import Episode, Finding
from quiesce.fuzz.rulebook import RULE_BY_ID
from quiesce.fuzz.shrinking import RACES_MAX, Shrunk, shrink
from quiesce.fuzz.steps import Step, parse_step

RULE = "fence.resume-waits"
RACE = tuple(map(parse_step, ("prepare a", "commit a send=at_once", "resume a")))
CALM = tuple(map(parse_step, ("prepare a", "commit a", "resume a")))


def shrunk(steps: Sequence[Step], *, shows_in: int) -> Shrunk:
    """What comes of a sequence that broke a rule, and does so again in one of its runs, and then never."""
    runs: list[Sequence[Step]] = []

    async def attempt(steps: Sequence[Step]) -> Episode:
        runs.append(steps)
        return found(steps) if len(runs) == shows_in else Episode(tuple(steps), ())

    return asyncio.run(shrink(attempt, RULE, found(steps)))


def found(steps: Sequence[Step]) -> Episode:
    """A run that breaks the rule."""
    return Episode(tuple(steps), (), Finding(RULE_BY_ID[RULE], "200", "409"))


@pytest.mark.parametrize("shows_in", [1, 2, RACES_MAX])
def test_a_race_that_comes_again_in_one_of_a_few_runs_is_reproducible(shows_in: int) -> None:
    """It is an error then, as any other."""
    assert shrunk(RACE, shows_in=shows_in).reproducible


def test_a_race_that_never_comes_again_was_seen_once() -> None:
    """After so many runs."""
    outcome = shrunk(RACE, shows_in=RACES_MAX + 1)
    assert (outcome.reproducible, outcome.runs) == (False, RACES_MAX)


def test_what_does_not_race_is_run_once_more() -> None:
    """There is no other order in which it could have come."""
    outcome = shrunk(CALM, shows_in=2)
    assert (outcome.reproducible, outcome.runs) == (False, 1)
