"""A report says the same to people, to programs and to continuous integration."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from support.bad_servers import always

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.in_kit import examine_kit, kit_source
from quiesce.fuzz.junit import junit_text
from quiesce.fuzz.kit import build_kit_server
from quiesce.fuzz.report import ParticipantReport, text_of
from quiesce.fuzz.rules import Profile, Severity
from quiesce.fuzz.traffic import no_traffic
from quiesce.participants.server.answers import Receive, Scope, Send


@pytest.fixture(scope="module")
def reports() -> list[ParticipantReport]:
    """A bad agent by both measures, and a server that is none."""
    bad = kit_source(Role.AGENT, FenceVariant.GYM_A_SINGLE)
    return [
        examine_kit(bad, calls_max=1300),
        examine_kit(bad, profile=Profile.GYM_A, calls_max=1300),
        examine_kit(lambda _clock: always(404, b"\x00 not here \xff")),
    ]


def test_people_read_rule_calls_expected_and_got(reports: list[ParticipantReport]) -> None:
    """Each violation stands there once, with its section and its calls; known ones by their names."""
    text = text_of(reports)
    for violation in reports[0].violations:
        assert f"{violation.rule.severity.value} {violation.rule.id}" in text
        assert f"expected {violation.expected}; got {violation.got}" in text
        for line in violation.trace:
            assert str(line) in text
    for violation in reports[1].violations:
        assert f"{violation.rule.id}, known as {violation.known}:" in text
    assert "not a participant" in text


def test_people_read_what_was_not_tested_and_what_it_needs(reports: list[ParticipantReport]) -> None:
    """Every rule by its name, behind the reason."""
    bare = examine_kit(kit_source(Role.POLICY), traffic=no_traffic, calls_max=200, allow_restore=False)
    for report in (bare, reports[0]):
        text = text_of([report])
        for rule_id, reason in (report.untested or {}).items():
            assert any(f"not tested, {reason}" in line and rule_id in line for line in text.splitlines()), rule_id
    assert "not tested, needs traffic (--traffic): " in text_of([bare])


def test_a_name_begins_no_line_and_colours_none(reports: list[ParticipantReport]) -> None:
    """What a server calls itself is a part of one line, whatever it holds; a workflow command is none."""
    evil = "\x1b[31mevil\n::error::it\r\u2028::set-output"
    spoiled = replace(reports[0], name=evil, reason=evil, notes=(evil,))
    for line in text_of([spoiled]).split("\n"):
        assert not line.startswith("::"), line
        assert line.isprintable(), line


def test_each_rule_is_reported_once(reports: list[ParticipantReport]) -> None:
    """No rule stands twice in a report, and what was found is not among what held or was not tested."""
    for report in reports:
        found = [violation.rule.id for violation in report.violations]
        assert len(found) == len(set(found))
        assert not set(found) & (set(report.held) | set(report.untested or {}))


def test_programs_read_json(reports: list[ParticipantReport]) -> None:
    """What is described is JSON, with everything that a violation has."""
    described = json.loads(json.dumps([report.described() for report in reports], allow_nan=False))
    assert [report["conforms"] for report in described] == [False, True, False]
    violation = described[0]["violations"][0]
    assert set(violation) >= {"rule", "sentence", "section", "severity", "known", "expected", "got", "calls", "trace"}
    assert described[2]["verdict"] == "not a participant"


def test_continuous_integration_reads_junit(reports: list[ParticipantReport]) -> None:
    """One suite a participant, one case a rule: errors fail, what is known passes, what was not tested is skipped."""
    root = ET.fromstring(junit_text(reports))  # noqa: S314 - text of ours
    suites = root.findall("testsuite")
    assert len(suites) == len(reports)
    for suite, report in zip(suites, reports, strict=True):
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        assert len(suite.findall("testcase/failure")) == len(report.errors) == int(suite.get("failures", "-1"))
        assert len(suite.findall("testcase/skipped")) == len(report.untested or {})
        assert len(suite.findall("testcase/error")) == int(not report.verdict.was_tested)
    assert suites[0].findall("testcase/failure")
    assert not suites[1].findall("testcase/failure")
    known = {element.text for element in suites[1].findall("testcase/system-out")}
    assert any(text is not None and text.startswith("known as ") for text in known)


def test_a_warning_is_no_error(reports: list[ParticipantReport]) -> None:
    """A broken rule of severity warning is reported and makes nobody fail."""
    warnings = [found for found in reports[0].violations if found.rule.severity is Severity.WARNING]
    assert warnings
    assert not any(found.is_error for found in warnings)


def test_a_valid_call_that_is_not_understood_is_shown_as_it_was_sent() -> None:
    """Whoever has to find out why sees its route and its body, with letters for the names of that run."""
    kit = build_kit_server(Role.RESOURCES).app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        refused = str(scope.get("path", "")).endswith("/resources-checkpoint/commit")
        await (always(422, b'{"detail":"bad"}') if refused else kit)(scope, receive, send)

    report = examine_kit(lambda _clock: app, traffic=no_traffic, calls_max=200)
    [found] = [violation for violation in report.errors if violation.rule.id == "request.accepted"]
    route = "POST /ng-control/v1/resources-checkpoint/commit"
    body = r'{"checkpoint_id": "a", "deadline_ts": [0-9.]+, "checkpoint_dir": "d1"}'
    assert re.fullmatch(f"not refused as malformed: {route} {body}", found.expected), found.expected
    assert found.got == '422 {"detail":"bad"}'
