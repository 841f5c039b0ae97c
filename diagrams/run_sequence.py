"""A recorded run as a sequence: who was called when, and what was answered.

Participants that took the same steps in the same order share a lifeline, so that a run over a thousand servers is still
a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass
from typing import Final

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


@dataclass(frozen=True, slots=True)
class _Group:
    """Participants that did the same, and the one whose steps are drawn."""

    name: str
    drawn: str
    size: int


def run_sequence(
    name: str, records: Iterable[RunRecord], *, lifelines_max: int = LIFELINES_MAX, steps_max: int = STEPS_MAX
) -> Sequence:
    """The sequence of a run.

    Args:
        name: what it is called, usually its id on the wire.
        records: its steps in the order in which they were taken.
        lifelines_max: how many lifelines there are at most besides the controller's; what is left out is noted.
        steps_max: how many steps there are at most; what is left out is noted.
    """
    timed = list(since_begin(records))
    groups = _groups(timed)
    shown = groups[:lifelines_max]
    names = {group.drawn: group.name for group in shown}
    steps = [step for now_s, record in timed for step in _steps(record, now_s, names)]
    notes = []
    if len(steps) > steps_max:
        notes.append(f"{len(steps) - steps_max} more steps are not drawn")
    if len(groups) > len(shown):
        left_out = sum(group.size for group in groups[lifelines_max:])
        notes.append(f"{left_out} more participants, which took other steps, are not drawn")
    drawn = steps[:steps_max]
    drawn += [SequenceStep(CONTROLLER, CONTROLLER, note, StepKind.STAGE) for note in notes]
    return sequence_of(f"The run {name}", drawn, (CONTROLLER, *names.values()))


def _groups(timed: AnySequence[tuple[float, RunRecord]]) -> list[_Group]:
    """Those with the most steps come first, since most happened to them; the first dozen as they first occur."""
    taken: dict[str, list[tuple[str, ...]]] = {}
    for _, record in timed:
        trace = record.trace
        if trace.subject:
            taken.setdefault(trace.subject, []).append((trace.machine, trace.event, trace.target, *trace.effects))
    alike: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for subject, steps in taken.items():
        alike.setdefault(tuple(steps), []).append(subject)
    groups = [
        _Group(
            subjects[0] if len(subjects) == 1 else f"{subjects[0]} and {len(subjects) - 1} more",
            subjects[0],
            len(subjects),
        )
        for _, subjects in sorted(alike.items(), key=lambda item: -len(item[0]))
    ]
    position = {subject: number for number, subject in enumerate(taken)}
    busiest = groups[:LIFELINES_MAX]
    return sorted(busiest, key=lambda group: position[group.drawn]) + groups[LIFELINES_MAX:]


def _named(subjects: AnySequence[str]) -> str:
    return subjects[0] if len(subjects) == 1 else f"{subjects[0]} and {len(subjects) - 1} more"


def _steps(record: RunRecord, now_s: float, names: Mapping[str, str]) -> Iterator[SequenceStep]:
    trace = record.trace
    if trace.machine == TRANSACTION.name:
        if trace.source != trace.target:
            label = f"{trace.target} ({trace.event}, {seconds(now_s)})"
            yield SequenceStep(CONTROLLER, CONTROLLER, label, StepKind.STAGE)
        yield from _notes(trace.effects)
        return
    name = names.get(trace.subject)
    if name is None:
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
