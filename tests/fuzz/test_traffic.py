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
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import examine_kit, kit_source
from quiesce.fuzz.steps import WorkKind
from quiesce.fuzz.traffic import Traffic, WorkCall, kit_traffic, load_traffic, no_traffic
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId

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


def later(*_asked: object, _left: list[int] = list(range(20))) -> WorkCall | None:  # noqa: B006 - it counts its calls
    """Has a fault in the middle of a test."""
    return raising() if not _left or _left.pop() < 1 else kit_traffic(Role.POLICY, WorkKind.PROBE, SOMEONE)


@pytest.mark.parametrize(
    ("traffic", "says"),
    [
        (raising, ":raising, .* ZeroDivisionError: by me"),
        (later, ":later, .* ZeroDivisionError: by me"),
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


def test_a_path_that_is_none_is_refused() -> None:
    """A data call goes below the participant's own URL."""
    with pytest.raises(ConfigurationError, match="slash"):
        WorkCall("v1/responses")
