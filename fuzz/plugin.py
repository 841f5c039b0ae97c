"""The pytest plugin: a fixture with which a server's tests assert that it keeps the protocol.

    def test_my_server(quiesce_conforms):
        quiesce_conforms(make_app(), token="secret")

The options choose the profile, the seed, the number of calls and where replay files go; what a test gives itself wins.
Installed with Quiesce, it adds a group of options and that fixture, and nothing else: it imports nothing of Quiesce
before the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from quiesce.fuzz.report import ParticipantReport

__all__ = ["pytest_addoption", "quiesce_conforms"]

_GROUP = "quiesce"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup(_GROUP, "conformance of checkpoint participants (quiesce)")
    group.addoption("--quiesce-profile", default=None, metavar="NAME", help="strict, or gym-a: name known deviations")
    group.addoption("--quiesce-seed", default=None, type=int, metavar="N", help="decides the random call sequences")
    group.addoption("--quiesce-calls", default=None, type=int, metavar="N", help="calls at most for each server")
    group.addoption("--quiesce-replays", default=None, metavar="DIR", help="where replay files of violations go")


@pytest.fixture
def quiesce_conforms(request: pytest.FixtureRequest) -> Callable[..., ParticipantReport]:
    """``quiesce.fuzz.assert_conforms`` with the options of the command line as defaults."""
    config = request.config
    wanted = {
        "profile": config.getoption("--quiesce-profile"),
        "seed": config.getoption("--quiesce-seed"),
        "calls_max": config.getoption("--quiesce-calls"),
    }
    defaults = {name: value for name, value in wanted.items() if value is not None}
    folder = config.getoption("--quiesce-replays")

    def check(app: object = None, **given: object) -> ParticipantReport:
        from quiesce.fuzz.conforming import assert_conforms  # noqa: PLC0415 - only a run that uses it pays for it

        replays = {} if folder is None else {"replays": Path(folder)}
        return assert_conforms(app, **{**replays, **defaults, **given})  # type: ignore[arg-type]  # the user's own

    return check
