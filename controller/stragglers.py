"""Restarting stragglers: rollouts that do not come to the cut in time are retired and start over from their input.

A rollout belongs to the agent that runs it, so it is retired there first; what it still does at a model is cut off
there, and its session is freed at the resource servers once they are prepared, so that no snapshot holds half of it
(wire-protocol 2.6, 2.14, 2.19; F22). An attempt counts as restarted from before its retire call leaves, since that may
be applied although its answer is lost; whatever is exported all the same is in the snapshot and not restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from quiesce.controller.budgets import BACKOFFS
from quiesce.controller.caller import Caller, Request
from quiesce.controller.clock import Clock
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.ledger import Entry, Ledger
from quiesce.fsm import messages as m
from quiesce.fsm.transaction import TRIES_MAX
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Role, Verb
from quiesce.participants.dialects.base import Reading
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import DrainProgress, RetireReceipt

__all__ = ["Stragglers"]

_ENDED: Final = frozenset({"completed", "retired"})
"""States of executions that only wait for their acknowledgement, or for nothing."""
_UNCERTAIN: Final = frozenset({Outcome.NEVER_SENT, Outcome.LOST})


class Stragglers:
    """Retires what holds up one transaction, in the time that is left of the budget on the way to its cut."""

    def __init__(
        self,
        fleet: Mapping[ParticipantKey, DiscoveredParticipant],
        caller: Caller,
        clock: Clock,
        ledger: Ledger,
        request_for: Callable[[m.Call], Request],
        remaining_s: Callable[[m.Leg], float],
    ) -> None:
        self._fleet = fleet
        self._caller = caller
        self._clock = clock
        self._ledger = ledger
        self._request_for = request_for
        self._remaining_s = remaining_s

    async def retire(self, key: ParticipantKey) -> Reading:
        """Retire what holds up one participant. RETIRED if all of it is; else the first reason why not.

        An agent is asked what blocks it; a policy's calls are cut off where an agent's rollout makes them, never a
        call of somebody else's; a resource server is rid of the sessions of rollouts that were retired.
        """
        role = self._fleet[key].role
        if role is Role.AGENT:
            progress = await self._progress(key)
            blocking = [one.attempt for one in progress.blockers if one.state not in _ENDED]
            return _all_of(await self._at_agent(key, blocking), otherwise=Outcome.RETIRED)
        if role is Role.POLICY:
            attempts = await self._cut_off(key)
        else:
            attempts = self._restarted()
        return _all_of(await self._each(key, attempts), otherwise=Outcome.REFUSED)

    async def free_sessions(self, key: ParticipantKey) -> Reading:
        """Free the sessions of retired rollouts at a prepared resource server, so that it exports none of them."""
        return _all_of(await self._each(key, self._restarted()), otherwise=Outcome.RETIRED)

    async def _cut_off(self, policy: ParticipantKey) -> tuple[AttemptId, ...]:
        """Retire at its agent what is in flight at a policy; returns what may be cut off there.

        A coordinator lists no calls; there it is whatever was retired already.
        """
        calls = (await self._progress(policy)).inflight
        if not calls:
            return self._restarted()
        named = dict.fromkeys(
            AttemptId(call.rollout_id, call.attempt_index)
            for call in calls
            if call.rollout_id is not None and call.attempt_index is not None
        )
        owners = await self._owners(named)
        for agent, attempts in owners.items():
            await self._at_agent(agent, attempts)
        restarted = set(self._restarted())
        return tuple(attempt for attempt in named if attempt in restarted)

    async def _owners(self, attempts: Iterable[AttemptId]) -> Mapping[ParticipantKey, list[AttemptId]]:
        """Which agents run which of the attempts."""
        agents = [key for key, target in self._fleet.items() if target.role is Role.AGENT]
        found = await asyncio.gather(*(self._progress(agent) for agent in agents))
        owners: dict[ParticipantKey, list[AttemptId]] = {}
        for agent, progress in zip(agents, found, strict=True):
            live = {execution.attempt for execution in progress.executions}
            mine = [attempt for attempt in attempts if attempt in live]
            if mine:
                owners[agent] = mine
        return owners

    def _restarted(self) -> tuple[AttemptId, ...]:
        return tuple(attempt for entry in self._ledger.entries.values() for attempt in entry.restarted)

    async def _progress(self, key: ParticipantKey) -> DrainProgress:
        """What a participant is busy with now, or was when it was last heard of."""
        call = m.Call(key, m.Leg.STRAGGLER, Verb.AWAIT_CUT, 0)
        progress = await self._caller.progress(
            self._fleet[key], call, self._request_for(call), self._remaining_s(call.leg)
        )
        entry = self._ledger.entries[key]
        entry.progress = progress or entry.progress
        return entry.progress or DrainProgress("unknown")

    async def _at_agent(self, agent: ParticipantKey, attempts: Iterable[AttemptId]) -> tuple[Reading, ...]:
        entry = self._ledger.entries[agent]
        asked = tuple(attempts)
        entry.restarted = tuple(dict.fromkeys((*entry.restarted, *asked)))
        readings = await self._each(agent, asked)
        for attempt, reading in zip(asked, readings, strict=True):
            self._note(agent, entry, attempt, reading)
        return readings

    def _note(self, agent: ParticipantKey, entry: Entry, attempt: AttemptId, reading: Reading) -> None:
        receipt = reading.payload if isinstance(reading.payload, RetireReceipt) else None
        if receipt is not None and receipt.fenced:
            self._ledger.note(f"{agent}: {attempt} was retired as a straggler; it starts over from its input")
        elif reading.outcome is not Outcome.LOST:
            entry.restarted = tuple(one for one in entry.restarted if one != attempt)

    async def _each(self, key: ParticipantKey, attempts: Iterable[AttemptId]) -> tuple[Reading, ...]:
        return tuple(await asyncio.gather(*(self._ask(key, one) for one in attempts)))

    async def _ask(self, key: ParticipantKey, attempt: AttemptId) -> Reading:
        """Retire one attempt; asked again where no answer comes, since asking twice is as good as once."""
        call = m.Call(key, m.Leg.STRAGGLER, Verb.RETIRE, 0)
        request = replace(self._request_for(call), attempt=attempt)
        tries = 0
        while True:
            reading = (await self._caller.call(self._fleet[key], call, request, self._remaining_s(call.leg))).reading
            tries += 1
            if reading.outcome not in _UNCERTAIN or tries > TRIES_MAX:
                return reading
            await self._clock.sleep(BACKOFFS[m.Timer.RETRY].delay_s(tries))


def _all_of(readings: tuple[Reading, ...], *, otherwise: Outcome) -> Reading:
    """One reading for several: the first that is no success; of none at all ``otherwise``."""
    failed = (reading for reading in readings if reading.outcome is not Outcome.RETIRED)
    first = readings[0] if readings else Reading(otherwise, None)
    return next(failed, first)
