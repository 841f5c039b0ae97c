"""What errors mean to a command: exit codes, texts and their JSON form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiesce.cli.failures import described, exit_code_of, text_of
from quiesce.cli.output import ExitCode
from quiesce.controller.discovery import DiscoveryFailed
from quiesce.controller.errors import (
    CutAborted,
    DeadlineExceeded,
    InDoubt,
    PublishUncertain,
    RestoreFailed,
    StorageFailed,
    Unacknowledged,
    UnexpectedFence,
)
from quiesce.controller.ports import CompletedResult
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import (
    ConfigurationError,
    ControlRequestError,
    InvalidIdentity,
    NeverSent,
    SnapshotInvalid,
    TopologyError,
)
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt

KEY = ParticipantKey("main", "agent")
DOUBT = InDoubt("cut-1", published=True, owed={KEY: "nothing was heard of it"})
FOREIGN = UnexpectedFence("main/agent", phase="prepared", holder="x", advice="wait", is_left_closed=True)
FALLEN = UnexpectedFence("main/agent", phase="idle", holder=None, advice="restarted", is_left_closed=False)
HELD = RestoreFailed("restore-1", restored=[KEY], untouched=[], failed={ParticipantKey("main", "tools"): "why"})


def refused(status: int) -> ControlRequestError:
    """A participant's refusal."""
    return ControlRequestError(
        participant="main/agent", call="POST /x", status=status, error_code="invalid_phase", detail="no"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), ExitCode.USAGE),
        (InvalidIdentity("label", "x"), ExitCode.USAGE),
        (TopologyError(["x"]), ExitCode.USAGE),
        (DiscoveryFailed([refused(401)]), ExitCode.USAGE),
        (DiscoveryFailed([refused(404), TopologyError(["x"])]), ExitCode.USAGE),
        (DiscoveryFailed([refused(401), refused(500)]), ExitCode.FAILED),
        (DiscoveryFailed([NeverSent(participant="p", call="c", reason="r")]), ExitCode.FAILED),
        (refused(401), ExitCode.FAILED),
        (FOREIGN, ExitCode.IN_DOUBT),
        (FALLEN, ExitCode.FAILED),
        (DeadlineExceeded("reach", 1.0, {}), ExitCode.FAILED),
        (CutAborted("x"), ExitCode.FAILED),
        (SnapshotInvalid(subject="s", file="f", reason="r"), ExitCode.FAILED),
        (StorageFailed("write", Path("p"), OSError(28, "full")), ExitCode.FAILED),
        (PublishUncertain("rename", Path("p"), OSError(5, "io")), ExitCode.IN_DOUBT),
        (DOUBT, ExitCode.IN_DOUBT),
        (HELD, ExitCode.IN_DOUBT),
        (ExceptionGroup("several", [ConfigurationError("x"), refused(409)]), ExitCode.FAILED),
        (ExceptionGroup("several", [refused(409), ExceptionGroup("inner", [DOUBT])]), ExitCode.IN_DOUBT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_gravest_error_decides(error: Exception, code: ExitCode) -> None:
    """3 where somebody is in doubt or held closed, 2 where the user must change something, else 1."""
    assert exit_code_of(error) is code


def test_several_errors_are_numbered() -> None:
    """A group is one text in which every error stands on a line of its own."""
    text = text_of(ExceptionGroup("two things", [refused(409), refused(500)]))
    assert text.splitlines()[0] == "two things:"
    assert [line[:5] for line in text.splitlines()[1:]] == ["  1. ", "  2. "]
    assert "sub-exception" not in text_of(DiscoveryFailed([refused(401), refused(500)]))


def test_every_description_is_json() -> None:
    """What a program may want to act upon stands in members of its own."""
    receipt = CompletionReceipt("r1", 0, 1, "id", "0" * 64)
    waiting = Unacknowledged([CompletedResult(KEY, AttemptId("r1", 0), receipt)])
    group = ExceptionGroup("several", [DOUBT, HELD, refused(409), waiting, TopologyError(["a", "b"])])
    found = json.loads(json.dumps(described(group)))
    by_type = {entry["type"]: entry for entry in found["errors"]}
    assert by_type["InDoubt"]["owed"] == {"main/agent": "nothing was heard of it"}
    assert by_type["InDoubt"]["published"] is True
    assert by_type["RestoreFailed"]["restored"] == ["main/agent"]
    assert by_type["RestoreFailed"]["failed"] == {"main/tools": "why"}
    assert by_type["ControlRequestError"]["error_code"] == "invalid_phase"
    assert by_type["Unacknowledged"]["unacknowledged"] == [
        {"agent": "main/agent", "rollout_id": "r1", "attempt_index": 0}
    ]
    assert by_type["TopologyError"]["problems"] == ["a", "b"]
