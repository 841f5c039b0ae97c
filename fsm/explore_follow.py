"""Following the actions of a trace through a model, and saying what is violated where they end."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.explore import Kind, Model, explore

__all__ = ["ActionImpossible", "Followed", "follow", "shows"]

S = TypeVar("S", bound=Hashable)

_SHOWN_MAX: Final = 12
"""Possible actions that a refusal names."""


class ActionImpossible(QuiesceError):
    """An action of a trace cannot happen where it stands. ``number`` counts from 1."""

    def __init__(self, number: int, action: str, possible: Iterable[str]) -> None:
        known = sorted(set(possible))
        shown = "; ".join(known[:_SHOWN_MAX]) + ("; ..." if len(known) > _SHOWN_MAX else "")
        super().__init__(f"action {number}, '{action[:200]}', is not possible there; possible are: {shown or 'none'}")
        self.number = number
        self.action = action


class Followed(NamedTuple, Generic[S]):
    """One action and the state that it led to."""

    action: str
    state: S


def follow(model: Model[S], actions: Sequence[str]) -> tuple[Followed[S], ...]:
    """The states that the actions lead through, the first state left out.

    Raises:
        ActionImpossible: one of them is not possible where it stands.
    """
    state = next(iter(model.initial()))
    found: list[Followed[S]] = []
    for number, action in enumerate(actions, start=1):
        steps = dict(model.steps(state))
        if action not in steps:
            raise ActionImpossible(number, action, steps)
        state = steps[action]
        found.append(Followed(action, state))
    return tuple(found)


def shows(model: Model[S], kind: Kind, name: str, state: S, *, states_max: int = 1_000_000) -> bool | None:
    """Whether ``state`` shows what a trace of this kind of verdict leads to: the violation, or what was to be seen.

    None where the way out of ``state`` is longer than ``states_max`` states can tell.
    """
    match kind:
        case Kind.ALWAYS:
            return name in model.always and bool(model.broken(state) >> model.always.index(name) & 1)
        case Kind.SOMETIMES:
            return name in model.sometimes and bool(model.reached(state) >> model.sometimes.index(name) & 1)
        case Kind.NO_DEADLOCK:
            return not list(model.steps(state)) and not model.rests(state)
    found = explore(_From(model, state), states_max=states_max)
    verdict = next(verdict for verdict in found.verdicts if verdict.kind is Kind.RECOVERABLE)
    return None if verdict.holds is None else verdict.trace == ()


@dataclass(frozen=True)
class _From(Generic[S]):
    """A model that begins elsewhere, with nothing but the claim that its goal is reachable."""

    inner: Model[S]
    state: S
    name: str = "from there"
    always: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()

    @property
    def recoverable(self) -> str:
        return self.inner.recoverable

    def initial(self) -> Iterable[S]:
        return (self.state,)

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        return self.inner.steps(state)

    def broken(self, _state: S) -> int:
        return 0

    def reached(self, _state: S) -> int:
        return 0

    def rests(self, state: S) -> bool:
        return self.inner.rests(state)

    def at_goal(self, state: S) -> bool:
        return self.inner.at_goal(state)
