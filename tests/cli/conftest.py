"""What the tests of the command share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from support.command import Command, call
from support.workload import TOKEN

from quiesce.participants.control_token import TOKEN_VARIABLES


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """The command configures logs for its process; a test must not leave that behind."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def quiesce(monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, with the token of the workload's servers in its environment and nothing else of ours."""
    for name in TOKEN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(TOKEN_VARIABLES[0], TOKEN)
    return call
