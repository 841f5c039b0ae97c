"""Everything that can happen to one participant and the calls to it: every step of a fence is one of the real table.

A call is delivered, an operation ends, a reply arrives, something gets lost. What is simplified, each for the worse or
without loss: a participant that is open may have any work in flight, which is settled at the moment it closes; a lost
call and the client's time-out for it are one step; a call that its client has given up may still be delivered, or be
dropped, at any later moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from quiesce.fsm import messages as m
from quiesce.fsm.engine import Engine
from quiesce.fsm.explore_answers import answer_outcome, end_outcome, event_of, reading
from quiesce.fsm.explore_site import (
    CLIENTLESS,
    HARMLESS,
    INTRUDER,
    Fault,
    Flight,
    Past,
    Sight,
    Site,
    SiteStep,
    Stage,
    answered,
    is_drained,
)
from quiesce.fsm.fence import FenceSignal, FenceState, FenceStep, Handler, fence_step
from quiesce.fsm.tables.fence import FENCE, FenceEvent, FencePhase, FenceTable, FenceVariant
from quiesce.fsm.transaction import MemberSpec
from quiesce.fsm.vocabulary import Outcome, Phase, Role, Verb

__all__ = ["SiteAutomaton"]

_ENDINGS: Final = {
    FenceEvent.PREPARE: (
        FenceEvent.PREPARE_READY,
        FenceEvent.PREPARE_DRAINING,
        FenceEvent.PREPARE_INCOMPLETE,
        FenceEvent.PREPARE_FAILED,
    ),
    FenceEvent.COMMIT: (FenceEvent.COMMIT_DONE, FenceEvent.COMMIT_FAILED),
    FenceEvent.RESTORE: (FenceEvent.RESTORE_DONE, FenceEvent.RESTORE_FAILED),
    FenceEvent.RESUME: (FenceEvent.RESUME_DONE, FenceEvent.RESUME_FAILED),
}
_FAILING: Final = frozenset(
    {FenceEvent.PREPARE_FAILED, FenceEvent.COMMIT_FAILED, FenceEvent.RESTORE_FAILED, FenceEvent.RESUME_FAILED}
)
_BEGUN_BY: Final = {
    FenceEvent.PREPARE: Phase.PREPARE,
    FenceEvent.COMMIT: Phase.COMMIT,
    FenceEvent.RESTORE: Phase.RESTORE,
}
_NEEDS_EVERY_WORKER: Final = frozenset({FenceEvent.PREPARE_READY, FenceEvent.PREPARE_DRAINING, FenceEvent.RESUME_DONE})


@dataclass(frozen=True)
class SiteAutomaton:
    """Everything that can happen at one participant of a given fence variant.

    With ``keeps_results`` an agent's finished work leaves a result that must be owned before the agent is ready. With
    ``restarts`` its process may be replaced by another one that remembers nothing.
    """

    spec: MemberSpec
    variant: FenceVariant
    keeps_results: bool = False
    restarts: bool = False
    engine: Engine | None = None
    """What chooses the fence's rows, where it is not their own table."""

    @cached_property
    def table(self) -> FenceTable:
        """The fence that the participant runs."""
        return FENCE[self.variant, self.spec.role]

    @cached_property
    def known(self) -> frozenset[FenceEvent]:
        """Events that the fence has rows for."""
        return frozenset(row.event for row in self.table.rows)

    @cached_property
    def _enumerated(self) -> dict[Site, tuple[SiteStep, ...]]:
        return {}

    def steps(self, site: Site) -> tuple[SiteStep, ...]:
        """Everything that can happen in ``site``; enumerated once, also for several searches."""
        known = self._enumerated.get(site)
        if known is None:
            known = self._enumerated[site] = tuple(self._steps(site))
        return known

    def _fence_step(self, fence: FenceState, signal: FenceSignal) -> FenceStep:
        return fence_step(self.table, fence, signal, self.engine)

    def _steps(self, site: Site) -> Iterator[SiteStep]:
        for flight in dict.fromkeys(site.flights):
            yield from self._travel(site, flight)
        for handler in sorted(site.fence.running, key=str):
            yield from self._ends(site, handler)
        yield from self._from_within(site)

    # calls on their way

    def _travel(self, site: Site, flight: Flight) -> Iterator[SiteStep]:
        rest = site.without(flight)
        if flight.stage is Stage.REQUESTED:
            yield from self._deliver(rest, flight, f"{flight} arrives")
            yield from self._lose(rest, flight)
        elif flight.stage is Stage.ANSWERED:
            yield from self._return(rest, flight)
        elif flight.stage in {Stage.ADRIFT, Stage.ECHO}:
            word = "abandoned" if flight.stage is Stage.ADRIFT else "second"
            yield from self._deliver(rest, flight, f"the {word} {flight} arrives")
            yield SiteStep(f"the {word} {flight} is dropped", None, rest)
        elif flight.stage in {Stage.WORKING, Stage.PARKED}:
            # its handler runs on, or its resume waits on, without a client
            waits = flight.stage is Stage.PARKED
            kept = rest.with_flight(flight._replace(stage=Stage.PARKED_ADRIFT)) if waits else rest
            yield SiteStep(f"{flight} is given up while it runs", Fault.ABANDONED, kept, self._failed(flight))
        elif flight.stage is Stage.BROKEN:
            yield SiteStep(f"{flight} breaks off", None, rest, self._failed(flight))

    def _lose(self, rest: Site, flight: Flight) -> Iterator[SiteStep]:
        failed, never = self._failed(flight), self._failed(flight, maybe_applied=False)
        yield SiteStep(f"{flight} never leaves", Fault.LOSS, rest, never)
        yield SiteStep(f"{flight} is lost", Fault.LOSS, rest, failed)
        if flight.verb not in HARMLESS:
            adrift = rest.with_flight(flight._replace(stage=Stage.ADRIFT))
            yield SiteStep(f"{flight} is given up before it arrives", Fault.ABANDONED, adrift, failed)
            echo = rest.with_flight(flight._replace(stage=Stage.ECHO))
            for step in self._deliver(echo, flight, f"{flight} arrives, and will again"):
                yield step._replace(fault=Fault.DUPLICATE)

    def _return(self, rest: Site, flight: Flight) -> Iterator[SiteStep]:
        outcome = flight.outcome
        assert outcome is not None  # noqa: S101 - what ANSWERED means
        reply = m.Replied(self.spec.key, flight.leg, flight.verb, flight.id_index, outcome)
        yield SiteStep(f"the answer to {flight} arrives: {outcome}", None, rest, reply)
        yield SiteStep(f"the answer to {flight} is lost: {outcome}", Fault.LOSS, rest, self._failed(flight))

    def _failed(self, flight: Flight, *, maybe_applied: bool = True) -> m.CallFailed:
        return m.CallFailed(self.spec.key, flight.leg, flight.verb, flight.id_index, maybe_applied)

    # what a delivered call does

    def _deliver(self, site: Site, flight: Flight, action: str) -> Iterator[SiteStep]:
        if flight.verb is Verb.INSPECT:
            read = reading(site.fence, flight.id_index)
            yield SiteStep(action, None, answered(_read(site, read), flight, self._as_heard(site, flight, read)))
        elif flight.verb is Verb.ACKNOWLEDGE:
            yield SiteStep(action, None, answered(site._replace(unowned=False), flight, Outcome.ACKNOWLEDGED))
        elif self._settles_work(site, flight):
            yield self._arrive(site, flight, f"{action}, nothing in flight", working=False)
            yield self._arrive(site, flight, f"{action}, work in flight", working=True)
        else:
            yield self._arrive(site, flight, action, working=site.work)

    def _settles_work(self, site: Site, flight: Flight) -> bool:
        """Whether the call closes an open participant, so that it matters what is in flight there."""
        pauses = flight.verb in {Verb.CLOSE, Verb.AWAIT_CUT}
        return pauses and not site.fence.closed and self.spec.role is not Role.RESOURCES

    def _arrive(self, site: Site, flight: Flight, action: str, *, working: bool) -> SiteStep:
        event = event_of(flight.verb, self.spec.role)
        assert event is not None  # noqa: S101 - readings and acknowledgements are answered before
        drained = is_drained(site._replace(work=working)) if event is FenceEvent.STATUS else not working
        signal = FenceSignal(
            event, flight.id_index, drained=drained, owes_restore=site.owes, members_connected=not site.away
        )
        step = self._fence_step(site.fence, signal)
        after = self._stepped(site, step, working=working)
        if _trespasses(site, signal, step):
            after = after._replace(trespassed=True)
        if flight.verb is Verb.RETIRE and step.refusal is None:
            after = self._finish_work(after)
        return SiteStep(action, None, self._answer(after, flight, event, step), sight=_sight(site, signal, step))

    def _as_heard(self, site: Site, flight: Flight, outcome: Outcome) -> Outcome:
        """An answer of another process than the one that was read is not believed, where it names its process."""
        past = site.past
        other = past is not None and (flight.is_dated or (past.restarted and not past.anew))
        names = other and self.variant is FenceVariant.STRICT
        if not names or flight.leg is m.Leg.RELEASE:
            return outcome
        return Outcome.CHANGED if flight.verb is Verb.INSPECT else Outcome.LIED

    def _answer(self, site: Site, flight: Flight, event: FenceEvent, step: FenceStep) -> Site:
        clientless = flight.stage in CLIENTLESS
        if step.answer in {"start_operation", "join_running"}:
            return site if clientless else site.with_flight(flight._replace(stage=Stage.WORKING))
        if step.answer == "wait_for_running":
            return site.with_flight(flight._replace(stage=Stage.PARKED_ADRIFT if clientless else Stage.PARKED))
        outcome = answer_outcome(event, flight.id_index, step, working=not is_drained(site))
        return answered(site, flight, self._as_heard(site, flight, outcome))

    # what runs, and what happens by itself

    def _ends(self, site: Site, handler: Handler) -> Iterator[SiteStep]:
        assert isinstance(handler.operation, FenceEvent)  # noqa: S101 - the explorer starts no other
        for event in _ENDINGS[handler.operation]:
            if event in self.known and _can_end(site, event):
                yield self._end(site, handler, event)

    def _end(self, site: Site, handler: Handler, event: FenceEvent) -> SiteStep:
        signal = FenceSignal(event, handler.id, handler.operation, owes_restore=site.owes)
        step = self._fence_step(site.fence, signal)
        outcome = end_outcome(event, self.spec.role, step, unowned=site.unowned and not site.work)
        after = self._stepped(site, step, working=site.work)
        if event is FenceEvent.RESTORE_DONE and step.refusal is None:
            after = after._replace(owes=False)
        if event is FenceEvent.COMMIT_DONE and handler.id == 0 and step.refusal is None and after.past is not None:
            after = after._replace(past=after.past._replace(exported=True))
        if event is FenceEvent.RESUME_DONE and handler.id == INTRUDER:
            after = after._replace(intruded=False)
        for flight in after.flights:
            if flight.stage is Stage.WORKING and self._is_of(flight, handler):
                after = answered(after.without(flight), flight, self._as_heard(site, flight, outcome))
        whose = "" if handler.id == 0 else f" #{handler.id}"
        fault = Fault.FAILURE if event in _FAILING and not site.away else None
        action = f"{handler.operation}{whose} ends: {event}"
        return SiteStep(action, fault, self._wake(after), sight=_sight(site, signal, step))

    def _is_of(self, flight: Flight, handler: Handler) -> bool:
        return (flight.id_index, event_of(flight.verb, self.spec.role)) == (handler.id, handler.operation)

    def _wake(self, site: Site) -> Site:
        """Deliver the resumes that waited as the very next thing, so that no other id comes between."""
        for flight in site.flights:
            if flight.stage in {Stage.PARKED, Stage.PARKED_ADRIFT} and flight.id_index in site.fence.awake:
                stage = Stage.REQUESTED if flight.stage is Stage.PARKED else Stage.ADRIFT
                again = flight._replace(stage=stage)
                return self._wake(self._arrive(site.without(flight), again, "", working=site.work).target)
        return site

    def _workers(self, site: Site) -> Iterator[SiteStep]:
        """A worker that its coordinator has lost is not counted any more, and goes on all the same."""
        if site.away:
            yield SiteStep("the worker is back, and closed", None, site._replace(away=False))
        elif self.variant is FenceVariant.GYM_A_COORDINATOR and site.work:
            yield SiteStep("a worker leaves with what it has in flight", Fault.FAILURE, site._replace(away=True))

    def _from_within(self, site: Site) -> Iterator[SiteStep]:
        fence = site.fence
        yield from self._workers(site)
        if site.work:
            yield SiteStep("what is in flight ends", None, self._finish_work(site))
        if fence.phase is FencePhase.PREPARING and fence.unattended and FenceEvent.GRACE_PASSED in self.known:
            step = self._fence_step(fence, FenceSignal(FenceEvent.GRACE_PASSED, fence.active))
            yield SiteStep("nobody polls for too long", Fault.DEADLINE, self._stepped(site, step, working=site.work))
        if site.past is not None and not site.past.restarted and site.past.read:
            yield SiteStep("its process is restarted", Fault.RESTART, _restarted(site, site.past))
        free = fence.active is None and fence.phase is FencePhase.IDLE
        if (site.intruded or free) and not any(handler.id == INTRUDER for handler in fence.running):
            yield self._intruded(site)

    def _intruded(self, site: Site) -> SiteStep:
        """Another controller's pause, or its resume once that is over: it keeps the rules that we keep."""
        event = FenceEvent.RESUME if site.intruded else FenceEvent.PREPARE
        step = self._fence_step(site.fence, FenceSignal(event, INTRUDER, drained=True, owes_restore=site.owes))
        after = self._stepped(site, step, working=site.work)
        if site.intruded:
            done = step.answer in {"answer_now", "replay_reply"}
            return SiteStep("another controller resumes it", None, after._replace(intruded=not done))
        return SiteStep("another controller pauses it", Fault.INTRUDER, after._replace(intruded=step.state.closed))

    def _finish_work(self, site: Site) -> Site:
        unowned = site.unowned or (site.work and self.keeps_results)
        site = site._replace(work=False, unowned=unowned)
        if site.fence.closed and site.fence.phase is FencePhase.PREPARING and FenceEvent.DRAINED in self.known:
            step = self._fence_step(site.fence, FenceSignal(FenceEvent.DRAINED, site.fence.active))
            site = self._stepped(site, step, working=False)
        return site

    @staticmethod
    def _stepped(site: Site, step: FenceStep, *, working: bool) -> Site:
        # what is in flight at an open participant is settled when it closes
        return site._replace(fence=step.state, work=working and step.state.closed)


