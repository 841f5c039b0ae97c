"""A recorded run as a sequence: who was called when, and what was answered.

Where they are many, those of a role that took the same steps at the same stage of the run share a lifeline, so that a
run over a thousand servers is still a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from quiesce.diagrams.lifelines import lifelines_of
from quiesce.diagrams.run_record import RunRecord, seconds, since_begin
from quiesce.diagrams.sequence import CONTROLLER, Sequence, SequenceStep, StepKind, sequence_of
from quiesce.fsm.tables.participant import ANSWERS, PARTICIPANT, ParticipantEvent
from quiesce.fsm.tables.release import RELEASE_ANSWERS, ReleaseEvent
from quiesce.fsm.tables.transaction import TRANSACTION

__all__ = ["run_sequence"]

LIFELINES_MAX: Final = 12
STEPS_MAX: Final = 400

_ANSWERED: Final = frozenset(
    event.value
    for event in (
        *ANSWERS.values(),
        *RELEASE_ANSWERS.values(),
        ParticipantEvent.CONFIRMED,
        ParticipantEvent.RETIRED,
        ParticipantEvent.NOT_RETIRED,
        ParticipantEvent.REFUSED,
    )
)
"""Events that are answers of a participant."""
_UNANSWERED: Final = frozenset({ParticipantEvent.UNANSWERED.value, ReleaseEvent.UNANSWERED.value})
_VERBS: Final = {"healing_close": "close (healing)"}
_AT_THE_CONTROLLER: Final = {
    "consult": "ask the trainer to own finished results",
    "verify": "check the exported files",
    "publish": "publish the snapshot",
    "probe_publication": "look whether the snapshot stands",
}
"""Effects that are worth a note and are no call."""


def run_sequence(
    name: str,
    records: Iterable[RunRecord],
    *,
    roles: Mapping[str, str] | None = None,
    lifelines_max: int = LIFELINES_MAX,
    steps_max: int = STEPS_MAX,
) -> Sequence:
    """The sequence of a run. What is drawn stands in the order of the records.

    Args:
        name: what it is called, usually its id on the wire.
        records: its steps in the order in which they were taken.
        roles: each participant's role, by ``deployment/name``, as far as they are known.
        lifelines_max: how many lifelines there are at most besides the controller's; what is left out is noted.
        steps_max: how many steps there are at most; what is left out is noted.
    """
    timed = list(since_begin(records))
    lifelines, left_out = lifelines_of([record for _, record in timed], roles or {}, lifelines_max)
    drawn_at = {place: lifeline.name for lifeline in lifelines for place in lifeline.standing_for}
    steps = [
        step
        for place, (now_s, record) in enumerate(timed)
        if not record.trace.subject or place in drawn_at
        for step in _steps(record, now_s, drawn_at.get(place, ""))
    ]
    notes = []
    if len(steps) > steps_max:
        notes.append(f"{len(steps) - steps_max} more steps are not drawn")
    if left_out:
        others = "participant is" if left_out == 1 else "participants are"
        notes.append(f"{left_out} more {others} not drawn")
    if any(len(lifeline.members) > 1 for lifeline in lifelines):
        notes.append("a step of several stands where the last of them took it")
    drawn = steps[:steps_max]
    drawn += [SequenceStep(CONTROLLER, CONTROLLER, note, StepKind.STAGE) for note in notes]
    return sequence_of(f"The run {name}", drawn, (CONTROLLER, *(lifeline.name for lifeline in lifelines)))


def _steps(record: RunRecord, now_s: float, name: str) -> Iterator[SequenceStep]:
    trace = record.trace
    if trace.machine == TRANSACTION.name:
        if trace.source != trace.target:
            label = f"{trace.target} ({trace.event}, {seconds(now_s)})"
            yield SequenceStep(CONTROLLER, CONTROLLER, label, StepKind.STAGE)
        yield from _notes(trace.effects)
        return
    if trace.event in _UNANSWERED:
        yield SequenceStep(name, CONTROLLER, f"{record.reply or 'no answer'} ({seconds(now_s)})", StepKind.LOST)
    elif trace.event in _ANSWERED:
        yield SequenceStep(name, CONTROLLER, f"{record.reply or trace.event} ({seconds(now_s)})", StepKind.REPLY)
    for effect in trace.effects:
        verb = effect.removeprefix("call_")
        if verb != effect:
            yield SequenceStep(CONTROLLER, name, _VERBS.get(verb, verb.replace("_", " ")))
        elif effect == "repeat_call":
            yield SequenceStep(CONTROLLER, name, f"{record.call or 'the call'} again")
    if trace.machine == PARTICIPANT.name:
        yield from _notes(trace.effects)


def _notes(effects: Iterable[str]) -> Iterator[SequenceStep]:
    for effect in effects:
        if effect in _AT_THE_CONTROLLER:
            yield SequenceStep(CONTROLLER, CONTROLLER, _AT_THE_CONTROLLER[effect], StepKind.NOTE)
