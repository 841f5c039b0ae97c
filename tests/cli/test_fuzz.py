"""``quiesce fuzz`` and ``quiesce replay`` on real servers: verdicts, files, exit codes, everybody open afterwards."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import httpx
import pytest
from support.command import Command, last_object
from support.threaded import threaded
from support.workload import TOKEN, Deployment, deployment

from quiesce.cli.workload import ServerSettings, build_server
from quiesce.cli.workload.upstream import identity_headers
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.campaign import Progress, examine
from quiesce.fuzz.conforming import save_replays
from quiesce.fuzz.findings import Episode
from quiesce.fuzz.in_kit import examine_kit, kit_source
from quiesce.fuzz.report import ParticipantReport, Violation
from quiesce.fuzz.run import Run
from quiesce.participants import server
from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import Answer, Receive, Scope, Send, send_answer

FAST = ("--rate", "100000", "--calls", "300")
RULE = "fence.resume-ends-prepare"
"""A rule of the replay file that a test in this process has written."""
TIMELESS = "fence.resume-from-idle"
"""A rule that one call breaks, however long it takes."""
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def strict() -> Iterator[Deployment]:
    """Servers that keep the protocol."""
    with deployment(latency_s=0.2) as servers:
        yield servers


@pytest.fixture(scope="module")
def recorded() -> Iterator[Deployment]:
    """Servers that behave as the recorded ones."""
    with deployment(fence=FenceVariant.GYM_A_SINGLE, latency_s=0.2) as servers:
        yield servers


@pytest.fixture
def coordinator() -> Iterator[str]:
    """A policy that behaves as the recorded ones behind a coordinator."""
    settings = ServerSettings(role=Role.POLICY, token=TOKEN, fence=FenceVariant.GYM_A_COORDINATOR)
    with threaded(build_server(settings)) as url:
        yield url


def test_servers_that_conform_are_told_so(quiesce: Command, strict: Deployment, tmp_path: Path) -> None:
    """Two in one run: exit 0, one object with both, a JUnit file without failures, no replay file, both open."""
    urls = [strict.urls[Role.POLICY], strict.urls[Role.AUXILIARY]]
    junit, replays = tmp_path / "out.xml", tmp_path / "replays"
    result = quiesce("fuzz", *urls, *FAST, "--traffic=kit", f"--junit={junit}", f"--replays={replays}", "--json")
    assert result.exit_code == 0, result.output
    found = last_object(result)
    assert found["ok"] is True
    assert [one["role"] for one in found["participants"]] == ["policy", "auxiliary"]
    assert all(one["conforms"] and one["calls"] >= 300 and one["violations"] == [] for one in found["participants"])
    suites = ET.fromstring(junit.read_text()).findall("testsuite")  # noqa: S314 - written by us
    assert [suite.get("failures") for suite in suites] == ["0", "0"]
    assert list(replays.iterdir()) == []
    assert strict.phases() == {"idle"}


def test_a_broken_rule_is_exit_one_with_files_that_show_it_again(
    quiesce: Command, coordinator: str, tmp_path: Path
) -> None:
    """The replay file breaks the rule on the same server, and finds it kept by a strict one in process."""
    replays, junit = tmp_path / "replays", tmp_path / "out.xml"
    result = quiesce("fuzz", coordinator, *FAST, f"--replays={replays}", f"--junit={junit}")
    assert result.exit_code == 1, result.output
    assert f"error {TIMELESS}: A resume from idle succeeds and uses its id up" in result.stdout
    assert "1. resume a -> 409 invalid_phase [idle, held by nobody]" in result.stdout
    file = replays / f"policy-model-{TIMELESS}.json"
    assert f"replay: {file}" in result.stdout
    failed = ET.fromstring(junit.read_text()).findall("testsuite/testcase[failure]")  # noqa: S314 - as above
    assert TIMELESS in {case.get("name") for case in failed}
    assert len(failed) == len([*replays.iterdir()])
    again = quiesce("replay", str(file), coordinator, "--json")
    assert again.exit_code == 1, again.output
    assert (last_object(again)["ok"], last_object(again)["rule"]) == (False, TIMELESS)
    kept = quiesce("replay", str(file), "--fence=strict")
    assert kept.exit_code == 0, kept.output
    assert f"{TIMELESS} holds this time" in kept.stdout
    assert httpx.get(f"{coordinator}/ng-control/v1/capabilities", timeout=60).json()["phase"] == "idle"


def test_an_interrupted_test_tells_what_it_found(
    quiesce: Command, recorded: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every form that was asked for; the server is open, and the exit code is that of a failure."""

    async def until_something_is_found(*asked: Any, progress: Progress | None, **more: Any) -> ParticipantReport:  # noqa: ANN401 - what examine takes
        testing = asyncio.current_task()

        def told(_done: int, _total: int, violations: Sequence[Violation]) -> None:
            if violations and testing is not None:
                testing.cancel()

        return await examine(*asked, progress=told, **more)

    monkeypatch.setattr("quiesce.cli.fuzz.examine", until_something_is_found)
    url, replays, junit = recorded.urls[Role.RESOURCES], tmp_path / "replays", tmp_path / "out.xml"
    arguments = ("--traffic=kit", f"--replays={replays}", f"--junit={junit}", "--json")
    result = quiesce("fuzz", url, recorded.urls[Role.POLICY], *FAST, *arguments)
    assert result.exit_code == 1, result.output
    report, other = last_object(result)["participants"]
    assert (report["verdict"], report["conforms"]) == ("interrupted", False)
    assert (other["url"], other["verdict"]) == (recorded.urls[Role.POLICY], "not begun")
    assert len(report["violations"]) == len(list(replays.iterdir())) > 0
    assert ET.fromstring(junit.read_text()).findall("testsuite/testcase/failure")  # noqa: S314 - as above
    assert "interrupted; everybody that it called accepts work" in result.stderr
    assert recorded.phases() == {"idle"}


