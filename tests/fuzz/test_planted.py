"""Bugs that authors of servers make are found in seconds, and shrunk to a few calls."""

from __future__ import annotations

import pytest
from support.planted import PLANTED, Planted

from quiesce.fuzz.in_kit import examine_kit, replay_in_kit
from quiesce.fuzz.replays import parse_replay, replay_of, replay_text
from quiesce.fuzz.report import text_of


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found_and_shrunk(planted: Planted) -> None:
    """The first error that is reported names the bug, in at most eight calls that show it again."""
    report = examine_kit(planted.source, stop_after=1)
    assert [violation.rule.id for violation in report.errors][:1] != [], "nothing was found"
    found = report.errors[0]
    assert found.rule.id in planted.rules, text_of([report])
    assert 1 <= len(found.steps) <= 8
    assert found.reproducible
    assert found.expected != found.got


def test_there_are_fourteen_and_more() -> None:
    """The list of planted bugs has not shrunk."""
    assert len({planted.name for planted in PLANTED}) >= 20


def test_what_was_found_in_a_bad_server_holds_in_a_good_one() -> None:
    """The replay file of a planted bug, run on the kit as it ships, finds the rule kept."""
    report = examine_kit(PLANTED[0].source, stop_after=1)
    text = replay_text(replay_of(report, report.errors[0]))
    replayed = replay_in_kit(parse_replay(text.encode(), source="a test"))
    assert replayed.finding is None
    assert replayed.episode is not None
    assert len(replayed.episode.steps) == len(report.errors[0].steps)
