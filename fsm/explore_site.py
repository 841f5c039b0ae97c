"""A participant behind a network, as the explorer sees it: its fence, its work in flight, the calls on their way."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from quiesce.fsm import messages as m
from quiesce.fsm.explore_answers import event_of
from quiesce.fsm.fence import FenceState, Handler
from quiesce.fsm.tables.fence import FenceEvent
from quiesce.fsm.transaction import MemberSpec
from quiesce.fsm.vocabulary import Outcome, Phase, Verb

__all__ = [
    "CLIENTLESS",
    "HARMLESS",
    "INTRUDER",
    "Fault",
    "Flight",
    "Past",
    "Sight",
    "Site",
    "SiteStep",
    "Stage",
    "answered",
    "is_drained",
    "is_unsettled",
    "mixes_ids",
    "orphaned",
    "runs_on",
    "tried_again",
]


class Fault(IntEnum):
    """Classes of faults; each has a budget of its own."""

    LOSS = 0
    """A request or a reply gets lost, or nothing leaves."""
    ABANDONED = 1
    """The client gives up, and the call goes on without it (F17)."""
    DUPLICATE = 2
    """A request is delivered a second time, at any later moment."""
    FAILURE = 3
    """An operation fails, a check fails, the trainer fails."""
    DEADLINE = 4
    """A budget, a wave's patience, a straggler's time or a grace runs out."""
    STORE = 5
    """A record fails; a rename fails or cannot be read."""
    ABORT = 6
    """Somebody asks for an abort, or the caller goes away."""
    RETRY = 7
    """Somebody tries again what rests."""
    INTRUDER = 8
    """Another controller's cut closes a participant under its own id."""
    RESTART = 9
    """A participant's process dies, and another one answers in its place: open, and without any memory."""
    CONTROLLER = 10
    """The controller dies; another one recovers from what is durable."""


INTRUDER: Final = "another's"
"""The id of a controller that is not ours."""


class Stage(IntEnum):
    """How far a call has come."""

    REQUESTED = 0
    WORKING = 1
    """Its handler runs, and the client waits for it."""
    PARKED = 2
    """A resume waits for what runs."""
    ANSWERED = 3
    ADRIFT = 4
    """Nobody waits for it any more, and it has not been delivered."""
    PARKED_ADRIFT = 5
    ECHO = 6
    """A second copy that the network made; nobody knows of it."""
    BROKEN = 7
    """Its handler died with the process, and its client has not noticed yet."""


CLIENTLESS: Final = frozenset({Stage.ADRIFT, Stage.PARKED_ADRIFT, Stage.ECHO})
"""Stages of calls whose answer nobody waits for."""
HARMLESS: Final = frozenset({Verb.INSPECT, Verb.ACKNOWLEDGE})
"""Calls that change nothing at a fence, wherever they arrive."""
_UNDELIVERED: Final = frozenset({Stage.REQUESTED, Stage.ADRIFT, Stage.ECHO})
_CLOSING: Final = frozenset({FenceEvent.PREPARE, FenceEvent.COMMIT, FenceEvent.RESTORE})


class Flight(NamedTuple):
    """A call on its way; ``is_dated`` where it was sent to a process that is not the one that is meant any more."""

    leg: m.Leg
    verb: Verb
    id_index: int
    stage: Stage = Stage.REQUESTED
    outcome: Outcome | None = None
    is_dated: bool = False

    def __str__(self) -> str:
        return f"{self.verb} #{self.id_index}" if self.id_index else self.verb.value


class Past(NamedTuple):
    """What has happened at a participant whose process may be restarted.

    ``read``: its capabilities were read by the transaction, so that it is known which process was meant. ``shown``: it
    was read standing at the cut. ``exported``: its export is complete. ``restarted``: another process answers now.
    ``anew``: it is tried again, and whichever process answers is the one that is meant.
    """

    read: bool = False
    shown: bool = False
    exported: bool = False
    restarted: bool = False
    anew: bool = False


class Site(NamedTuple):
    """All of one participant that matters.

    ``work`` is something in flight while it is closed; ``owes`` a restore that the process expects; ``unowned`` a
    finished result that the trainer does not own yet; ``away`` that a worker of a coordinator, which had something in
    flight when everybody closed, has lost its coordinator; ``intruded`` that another controller has closed it;
    ``trespassed`` that a call opened it, or took it over, under an id that did not hold it. ``past`` is what is
    remembered of it where its process may be restarted.
    """

    fence: FenceState = FenceState()
    work: bool = False
    owes: bool = False
    unowned: bool = False
    away: bool = False
    intruded: bool = False
    trespassed: bool = False
    past: Past | None = None
    flights: tuple[Flight, ...] = ()

    def with_flight(self, flight: Flight) -> Site:
        """This site with one more call on its way."""
        return self._replace(flights=tuple(sorted((*self.flights, flight), key=repr)))

    def without(self, flight: Flight) -> Site:
        """This site with one call less."""
        flights = list(self.flights)
        flights.remove(flight)
        return self._replace(flights=tuple(flights))


