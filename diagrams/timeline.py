"""When each participant of a run was asked, draining, paused, committed, open again; and who held the others up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from quiesce.diagrams.run_record import RunRecord, since_begin
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.release import RELEASE, SETTLED, ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState

__all__ = ["Lane", "PhaseSpan", "Span", "Stage", "Timeline", "timeline_of"]


class Stage(StrEnum):
    """What is known of a participant during a stretch of a run."""

    ASKED = "asked"
    """A call has left, and its outcome is not known: taken for possibly paused."""
    DRAINING = "draining"
    PAUSED = "paused"
    COMMITTED = "committed"
    RESTORED = "restored"
    REOPENING = "reopening"
    DOUBT = "in doubt"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one participant, in seconds since the begin of the run."""

    stage: Stage
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One participant's run.

    Attributes:
        subject: ``deployment/name``.
        role: where it is known, else empty.
        spans: what it went through, in order; none for one that was only looked at.
        calls: how many calls were made to it.
        state: how it stands at the end: ``resumed``, ``aborted``, ``idle``, or the stage that it is still in.
    """

    subject: str
    role: str
    spans: tuple[Span, ...]
    calls: int
    state: str

    def first(self, stage: Stage) -> float | None:
        """When it first entered a stage, in seconds since the begin; None where it never did."""
        return next((span.begin_s for span in self.spans if span.stage is stage), None)

    @property
    def to_cut_s(self) -> float:
        """How long it took from the first call until it stood still (or to the end of what is known of it)."""
        if not self.spans:
            return 0.0
        still = self._first_still
        return (still.begin_s if still else self.spans[-1].end_s) - self.spans[0].begin_s

    @property
    def stood_still(self) -> Stage | None:
        """As what it stood still first: paused, committed or restored; None where it never did."""
        still = self._first_still
        return still.stage if still else None

    @property
    def _first_still(self) -> Span | None:
        return next((span for span in self.spans if span.stage in _STILL), None)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or possibly so, and was not proven to be open again."""
        return bool(self.spans) and self.state not in _OPEN

    @property
    def open_again_s(self) -> float | None:
        """When it was proven to accept work again; None where it was not, or was never closed."""
        return self.spans[-1].end_s if self.spans and self.state in _OPEN else None


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A stretch of the transaction.

    Attributes:
        state: the state that the transaction was in.
        begin_s, end_s: seconds since the begin of the run.
        held_by: the participant that the others waited for longest, empty where there is none.
        held_for_s: how long it took, from when it was asked until it had done its part.
        missing: those who were not there when the phase ended without them.
    """

    state: str
    begin_s: float
    end_s: float
    held_by: str = ""
    held_for_s: float = 0.0
    missing: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        """How long it lasted."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class Timeline:
    """A whole run. ``state`` is the transaction's last one, ``begin_ts`` the Unix second at which it began."""

    name: str
    begin_ts: float
    duration_s: float
    state: str
    phases: tuple[PhaseSpan, ...]
    lanes: tuple[Lane, ...]

    def slowest(self, count: int) -> tuple[Lane, ...]:
        """The ``count`` lanes that matter most, in the order of all lanes.

        These are those that were not open again at the end, then those that took longest to stand still.
        """
        rank = [(not lane.is_closed, -lane.to_cut_s, at) for at, lane in enumerate(self.lanes)]
        return tuple(self.lanes[at] for at in sorted(at for _, _, at in sorted(rank)[:count]))


_STILL: Final = frozenset({Stage.PAUSED, Stage.RESTORED, Stage.COMMITTED})
_OPEN: Final = frozenset({ParticipantState.RESUMED.value, ParticipantState.ABORTED.value})
_STAGES: Final[Mapping[str, Stage]] = {
    ParticipantState.UNKNOWN.value: Stage.ASKED,
    ParticipantState.DRAINING.value: Stage.DRAINING,
    ParticipantState.PAUSED.value: Stage.PAUSED,
    ParticipantState.COMMITTED.value: Stage.COMMITTED,
    ParticipantState.RESTORED.value: Stage.RESTORED,
}
_OWED: Final = frozenset({ReleaseState.UNPROVEN.value, ReleaseState.OWES_RESTORE.value})
_SETTLED: Final = frozenset(state.value for state in SETTLED)

# while the transaction is in a state, the steps by which a participant has done its part: (machine, event or target)
_DONE: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    TransactionState.PREFLIGHT.value: (PARTICIPANT.name, frozenset({ParticipantEvent.CONFIRMED.value})),
    TransactionState.DRAINING.value: (PARTICIPANT.name, frozenset({ParticipantState.PAUSED.value})),
    TransactionState.COMMITTING.value: (PARTICIPANT.name, frozenset({ParticipantEvent.VERIFIED.value})),
    TransactionState.RESTORING.value: (PARTICIPANT.name, frozenset({ParticipantState.RESTORED.value})),
    TransactionState.RESUMING.value: (RELEASE.name, _SETTLED),
    TransactionState.ABORTING.value: (RELEASE.name, _SETTLED),
    TransactionState.PUBLISH_UNKNOWN.value: (RELEASE.name, _SETTLED),
}
# and those by which it has one: who began and has not done it is missing
_BEGUN: Final[Mapping[str, frozenset[str]]] = {
    TransactionState.PREFLIGHT.value: frozenset({ParticipantEvent.INSPECT_DUE.value}),
    TransactionState.DRAINING.value: frozenset({ParticipantEvent.CLOSE_DUE.value}),
    TransactionState.COMMITTING.value: frozenset({ParticipantEvent.EXPORT_DUE.value}),
    TransactionState.RESTORING.value: frozenset({ParticipantEvent.IMPORT_DUE.value}),
    TransactionState.RESUMING.value: frozenset({ReleaseEvent.RELEASE_DUE.value}),
    TransactionState.ABORTING.value: frozenset({ReleaseEvent.RELEASE_DUE.value}),
    TransactionState.PUBLISH_UNKNOWN.value: frozenset({ReleaseEvent.RELEASE_DUE.value}),
}


