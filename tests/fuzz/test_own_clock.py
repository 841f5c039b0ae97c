"""An application that goes by another clock than its test is told so, before it is accused of anything."""

from __future__ import annotations

import asyncio
import time

import pytest

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz import Settings, assert_conforms, kit_traffic
from quiesce.fuzz.kit import KIT_TOKEN, build_kit_server
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.server.answers import ASGIApp, Receive, Scope, Send

QUICK = Settings(token=KIT_TOKEN, calls_max=100, in_virtual_time=True, traffic=kit_traffic)
TAKE_PART = [Role.POLICY, Role.AGENT, Role.RESOURCES]


class SystemsOwn(VirtualClock):
    """Deadlines by the system's clock, waits by the loop's: as most applications do."""

    def now_ts(self) -> float:
        """Unix seconds."""
        return time.time()


@pytest.mark.parametrize("role", TAKE_PART)
def test_an_application_on_the_systems_clock_is_not_tested_in_virtual_time(role: Role) -> None:
    """The error names the setting and the clock that it wants."""
    with pytest.raises(ConfigurationError, match=r"takes a deadline that has passed. With in_virtual_time=True it"):
        assert_conforms(build_kit_server(role, clock=SystemsOwn()).app, settings=QUICK)


@pytest.mark.parametrize("role", TAKE_PART)
def test_an_application_on_a_virtual_clock_is_not_tested_in_real_time(role: Role) -> None:
    """The other way round."""
    app = build_kit_server(role, clock=VirtualClock()).app
    with pytest.raises(ConfigurationError, match=r"refuses a deadline that is to come. .*, and without it from"):
        assert_conforms(app, token=KIT_TOKEN, calls_max=100)


@pytest.mark.parametrize("role", Role)
def test_one_that_heeds_no_deadline_is_left_to_the_test(role: Role) -> None:
    """Recorded servers begin work after any deadline; by their own measure that is known, and no matter of clocks."""
    app = build_kit_server(role, FenceVariant.GYM_A_SINGLE).app
    assert assert_conforms(app, settings=QUICK, profile="gym-a").conforms


def waiting_for_the_world() -> ASGIApp:
    """Waits for what no timer of its loop brings."""
    app = build_kit_server(Role.POLICY).app

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].endswith("/pause"):
            await asyncio.Event().wait()
        await app(scope, receive, send)

    return served


def test_one_that_waits_outside_of_its_loop_is_a_finding() -> None:
    """Never a bare deadlock: the fuzzer's own patience is a timer."""
    with pytest.raises(AssertionError, match=r"reply.in-time"):
        assert_conforms(waiting_for_the_world(), settings=QUICK)


def test_a_loop_in_which_nothing_can_happen_is_an_error_of_ours() -> None:
    """An application whose start waits for somebody else."""

    def fresh() -> ASGIApp:
        async def served(scope: Scope, _receive: Receive, _send: Send) -> None:
            assert scope["type"] == "lifespan"
            waited = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(_stop_timers)
            await waited

        return served

    with pytest.raises(ConfigurationError, match="in virtual time nothing goes on any more"):
        assert_conforms(fresh=fresh, settings=QUICK)


def _stop_timers() -> None:
    loop = asyncio.get_running_loop()
    for timer in list(loop._scheduled):  # type: ignore[attr-defined]  # a loop that nobody wakes any more
        timer.cancel()