def _read(site: Site, found: Outcome) -> Site:
    """The site once its capabilities were read, where that is remembered."""
    if site.past is None or site.past.restarted:
        return site
    shown = site.past.shown or found is Outcome.HELD_PREPARED
    return site._replace(past=site.past._replace(read=True, shown=shown))


def _restarted(site: Site, past: Past) -> Site:
    """Another process in its place: open, with nothing in flight, and with no memory of any id.

    A call that was sent to a process dies with it: its connection breaks, and the next process never sees it.
    """
    flights = [
        flight if flight.stage is Stage.ANSWERED else flight._replace(stage=Stage.BROKEN)
        for flight in site.flights
        if flight.stage not in CLIENTLESS
    ]
    return Site(past=past._replace(restarted=True), flights=tuple(sorted(flights, key=repr)))


def _can_end(site: Site, event: FenceEvent) -> bool:
    """Whether the operation can come to this end by what is in flight, and by whether every worker can say so."""
    if site.away and event in _NEEDS_EVERY_WORKER:
        return False
    if event is FenceEvent.PREPARE_READY:
        return not site.work and not site.unowned
    if event in {FenceEvent.PREPARE_DRAINING, FenceEvent.PREPARE_INCOMPLETE}:
        return site.work or site.unowned
    return True


def _trespasses(site: Site, signal: FenceSignal, step: FenceStep) -> bool:
    """Whether the step takes a participant from an id that holds it, for another one or for nobody."""
    holder = site.fence.active
    return holder is not None and holder not in {signal.id, step.state.active}


def _sight(site: Site, signal: FenceSignal, step: FenceStep) -> Sight:
    closes = step.state.closed and not site.fence.closed
    begun = closes if signal.event is FenceEvent.PREPARE else step.answer == "start_operation"
    return Sight(
        begins=_BEGUN_BY.get(signal.event) if begun else None,
        finished_id_closes=closes and signal.id in site.fence.finished,
    )
