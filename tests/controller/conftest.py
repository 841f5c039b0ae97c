"""What every scenario of the controller is held to."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from support.fleet import FLEETS, SERVED_AS

from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.trace_check import check_trace, split_runs


@pytest.fixture(autouse=True)
def quick_and_quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Syncs do nothing, since no test can pull the plug, and nothing is logged unless a test looks at the logs."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def every_run_is_one_that_the_tables_allow() -> Iterator[None]:
    """Each step legal, each guard true, the order kept: for every transaction of every fleet of the test."""
    FLEETS.clear()
    yield
    for fleet in FLEETS:
        for run in split_runs(fleet.traces):
            # a scenario may drain in either way; the order that both allow is what a run must keep at least
            assert not check_trace(run, roles=SERVED_AS, drain=DrainMode.OVERLAPPED)
    FLEETS.clear()
