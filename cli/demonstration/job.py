"""The job of the demonstration: its rollouts, and how each of them must end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quiesce.cli.workload.course import course

__all__ = ["LIVE_MIN", "ROLLOUTS_MIN", "SHORT_TURNS", "Rollout", "expected_result", "job"]

LIVE_MIN: Final = 8
"""Rollouts that are live at the cut, at the least."""
LATE: Final = 2
SHORT_MIN: Final = 2
SHORT_TURNS: Final = 2
ROLLOUTS_MIN: Final = LIVE_MIN + LATE + SHORT_MIN


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout. A ``late`` one is only dispatched after the cut."""

    rollout_id: str
    task: str
    turns: int
    late: bool = False


def job(rollouts: int, turns: int) -> tuple[Rollout, ...]:
    """``rollouts`` rollouts: some are over before the cut, some have not begun at it, all others are under way.

    Those take ``turns`` turns or up to two more, so that they are not in step.
    """
    short = max(SHORT_MIN, rollouts // 5)
    under_way = rollouts - short - LATE
    lengths = [SHORT_TURNS] * short + [turns + number % 3 for number in range(under_way)] + [SHORT_TURNS] * LATE
    return tuple(
        Rollout(f"job.r{number:03d}", f"question {number}", length, late=number > short + under_way)
        for number, length in enumerate(lengths, start=1)
    )


def expected_result(rollout: Rollout) -> dict[str, object]:
    """What the rollout's result must say, whatever happened on the way."""
    due = course(rollout.task, rollout.turns)
    return {
        "id": f"result-{rollout.rollout_id}",
        "rollout_id": rollout.rollout_id,
        "turns": due.turns,
        "observation": due.observation,
        "words": due.words,
        "model_calls": due.turns,
        "model_words": due.words,
        "reward": 1.0,
    }