class Sight(NamedTuple):
    """What a step of a site does that concerns the whole: nothing of it is known to the controller.

    ``begins`` is the phase whose work begins here: an open participant closes, an export or an import starts.
    """

    begins: Phase | None = None
    finished_id_closes: bool = False


class SiteStep(NamedTuple):
    """One thing that can happen at a site: what it costs, where it leads, and what the controller hears of it."""

    action: str
    fault: Fault | None
    target: Site
    event: m.Event | None = None
    sight: Sight = Sight()


def is_drained(site: Site) -> bool:
    """Whether every expected worker says that it is closed with nothing in flight (wire-protocol 5.4)."""
    return not site.work and not site.away


def orphaned(site: Site) -> Site:
    """The site after its controller has died: what was on its way still arrives, and nobody waits for it."""
    flights: list[Flight] = []
    for flight in site.flights:
        if flight.stage in CLIENTLESS:
            flights.append(flight)
        elif flight.stage is Stage.REQUESTED and flight.verb not in HARMLESS:
            flights.append(flight._replace(stage=Stage.ADRIFT))
        elif flight.stage is Stage.PARKED:
            flights.append(flight._replace(stage=Stage.PARKED_ADRIFT))
    return site._replace(flights=tuple(sorted(flights, key=repr)))


def tried_again(site: Site) -> Site:
    """The site where a restore is tried again that it is no part of yet.

    It may have been restarted for that very reason: who it was before is not asked any more, but by the calls that are
    on their way. While the answer of a process that has died is among them, it counts as dead.
    """
    if site.past is None:
        return site
    flights, restarted = site.flights, False
    if site.past.restarted:
        restarted = any(flight.stage is Stage.ANSWERED for flight in flights)
        flights = tuple(sorted((_dated(flight) for flight in flights), key=repr))
    return site._replace(past=Past(read=site.past.read, restarted=restarted, anew=True), flights=flights)


def _dated(flight: Flight) -> Flight:
    waits = flight.leg is m.Leg.FORWARD and flight.stage in {Stage.REQUESTED, Stage.WORKING}
    return flight._replace(is_dated=True) if waits else flight


def answered(site: Site, flight: Flight, outcome: Outcome) -> Site:
    """The site with the call's answer on its way, if anybody waits for it."""
    if flight.stage in CLIENTLESS:
        return site
    return site.with_flight(flight._replace(stage=Stage.ANSWERED, outcome=outcome))


def runs_on(spec: MemberSpec, site: Site) -> bool:
    """Whether a call of ours keeps the runner's timer from firing: it ends with the call's deadline.

    An export or import that runs is bounded by no deadline on the recorded servers (wire-protocol 4.7).
    """
    bounded = {FenceEvent.PREPARE} | ({FenceEvent.RESUME} if spec.refuses_idle_resume else set())
    return any(handler.operation in bounded for handler in _ours(site)) or any(
        flight.stage is Stage.ADRIFT and event_of(flight.verb, spec.role) in _CLOSING | bounded
        for flight in site.flights
    )


def is_unsettled(spec: MemberSpec, site: Site) -> bool:
    """Whether something of ours runs here, or is on its way under an id that is not used up."""
    return any(handler.operation in _CLOSING for handler in _ours(site)) or any(
        flight.stage in _UNDELIVERED and _closes(spec, flight) and flight.id_index not in site.fence.finished
        for flight in site.flights
    )


def mixes_ids(spec: MemberSpec, site: Site) -> bool:
    """Whether another id is used here while a call of ours that can act is not over."""
    live = [
        flight
        for flight in site.flights
        if flight.stage in {Stage.REQUESTED, Stage.ADRIFT} and flight.id_index not in site.fence.finished
    ]
    acting = {handler.id for handler in _ours(site) if handler.operation in _CLOSING}
    acting |= {flight.id_index for flight in live if _closes(spec, flight)}
    if not acting:
        return False
    used = {flight.id_index for flight in live if flight.verb is Verb.RELEASE}
    held = {site.fence.active} - {None, INTRUDER}
    return len(acting | used | held) > 1


def _closes(spec: MemberSpec, flight: Flight) -> bool:
    return event_of(flight.verb, spec.role) in _CLOSING


def _ours(site: Site) -> list[Handler]:
    return [handler for handler in site.fence.running if handler.id != INTRUDER]
