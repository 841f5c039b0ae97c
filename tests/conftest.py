"""Settings that all tests share, which share of them is run, and what sweeps have counted."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags of our own tests."""
    text = "write tests/scenarios/*.txt as the servers answer now; review the difference"
    parser.addoption("--rewrite-scenarios", action="store_true", help=text)
    parser.addoption("--shard", default="1/1", metavar="I/N", help="run every Nth test, from the Ith on")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this shard: each test is in exactly one, and the parts of a sweep are spread over all."""
    nth, _, count = str(config.getoption("--shard")).partition("/")
    if not (nth.isdecimal() and count.isdecimal() and 1 <= int(nth) <= int(count)):
        raise pytest.UsageError("--shard is the number of the shard and how many there are, for example 2/3")
    mine = items[int(nth) - 1 :: int(count)]
    if len(mine) < len(items):
        kept = set(mine)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = mine


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much sweeps have tried, of all workers.

    A sweep calls ``record_property("swept", "<what>: <count>")``. Where points that come to the same are tried once,
    ``("standing for", "<what>: <count>")`` says how many those are which it has tried stand for.
    """
    counts: dict[str, Counter[str]] = {"swept": Counter(), "standing for": Counter()}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name in counts:
                what, _, count = str(value).rpartition(": ")
                counts[name][what] += int(count)
    if not counts["swept"]:
        return
    terminalreporter.section("what was swept, all of it without a failure")
    for what, total in sorted(counts["swept"].items()):
        stands_for = counts["standing for"][what]
        terminalreporter.write_line(f"{total:>9,} {what}{f', standing for {stands_for:,}' if stands_for else ''}")
    failed = sum(len(terminalreporter.getreports(outcome)) for outcome in ("failed", "error"))
    terminalreporter.write_line(f"{failed:>9,} tests that failed, of which nothing is counted here")
