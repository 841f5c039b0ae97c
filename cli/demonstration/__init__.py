"""The main job on embedded servers: what ``quiesce demo`` runs."""

from __future__ import annotations

from quiesce.cli.demonstration.job import ROLLOUTS_MIN
from quiesce.cli.demonstration.narration import Narrator
from quiesce.cli.demonstration.outcome import Outcome
from quiesce.cli.demonstration.scenario import Demonstration, DemoSettings

__all__ = ["ROLLOUTS_MIN", "DemoSettings", "Demonstration", "Narrator", "Outcome"]
