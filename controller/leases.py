"""Keeping leases alive while a cut holds participants, and finding out when one has lapsed all the same.

Whoever is leased (feature ``quiesce_lease_v1``) is told every few seconds that the controller is still there. A
participant that answers that it is not held any more has opened: its export is of the cut, but what the trainer saves
meanwhile is not. So the cut is aborted, and before the decision to publish everybody who is leased is asked once more.
A renewal moves no machine and is no part of the core; a restore has no leases (docs/leases.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import structlog

from quiesce.controller.budgets import RENEW_EVERY_S, RENEW_FOR_S, SKEW_S
from quiesce.controller.caller import Caller, Request
from quiesce.controller.clock import Clock
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.errors import LeaseLapsed
from quiesce.controller.runner import TransactionRunner
from quiesce.fsm import messages as m
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Verb
from quiesce.participants.dialects.base import Reading
from quiesce.participants.replies import RenewReceipt

__all__ = ["LeaseWatch"]

_log: Final = structlog.get_logger("quiesce.controller")
_S = TransactionState
_P = ParticipantState
_BEFORE_THE_DECISION: Final = frozenset({_S.DRAINING, _S.PAUSED, _S.COMMITTING, _S.COMMITTED})
_SURELY_HELD: Final = frozenset({_P.PAUSED, _P.COMMITTED})
_MAYBE_HELD: Final = _SURELY_HELD | {_P.DRAINING, _P.UNKNOWN}
_NOT_HELD: Final = frozenset({Outcome.WRONG_PHASE, Outcome.CONFLICT, Outcome.LIED})
"""Answers by which a participant that we take for held says that it is not."""


class LeaseWatch:
    """The leases of one cut, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        runner: TransactionRunner,
        fleet: Mapping[ParticipantKey, DiscoveredParticipant],
        caller: Caller,
        clock: Clock,
    ) -> None:
        self._runner = runner
        self._caller = caller
        self._clock = clock
        self._leased = {
            key: target
            for key, target in fleet.items()
            if target.contract.declaration.leased and Phase.PREPARE in target.phases
        }
        self._until_s: dict[ParticipantKey, float] = {}
        self._reasons: dict[ParticipantKey, object] = {}
        self._renewals: dict[ParticipantKey, asyncio.Task[bool]] = {}
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Renew from now on, if anybody is leased."""
        if self._leased:
            self._keeping = asyncio.create_task(self._keep(), name=f"leases of {self._runner.wire_id}")

    async def stop(self) -> None:
        """Renew no more; whoever is still held then opens by itself."""
        running = [task for task in (self._keeping, *self._renewals.values()) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def confirm(self) -> None:
        """Ask everybody who is leased once more, right before the decision; a lease that lapsed aborts the cut."""
        held = self._held()
        proven = await asyncio.gather(*(self._renewal(key) for key in held))
        for key, is_proven in zip(held, proven, strict=True):
            if not is_proven and not self._may_run(key):
                await self._lapsed(key, self._reasons.get(key, "its last renewal was answered too late to be believed"))

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(RENEW_EVERY_S)
            renewals = [self._renewal(key) for key in self._held()]
            del renewals  # each judges its own answer

    def _held(self) -> list[ParticipantKey]:
        if self._runner.state.transaction not in _BEFORE_THE_DECISION:
            return []
        return [key for key in self._leased if self._state(key) in _MAYBE_HELD]

    def _state(self, key: ParticipantKey) -> ParticipantState:
        return self._runner.ledger.entries[key].state

    def _renewal(self, key: ParticipantKey) -> asyncio.Task[bool]:
        """The renewal that is under way, or a new one; whether it was proven that the lease runs on."""
        running = self._renewals.get(key)
        if running is None:
            running = asyncio.create_task(self._renew(key), name=f"renew {key}")
            self._renewals[key] = running
            running.add_done_callback(lambda _task: self._renewals.pop(key, None))
        return running

    async def _renew(self, key: ParticipantKey) -> bool:
        inspection = self._runner.ledger.entries[key].inspection
        request = Request(
            checkpoint_id=self._runner.wire_id, instance=inspection.instance if inspection is not None else None
        )
        call = m.Call(key, m.Leg.FORWARD, Verb.RENEW, 0)
        try:
            reading = (await self._caller.call(self._leased[key], call, request, RENEW_FOR_S)).reading
        except QuiesceError as error:  # nothing was sent: the root is another controller's, say
            reading = Reading(Outcome.NEVER_SENT, None, error)
        except Exception as error:  # noqa: BLE001 - a fault of ours leaves the lease unproven, and ends no other renewal
            _log.exception("renewal_fault", participant=str(key))
            reading = Reading(Outcome.LOST, None, QuiesceError(f"an unforeseen fault: {error!r}; please report it"))
        if isinstance(reading.payload, RenewReceipt):
            ahead_s = (reading.payload.expires_at or self._clock.now_ts()) - self._clock.now_ts()
            self._until_s[key] = self._clock.monotonic() + ahead_s - SKEW_S
            return self._may_run(key)  # whoever stood still meanwhile reads an old answer
        self._reasons[key] = reading.error or reading.outcome.value
        if key in self._held():
            await self._judge(key, reading)
        return False

    async def _judge(self, key: ParticipantKey, reading: Reading) -> None:
        """What a renewal that did not succeed means for whoever is still ours by the journal."""
        refused = reading.outcome in _NOT_HELD and self._state(key) in _SURELY_HELD
        overdue = key in self._until_s and not self._may_run(key)
        if reading.outcome is Outcome.STALE_ID or refused or overdue:
            await self._lapsed(key, reading.error or reading.outcome.value)

    def _may_run(self, key: ParticipantKey) -> bool:
        """Whether the lease cannot have lapsed yet, by what was last heard of it and our own clock."""
        return self._clock.monotonic() < self._until_s.get(key, 0.0)

    async def _lapsed(self, key: ParticipantKey, reason: object) -> None:
        if not any(isinstance(error, LeaseLapsed) for error in self._runner.ledger.errors):
            self._runner.ledger.errors.append(LeaseLapsed(key, reason))
        with suppress(QuiesceError):  # it left the way to the snapshot already
            await self._runner.request(m.AbortRequested())
