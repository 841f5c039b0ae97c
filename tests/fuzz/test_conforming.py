"""What authors of servers call: an application that keeps the protocol passes, one that does not fails with proof."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.asgi import ask
from support.bad_servers import always
from support.planted import PLANTED, Planted

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz import Durations, Nonconforming, Settings, assert_conforms, conformance, kit_traffic, parse_replay
from quiesce.fuzz.kit import KIT_TOKEN, build_kit_server
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.server.answers import ASGIApp, Message, Receive, Scope, Send

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


def test_a_checkpoint_directory_that_is_lost_on_the_way_ends_the_test(tmp_path: Path) -> None:
    """It becomes a file, before the first commit makes its folders there; what was found until then is told."""
    root = tmp_path / "shared"
    root.mkdir()

    def fresh() -> ASGIApp:
        if root.is_dir():
            root.rmdir()
        root.touch()
        return build_kit_server(Role.POLICY).app

    says = r"interrupted: the test could not go on: the checkpoint directory .*shared cannot be used: .*irectory"
    with pytest.raises(Nonconforming, match=says):
        assert_conforms(fresh=fresh, settings=QUICK, checkpoint_dir=root)


def test_nothing_is_left_in_a_directory_of_ones_own(tmp_path: Path) -> None:
    """What was exported there is removed; what was there before is not."""
    (tmp_path / "fuzz-of-somebody").mkdir()
    report = assert_conforms(build_kit_server(Role.POLICY).app, settings=QUICK, checkpoint_dir=tmp_path)
    assert {"fence.commit", "export.verifies"} <= set(report.held)
    assert [path.name for path in tmp_path.iterdir()] == ["fuzz-of-somebody"]


def test_what_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may run as another user: the test goes on, and says what is left where."""
    removed = shutil.rmtree

    def refused(path: Any, **how: Any) -> None:  # noqa: ANN401 - what rmtree takes
        if "fuzz-" in Path(path).name and "onerror" not in how and "onexc" not in how:  # tempfile says how
            raise PermissionError(13, "Permission denied", str(path))
        removed(path, **how)

    monkeypatch.setattr(shutil, "rmtree", refused)
    report = assert_conforms(build_kit_server(Role.POLICY).app, settings=QUICK, checkpoint_dir=tmp_path)
    [note] = [note for note in report.notes if "are left in" in note]
    assert note.endswith(f"are left in {tmp_path}: Permission denied; remove them by hand")


def test_replay_files_that_cannot_be_written_are_told_before_the_test(tmp_path: Path) -> None:
    """Not after minutes, with everything that was found."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="file/replays: replay files cannot be written there"):
        assert_conforms(never, settings=QUICK, replays=tmp_path / "file" / "replays")


async def never(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Is not to be called."""
    raise AssertionError("it was called")


def test_live_work_is_left_alone_unless_told() -> None:
    """As by the command; the setting that the reason names exists."""
    app = with_execution(build_kit_server(Role.AGENT).app)
    with pytest.raises(Nonconforming, match=r"has live work: .*allow_live_work"):
        assert_conforms(app, settings=QUICK, calls_max=100)
    assert assert_conforms(app, settings=QUICK, calls_max=100, allow_live_work=True).conforms


def with_execution(app: ASGIApp) -> ASGIApp:
    """The agent, which begins to work for somebody before it is asked anything."""
    begun: list[asyncio.Task[object]] = []

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if not begun and scope["type"] == "http":
            headers = {"x-nemo-gym-rollout-id": "theirs", "x-nemo-gym-attempt-index": "0"}
            work = ask(app, "POST", "/run", json_body={"task": "t", "turns": 10_000}, headers=headers)
            begun.append(asyncio.ensure_future(work))
            await asyncio.sleep(1)
        await app(scope, receive, send)

    return served


def test_a_report_names_the_application(tmp_path: Path) -> None:
    """No address that nobody has ever set."""
    report = assert_conforms(fresh=a_judge, settings=QUICK, calls_max=100)
    assert report.url == f"the application {__name__}:a_judge"
    with pytest.raises(Nonconforming) as failed:
        assert_conforms(always(404, b"{}"), settings=QUICK, replays=tmp_path)
    assert str(failed.value).startswith("the application support.bad_servers:answering.<locals>.app: not a participant")
    assert "invalid" not in str(failed.value)
    assert "check the URL" not in str(failed.value)


def a_judge() -> ASGIApp:
    """A fresh application with a name."""
    return build_kit_server(Role.AUXILIARY).app


def test_the_seed_decides_every_name_in_fresh_applications() -> None:
    """So that the same seed is the same test, to the last byte."""

    def bodies(seed: int) -> list[bytes]:
        heard: list[bytes] = []

        def fresh() -> ASGIApp:
            app = build_kit_server(Role.AUXILIARY).app

            async def served(scope: Scope, receive: Receive, send: Send) -> None:
                async def listened() -> Message:
                    message = await receive()
                    heard.append(message.get("body", b""))
                    return message

                await app(scope, listened, send)

            return served

        durations = Durations(short_s=2.0, work_s=20.0)
        assert_conforms(fresh=fresh, settings=QUICK, calls_max=100, seed=seed, durations=durations)
        return heard

    assert bodies(1) == bodies(1) != bodies(2)


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
