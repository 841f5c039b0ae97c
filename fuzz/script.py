"""What each action of the explorer is on the real stack.

The words are the explorer's own (``quiesce.fsm.explore_participant``, ``explore_controller``); a test holds every word
that a search can say against this list.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from quiesce.controller.requests import control_request
from quiesce.fsm import messages as m
from quiesce.fsm.explore_site import HARMLESS, INTRUDER
from quiesce.fsm.tables.fence import FenceEvent, FenceVariant
from quiesce.fsm.vocabulary import ParticipantKey, Role, Verb
from quiesce.fuzz.directed import (
    DirectedRunner,
    DirectedSnapshot,
    DirectedTransport,
    Journey,
    Spoiling,
)
from quiesce.fuzz.errors import NoCounterpart
from quiesce.fuzz.stage import Actor
from quiesce.fuzz.takeovers import Life, TakeOver, end
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.participants.dialects.base import CallSpec
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.errors import UnsupportedVerb
from quiesce.participants.identity import healing_id
from quiesce.transport.port import ControlReply, Transport

__all__ = ["Script", "knows"]

_TURNS: Final = 150
"""Turns of the loop after which whatever an action causes has happened; time stands still meanwhile."""
_RECORD_FAILS: Final = "; its record fails"
_REQUESTS: Final[Mapping[str, m.Event]] = {
    "asked to Begin": m.Begin(),
    "asked to CommitRequested": m.CommitRequested(),
    "asked to PublishRequested": m.PublishRequested(),
    "asked to ReleaseRequested": m.ReleaseRequested(),
    "asked to abort": m.AbortRequested(),
    "asked to retry": m.RetryRequested(),
    "the caller goes away": m.Cancelled(),
}
_RENAMES: Final = {
    "the rename happens": Spoiling.NOTHING,
    "the rename fails": Spoiling.FAILS,
    "the rename happens, unseen": Spoiling.UNSEEN,
    "the rename fails, unseen": Spoiling.FAILS_UNSEEN,
}


_AT: Final = r"(?P<name>[^:]+): "
_CALL: Final = r"(?P<call>[a-z_]+(?: #\d+)?)"
_WORK: Final = r"(?:, (?P<work>nothing in flight|work in flight))?"
_LOST: Final = "never leaves|is lost|is given up before it arrives"


class Script:
    """Takes the actions of a counterexample on a directed runner and its servers."""

    intruder_id: Final = "another-00000000"

    def __init__(
        self,
        life: Life,
        transport: DirectedTransport,
        beside: Transport,
        actors: Mapping[str, Actor],
        clock: VirtualClock,
        own: Callable[[bool], None],
        restart: Callable[[str], Awaitable[None]],
        takeover: TakeOver,
    ) -> None:
        self._life = life
        self._takeover = takeover
        self._is_withdrawn = False
        self._transport = transport
        self._beside = beside
        self._actors = actors
        self._clock = clock
        self._own = own
        self._restart = restart
        self._echoes: dict[str, list[Journey]] = {}
        self._adrift: dict[str, list[Journey]] = {}
        self._background: list[asyncio.Task[ControlReply]] = []

    async def take(self, action: str) -> None:
        """Make an action happen, and wait until everything that follows from it at once has happened.

        Raises:
            NoCounterpart: it cannot, on the real stack.
        """
        bare = action.removesuffix(_RECORD_FAILS)
        self._life.records.barrier_fails = bare != action
        for pattern, act in self.actions:
            if found := pattern.fullmatch(bare):
                await act(self, found)
                await self._settle()
                return
        raise NoCounterpart("nothing on the real stack is called so")

    @property
    def life(self) -> Life:
        """The controller that lives."""
        return self._life

    @property
    def _runner(self) -> DirectedRunner:
        return self._life.runner

    @property
    def _snapshot(self) -> DirectedSnapshot:
        if self._life.snapshot is None:
            raise NoCounterpart("whoever recovers a cut has no snapshot to look at")
        return self._life.snapshot

    async def _settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    # the controller

    async def _request(self, found: re.Match[str]) -> None:
        asking = asyncio.ensure_future(self._runner.request(_REQUESTS[found[0]]))
        await self._settle()
        if not asking.done():
            asking.cancel()
            raise NoCounterpart("the runner does not take the request")
        asking.result()

    async def _record_fails(self, _found: re.Match[str]) -> None:
        self._runner.tell(m.RecordFailed())

    async def _fire(self, found: re.Match[str]) -> None:
        if not self._runner.clockwork.fire(m.Timer(found["timer"]), _key(found["key"])):
            raise NoCounterpart("the runner's timer does not run")

    async def _verify(self, found: re.Match[str]) -> None:
        self._snapshot.spoils = Spoiling.NOTHING if found["word"] == "holds" else Spoiling.FAILS
        self._let_go(m.Verify(_named(found["key"])))

    async def _consult(self, found: re.Match[str]) -> None:
        self._own(found["word"] == "owns")
        self._let_go(m.Consult(_named(found["key"])))

    async def _rename(self, found: re.Match[str]) -> None:
        self._snapshot.spoils = _RENAMES[found[0]]
        self._let_go(m.Publish())

    async def _probe(self, found: re.Match[str]) -> None:
        self._snapshot.spoils = Spoiling.FAILS if found[0].endswith("in vain") else Spoiling.NOTHING
        self._let_go(m.Probe())

    def _let_go(self, command: m.Command) -> None:
        if not self._runner.let_go(command):
            raise NoCounterpart(f"the runner has not asked for {type(command).__name__.lower()}")

    # calls

    async def _arrives(self, found: re.Match[str]) -> None:
        actor, name = self._actor(found), found["name"]
        if found["work"] == "work in flight":
            actor.begin_work()
            await self._settle()
        match found["which"]:
            case None:
                journey = self._waiting(found, delivered=False)
                journey.delivered = self._transport.deliver(journey)
                if found["again"]:
                    self._echoes.setdefault(f"{name}: {found['call']}", []).append(journey)
            case "abandoned":
                self._unheard(self._left(self._adrift, found))
            case _:
                self._unheard(self._left(self._echoes, found))

    def _unheard(self, journey: Journey) -> None:
        """Deliver a call whose answer nobody waits for."""
        self._background.append(self._transport.deliver(journey))

    async def _dropped(self, found: re.Match[str]) -> None:
        self._left(self._adrift if found["which"] == "abandoned" else self._echoes, found)

    async def _gets_lost(self, found: re.Match[str]) -> None:
        journey = self._waiting(found, delivered=False)
        if found["how"] == "is given up before it arrives":
            self._adrift.setdefault(f"{found['name']}: {found['call']}", []).append(journey)
        journey.fail(left=found["how"] != "never leaves")

    async def _answered(self, found: re.Match[str]) -> None:
        journey = self._waiting(found, delivered=True)
        assert journey.delivered is not None  # noqa: S101 - it was looked for as a delivered one
        if not journey.is_answered:
            raise NoCounterpart("the server has not answered yet")
        if found["word"] == "is lost":
            journey.fail(left=True)
        elif error := journey.delivered.exception():
            journey.client.set_exception(error)
        else:
            journey.client.set_result(journey.delivered.result())

    async def _given_up(self, found: re.Match[str]) -> None:
        self._waiting(found, delivered=True).fail(left=True)

    def _waiting(self, found: re.Match[str], *, delivered: bool) -> Journey:
        """The call of that name whose client waits for it."""
        waiting = [one for one in self._waiting_for(found) if not one.is_broken]
        journeys = [one for one in waiting if (one.delivered is not None) is delivered]
        if not journeys:
            raise NoCounterpart("the controller has made no such call, or it is over")
        return journeys[0]

    def _waiting_for(self, found: re.Match[str]) -> list[Journey]:
        """The calls of that name whose client has heard nothing yet."""
        journeys = self._transport.journeys.get(f"{self._deployment}/{found['name']}", [])
        return [one for one in journeys if not one.client.done() and one.name == found["call"]]

    def _left(self, where: dict[str, list[Journey]], found: re.Match[str]) -> Journey:
        journeys = where.get(f"{found['name']}: {found['call']}")
        if not journeys:
            raise NoCounterpart("no such call is under way without a client")
        return journeys.pop(0)

    @property
    def _deployment(self) -> str:
        return self._runner.state.plan.members[0].key.deployment

    # participants

    def _actor(self, found: re.Match[str]) -> Actor:
        return self._actors[found["name"]]

    async def _ends(self, found: re.Match[str]) -> None:
        actor, operation = self._actor(found), FenceEvent(found["operation"])
        id_, fails = self._wire_id(found["id"]), found["end"].endswith("_failed")
        if operation is FenceEvent.COMMIT and self._is_withdrawn and not fails:
            raise NoCounterpart("it exports into a folder that the recovery has withdrawn")
        if not actor.end_operation(id_, operation, fails=fails):
            raise NoCounterpart(f"no {operation} runs there")
        await self._settle()
        if actor.runs_operation(id_, operation):
            await actor.let_a_slice_pass()

    def _wire_id(self, number: str | None) -> str:
        if number is None:
            return self._runner.wire_id
        return self.intruder_id if number == INTRUDER else healing_id(self._runner.wire_id, int(number))

    async def _work_ends(self, found: re.Match[str]) -> None:
        self._actor(found).end_work()

    async def _worker_leaves(self, found: re.Match[str]) -> None:
        if not self._actor(found).busy_worker_leaves():
            raise NoCounterpart("no worker there has anything in flight")

    async def _worker_is_back(self, found: re.Match[str]) -> None:
        if not self._actor(found).worker_is_back():
            raise NoCounterpart("the coordinator lets no worker come while it is closed")

    async def _unattended(self, _found: re.Match[str]) -> None:
        await self._clock.sleep(60.0)

    async def _restarts(self, found: re.Match[str]) -> None:
        name = found["name"]
        for journey in self._transport.journeys.get(f"{self._deployment}/{name}", []):
            journey.is_broken = not journey.is_answered
        for where in (self._adrift, self._echoes):
            for call in [call for call in where if call.startswith(f"{name}: ")]:
                del where[call]
        await self._restart(name)

    async def _breaks_off(self, found: re.Match[str]) -> None:
        journeys = [one for one in self._waiting_for(found) if one.is_broken]
        if not journeys:
            raise NoCounterpart("no such call has lost its process")
        journeys[0].fail(left=True)

    async def _dies(self, _found: re.Match[str]) -> None:
        """Its calls still arrive where they were sent to, and what they find out is told to nobody."""
        for key, journeys in self._transport.journeys.items():
            name = key.removeprefix(f"{self._deployment}/")
            for one in journeys:
                is_under_way = not one.client.done() and one.delivered is None and not one.is_broken
                if is_under_way and one.command.verb not in HARMLESS:
                    self._adrift.setdefault(f"{name}: {one.name}", []).append(one)
        record_fails = self._life.records.barrier_fails
        self._life.records.barrier_fails = False
        self._is_withdrawn = not self._runner.state.plan.is_restore
        await end(self._life)
        self._transport.forget_clients()
        self._life = await self._takeover.go_on(self._runner.wire_id, record_fails=record_fails)

    async def _intrudes(self, found: re.Match[str]) -> None:
        actor, verb = self._actor(found), Verb.CLOSE if found["word"] == "pauses" else Verb.RELEASE
        taking = actor.taking
        spec = CallSpec(
            verb=verb,
            role=taking.role,
            coordinator=taking.fence is FenceVariant.GYM_A_COORDINATOR and taking.role is Role.POLICY,
            checkpoint_id=self.intruder_id,
            deadline_ts=self._clock.now_ts() + 5.0,
        )
        try:
            wire = GymA().call(spec)
        except UnsupportedVerb as error:
            raise NoCounterpart(str(error)) from None
        request = control_request(
            wire, base_url=f"http://{taking.name}", participant=f"main/{taking.name}", timeout_s=3600
        )
        intrusion = asyncio.ensure_future(self._beside.send(request))
        intrusion.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._background.append(intrusion)

    actions: Final = tuple(
        (re.compile(pattern), act)
        for pattern, act in (
            ("|".join(_REQUESTS), _request),
            ("a record fails", _record_fails),
            (r"timer (?P<timer>\w+)(?: of (?P<key>\S+))?", _fire),
            (r"the export of (?P<key>\S+) (?P<word>holds|does not hold) what it said", _verify),
            (r"the trainer (?P<word>owns|fails to own) the results of (?P<key>\S+)", _consult),
            ("|".join(_RENAMES), _rename),
            (r"the snapshot is looked for(?:: \w+| in vain)", _probe),
            (
                rf"{_AT}(?:the (?P<which>abandoned|second) )?{_CALL} arrives(?P<again>, and will again)?{_WORK}",
                _arrives,
            ),
            (rf"{_AT}the (?P<which>abandoned|second) {_CALL} is dropped", _dropped),
            (rf"{_AT}{_CALL} (?P<how>{_LOST})", _gets_lost),
            (rf"{_AT}the answer to {_CALL} (?P<word>arrives|is lost): \w+", _answered),
            (rf"{_AT}{_CALL} is given up while it runs", _given_up),
            (rf"{_AT}(?P<operation>\w+?)(?: #(?P<id>[^:]+))? ends: (?P<end>\w+)", _ends),
            (rf"{_AT}what is in flight ends", _work_ends),
            (rf"{_AT}a worker leaves with what it has in flight", _worker_leaves),
            (rf"{_AT}the worker is back, and closed", _worker_is_back),
            (rf"{_AT}nobody polls for too long", _unattended),
            (rf"{_AT}its process is restarted", _restarts),
            (rf"{_AT}{_CALL} breaks off", _breaks_off),
            ("the controller dies, and another recovers", _dies),
            (rf"{_AT}another controller (?P<word>pauses|resumes) it", _intrudes),
        )
    )
    """Patterns in the order in which they are tried, and what each is."""


def knows(action: str) -> bool:
    """Whether an action is known here by its words; whether it has a counterpart depends on where it is taken."""
    bare = action.removesuffix(_RECORD_FAILS)
    return any(pattern.fullmatch(bare) for pattern, _ in Script.actions)


def _named(text: str) -> ParticipantKey:
    deployment, _, name = text.partition("/")
    return ParticipantKey(deployment, name)


def _key(text: str | None) -> ParticipantKey | None:
    return None if text is None else _named(text)
