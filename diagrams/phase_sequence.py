"""The order of a phase's waves as a sequence, for a given topology: the data of PHASES, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from quiesce.diagrams.sequence import CONTROLLER, Sequence, SequenceStep, StepKind
from quiesce.fsm.tables.fence import FENCE, FenceEvent
from quiesce.fsm.tables.participant import ANSWERS, PARTICIPANT, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import Milestone, PhasePlan, Wave
from quiesce.fsm.vocabulary import Outcome, Role, Verb

__all__ = ["SAMPLE_TOPOLOGY", "phase_sequence"]

SAMPLE_TOPOLOGY: Final[Mapping[str, Role]] = {
    "policy": Role.POLICY,
    "judge": Role.AUXILIARY,
    "agent 1": Role.AGENT,
    "agent 2": Role.AGENT,
    "tools": Role.RESOURCES,
}
"""The generated pictures are of this one: a policy, a model beside it, two agents and their tools."""

_CALLS: Final[Mapping[ParticipantEvent, tuple[Verb, Outcome]]] = {
    ParticipantEvent.INSPECT_DUE: (Verb.INSPECT, Outcome.OPEN),
    ParticipantEvent.CLOSE_DUE: (Verb.CLOSE, Outcome.PAUSED),
    ParticipantEvent.EXPORT_DUE: (Verb.EXPORT, Outcome.EXPORTED),
    ParticipantEvent.IMPORT_DUE: (Verb.IMPORT, Outcome.IMPORTED),
    ParticipantEvent.RELEASED: (Verb.RELEASE, Outcome.RELEASED),
}
"""What becomes due in a wave, as a call and the answer that lets the transaction go on."""

_DRAINING_ROLES: Final = frozenset(
    role
    for (_, role), table in FENCE.items()
    if any(row.event is FenceEvent.PREPARE_DRAINING and row.target is not row.source for row in table.rows)
)
"""Those whose fence can answer a close before its work in flight has ended."""

_MEMBERS: Final[Mapping[Role, str]] = {
    Role.POLICY: "policy",
    Role.AUXILIARY: "auxiliary model",
    Role.AGENT: "agent",
    Role.RESOURCES: "resource server",
}
"""One member of a role, in words."""


def phase_sequence(plan: PhasePlan, topology: Mapping[str, Role]) -> Sequence:
    """Who is called in which order in a phase.

    Args:
        plan: the phase, with its variant.
        topology: each participant's name and role, in the order in which they are drawn.
    """
    drain = f" ({plan.drain.value.replace('_', ' ')})" if plan.drain else ""
    steps = tuple(_steps(plan, topology))
    return Sequence(f"The phase {plan.phase.value}{drain}", (CONTROLLER, *topology), steps)


def _steps(plan: PhasePlan, topology: Mapping[str, Role]) -> Iterator[SequenceStep]:
    """Who still drains stands still when a wave waits for it, or at the end: as late as the order lets it."""
    draining: list[str] = []
    for number, wave in enumerate(plan.waves, start=1):
        members = [name for name, role in topology.items() if role in wave.roles]
        if not members:
            continue
        awaited = {role for role, milestone in wave.waits_for if milestone is Milestone.PAUSED}
        yield from _paused(name for name in draining if topology[name] in awaited)
        draining = [name for name in draining if topology[name] not in awaited]
        label = f"wave {number}, {_begins(wave)}: {wave.reason}"
        yield SequenceStep(CONTROLLER, CONTROLLER, label, StepKind.STAGE)
        # inside a wave every call is concurrent: all go out before the first answer is waited for
        verb, answer = _CALLS[wave.event]
        yield from (SequenceStep(CONTROLLER, name, verb.value) for name in members)
        late = [name for name in members if verb is Verb.CLOSE and topology[name] in _DRAINING_ROLES]
        yield from _draining(late)
        expected = (wave.expects or answer).value
        yield from (SequenceStep(name, CONTROLLER, expected, StepKind.REPLY) for name in members if name not in late)
        draining += late
    yield from _paused(draining)


def _draining(names: list[str]) -> Iterator[SequenceStep]:
    """The answer to a close of whoever still works, and what the participant's table calls then."""
    yield from (SequenceStep(name, CONTROLLER, Outcome.DRAINING.value, StepKind.REPLY) for name in names)
    told = ANSWERS[Verb.CLOSE, Outcome.DRAINING]
    rows = (row for row in PARTICIPANT.rows if row.source is ParticipantState.UNKNOWN and row.event is told)
    effects = next(rows).effects
    calls = [effect.removeprefix("call_").replace("_", " ") for effect in effects if effect.startswith("call_")]
    yield from (SequenceStep(CONTROLLER, name, call) for name in names for call in calls)


def _paused(names: Iterable[str]) -> Iterator[SequenceStep]:
    yield from (SequenceStep(name, CONTROLLER, Outcome.PAUSED.value, StepKind.REPLY) for name in names)


def _begins(wave: Wave) -> str:
    awaited: dict[str, list[str]] = {}
    for role, milestone in wave.waits_for:
        awaited.setdefault(milestone.value.replace("_", " "), []).append(_MEMBERS[role])
    return " and ".join(f"when {_every(roles)} {stage}" for stage, roles in awaited.items()) or "at once"


def _every(roles: list[str]) -> str:
    *first, last = (f"every {role}" for role in roles)
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"
