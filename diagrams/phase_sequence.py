"""The order of a phase's waves as a sequence, for a given topology: the data of PHASES, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from quiesce.diagrams.sequence import CONTROLLER, Sequence, SequenceStep, StepKind
from quiesce.fsm.tables.participant import ParticipantEvent
from quiesce.fsm.tables.phases import PhasePlan, Wave
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


def phase_sequence(plan: PhasePlan, topology: Mapping[str, Role]) -> Sequence:
    """Who is called in which order in a phase.

    Args:
        plan: the phase, with its variant.
        topology: each participant's name and role, in the order in which they are drawn.
    """
    drain = f" ({plan.drain.value.replace('_', ' ')})" if plan.drain else ""
    steps = [step for number, wave in enumerate(plan.waves, start=1) for step in _wave(number, wave, topology)]
    return Sequence(f"The phase {plan.phase.value}{drain}", (CONTROLLER, *topology), tuple(steps))


def _wave(number: int, wave: Wave, topology: Mapping[str, Role]) -> Iterator[SequenceStep]:
    members = [name for name, role in topology.items() if role in wave.roles]
    if not members:
        return
    verb, answer = _CALLS[wave.event]
    label = f"wave {number}, {_begins(wave)}: {wave.reason}"
    yield SequenceStep(CONTROLLER, CONTROLLER, label, StepKind.STAGE)
    # inside a wave every call is concurrent: all go out before the first answer is waited for
    yield from (SequenceStep(CONTROLLER, name, verb.value) for name in members)
    expected = (wave.expects or answer).value
    yield from (SequenceStep(name, CONTROLLER, expected, StepKind.REPLY) for name in members)


def _begins(wave: Wave) -> str:
    awaited: dict[str, list[str]] = {}
    for role, milestone in wave.waits_for:
        awaited.setdefault(milestone.value.replace("_", " "), []).append(role.value)
    return " and ".join(f"when {_every(roles)} {stage}" for stage, roles in awaited.items()) or "at once"


def _every(roles: list[str]) -> str:
    *first, last = (f"every {role}" for role in roles)
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"
