"""Settings that all tests share, and what sweeps have counted."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much sweeps have tried: each test that does calls ``record_property("swept", "<what>: <count>")``."""
    counts: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "swept":
                what, _, count = str(value).rpartition(": ")
                counts[what] += int(count)
    for what, total in sorted(counts.items()):
        terminalreporter.write_line(f"swept: {total} {what}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags of our own tests."""
    text = "write tests/scenarios/*.txt as the servers answer now; review the difference"
    parser.addoption("--rewrite-scenarios", action="store_true", help=text)
