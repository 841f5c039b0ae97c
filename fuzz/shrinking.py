"""Making a failing sequence small: steps are left out and simplified as long as the same rule is broken.

Each candidate runs on the live participant with fresh names; the number of runs is bounded. A finding that a second
run does not show again is kept as it was, and said to be seen once, or to need a fresh process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from quiesce.fuzz.findings import Episode
from quiesce.fuzz.fresh import is_of_the_past
from quiesce.fuzz.steps import OWN_FIELDS, CallStep, Send, Step, WorkStep

__all__ = ["Shrunk", "races", "shrink"]

RUNS_MAX: Final = 80
RACES_MAX: Final = 5
"""How often a sequence in which calls race is run again, before what it showed is said to have been seen once."""
_RACING: Final = frozenset({Send.AT_ONCE, Send.TWICE, Send.LEAVE})
_SIMPLER: Final = ("deadline", "send", "directory", "roots", "long_poll", "receipt")

Try = Callable[[Sequence[Step]], Awaitable[Episode]]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest sequence that was found, its run, how many runs that took, and whether it happens again.

    ``needs_fresh``: it could not come again, as the process has taken its one restore.
    """

    episode: Episode
    runs: int
    reproducible: bool
    needs_fresh: bool = False


class _Shrinking:
    def __init__(self, attempt: Try, rule_id: str, first: Episode, runs_max: int) -> None:
        self._attempt = attempt
        self._rule_id = rule_id
        self._runs_max = runs_max
        self.best = first
        self.last = first
        self.runs = 0

    async def fails(self, steps: Sequence[Step]) -> bool:
        """Whether the sequence breaks the rule as well; it is then the best so far."""
        if self.runs >= self._runs_max or not steps:
            return False
        self.runs += 1
        self.last = episode = await self._attempt(steps)
        if episode.finding is None or episode.finding.rule.id != self._rule_id:
            return False
        self.best = episode
        return True

    async def fails_again(self) -> bool:
        """Whether the first sequence breaks the rule once more; where calls race, in one of a few runs."""
        for _ in range(RACES_MAX if races(self.best.steps) else 1):
            if await self.fails(self.best.steps):
                return True
            if self.last.verdict is not None:
                return False
        return False

    async def shorten(self) -> None:
        """Leave out halves, quarters, ... single steps, until no step can be left out."""
        size = max(1, len(self.best.steps) // 2)
        while size >= 1:
            if not await self._without_any(size) and size == 1:
                return
            size = max(1, size // 2)

    async def _without_any(self, size: int) -> bool:
        """Leave out runs of ``size`` steps, the last ones first; whether any could be."""
        shortened = False
        begin = len(self.best.steps) - size
        while begin >= 0:
            steps = self.best.steps
            shortened |= await self.fails((*steps[:begin], *steps[begin + size :]))
            begin = min(begin - 1, len(self.best.steps) - size)
        return shortened

    async def simplify(self) -> None:
        """Give steps their defaults, one field at a time."""
        index = 0
        while index < len(self.best.steps):
            for simpler in _simpler(self.best.steps[index]):
                steps = self.best.steps
                await self.fails((*steps[:index], simpler, *steps[index + 1 :]))
            index += 1


async def shrink(attempt: Try, rule_id: str, first: Episode, *, runs_max: int = RUNS_MAX) -> Shrunk:
    """Shrink the sequence of ``first``, which broke the rule. ``attempt`` runs a candidate."""
    shrinking = _Shrinking(attempt, rule_id, first, runs_max)
    if not await shrinking.fails_again():
        return Shrunk(first, shrinking.runs, reproducible=False, needs_fresh=is_of_the_past(first, shrinking.last))
    await shrinking.shorten()
    await shrinking.simplify()
    return Shrunk(shrinking.best, shrinking.runs, reproducible=True)


def races(steps: Sequence[Step]) -> bool:
    """Whether calls are under way at once in a sequence, so that two runs of it may differ."""
    return any(isinstance(step, CallStep | WorkStep) and step.send in _RACING for step in steps)


def _simpler(step: Step) -> Iterator[CallStep]:
    if not isinstance(step, CallStep):
        return
    names = (*(name for name in _SIMPLER if name in OWN_FIELDS[step.operation]), "send")
    for name in dict.fromkeys(names):
        default = CallStep.model_fields[name].default
        if getattr(step, name) != default:
            yield step.model_copy(update={name: default})
