"""Random lives of the transaction core: any answer, any fault, any request, at any time; its contract holds throughout.

Participants here answer whatever they like, in any order, also what makes no sense. Each step is held against the
contract (``support.contract``); at the end of each life everything that is still open is answered, and the transaction
must come to rest with everybody open or named.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, event, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.scripted_fleet import DRAIN_ONLY, SHORT_TIMERS, Fleet, agent, auxiliary, policy, resources

from quiesce.fsm import messages as m
from quiesce.fsm.engine import TableEngine
from quiesce.fsm.errors import IllegalTransition
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.rows import Accepted
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.transaction import FRESH_IDS_MAX, HEALS_MAX, TRIES_MAX
from quiesce.fsm.vocabulary import Outcome

S = TransactionState
REQUESTS: dict[TransactionEvent, m.Event] = {
    TransactionEvent.BEGIN: m.Begin(),
    TransactionEvent.COMMIT_REQUESTED: m.CommitRequested(),
    TransactionEvent.PUBLISH_REQUESTED: m.PublishRequested(),
    TransactionEvent.RELEASE_REQUESTED: m.ReleaseRequested(),
    TransactionEvent.ABORT_REQUESTED: m.AbortRequested(),
    TransactionEvent.CANCELLED: m.Cancelled(),
    TransactionEvent.RETRY_REQUESTED: m.RetryRequested(),
}
FORWARD: dict[TransactionState, m.Event] = {
    S.PAUSED: m.CommitRequested(),
    S.COMMITTED: m.PublishRequested(),
    S.RESTORED: m.ReleaseRequested(),
}
FLEETS = {
    "one of each": (policy(), agent(), resources()),
    "a coordinator": (policy(refuses_idle_resume=True, phases=DRAIN_ONLY), agent()),
    "policies that only drain": (policy("p1", phases=DRAIN_ONLY), policy("p2"), auxiliary()),
    "no policy": (agent("a1"), agent("a2"), resources()),
}
ROUNDS_MAX = 12


class TransactionLife(RuleBasedStateMachine):
    """One transaction, told anything at all."""

    fleet: Fleet
    faults_left: int

    @initialize(
        members=st.sampled_from(sorted(FLEETS)),
        is_restore=st.booleans(),
        drain=st.sampled_from(DrainMode),
        watches=st.booleans(),
        restarts=st.booleans(),
        live=st.booleans(),
        faults=st.integers(0, 6),
    )
    def starts(
        self,
        members: str,
        drain: DrainMode,
        faults: int,
        *,
        is_restore: bool,
        watches: bool,
        restarts: bool,
        live: bool,
    ) -> None:
        """Any plan, on either engine, with a number of things that may go wrong."""
        self.faults_left = faults
        self.fleet = Fleet(
            *FLEETS[members],
            engine=TransitionsEngine() if live else TableEngine(),
            is_restore=is_restore,
            drain=drain,
            watches_stragglers=watches,
            restarts_stragglers=restarts,
        ).begin()

    # what can happen

    @rule(data=st.data(), dice=st.integers(0, 9))
    def something_happens(self, data: st.DataObject, dice: int) -> None:
        """Mostly what goes well, in any order; now and then, while faults are left, anything at all."""
        well = self._what_goes_well()
        if self.faults_left and (dice == 0 or not well):
            self.faults_left -= 1
            self._goes_wrong(data)
        elif well:
            self._post(data.draw(st.sampled_from(well)))

    def _what_goes_well(self) -> list[m.Event]:
        """Healthy answers to every open call and errand, short timers, and what the caller asks next."""
        fleet = self.fleet
        calls = [_answer(call, fleet.healthy(call)) for call in fleet.open_calls]
        errands = [_ended(errand, well=True) for errand in fleet.errands]
        timers = [m.TimerFired(*armed) for armed in sorted(fleet.armed, key=str) if armed[0] in SHORT_TIMERS]
        return [*calls, *errands, *timers, *([FORWARD[fleet.at]] if fleet.at in FORWARD else [])]

    def _goes_wrong(self, data: st.DataObject) -> None:
        """Any answer to a call, a failed errand or record, any timer, any request."""
        fleet = self.fleet
        calls = [_answer(call, outcome) for call in fleet.open_calls for outcome in Outcome]
        errands = [_ended(errand, well=False, publication=found) for errand in fleet.errands for found in m.Publication]
        timers: list[m.Event] = [m.TimerFired(*armed) for armed in sorted(fleet.armed, key=str)]
        records: list[m.Event] = [m.RecordFailed()]
        kinds: list[list[m.Event] | list[TransactionEvent]] = [calls, errands, timers, records, list(REQUESTS)]
        kind = data.draw(st.sampled_from([kind for kind in kinds if kind]))
        chosen: m.Event | TransactionEvent = data.draw(st.sampled_from(kind))
        if isinstance(chosen, TransactionEvent):
            self._request(chosen)
        else:
            self._post(chosen)

    def _request(self, asked: TransactionEvent) -> None:
        """A request is a row of the table, or is refused and nothing changed."""
        before, log = self.fleet.state, len(self.fleet.log)
        if _is_possible(self.fleet, asked):
            self._post(REQUESTS[asked])
            return
        with pytest.raises(IllegalTransition):
            self._post(REQUESTS[asked])
        assert self.fleet.state is before
        assert len(self.fleet.log) == log

    def _post(self, told: m.Event) -> None:
        note(str(told))
        if isinstance(told, m.Replied | m.CallFailed):
            self.fleet.open_calls.remove(m.Call(told.key, told.leg, told.verb, told.id_index))
        elif isinstance(told, m.TimerFired):
            self.fleet.armed.discard((told.timer, told.key))
        self.fleet.ask(told)

    # what holds

    @invariant()
    def counters_are_bounded(self) -> None:
        """Tries, heals and fresh ids have limits: the state is finite."""
        for member in self._members():
            assert member.tries <= TRIES_MAX
            assert member.heals <= HEALS_MAX
            assert member.id_index <= FRESH_IDS_MAX

    @invariant()
    def the_core_and_the_world_agree_on_what_is_open(self) -> None:
        """What the core waits for is exactly a call that was made and not answered."""
        if not hasattr(self, "fleet"):
            return
        open_calls = {(call.key, call.leg, call.verb) for call in self.fleet.open_calls}
        for spec, member in zip(self.fleet.plan.members, self.fleet.state.members, strict=True):
            waited = {(m.Leg.FORWARD, member.pending), (m.Leg.RELEASE, member.release_pending)}
            missing = {(spec.key, leg, verb) for leg, verb in waited if verb is not None} - open_calls
            assert not missing, f"waits for {missing}, which nobody was asked"

    @invariant()
    def an_ended_transaction_owes_nobody(self) -> None:
        """Resumed and aborted are final, with nobody owed; in doubt is about somebody."""
        if not hasattr(self, "fleet"):
            return
        state = self.fleet.state
        if state.transaction in TRANSACTION.final:
            assert state.rested
            assert state.in_doubt() == ()
            assert all(member.state in _LET_GO for member in state.members)
        if state.transaction in {S.IN_DOUBT_PUBLISHED, S.IN_DOUBT_UNPUBLISHED}:
            assert state.in_doubt()

    def teardown(self) -> None:
        """However it went: once everything is answered and time passes, it rests with everybody open or named."""
        if not hasattr(self, "fleet"):
            return
        fleet = self.fleet
        event(f"came to {fleet.at}")
        undone = fleet.at not in TRANSACTION.final | {S.RESTORE_FAILED}
        if undone and _is_possible(fleet, TransactionEvent.ABORT_REQUESTED):
            fleet.ask(m.AbortRequested())
        for _ in range(ROUNDS_MAX):
            fleet.run()
            late = [armed for armed in fleet.armed if armed[0] in {m.Timer.OUTSTANDING, m.Timer.WAVE, m.Timer.RELEASE}]
            if fleet.state.rested or not late:
                break
            timer, key = min(late, key=str)
            fleet.fire(timer, None if key is None else key.name)
        assert fleet.state.rested, f"it does not come to rest: {fleet.state}"

    def _members(self) -> tuple[Any, ...]:
        return self.fleet.state.members if hasattr(self, "fleet") else ()


_LET_GO = frozenset({ParticipantState.IDLE, ParticipantState.RESUMED, ParticipantState.ABORTED})


def _is_possible(fleet: Fleet, asked: TransactionEvent) -> bool:
    facts: dict[str, object] = {"is_restore": fleet.plan.is_restore, "snapshot_is_published": fleet.state.decided}
    return isinstance(TRANSACTION.step(fleet.at, asked, facts), Accepted)


def _answer(call: m.Call, outcome: Outcome) -> m.Event:
    if outcome in {Outcome.LOST, Outcome.NEVER_SENT}:
        return m.CallFailed(call.key, call.leg, call.verb, call.id_index, maybe_applied=outcome is Outcome.LOST)
    return m.Replied(call.key, call.leg, call.verb, call.id_index, outcome)


def _ended(errand: m.Command, *, well: bool, publication: m.Publication = m.Publication.PUBLISHED) -> m.Event:
    if isinstance(errand, m.Consult):
        return m.ReceiptsReady(errand.key) if well else m.ConsultFailed(errand.key)
    if isinstance(errand, m.Verify):
        return m.Verification(errand.key, accepted=well)
    return publication


TestTransactionLife = TransactionLife.TestCase
TestTransactionLife.settings = settings(
    settings.get_profile(settings.get_current_profile_name()),
    stateful_step_count=80,
    suppress_health_check=[HealthCheck.too_slow],
)
