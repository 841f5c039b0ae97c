"""What drives the data plane: the kit's own calls fit its servers, and a user's module is loaded or refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from quiesce.cli.workload.bodies import (
    AppendRequest,
    Body,
    JudgeRequest,
    PolicyRequest,
    RunRequest,
    SeedRequest,
    VerifyRequest,
)
from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import examine_kit, kit_source
from quiesce.fuzz.kit import build_kit_server
from quiesce.fuzz.report import text_of
from quiesce.fuzz.steps import WorkKind
from quiesce.fuzz.traffic import Traffic, WorkCall, kit_traffic, load_traffic, no_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import MountedServer

SOMEONE = AttemptId("r", 0)
BODIES: dict[Role, dict[str, type[Body]]] = {
    Role.POLICY: {"/v1/responses": PolicyRequest},
    Role.AUXILIARY: {"/v1/responses": JudgeRequest},
    Role.AGENT: {"/run": RunRequest},
    Role.RESOURCES: {"/seed_session": SeedRequest, "/append": AppendRequest, "/verify": VerifyRequest},
}


def test_the_calls_of_the_kit_fit_the_servers_of_the_command() -> None:
    """Every call that the fuzzer makes is one that the servers of ``quiesce serve`` take."""
    calls = [(role, call) for role in Role for kind in WorkKind if (call := kit_traffic(role, kind, SOMEONE))]
    assert len(calls) > 8
    for role, call in calls:
        BODIES[role][call.path].model_validate_json(call.content())


def test_every_role_that_takes_part_can_be_driven() -> None:
    """There is lasting work and a short call for each."""
    for role in (Role.POLICY, Role.AGENT, Role.RESOURCES):
        assert kit_traffic(role, WorkKind.BEGIN, SOMEONE) is not None
        assert kit_traffic(role, WorkKind.PROBE, SOMEONE) is not None
    assert no_traffic(Role.POLICY, WorkKind.BEGIN, SOMEONE) is None


def test_a_module_of_ones_own_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``module:function`` names any function that can be imported."""
    source = "from quiesce.fuzz import WorkCall\ndef drive(role, kind, attempt):\n    return WorkCall('/mine')\n"
    (tmp_path / "my_own_traffic.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    traffic = load_traffic("my_own_traffic:drive")
    assert traffic(Role.POLICY, WorkKind.BEGIN, SOMEONE) == WorkCall("/mine")
    monkeypatch.delitem(sys.modules, "my_own_traffic")
    assert load_traffic("none") is no_traffic
    assert load_traffic("kit") is kit_traffic


@pytest.mark.parametrize("name", ["", "some", ":f", "m:", "no_such_module_here:f", "json:no_such_name", "json:__doc__"])
def test_what_is_no_traffic_is_refused(name: str) -> None:
    """The error quotes the name and says what is wrong."""
    with pytest.raises(ConfigurationError) as refused:
        load_traffic(name)
    assert name.partition(":")[0] in str(refused.value)


def test_a_module_that_fails_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever importing it raises is told, and is no traceback."""
    (tmp_path / "broken_traffic.py").write_text("raise ZeroDivisionError('by me')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match="ZeroDivisionError: by me"):
        load_traffic("broken_traffic:drive")


def test_a_module_that_ends_the_program_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot end the command without a word."""
    (tmp_path / "leaving_traffic.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match="SystemExit: 3"):
        load_traffic("leaving_traffic:drive")


def test_a_module_of_the_current_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed commands do not look there by themselves; the path is left as it was."""
    (tmp_path / "near_traffic.py").write_text(
        "from quiesce.fuzz.traffic import no_traffic as drive\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert load_traffic("near_traffic:drive") is no_traffic
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "near_traffic")


def raising(*_asked: object) -> WorkCall:
    """Has a fault."""
    raise ZeroDivisionError("by me")


async def awaited(*_asked: object) -> WorkCall:
    """Is asynchronous."""
    return WorkCall("/mine")


def failing_after(calls: int, role: Role) -> Traffic:
    """Has a fault in the middle of a test."""
    left = iter(range(calls))

    def later(_role: Role, kind: WorkKind, attempt: AttemptId) -> WorkCall | None:
        return raising() if next(left, None) is None else kit_traffic(role, kind, attempt)

    return later


@pytest.mark.parametrize(
    ("traffic", "says"),
    [
        (raising, ":raising, .* ZeroDivisionError: by me"),
        (lambda *_: "/path", "gives str; it must give a WorkCall"),
        (lambda: None, "TypeError"),
        (awaited, "is a coroutine function"),
        (list, ":list, .* TypeError"),
        (lambda *_: WorkCall("/mine", {"a": object()}), "not JSON serializable"),
        (lambda *_: WorkCall("/mine", 7), "TypeError"),  # type: ignore[arg-type]  # the fault of the case
        (lambda *_: WorkCall(7), "slash"),  # type: ignore[arg-type]  # the fault of the case
    ],
)
def test_a_faulty_traffic_is_an_error_of_ours_that_names_it(traffic: Traffic, says: str) -> None:
    """Whenever it shows its fault, and whatever it is."""
    with pytest.raises(ConfigurationError, match=f"the traffic .*{says}"):
        examine_kit(kit_source(Role.POLICY), traffic=traffic, calls_max=300)


@pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES])
@pytest.mark.parametrize("calls", range(40, 60, 3))
def test_a_traffic_that_fails_on_the_way_ends_the_test_and_loses_no_finding(role: Role, calls: int) -> None:
    """What was found until then is reported, with the fault as the reason; the server is left open."""
    made: list[MountedServer] = []

    def kept(clock: VirtualClock) -> MountedServer:
        made[:] = made or [build_kit_server(role, FenceVariant.GYM_A_SINGLE, clock=clock).app]
        return made[0]

    whole = examine_kit(kept, stop_after=1)
    made.clear()
    report = examine_kit(kept, traffic=failing_after(calls, role))
    assert report.verdict is Verdict.INTERRUPTED, text_of([report])
    assert "the test could not go on: the traffic" in report.reason
    assert "ZeroDivisionError: by me" in report.reason
    state = made[0].fence.state
    assert (state.phase, state.active, state.closed) == (FencePhase.IDLE, None, False)
    found = {violation.rule.id for violation in report.errors}
    assert found >= {violation.rule.id for violation in whole.errors} or report.calls < whole.calls


def test_a_path_that_is_none_is_refused() -> None:
    """A data call goes below the participant's own URL."""
    with pytest.raises(ConfigurationError, match="slash"):
        WorkCall("v1/responses")
