"""Guards: named conditions over facts, as closed expressions that can be run, drawn, emitted and explored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["AllOf", "AnyOf", "Equal", "Expression", "Facts", "Guard", "IsTrue", "IsZero", "Negation"]

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class IsTrue:
    """Holds when the fact is truthy; an absent fact is false."""

    fact: str

    def holds(self, facts: Facts) -> bool:
        return bool(facts.get(self.fact))

    def reads(self) -> tuple[str, ...]:
        return (self.fact,)

    def __str__(self) -> str:
        return self.fact


@dataclass(frozen=True, slots=True)
class IsZero:
    """Holds when the fact is known and is zero; an absent fact is not zero."""

    fact: str

    def holds(self, facts: Facts) -> bool:
        return facts.get(self.fact, 1) == 0

    def reads(self) -> tuple[str, ...]:
        return (self.fact,)

    def __str__(self) -> str:
        return f"{self.fact} = 0"


@dataclass(frozen=True, slots=True)
class Equal:
    """Holds when both facts are known and equal."""

    left: str
    right: str

    def holds(self, facts: Facts) -> bool:
        left = facts.get(self.left)
        return left is not None and left == facts.get(self.right)

    def reads(self) -> tuple[str, ...]:
        return (self.left, self.right)

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True, slots=True)
class Negation:
    """Holds when the inner expression does not."""

    inner: Expression

    def holds(self, facts: Facts) -> bool:
        return not self.inner.holds(facts)

    def reads(self) -> tuple[str, ...]:
        return self.inner.reads()

    def __str__(self) -> str:
        return f"not ({self.inner})"


@dataclass(frozen=True, slots=True)
class AllOf:
    """Holds when every part holds."""

    parts: tuple[Expression, ...]

    def holds(self, facts: Facts) -> bool:
        return all(part.holds(facts) for part in self.parts)

    def reads(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.reads())

    def __str__(self) -> str:
        return " and ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Holds when at least one part holds."""

    parts: tuple[Expression, ...]

    def holds(self, facts: Facts) -> bool:
        return any(part.holds(facts) for part in self.parts)

    def reads(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.reads())

    def __str__(self) -> str:
        return " or ".join(f"({part})" for part in self.parts)


Expression = IsTrue | IsZero | Equal | Negation | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class Guard:
    """A named condition over facts.

    ``meaning`` is the sentence that is true when it holds; ``otherwise`` the one that is true when it does not,
    and is what a refusal says.
    """

    name: str
    test: Expression
    meaning: str
    otherwise: str

    def reads(self) -> tuple[str, ...]:
        """Names of the facts that the verdict depends on, each once."""
        return tuple(dict.fromkeys(self.test.reads()))