@dataclass(slots=True)
class _Track:
    """One participant, as far as it has been read."""

    spans: list[Span] = field(default_factory=list)
    stage: Stage | None = None
    since_s: float = 0.0
    calls: int = 0
    state: str = ParticipantState.IDLE.value

    def enter(self, stage: Stage | None, now_s: float) -> None:
        if stage is self.stage:
            return
        if self.stage is not None:
            self.spans.append(Span(self.stage, self.since_s, now_s))
        self.stage, self.since_s = stage, now_s


def timeline_of(name: str, records: Iterable[RunRecord], *, roles: Mapping[str, str] | None = None) -> Timeline:
    """The timeline of one run.

    Args:
        name: what it is called, usually its id on the wire.
        records: its steps in the order in which they were taken.
        roles: each participant's role, by ``deployment/name``, as far as they are known.
    """
    timed = list(since_begin(records))
    tracks: dict[str, _Track] = {}
    for now_s, record in timed:
        if record.trace.subject:
            _follow(tracks.setdefault(record.trace.subject, _Track()), record, now_s)
    duration_s = timed[-1][0] if timed else 0.0
    phases = tuple(_phases(timed, duration_s))
    lanes = [_lane(subject, track, duration_s, (roles or {}).get(subject, "")) for subject, track in tracks.items()]
    lanes.sort(key=lambda lane: lane.spans[0].begin_s if lane.spans else duration_s + 1)
    begin_ts = timed[0][1].time_ts if timed else 0.0
    state = phases[-1].state if phases else str(TRANSACTION.initial.value)
    return Timeline(name, begin_ts, duration_s, state, phases, tuple(lanes))


def _follow(track: _Track, record: RunRecord, now_s: float) -> None:
    trace = record.trace
    track.calls += sum(effect.startswith("call_") or effect == "repeat_call" for effect in trace.effects)
    if trace.machine == RELEASE.name:
        if trace.target in _OWED:
            track.enter(Stage.DOUBT, now_s)
        elif trace.target in _SETTLED:
            track.enter(None, now_s)
        elif trace.source == ReleaseState.NOT_DUE.value or trace.source in _OWED:
            track.enter(Stage.REOPENING, now_s)
        return
    if trace.target in _OPEN:
        track.enter(None, now_s)
        track.state = trace.target
    elif track.stage not in (Stage.REOPENING, Stage.DOUBT):
        track.enter(_STAGES.get(trace.target), now_s)


def _lane(subject: str, track: _Track, end_s: float, role: str) -> Lane:
    state = track.stage.value if track.stage else track.state
    track.enter(None, end_s)
    return Lane(subject, role, tuple(track.spans), track.calls, state)


def _phases(timed: Sequence[tuple[float, RunRecord]], end_s: float) -> Iterator[PhaseSpan]:
    changes = [
        (place, now_s, record.trace.target)
        for place, (now_s, record) in enumerate(timed)
        if record.trace.machine == TRANSACTION.name and record.trace.source != record.trace.target
    ]
    for number, (place, begin_s, state) in enumerate(changes):
        last = number + 1 == len(changes)
        until, until_s = (len(timed), end_s) if last else changes[number + 1][:2]
        yield _phase(state, begin_s, until_s, timed[place:until])


def _phase(state: str, begin_s: float, end_s: float, timed: Sequence[tuple[float, RunRecord]]) -> PhaseSpan:
    if state not in _DONE:
        return PhaseSpan(state, begin_s, end_s)
    machine, signs = _DONE[state]
    done: dict[str, float] = {}
    begun: dict[str, float] = {}
    for now_s, record in timed:
        trace = record.trace
        if not trace.subject:
            continue
        if trace.event in _BEGUN[state]:
            begun[trace.subject] = now_s
        if trace.machine == machine and (trace.event in signs or trace.target in signs):
            done[trace.subject] = now_s
    missing = tuple(subject for subject in begun if subject not in done)
    worked = {subject: (begun[subject], end) for subject, end in done.items() if subject in begun}
    if missing or not worked:
        return PhaseSpan(state, begin_s, end_s, missing=missing)
    took_s, subject = max(_critical(worked))
    return PhaseSpan(state, begin_s, end_s, subject, took_s)


def _critical(worked: Mapping[str, tuple[float, float]]) -> Iterator[tuple[float, str]]:
    """The way back from the last who was done: each was asked only when the one that is named after it was done.

    Whoever took longest on this way is who the others waited for. The last one itself may have been quick: resources,
    for example, are asked when every agent is parked.
    """
    order = sorted(worked, key=lambda subject: worked[subject][1])
    ends = [worked[subject][1] for subject in order]
    at = len(order) - 1
    while at >= 0:
        begin_s, end_s = worked[order[at]]
        yield end_s - begin_s, order[at]
        at = min(bisect_right(ends, begin_s), at) - 1
