"""Hypothesis state machines over the tables, and conformance fuzzing of live participants.

Names are imported when they are asked for: the pytest plugin lives in this package, and a test run that does not use it
must not pay for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quiesce.fuzz.campaign import Options, examine
    from quiesce.fuzz.conforming import Settings, assert_conforms, conformance
    from quiesce.fuzz.errors import MissingExtra, Nonconforming, ReplayInvalid
    from quiesce.fuzz.participant_machine import kit_machine, live_machine
    from quiesce.fuzz.payloads import bodies, malformed_calls, valid_calls
    from quiesce.fuzz.replays import ReplayFile, parse_replay
    from quiesce.fuzz.report import ParticipantReport, Violation
    from quiesce.fuzz.rulebook import RULES
    from quiesce.fuzz.rules import Profile, Rule, Severity
    from quiesce.fuzz.steps import CallStep, WaitStep, WorkKind, WorkStep, parse_step, render_step
    from quiesce.fuzz.table_lives import table_machine
    from quiesce.fuzz.traffic import Traffic, WorkCall, kit_traffic
    from quiesce.fuzz.verdicts import Verdict
    from quiesce.fuzz.virtual_time import VirtualClock, VirtualLoop, run_virtual
    from quiesce.fuzz.wording import Durations

__all__ = [
    "RULES",
    "CallStep",
    "Durations",
    "MissingExtra",
    "Nonconforming",
    "Options",
    "ParticipantReport",
    "Profile",
    "ReplayFile",
    "ReplayInvalid",
    "Rule",
    "Settings",
    "Severity",
    "Traffic",
    "Verdict",
    "Violation",
    "VirtualClock",
    "VirtualLoop",
    "WaitStep",
    "WorkCall",
    "WorkKind",
    "WorkStep",
    "assert_conforms",
    "bodies",
    "conformance",
    "examine",
    "kit_machine",
    "kit_traffic",
    "live_machine",
    "malformed_calls",
    "parse_replay",
    "parse_step",
    "render_step",
    "run_virtual",
    "table_machine",
    "valid_calls",
]

_WHERE: Final = {
    "campaign": ("Options", "examine"),
    "conforming": ("Settings", "assert_conforms", "conformance"),
    "errors": ("MissingExtra", "Nonconforming", "ReplayInvalid"),
    "participant_machine": ("kit_machine", "live_machine"),
    "payloads": ("bodies", "malformed_calls", "valid_calls"),
    "replays": ("ReplayFile", "parse_replay"),
    "report": ("ParticipantReport", "Violation"),
    "rulebook": ("RULES",),
    "rules": ("Profile", "Rule", "Severity"),
    "steps": ("CallStep", "WorkKind", "WorkStep", "WaitStep", "parse_step", "render_step"),
    "table_lives": ("table_machine",),
    "traffic": ("WorkCall", "Traffic", "kit_traffic"),
    "verdicts": ("Verdict",),
    "virtual_time": ("VirtualClock", "VirtualLoop", "run_virtual"),
    "wording": ("Durations",),
}
_MODULE_OF: Final = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