@pytest.fixture
def held_by_others(strict: Deployment) -> Iterator[Callable[[], None]]:
    """Lets somebody else pause the policy; it is open again afterwards."""
    url = f"{strict.urls[Role.POLICY]}/ng-control/v1/model-admission"
    headers = {"authorization": f"Bearer {TOKEN}"}
    body = {"schema_version": 1, "checkpoint_id": f"theirs-{uuid4().hex}", "deadline_ts": 4e9}

    def pause() -> None:
        assert httpx.post(f"{url}/pause", json=body, headers=headers, timeout=60).status_code == 200

    yield pause
    assert httpx.post(f"{url}/resume", json=body, headers=headers, timeout=60).status_code == 200
    assert strict.phases() == {"idle"}


def test_an_interrupted_test_of_whom_somebody_else_holds_does_not_say_that_it_accepts_work(
    quiesce: Command, strict: Deployment, held_by_others: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that this test holds nobody, and the report says who does."""

    async def until_somebody_holds_it(*asked: Any, progress: Progress | None, **more: Any) -> ParticipantReport:  # noqa: ANN401 - what examine takes
        testing = asyncio.current_task()

        def told(_done: int, _total: int, _violations: Sequence[Violation]) -> None:
            if testing is not None and not testing.cancelling():
                held_by_others()
                testing.cancel()

        return await examine(*asked, progress=told, **more)

    monkeypatch.setattr("quiesce.cli.fuzz.examine", until_somebody_holds_it)
    result = quiesce("fuzz", strict.urls[Role.POLICY], *FAST)
    assert result.exit_code == 1, result.output
    assert "accepts work" not in result.output
    assert "interrupted; nobody is held by this test; the report says how each was seen last" in result.stderr
    assert re.search("ended before its end; theirs-[0-9a-f]+ holds it, which is not of this test", result.stdout)


def test_an_interrupted_replay_says_who_holds_the_server(
    quiesce: Command,
    strict: Deployment,
    held_by_others: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the test itself does."""
    report = examine_kit(kit_source(Role.POLICY, FenceVariant.GYM_A_SINGLE), stop_after=1)
    [file] = save_replays([report], tmp_path)
    execute = Run.execute

    async def until_somebody_holds_it(run: Run) -> Episode:
        episode = await execute(run)
        testing = asyncio.current_task()
        assert testing is not None
        held_by_others()
        testing.cancel()
        await asyncio.sleep(0)
        return episode

    monkeypatch.setattr(Run, "execute", until_somebody_holds_it)
    result = quiesce("replay", str(file), strict.urls[Role.POLICY])
    assert result.exit_code == 1, result.output
    assert "accepts work" not in result.output
    assert re.search("quiesce: interrupted; theirs-[0-9a-f]+ holds it, which is not of this test", result.stderr)


def test_under_their_own_profile_known_deviations_are_no_failure(quiesce: Command, coordinator: str) -> None:
    """They are reported by name, and the exit code is 0."""
    result = quiesce("fuzz", coordinator, *FAST, "--profile=gym-a", "--json")
    assert result.exit_code == 0, result.output
    [report] = last_object(result)["participants"]
    assert "resume-from-idle-refused" in {violation["known"] for violation in report["violations"]}
    assert "known as resume-from-idle-refused" in result.stderr


def test_by_default_options_every_deviation_that_needs_no_work_is_found_and_known_by_name(
    quiesce: Command, coordinator: str
) -> None:
    """Over HTTP, with nothing asked for but the pace, by either measure."""
    found = {}
    for profile in ("strict", "gym-a"):
        result = quiesce("fuzz", coordinator, "--rate=100000", f"--profile={profile}", "--json")
        [found[profile]] = last_object(result)["participants"]
        assert result.exit_code == (1 if profile == "strict" else 0), result.output
    broken, known = (
        {violation["rule"] for violation in found[profile]["violations"]} for profile in ("strict", "gym-a")
    )
    assert broken == known == {"routes.present", "fence.resume-from-idle", "fence.past-deadline"}
    assert all(violation["known"] for violation in found["gym-a"]["violations"])
    assert all(len(violation["calls"]) <= 8 for violation in found["strict"]["violations"])


def test_live_work_is_left_alone_unless_told(quiesce: Command) -> None:
    """A server that works for somebody is not tested; with leave it is, and the work goes on to its end."""
    begun, may_end, has_ended = Event(), Event(), Event()

    async def model(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        begun.set()
        await asyncio.to_thread(may_end.wait, 600)
        has_ended.set()
        await send_answer(send, Answer(200, {}))

    policy = server.mount_policy(model, ledger=server.ModelLedger("policy_model"), token=TOKEN)
    with threaded(policy) as url, ThreadPoolExecutor() as pool:
        headers = identity_headers(AttemptId("theirs", 0))
        working = pool.submit(httpx.post, f"{url}/v1/responses", json={}, headers=headers, timeout=600)
        assert begun.wait(60)
        refused = quiesce("fuzz", url, *FAST, "--json")
        told = quiesce("fuzz", url, "--rate=100000", "--calls=100", "--live-work", "--json")
        assert not has_ended.is_set()
        may_end.set()
        assert working.result(60).status_code == 200
    assert refused.exit_code == 2, refused.output
    [report] = last_object(refused)["participants"]
    assert (report["verdict"], report["sequences"]) == ("has live work", 0)
    assert told.exit_code == 0, told.output
    assert any("live work of others" in note for note in last_object(told)["participants"][0]["notes"])


def test_a_traffic_of_ones_own_drives_the_data_plane(
    quiesce: Command, strict: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``module:function``, found as Python finds modules."""
    source = "from quiesce.fuzz import kit_traffic\nseen = []\ndef drive(*asked):\n    seen.append(asked)\n"
    (tmp_path / "own_traffic.py").write_text(source + "    return kit_traffic(*asked)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = quiesce("fuzz", strict.urls[Role.POLICY], *FAST, "--traffic=own_traffic:drive")
    assert result.exit_code == 0, result.output
    assert sys.modules.pop("own_traffic").seen


def test_a_server_that_is_not_there_fails_and_is_named(quiesce: Command, strict: Deployment) -> None:
    """The others are tested all the same."""
    result = quiesce("fuzz", NOBODY, strict.urls[Role.AUXILIARY], *FAST, "--json")
    assert result.exit_code == 1, result.output
    found = last_object(result)
    assert [one["verdict"] for one in found["participants"]] == ["unreachable", "tested"]
    assert f"{NOBODY}: unreachable: " in result.stderr
    assert "Traceback" not in result.output


def test_a_wrong_token_is_the_way_it_was_asked_for(
    quiesce: Command, strict: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2, and nothing was paused; the token itself is not shown."""
    monkeypatch.setenv(TOKEN_VARIABLES[0], "wrong-and-secret")
    result = quiesce("fuzz", strict.urls[Role.POLICY], *FAST)
    assert result.exit_code == 2, result.output
    assert "token refused" in result.stdout
    assert "wrong-and-secret" not in result.output


def test_a_token_that_nobody_has_set_is_told_from_a_wrong_one(
    quiesce: Command, strict: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place to look at is this side."""
    for name in TOKEN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    result = quiesce("fuzz", strict.urls[Role.POLICY], *FAST)
    assert result.exit_code == 2, result.output
    assert "token refused" in result.stdout
    assert f"there is no control token here: set {TOKEN_VARIABLES[0]}" in result.stdout


def test_a_replay_tells_of_a_token_that_nobody_has_set(
    quiesce: Command, strict: Deployment, saved_replay: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the test itself does."""
    for name in TOKEN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    result = quiesce("replay", str(saved_replay), strict.urls[Role.AGENT])
    assert result.exit_code == 1, result.output
    assert "token refused" in result.output
    assert f"there is no control token here: set {TOKEN_VARIABLES[0]}" in result.output


def test_a_replay_that_puts_nothing_to_the_test_is_exit_two(quiesce: Command, saved_replay: Path) -> None:
    """It does not say that the rule holds."""
    file = json.loads(saved_replay.read_text())
    saved_replay.write_text(json.dumps({**file, "steps": file["steps"][:1]}))
    result = quiesce("replay", str(saved_replay), "--json")
    assert result.exit_code == 2, result.output
    assert last_object(result)["outcome"] == f"{RULE} was not put to the test: the steps do not come to it"
    assert last_object(result)["ok"] is False


@pytest.fixture
def saved_replay(tmp_path: Path) -> Path:
    """The replay file of a recorded agent that was tested in this process."""
    report = examine_kit(kit_source(Role.AGENT, FenceVariant.GYM_A_SINGLE), stop_after=1)
    [path] = save_replays([report], tmp_path)
    return path


@pytest.mark.parametrize(
    ("value", "says"),
    [(None, "the token variable NOPE is not set"), ("a\nb", "variable NOPE contains"), ("gr\u00fcn", "NOPE contains")],
)
def test_what_can_be_no_token_is_wrong_usage(
    quiesce: Command, value: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and nothing of the URL, which was not called."""
    monkeypatch.delenv("NOPE", raising=False)
    if value is not None:
        monkeypatch.setenv("NOPE", value)
    result = quiesce("fuzz", NOBODY, "--token-variable=NOPE")
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert "URL" not in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing argument"),
        (("ftp://a",), "ftp://a"),
        (("no url",), "no url"),
        (("http://u:p@a",), "http"),
        ((*[f"http://a:{port}" for port in range(1, 102)],), "101 URLs"),
        ((NOBODY, "--traffic=nothing"), "'nothing' is neither none nor kit nor module:function"),
        ((NOBODY, "--allow-restore"), "--allow-restore needs --checkpoint-dir"),
        ((NOBODY, "--checkpoint-dir=none"), "none"),
        ((NOBODY, "--checkpoint-dir=/dev/null"), "/dev/null"),
        ((NOBODY, "--checkpoint-dir=/proc"), "the checkpoint directory /proc cannot be used"),
        ((NOBODY, "--profile=gym-b"), "gym-b"),
        ((NOBODY, "--rate=0"), "--rate"),
        ((NOBODY, "--calls=1"), "--calls"),
        ((NOBODY, "--junit=none/out.xml"), "none/out.xml: cannot be written: No such file or directory"),
        ((NOBODY, "--replays=file/replays"), "cannot be written"),
    ],
)
def test_wrong_usage_is_exit_two(
    quiesce: Command, arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is wrong, before anybody is called."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = quiesce("fuzz", *arguments)
    assert result.exit_code == 2, result.output
    assert says in result.output


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"", "it is empty"),
        (b'{"kind": "quiesce.fuzz"}', "schema_version"),
        (b'{"kind": "colour"}', "its kind is 'colour'"),
        (b" " * (2**20 + 1), "more than"),
    ],
)
def test_a_file_that_is_no_replay_is_exit_two(
    quiesce: Command, content: bytes | None, says: str, tmp_path: Path
) -> None:
    """It names the file and what is wrong with it."""
    path = tmp_path / "replay.json"
    if content is not None:
        path.write_bytes(content)
    result = quiesce("replay", str(path))
    assert result.exit_code == 2, result.output
    assert str(path) in result.output.replace("\n", "")
    assert says in result.output
