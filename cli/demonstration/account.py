"""The account of every rollout: what the trainer's file says at the end, held against what had to come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quiesce.cli.demonstration.job import Rollout, expected_result
from quiesce.participants.identity import AttemptId

__all__ = ["Account", "CutAccount", "settle_accounts"]


@dataclass(frozen=True, slots=True)
class CutAccount:
    """Where every rollout was at the cut.

    ``kept``: finished, and in the trainer's file. ``boundaries``: under way, with the turns that each had taken.
    ``restarting``: under way and not saved. ``unstarted``: not dispatched.
    """

    kept: frozenset[str]
    boundaries: Mapping[AttemptId, int]
    restarting: frozenset[str]
    unstarted: frozenset[str]

    @property
    def live(self) -> int:
        return len(self.boundaries) + len(self.restarting)

    def missing(self, job: Iterable[Rollout]) -> list[str]:
        """Rollouts that the cut has lost or has twice."""
        saved = [attempt.rollout_id for attempt in self.boundaries]
        found = Counter([*self.kept, *saved, *self.restarting, *self.unstarted])
        return sorted(rollout.rollout_id for rollout in job if found[rollout.rollout_id] != 1)


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the rollouts; all but ``total`` and ``completed`` name rollouts."""

    total: int
    completed: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    restarted: tuple[str, ...]
    wrong: tuple[str, ...]
    """Those whose result is not the one that follows from their task."""

    @property
    def is_clean(self) -> bool:
        return self.completed == self.total and not (self.lost or self.doubled or self.restarted or self.wrong)


def settle_accounts(job: Sequence[Rollout], cut: CutAccount, results: Iterable[Mapping[str, object]]) -> Account:
    """Hold the trainer's file against the job and against the cut."""
    lines = list(results)
    times = Counter(str(result["rollout_id"]) for result in lines)
    by_rollout = {str(result["rollout_id"]): result for result in lines}
    present = [rollout for rollout in job if rollout.rollout_id in by_rollout]
    known = {rollout.rollout_id for rollout in job}
    strangers = tuple(sorted(set(by_rollout) - known))
    return Account(
        total=len(job),
        completed=len(present),
        lost=tuple(rollout.rollout_id for rollout in job if rollout.rollout_id not in by_rollout),
        doubled=tuple(sorted(rollout_id for rollout_id, count in times.items() if count > 1)),
        restarted=_restarted(cut, by_rollout),
        wrong=tuple(r.rollout_id for r in present if not _is_as_expected(r, by_rollout[r.rollout_id])) + strangers,
    )


def _restarted(cut: CutAccount, results: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Rollouts that were under way at the cut and did not go on from where it had caught them."""
    again = set(cut.restarting)
    for attempt, turns in cut.boundaries.items():
        result = results.get(attempt.rollout_id)
        if result is not None and not _goes_on(result, attempt, turns):
            again.add(attempt.rollout_id)
    return tuple(sorted(again))


def _goes_on(result: Mapping[str, object], attempt: AttemptId, turns: int) -> bool:
    return result["attempt_index"] == attempt.attempt_index + 1 and result["began_at_turn"] == turns


def _is_as_expected(rollout: Rollout, result: Mapping[str, object]) -> bool:
    changing: Collection[str] = {"attempt_index", "began_at_turn"}
    return {name: value for name, value in result.items() if name not in changing} == expected_result(rollout)
