"""What authors of servers call: an application that keeps the protocol passes, one that does not fails with proof."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bad_servers import always
from support.planted import PLANTED, Planted

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz import Durations, Nonconforming, Settings, assert_conforms, conformance, kit_traffic, parse_replay
from quiesce.fuzz.kit import KIT_TOKEN, build_kit_server
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.server.answers import ASGIApp, Receive, Scope, Send

QUICK = Settings(token=KIT_TOKEN, calls_max=300, in_virtual_time=True, traffic=kit_traffic)


@pytest.mark.parametrize("role", Role)
def test_a_server_that_keeps_the_protocol_passes(role: Role) -> None:
    """One application, which is used again and again, and the report on it."""
    report = assert_conforms(build_kit_server(role).app, settings=QUICK)
    assert report.conforms
    assert report.role is role
    assert report.calls >= 300


def test_it_works_in_real_time_as_well() -> None:
    """With the system's clock a test of a few calls takes a moment."""
    app = build_kit_server(Role.AUXILIARY, clock=_RealClock()).app
    assert assert_conforms(app, token=KIT_TOKEN, calls_max=100).calls >= 100


class _RealClock(VirtualClock):
    def now_ts(self) -> float:
        import time  # noqa: PLC0415 - the only test that looks at a clock

        return time.time()


def planted(name: str) -> Planted:
    """One of the planted bugs."""
    return next(bug for bug in PLANTED if bug.name == name)


def test_a_broken_rule_fails_the_test_and_names_the_calls(tmp_path: Path) -> None:
    """The assertion says rule, section, calls, expected and got; the replay file has the same."""
    bug = planted("a finished id acts again")

    def fresh() -> ASGIApp:
        return bug.source(VirtualClock())

    with pytest.raises(Nonconforming) as failed:
        assert_conforms(fresh=fresh, replays=tmp_path, settings=QUICK, calls_max=900)
    assert isinstance(failed.value, AssertionError)
    text = str(failed.value)
    assert "error fence.used-up-id: A used-up id never acts again" in text
    assert "(wire-protocol 4.2 F1, F12)" in text
    assert "1. resume a -> 200" in text
    saved = {path: parse_replay(path.read_bytes(), source=str(path)) for path in tmp_path.iterdir()}
    assert "fence.used-up-id" in {replay.violation.rule for replay in saved.values()}


def test_what_the_profile_knows_does_not_fail() -> None:
    """A recorded server fails by the strict measure and passes by its own."""
    app = build_kit_server(Role.AGENT, FenceVariant.GYM_A_SINGLE).app
    with pytest.raises(Nonconforming):
        assert_conforms(app, settings=QUICK)
    report = assert_conforms(app, settings=QUICK, profile="gym-a")
    assert {violation.known for violation in report.violations} >= {"incomplete-prepare-forgotten"}


def test_what_is_no_participant_fails() -> None:
    """Not to be tested is not to conform."""
    with pytest.raises(Nonconforming, match="not a participant"):
        assert_conforms(always(404, b"{}"), settings=QUICK)


def test_a_wrong_token_fails_with_a_word_about_it() -> None:
    """The most frequent slip of all."""
    with pytest.raises(Nonconforming, match="token refused"):
        assert_conforms(build_kit_server(Role.POLICY).app, settings=QUICK, token="another")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"colour": "red"}, "no setting colour; there are .*token"),
        ({"profile": "gym-b"}, "profile is 'gym-b'; there are strict, gym-a"),
        ({"app": None}, "either an application or a function"),
        ({"fresh": lambda: None}, "either an application or a function"),
        ({"app": None, "fresh": lambda: None}, "fresh returned None; it must return an ASGI application"),
        ({"calls_max": 0}, "calls_max is 0; it must be at least 100"),
        ({"calls_max": -5}, "calls_max is -5"),
        ({"calls_max": "x"}, "calls_max is 'x'"),
        ({"calls_max": True}, "calls_max is True"),
        ({"seed": "x"}, "seed is 'x'; it must be a whole number"),
        ({"traffic": "kit"}, "traffic is 'kit'; it must be a function"),
        ({"checkpoint_dir": "/dev/null"}, "checkpoint_dir is '/dev/null'; it must be a Path"),
        ({"checkpoint_dir": Path("/dev/null")}, "the checkpoint directory /dev/null cannot be used"),
        ({"grace_s": -1.0}, "grace_s is -1.0"),
        ({"grace_s": float("nan")}, "grace_s is nan"),
        ({"durations": 3}, "durations is 3"),
        ({"profile": []}, "profile is"),
        ({"allow_restore": "yes"}, "allow_restore is 'yes'"),
        ({"token": 7}, "token is given; it must be a text"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(given: dict[str, Any], says: str) -> None:
    """Before anything is called."""
    app = build_kit_server(Role.POLICY).app
    with pytest.raises(ConfigurationError, match=says):
        assert_conforms(**{"app": app, **given})


def test_a_checkpoint_directory_that_is_lost_on_the_way_is_an_error_of_ours(tmp_path: Path) -> None:
    """It becomes a file, before the first commit makes its folders there."""
    root = tmp_path / "shared"
    root.mkdir()

    def fresh() -> ASGIApp:
        if root.is_dir():
            root.rmdir()
        root.touch()
        return build_kit_server(Role.POLICY).app

    with pytest.raises(ConfigurationError, match=r"the checkpoint directory .*shared cannot be used: .*irectory"):
        assert_conforms(fresh=fresh, settings=QUICK, checkpoint_dir=root)


def with_lifespan(app: ASGIApp, log: list[str]) -> ASGIApp:
    """An application that notes when it is started and stopped."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for word in ("startup", "shutdown"):
            message = await receive()
            assert message["type"] == f"lifespan.{word}"
            log.append(word)
            await send({"type": f"lifespan.{word}.complete"})

    return served


def test_every_application_is_started_and_stopped() -> None:
    """As a server would, one after the other."""
    log: list[str] = []

    def fresh() -> ASGIApp:
        return with_lifespan(build_kit_server(Role.AUXILIARY).app, log)

    assert_conforms(fresh=fresh, settings=QUICK, calls_max=100)
    assert len(log) > 4
    assert log == ["startup", "shutdown"] * (len(log) // 2)


def test_an_application_that_does_not_start_is_an_error_of_ours() -> None:
    """What it says stands in the error."""

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(QuiesceError, match="could not start: no database"):
        assert_conforms(broken, settings=QUICK)


def test_in_a_loop_of_ones_own_it_is_awaited() -> None:
    """``conformance`` reports instead of failing."""

    async def mine() -> bool:
        app = build_kit_server(Role.AUXILIARY, clock=_RealClock()).app
        return (await conformance(app, token=KIT_TOKEN, calls_max=100)).conforms

    assert asyncio.run(mine())


def test_durations_can_be_given() -> None:
    """Then nothing is measured, so that the same seed is the same test on a busy machine."""
    seen: list[str] = []

    def counting(app: ASGIApp) -> ASGIApp:
        async def served(scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(scope["path"])
            await app(scope, receive, send)

        return served

    make: Callable[[], ASGIApp] = lambda: counting(build_kit_server(Role.POLICY).app)  # noqa: E731 - used twice
    report = assert_conforms(make(), settings=QUICK, calls_max=100, durations=Durations(short_s=2.0, work_s=20.0))
    given = len(seen)
    assert report.calls == given
    seen.clear()
    assert_conforms(make(), settings=QUICK, calls_max=100)
    assert seen[:given] != []
