"""Which participants of a recorded run share a lifeline, and which ones are drawn where there are too many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from quiesce.diagrams.run_record import RunRecord
from quiesce.fsm.tables.participant import ParticipantEvent
from quiesce.fsm.tables.release import ReleaseEvent

__all__ = ["Lifeline", "is_call", "lifelines_of"]

_DUE: Final = frozenset(
    event.value for events in (ParticipantEvent, ReleaseEvent) for event in events if event.value.endswith("_due")
)
"""Steps that the controller takes by itself, on no answer."""
_NOBODY: Final = ("", "")
"""The kind of the transaction, which no participant has."""


@dataclass(frozen=True, slots=True)
class Lifeline:
    """Participants of one role and deployment that did the same while the others did the same.

    Attributes:
        name: what is shown.
        members: who they are, as ``deployment/name``.
        standing_for: places in the run of the records that are drawn for all of them, each the one of whoever of them
            took that step last. So what is drawn has the order of the records.
    """

    name: str
    members: tuple[str, ...]
    standing_for: tuple[int, ...]


def is_call(effect: str) -> bool:
    """Whether an effect is a call to a participant."""
    return effect.startswith("call_") or effect == "repeat_call"


def lifelines_of(
    records: Sequence[RunRecord], roles: Mapping[str, str], lifelines_max: int
) -> tuple[list[Lifeline], int]:
    """The lifelines in the order of their first steps, and how many participants have none.

    Up to ``lifelines_max`` participants have one each. Of more, those share one that have the same role and
    deployment, took the same steps, and took each of them between the same steps of the transaction and the same calls
    to everybody of another role: inside a wave, where all calls are concurrent. Where these are still too many, each
    role has one before any has a second, and those with the most steps come first.
    """
    taken: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        if record.trace.subject:
            taken.setdefault(record.trace.subject, []).append(place)
    kinds = {subject: _kind(subject, roles) for subject in taken}
    if len(taken) <= lifelines_max:
        return [Lifeline(subject, (subject,), tuple(places)) for subject, places in taken.items()], 0
    found: dict[object, list[str]] = {}
    for subject, signature in _signatures(records, taken, kinds):
        found.setdefault(signature, []).append(subject)
    groups = sorted(found.values(), key=lambda group: -len(taken[group[0]]))
    by_kind = sorted(groups, key=lambda group: kinds[group[0]])
    first = [next(same) for _, same in groupby(by_kind, key=lambda group: kinds[group[0]])]
    drawn = [*first, *(group for group in groups if group not in first)][:lifelines_max]
    left_out = len(taken) - sum(map(len, drawn))
    order = {subject: number for number, subject in enumerate(taken)}
    return [_shared(group, taken) for group in sorted(drawn, key=lambda group: order[group[0]])], left_out


def _kind(subject: str, roles: Mapping[str, str]) -> tuple[str, str]:
    """Deployment and role; where no role is known, names that differ in their numbers alone are taken for one kind."""
    deployment, _, name = subject.rpartition("/")
    return deployment, roles.get(subject) or re.sub(r"\d+", "#", name)


def _signatures(
    records: Sequence[RunRecord], taken: Mapping[str, Sequence[int]], kinds: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, object]]:
    """Each participant with its kind, its steps, and how much had happened elsewhere before each of them."""
    elsewhere = list(_calls_elsewhere(records, kinds))
    for subject, places in taken.items():
        yield subject, (kinds[subject], tuple((elsewhere[place], _step(records[place])) for place in places))


def _calls_elsewhere(records: Sequence[RunRecord], kinds: Mapping[str, tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """For each record, how many calls to other kinds and steps of the transaction there were before and right after it.

    Calls that go out one after the other, with nothing between them, go out at once: all of them have before them what
    was before the first, and right after them what was there after the last.
    """
    everywhere = 0
    within = dict.fromkeys((*kinds.values(), _NOBODY), 0)
    for is_due, together in groupby(records, key=_is_due):
        for at_once in [tuple(together)] if is_due else ((record,) for record in together):
            before = everywhere, dict(within)
            for record in at_once:
                subject = record.trace.subject
                if not subject:
                    everywhere += 1
                elif any(map(is_call, record.trace.effects)):
                    everywhere += 1
                    within[kinds[subject]] += 1
            for record in at_once:
                kind = kinds.get(record.trace.subject, _NOBODY)
                yield before[0] - before[1][kind], everywhere - within[kind]


def _is_due(record: RunRecord) -> bool:
    return bool(record.trace.subject) and record.trace.event in _DUE


def _step(record: RunRecord) -> tuple[str | None, ...]:
    trace = record.trace
    return (trace.machine, trace.event, trace.target, record.call, record.reply, *trace.effects)


def _shared(group: Sequence[str], taken: Mapping[str, Sequence[int]]) -> Lifeline:
    name = group[0] if len(group) == 1 else f"{group[0]} and {len(group) - 1} more"
    last = tuple(max(places) for places in zip(*(taken[subject] for subject in group), strict=True))
    return Lifeline(name, tuple(group), last)
