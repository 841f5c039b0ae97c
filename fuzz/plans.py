"""Which sequences are tried, in which order: everything here is decided before the first call is sent.

1. where it may be restored and is one process throughout: the one restore that a fresh process takes;
2. the named dangers;
3. malformed requests and wrong bearers, route by route;
4. the cover: from every state within a few calls of idle, every call whose row of the strict table was not taken yet;
5. random walks that begin in one of those states. The seed decides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from random import Random
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.dangers import dangers_of
from quiesce.fuzz.fresh import FIRST_RESTORE
from quiesce.fuzz.ideal import Ideal, apply, prefixes
from quiesce.fuzz.place import Place
from quiesce.fuzz.shrinking import races
from quiesce.fuzz.spoiled import spoilings_of
from quiesce.fuzz.steps import (
    EARLIER_ID,
    Bearer,
    CallStep,
    Deadline,
    Operation,
    Roots,
    Send,
    Step,
    Until,
    WaitStep,
    WorkKind,
    WorkStep,
)
from quiesce.fuzz.subject import EVENT_OF, Subject
from quiesce.fuzz.traffic import work_call
from quiesce.fuzz.worlds import FenceRow
from quiesce.participants.identity import AttemptId

__all__ = ["Abilities", "Planner", "abilities_of", "ids_of"]

DEPTH: Final = 5
SPOILED_A_SEQUENCE: Final = 40
RACES: Final = 4
"""How often a danger in which calls race is tried on one process."""
WALK_MIN: Final = 2
WALK_MAX: Final = 7
EARLIER_SHARE: Final = 0.1
"""Of the calls of a walk: those that are about an id of an earlier sequence."""
_WRITES: Final = frozenset({Operation.COMMIT, Operation.RESTORE})
_STARTABLE: Final = frozenset({Operation.PREPARE})


@dataclass(frozen=True, slots=True)
class Abilities:
    """What may be done with a participant.

    Attributes:
        kinds: the calls of the data plane that its traffic has.
        may_export: whether commits may be sent.
        may_restore: whether restores may be sent.
        waits_for_grace: whether there is time to wait until an incomplete prepare is given up.
        sends_any_header: whether the transport can carry a header that is not ASCII; over HTTP ours cannot.
        alone: whether nobody else's work keeps a prepare waiting.
        leased: whether it has a lease that can be renewed.
        lasting: whether it is one process throughout, which knows the ids of earlier sequences.
    """

    kinds: frozenset[WorkKind] = frozenset()
    may_export: bool = False
    may_restore: bool = False
    waits_for_grace: bool = False
    sends_any_header: bool = False
    alone: bool = True
    leased: bool = False
    lasting: bool = False


def abilities_of(place: Place, *, lasting: bool = False) -> Abilities:
    """What the conditions of a place allow; ``lasting`` as there."""
    someone = AttemptId("someone", 0)
    return Abilities(
        kinds=frozenset(kind for kind in WorkKind if work_call(place.traffic, place.subject.role, kind, someone)),
        may_export=place.root is not None and place.subject.declaration.exports,
        may_restore=place.may_restore,
        waits_for_grace=place.durations.grace_s is not None,
        sends_any_header=place.sends_any_header,
        alone=place.alone,
        leased=place.subject.has(Operation.RENEW),
        lasting=lasting,
    )


class Planner:
    """Plans the sequences for one participant."""

    def __init__(self, subject: Subject, abilities: Abilities, seed: int) -> None:
        self._subject = subject
        self._abilities = abilities
        self._seed = seed
        self._nodes: tuple[tuple[Ideal, tuple[Step, ...]], ...] = ()
        self._every_call = tuple(self._calls())

    def of_the_fresh(self) -> Iterator[tuple[Step, ...]]:
        """What has to come before everything else, as a process takes a restore only before it has served work."""
        if self._abilities.lasting and self._may(CallStep(operation=Operation.RESTORE)):
            yield tuple(step for step in FIRST_RESTORE.steps if self._can(step))

    def systematic(self) -> Iterator[tuple[Step, ...]]:
        """Dangers, malformed requests and the cover; after each, what an id of an earlier sequence comes to."""
        for danger in dangers_of(self._subject.role):
            steps = self._possible(danger.steps)
            if steps:
                # in which order calls arrive that are sent at once, a line decides anew each time
                yield from repeat(steps, RACES if self._abilities.lasting and races(steps) else 1)
        yield from self._asked_again()
        yield from self._malformed()
        yield from self._asked_again()
        yield from self._cover()
        yield from self._asked_again()

    def walks(self) -> Iterator[tuple[Step, ...]]:
        """Random walks without end."""
        rng = Random(self._seed)  # noqa: S311 - repeatable on purpose
        nodes = self._states()
        while True:
            _, path = nodes[rng.randrange(len(nodes))]
            yield (*path, *(self._random_step(rng) for _ in range(rng.randint(WALK_MIN, WALK_MAX))))

    def paths(self) -> tuple[tuple[Step, ...], ...]:
        """A shortest way to every state within reach, the empty one first."""
        return tuple(path for _, path in self._states())

    def choices(self) -> tuple[Step, ...]:
        """Every single step that may be taken: calls, work and waits."""
        kinds = sorted(self._abilities.kinds - _OF_RECOVERY)
        data: list[Step] = [WorkStep(kind=kind, attempt=attempt) for kind in kinds for attempt in "pq"]
        left: list[Step] = [
            CallStep(operation=Operation.PREPARE, deadline=Deadline.SHORT, send=send)
            for send in (Send.WAIT, Send.START, Send.LEAVE)
        ]
        waits: list[Step] = [WaitStep(until=until) for until in Until]
        every: list[Step] = [*self._every_call, *data, *left, *waits]
        return tuple(step for step in every if self._can(step) and self._ends(step))

    def malformed(self) -> tuple[Step, ...]:
        """Every single call that must be refused for its form or its bearer."""
        return tuple(chain.from_iterable(self._malformed_of(operation) for operation in self._subject.routes))

    def _ends(self, step: Step) -> bool:
        """Whether a step does not wait for what never comes: an agent's executions go on and on."""
        return not (isinstance(step, WaitStep) and step.until is Until.WORK and self._subject.role is Role.AGENT)

    def _asked_again(self) -> Iterator[tuple[Step, ...]]:
        """An id that an earlier sequence has used up must stay used up, whatever came to pass since."""
        if self._abilities.lasting and self._subject.role is not Role.AUXILIARY:
            yield self._possible(_AGAIN)

    # ---- malformed requests and wrong bearers

    def _malformed(self) -> Iterator[tuple[Step, ...]]:
        rows = self.malformed()
        for begin in range(0, len(rows), SPOILED_A_SEQUENCE):
            yield rows[begin : begin + SPOILED_A_SEQUENCE]
        # what was refused must have changed nothing, and the longest id is an id
        yield (CallStep(operation=Operation.CAPABILITIES), *self._possible(_ROUND))

    def _malformed_of(self, operation: Operation) -> Iterator[Step]:
        if operation is Operation.CAPABILITIES or not self._may(CallStep(operation=operation)):
            return
        for spoiling in spoilings_of(self._subject.routes[operation]):
            yield CallStep(operation=operation, spoiled=spoiling.name)
        yield (
            CallStep(operation=operation, spoiled="missing.checkpoint-id", bearer=Bearer.MISSING)
            if (operation not in _WITHOUT_ID)
            else CallStep(operation=operation, bearer=Bearer.MISSING)
        )
        for bearer in Bearer:
            if bearer is not Bearer.GOOD and (bearer is not Bearer.NOT_ASCII or self._abilities.sends_any_header):
                yield CallStep(operation=operation, bearer=bearer)

    # ---- the cover

    def _cover(self) -> Iterator[tuple[Step, ...]]:
        taken: set[tuple[FenceRow | str, ...]] = set()
        for state, path in self._states():
            still, moving = self._new_probes(state, taken)
            if still:
                yield (*path, *still)
            for step in moving:
                yield (*path, step)

    def _new_probes(self, state: Ideal, taken: set[tuple[FenceRow | str, ...]]) -> tuple[list[Step], list[Step]]:
        still: list[Step] = []
        moving: list[Step] = []
        for step in self._every_call:
            outcome = apply(self._subject.oracle, self._subject.role, state, step)
            if outcome is None:
                continue
            key = (*outcome.rows, step.send.value, step.deadline.value, step.directory)
            if key in taken:
                continue
            taken.add(key)
            (still if outcome.after == state else moving).append(step)
        return still, moving

    def _states(self) -> tuple[tuple[Ideal, tuple[Step, ...]], ...]:
        if not self._nodes:
            self._nodes = prefixes(self._subject.oracle, self._subject.role, tuple(self._moves()), depth=DEPTH)
        return self._nodes

    def _moves(self) -> Iterator[Step]:
        kinds = self._abilities.kinds
        if WorkKind.SEED in kinds and self._subject.role is Role.RESOURCES:
            yield WorkStep(kind=WorkKind.SEED)
        if WorkKind.BEGIN in kinds:
            yield WorkStep(kind=WorkKind.BEGIN)
            if self._subject.role is not Role.AGENT:
                yield WaitStep(until=Until.WORK)
            yield from self._if_may(CallStep(operation=Operation.PREPARE, deadline=Deadline.SHORT))
        for id_ in ("a", "b"):
            for operation in (Operation.PREPARE, Operation.COMMIT, Operation.RESTORE, Operation.RESUME):
                yield from self._if_may(CallStep(operation=operation, id=id_))
        yield from self._if_may(CallStep(operation=Operation.RESTORE, directory="missing"))
        yield from self._if_may(CallStep(operation=Operation.ABORT_INFLIGHT))
        yield from self._if_may(CallStep(operation=Operation.RETIRE))

    def _calls(self) -> Iterator[CallStep]:
        """Every call that the cover may probe a state with, the plain ones first."""
        operations = [operation for operation in self._subject.routes if operation is not Operation.CAPABILITIES]
        plain = [CallStep(operation=operation, id=id_) for operation in operations for id_ in ("a", "b", "c")]
        for step in plain:
            yield from self._if_may(step)
        for step in plain:
            for variation in _variations(step):
                yield from self._if_may(variation)

    # ---- random walks

    def _random_step(self, rng: Random) -> Step:
        kinds = sorted(self._abilities.kinds - _OF_RECOVERY)
        if kinds and rng.random() < 0.25:  # noqa: PLR2004 - a quarter of the steps
            if rng.random() < 0.4 and self._subject.role is not Role.AGENT:  # noqa: PLR2004 - work is to end as well
                return WaitStep(until=Until.WORK)
            return WorkStep(kind=rng.choice(kinds), attempt=rng.choice("pqr"))
        step = rng.choice(self._every_call)
        if self._abilities.lasting and step.operation in EVENT_OF and rng.random() < EARLIER_SHARE:
            step = step.model_copy(update={"id": EARLIER_ID})
        if step.operation in _STARTABLE and rng.random() < 0.3:  # noqa: PLR2004 - now and then one is left waiting
            send = rng.choice([Send.START, Send.LEAVE])
            return step.model_copy(update={"deadline": Deadline.SHORT, "send": send})
        return step

    # ---- what may be sent

    def _possible(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The sequence, without what may not be sent; nothing where that takes its sense away."""
        kinds = self._abilities.kinds
        if any(isinstance(step, WorkStep) and step.kind not in kinds for step in steps[:1]):
            return ()
        if any(isinstance(step, CallStep) and step.operation is Operation.RESTORE for step in steps):
            return tuple(steps) if all(self._can(step) for step in steps if isinstance(step, CallStep)) else ()
        return tuple(step for step in steps if self._can(step))

    def _can(self, step: Step) -> bool:
        match step:
            case WorkStep():
                return step.kind in self._abilities.kinds
            case WaitStep():
                return step.until is not Until.GRACE or self._abilities.waits_for_grace
        return self._may(step)

    def _may(self, step: CallStep) -> bool:
        if not self._subject.has(step.operation):
            return False
        if step.deadline is Deadline.DISTANT and not self._abilities.alone:
            return False  # it would wait for others as long as they like
        if step.operation is Operation.RESTORE:
            return self._abilities.may_restore and self._abilities.may_export
        return step.operation is not Operation.COMMIT or self._abilities.may_export

    def _if_may(self, step: CallStep) -> Iterator[CallStep]:
        if self._may(step):
            yield step


_OF_RECOVERY: Final = frozenset({WorkKind.END, WorkKind.HALF_NAMED})
"""What is not called at random: the end of a session, and a call that has to be sent while admission is open."""
_WITHOUT_ID: Final = frozenset({Operation.ACKNOWLEDGE, Operation.ACKNOWLEDGE_COMPLETED})
_AGAIN: Final[tuple[Step, ...]] = tuple(
    CallStep(operation=operation, id=EARLIER_ID)
    for operation in (Operation.PREPARE, Operation.COMMIT, Operation.RESUME, Operation.PREPARE)
)
_ROUND: Final[tuple[Step, ...]] = (
    CallStep(operation=Operation.PREPARE),
    CallStep(operation=Operation.STATUS),
    CallStep(operation=Operation.COMMIT),
    CallStep(operation=Operation.RESUME),
)


def _variations(step: CallStep) -> Iterator[CallStep]:
    """The same call with a passed deadline, another body, or sent twice at once."""
    if step.operation in {Operation.ACKNOWLEDGE, Operation.ACKNOWLEDGE_COMPLETED}:
        return
    if step.operation is not Operation.STATUS:
        yield step.model_copy(update={"deadline": Deadline.PAST})
    if step.operation in _WRITES:
        yield step.model_copy(update={"directory": "d2"})
    if step.operation is Operation.RESTORE:
        yield step.model_copy(update={"directory": "missing"})
    if step.operation is Operation.COMMIT:
        yield step.model_copy(update={"roots": Roots.UNKNOWN})
    yield step.model_copy(update={"send": Send.TWICE})


def ids_of(steps: Iterable[Step]) -> int:
    """How many ids a sequence uses up at most, with one more for leaving the participant open."""
    return len({step.id for step in steps if isinstance(step, CallStep)}) + 1
