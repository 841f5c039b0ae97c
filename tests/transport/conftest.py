"""Each transport in turn, for the suite that all of them pass."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.transports import Opener, Setup, faultless, in_process, over_http


@pytest.fixture(params=[over_http, in_process, faultless], ids=["http", "in-process", "faulty without faults"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """What opens a transport; it takes a token provider."""
    chosen: Opener = request.param
    return chosen


@pytest.fixture
async def setup(opener: Opener) -> AsyncIterator[Setup]:
    """An open transport, without a token."""
    async with opener() as opened:
        yield opened
