"""What the small workload computes, as pure functions: the model's texts, the judge's marks, the tool's state.

Everything follows from a task's text, so the result of a rollout is known in advance and whoever gets another one
has lost a turn, taken one twice, or begun again: each turn's observation is chained to all turns before it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

__all__ = ["TURNS_MAX", "Course", "Transcript", "best_of", "candidates", "course", "mark"]

TURNS_MAX: Final = 1000
MARKS: Final = 100
CANDIDATES: Final = 2

_WORDS: Final = (
    *("anchor", "basin", "copper", "delta", "ember", "fjord", "granite", "harbor"),
    *("island", "juniper", "kelp", "lagoon", "meadow", "nickel", "orchard", "pebble"),
)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The state of one session of the tool: how many texts it has taken, and what they came to.

    ``observation`` is the hex digest of the task and of every text so far, in their order.
    """

    observation: str
    turns: int = 0
    words: int = 0

    @classmethod
    def of(cls, task: str) -> Transcript:
        """The transcript of a task before its first turn."""
        return cls(_digest("task", task))

    def append(self, text: str) -> Transcript:
        """The transcript after one more text."""
        return Transcript(_digest(self.observation, text), self.turns + 1, self.words + len(text.split()))


@dataclass(frozen=True, slots=True)
class Course:
    """How a rollout ends when every turn is taken exactly once. ``words`` are the model's tokens as well."""

    task: str
    turns: int
    observation: str
    words: int


def candidates(task: str, observation: str) -> tuple[str, ...]:
    """The texts that the model considers at an observation."""
    return tuple(_text(_digest("model", task, observation, str(number))) for number in range(CANDIDATES))


def mark(task: str, text: str) -> int:
    """The judge's mark of a text, from 0 to 99."""
    return int(_digest("judge", task, text)[:8], 16) % MARKS


def best_of(texts: tuple[str, ...], marks: tuple[int, ...]) -> str:
    """The text with the highest mark, the first of equals."""
    return max(zip(texts, marks, strict=True), key=lambda pair: pair[1])[0]


def course(task: str, turns: int) -> Course:
    """The course of a whole rollout."""
    transcript = Transcript.of(task)
    for _ in range(turns):
        texts = candidates(task, transcript.observation)
        transcript = transcript.append(best_of(texts, tuple(mark(task, text) for text in texts)))
    return Course(task, turns, transcript.observation, transcript.words)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _text(seed: str) -> str:
    length = 3 + int(seed[0], 16) % 8
    return " ".join(_WORDS[int(digit, 16)] for digit in seed[1 : 1 + length])
