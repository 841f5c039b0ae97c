"""The outcome as JUnit XML, which continuous integration shows: one suite a participant, one case a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from xml.etree import ElementTree as ET

from quiesce.fuzz.report import ParticipantReport, Violation
from quiesce.fuzz.rulebook import RULE_BY_ID
from quiesce.fuzz.steps import render_step

__all__ = ["junit_text"]

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd]")
"""Characters that XML 1.0 cannot hold, and those beyond the basic plane, for readers that stumble over them."""


def junit_text(reports: Iterable[ParticipantReport]) -> str:
    """All reports as one XML document.

    A broken rule of severity error that the profile does not know is a failure, one that was seen once included.
    Warnings and known deviations are passed cases that say so in their output; what was not tested is skipped, with the
    reason. A participant that was not tested, or lost, is an error.
    """
    root = ET.Element("testsuites", name="quiesce fuzz")
    for report in reports:
        root.append(_suite(report))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(report: ParticipantReport) -> ET.Element:
    named = f"{report.name} ({report.role.value})" if report.role is not None else report.url
    cases = [_case(named, report.url, violation) for violation in report.violations]
    cases += [_passed(named, rule_id) for rule_id in report.held]
    cases += [_skipped(named, rule_id, reason) for rule_id, reason in (report.untested or {}).items()]
    lost = not report.verdict.was_tested
    if lost:
        cases.append(_not_tested(named, report))
    suite = ET.Element(
        "testsuite",
        name=_clean(named),
        tests=str(len(cases)),
        failures=str(len(report.errors) + len(report.seen_once)),
        errors=str(int(lost)),
        skipped=str(len(report.untested or {})),
        time=f"{report.seconds:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("url", report.url), ("profile", report.profile.value), ("seed", str(report.seed))):
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    suite.extend(cases)
    return suite


def _case(named: str, url: str, violation: Violation) -> ET.Element:
    case = ET.Element("testcase", classname=_clean(named), name=violation.rule.id, time=f"{violation.at_s:.3f}")
    calls = "\n".join(render_step(step) for step in violation.steps)
    text = f"{violation.rule.sentence} ({violation.rule.source})\n{url}\n{calls}\n"
    text += f"expected {violation.expected}\ngot {violation.got}"
    if violation.is_grave:
        remark = f" ({violation.severity}: {violation.remark})" if violation.remark else ""
        message = f"expected {violation.expected}; got {violation.got}{remark}"
        failure = ET.SubElement(case, "failure", type=violation.rule.id, message=_clean(message))
        failure.text = _clean(text)
    else:
        kind = f"known as {violation.known}" if violation.known else violation.rule.severity.value
        ET.SubElement(case, "system-out").text = _clean(f"{kind}: {text}")
    return case


def _passed(named: str, rule_id: str) -> ET.Element:
    return ET.Element("testcase", classname=_clean(named), name=rule_id)


def _skipped(named: str, rule_id: str, reason: str) -> ET.Element:
    case = ET.Element("testcase", classname=_clean(named), name=rule_id)
    ET.SubElement(case, "skipped", message=_clean(f"{RULE_BY_ID[rule_id].sentence} {reason}"))
    return case


def _not_tested(named: str, report: ParticipantReport) -> ET.Element:
    case = ET.Element("testcase", classname=_clean(named), name="participant")
    ET.SubElement(case, "error", type=report.verdict.value, message=_clean(report.reason))
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
