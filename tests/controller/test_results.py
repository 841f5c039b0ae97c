"""Results are plain values that survive JSON."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from quiesce.controller.results import CutResult, PhaseTiming, RestoreResult, Timings
from quiesce.participants.identity import AttemptId

TIMINGS = Timings(
    phases=(
        PhaseTiming("prepare", "", 0.0, 4.0),
        PhaseTiming("prepare", "main/policy", 0.0, 4.0),
        PhaseTiming("prepare", "main/agent", 0.0, 1.0000004),
        PhaseTiming("commit", "", 4.0, 2.0),
    ),
    total_s=6.5,
    paused_s=6.0,
)


def test_the_slowest_participant_is_named() -> None:
    """The phase as a whole is no participant, and a phase without participants has no slowest one."""
    slowest = TIMINGS.slowest("prepare")
    assert slowest is not None
    assert slowest.participant == "main/policy"
    assert TIMINGS.slowest("commit") is None


def test_results_survive_json() -> None:
    """Every field of both results is in their JSON, under its own name."""
    live = (AttemptId("job7.r3", 0), AttemptId("job7.r4", 2))
    cut = CutResult("step-40", "step-40-1a2b3c4d", Path("/r"), live, live[:1], ("k1",), TIMINGS, ("slow root",))
    restore = RestoreResult(
        "step-40", "restore-step-40-00000000", cut.wire_id, Path("/r"), live, (), live[1:], ("k1",), TIMINGS
    )
    for result in (cut, restore):
        plain = json.loads(json.dumps(result.to_json()))
        assert set(plain) == {field.name for field in fields(result)}
        assert plain["rollouts"][1] == {"rollout_id": "job7.r4", "attempt_index": 2}
        assert plain["timings"]["phases"][0]["participant"] is None
        assert plain["timings"]["phases"][2]["duration_s"] == 1.0
