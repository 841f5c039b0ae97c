"""Attempts that may do nothing any more: retired, aborted, superseded, or saved under an earlier number."""

from __future__ import annotations

from quiesce.participants.identity import AttemptId

__all__ = ["Tombstones"]


class Tombstones:
    """Fenced attempts. A fence is for good: there is no way to take one away (wire-protocol 4.5, 6.7)."""

    def __init__(self) -> None:
        self._fenced: set[AttemptId] = set()
        self._highest: dict[str, int] = {}

    def __contains__(self, attempt: AttemptId) -> bool:
        if attempt in self._fenced:
            return True
        return attempt.attempt_index <= self._highest.get(attempt.rollout_id, -1)

    def __len__(self) -> int:
        """How many attempts were fenced by name."""
        return len(self._fenced)

    def add(self, attempt: AttemptId) -> None:
        """Fence this attempt."""
        self._fenced.add(attempt)

    def add_before(self, attempt: AttemptId) -> None:
        """Fence every earlier attempt of the rollout: this one replaces them. None of them is named by it."""
        highest = self._highest.get(attempt.rollout_id, -1)
        self._highest[attempt.rollout_id] = max(highest, attempt.attempt_index - 1)

    def add_through(self, attempt: AttemptId) -> None:
        """Fence this attempt and every earlier one of its rollout: what was saved as n goes on as n + 1."""
        self.add(attempt)
        self.add_before(attempt)

    def named(self) -> tuple[AttemptId, ...]:
        """The attempts that were fenced by name, sorted."""
        return tuple(sorted(self._fenced))
