"""Replay files say all that is needed to see a violation again, and nothing else is taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bad_servers import Spoiled, always
from support.house import ROOT
from support.virtual_loop import virtual_time

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.conforming import save_replays
from quiesce.fuzz.errors import ReplayInvalid, StillClosed
from quiesce.fuzz.in_kit import examine_kit, kit_source, replay_in_kit
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.options import Options
from quiesce.fuzz.replaying import replay_at
from quiesce.fuzz.replays import BYTES_MAX, ReplayFile, kind_of, parse_replay, replay_of, replay_schema, replay_text
from quiesce.fuzz.report import ParticipantReport
from quiesce.fuzz.steps import parse_step
from quiesce.fuzz.traffic import kit_traffic, no_traffic
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.fuzz.wording import Durations
from quiesce.participants.errors import ConfigurationError
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

SCHEMA = Path("docs/schemas/replay-1.schema.json")


@pytest.fixture(scope="module")
def report() -> ParticipantReport:
    """A recorded agent, with a few violations."""
    return examine_kit(kit_source(Role.AGENT, FenceVariant.GYM_A_SINGLE), stop_after=4)


def test_every_violation_replays(report: ParticipantReport) -> None:
    """On a fresh server of the same kind the same rule is broken, with the same words; on a strict one it holds."""
    assert len(report.violations) >= 4
    for violation in report.violations:
        text = replay_text(replay_of(report, violation, fence=FenceVariant.GYM_A_SINGLE))
        replay = parse_replay(text.encode(), source="a test")
        again = replay_in_kit(replay)
        assert again.finding is not None, violation.rule.id
        assert (again.finding.rule.id, again.finding.got) == (violation.rule.id, violation.got)
        assert replay_in_kit(replay, fence=FenceVariant.STRICT).finding is None, violation.rule.id


def test_a_file_reads_back_as_it_was_written(report: ParticipantReport, tmp_path: Path) -> None:
    """One file a violation, named after participant and rule; its content survives."""
    paths = save_replays([report], tmp_path / "replays")
    assert len(paths) == len(report.violations)
    for path, violation in zip(paths, report.violations, strict=True):
        replay = parse_replay(path.read_bytes(), source=str(path))
        assert replay == replay_of(report, violation)
        assert violation.rule.id in path.name


def saved(report: ParticipantReport) -> dict[str, Any]:
    """A replay file as plain JSON."""
    found: dict[str, Any] = json.loads(replay_text(replay_of(report, report.violations[0])))
    return found


Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

CHANGES: dict[str, Change] = {
    "an unknown field": lambda file: {**file, "colour": "red"},
    "another kind": lambda file: {**file, "kind": "quiesce.counterexample"},
    "no kind": lambda file: {name: value for name, value in file.items() if name != "kind"},
    "a newer version": lambda file: {**file, "schema_version": 2},
    "true for a version": lambda file: {**file, "schema_version": True},
    "a rule that is none": lambda file: {**file, "violation": {**file["violation"], "rule": "fence.nothing"}},
    "no steps": lambda file: {name: value for name, value in file.items() if name != "steps"},
    "a step that is none": lambda file: {**file, "steps": [{"do": "dance"}]},
    "a path for an id": lambda file: {**file, "steps": [{"do": "call", "operation": "prepare", "id": "../a"}]},
    "a path for a directory": lambda file: {
        **file,
        "steps": [{"do": "call", "operation": "commit", "directory": "/etc"}],
    },
    "a role that is none": lambda file: {**file, "tested": {**file["tested"], "role": "king"}},
    "too many steps": lambda file: {**file, "steps": [{"do": "wait", "until": "work"}] * 501},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_what_is_no_replay_is_refused(report: ParticipantReport, change: Change) -> None:
    """The error names the file and what is wrong in it."""
    with pytest.raises(ReplayInvalid, match=r"^the file: "):
        parse_replay(json.dumps(change(saved(report))).encode(), source="the file")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"kind": 1}', b'{"kind":"a","kind":"b"}', b"\xff\xfe"]
)
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    """A torn or foreign file is told apart before anything of it is believed."""
    with pytest.raises(ReplayInvalid):
        kind_of(content, source="the file")


def test_a_huge_file_is_not_read() -> None:
    """There is a bound on what is parsed."""
    with pytest.raises(ReplayInvalid, match="bytes"):
        kind_of(b" " * (BYTES_MAX + 1), source="the file")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_content_raises_anything_else(content: bytes) -> None:
    """Whatever stands in a file, it is a replay or it is refused with our own error."""
    with pytest.raises(ReplayInvalid):
        parse_replay(content, source="the file")


def test_a_replay_that_cannot_be_run_says_why(report: ParticipantReport) -> None:
    """Without the data calls that it needs, a replay is refused before anything is sent."""
    replay = replay_of(report, next(found for found in report.violations if "work" in str(found.trace[0])))
    with pytest.raises(ConfigurationError, match="needs a call of the data plane"):
        replay_in_kit(replay, traffic=no_traffic)


def edited(report: ParticipantReport, rule_id: str, steps: list[str]) -> ReplayFile:
    """The replay of a violation, with other steps in it."""
    violation = next(found for found in report.violations if found.rule.id == rule_id)
    return replay_of(report, replace(violation, steps=tuple(map(parse_step, steps))))


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([], "there are no steps"),
        (["prepare a"], "the steps do not come to it"),
        (["abort_inflight a p", "prepare a"], "step 1 was not sent: it has no such route"),
    ],
)
def test_steps_that_put_nothing_to_the_test_do_not_make_a_rule_hold(
    report: ParticipantReport, steps: list[str], says: str
) -> None:
    """Whoever edits a file, or plays it where it leads elsewhere, is told so."""
    for variant in (FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE):
        found = replay_in_kit(edited(report, "fence.resume-ends-prepare", steps), fence=variant)
        assert (found.finding, found.unchecked) == (None, says)


def test_steps_behind_another_broken_rule_are_not_judged(report: ParticipantReport) -> None:
    """Behind that nothing is known of the fence, which the outcome says."""
    steps = ["prepare a deadline=past", "resume a", "work begin p", "prepare b send=start", "resume b"]
    found = replay_in_kit(edited(report, "fence.resume-ends-prepare", steps), fence=FenceVariant.GYM_A_SINGLE)
    assert found.finding is None
    assert found.unchecked.startswith("behind step 1 nothing is known of the fence any more")


def test_a_rule_that_binds_another_role_is_refused(report: ParticipantReport) -> None:
    """It could never be broken there, nor hold."""
    file = saved(report)
    file["violation"]["rule"] = "fence.drain"
    with pytest.raises(ReplayInvalid, match=r"fence\.drain binds no server of role agent"):
        parse_replay(json.dumps(file).encode(), source="the file")


def test_a_rule_that_holds_is_one_that_was_put_to_the_test(report: ParticipantReport) -> None:
    """Every replay on a strict server comes to what it is about."""
    for violation in report.violations:
        replay = replay_of(report, violation, fence=FenceVariant.GYM_A_SINGLE)
        found = replay_in_kit(replay, fence=FenceVariant.STRICT)
        assert (found.finding, found.unchecked) == (None, ""), violation.rule.id


@virtual_time
async def test_a_replay_that_leaves_a_server_closed_says_so(report: ParticipantReport) -> None:
    """Also where it shows the rule broken."""
    clock = VirtualClock()
    app = build_kit_server(Role.AGENT, FenceVariant.GYM_A_SINGLE, clock=clock).app
    refusal = always(409, b'{"error":{"code":"invalid_phase","detail":"no"}}')
    spoiled = Spoiled(app, refusal, good=1, path="/ng-control/v1/agent-checkpoint/resume")
    transport = AsgiTransport({KIT_ORIGIN: spoiled}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
    options = Options(nonce="n", traffic=kit_traffic, rate=None, durations=Durations(short_s=2.0, work_s=20.0))
    violation = next(found for found in report.violations if found.rule.id == "fence.resume-ends-prepare")
    replay = replay_of(report, replace(violation, steps=(parse_step("prepare a"), parse_step("resume a"))))
    with pytest.raises(StillClosed, match="could not be opened: phase prepared, held by fuzz-n-1-a"):
        await replay_at(KIT_ORIGIN, transport, clock, options, replay)
    await transport.aclose()


@pytest.mark.source
def test_the_published_schema_is_that_of_the_model() -> None:
    """``docs/schemas/replay-1.schema.json`` describes what is written."""
    assert json.loads((ROOT / SCHEMA).read_text(encoding="utf-8")) == replay_schema()
