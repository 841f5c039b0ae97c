"""Two budgets, and what every single call is given of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import DeadlineExceeded, RestoreFailed
from quiesce.controller.clock import Clock
from quiesce.controller.phases import PhasedRestore
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.transport.faults import CallSite, Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport

REACH_S, HOLD_S, RELEASE_S = 30.0, 50.0, 20.0
SLACK_S = 2.0 + 1e-3
"""By how much a client may wait longer than its budget lasts, so that a late answer is told from none."""
EXPORT_OF_POLICY = "POST /ng-control/v1/model-checkpoint/commit"


@dataclass
class Phases:
    """When each state of the transaction began."""

    clock: Clock
    began_s: dict[str, float] = field(default_factory=dict)

    def __call__(self, trace: TraceRecord) -> None:
        if trace.machine == TRANSACTION.name:
            self.began_s.setdefault(trace.target, self.clock.monotonic())

    def budget_end_s(self, call: TappedCall) -> float:
        """When the budget ends under which a call was sent."""
        budgets = ((TransactionState.RESUMING, RELEASE_S), (TransactionState.PAUSED, HOLD_S))
        for state, length_s in budgets:
            if state in self.began_s and call.sent_s >= self.began_s[state]:
                return self.began_s[state] + length_s
        return self.began_s[TransactionState.PREFLIGHT] + REACH_S


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_every_call_gets_no_more_than_what_is_left_of_its_budget(tmp_path: Path, fence: FenceVariant) -> None:
    """Neither its deadline_ts nor its time-out; and a client waits longer than it lets the server wait (F-19)."""
    fleet = Fleet(fence)
    rollouts = [fleet.rollout("r0", 40), fleet.rollout("done", 1)]
    await fleet.clock.sleep(2.5)
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()
    asyncio.get_running_loop().call_later(23.0, fleet.let_calls_end.set)
    tap, phases = Wiretap(fleet.transport()), Phases(fleet.clock)
    controller = fleet.controller(
        tmp_path,
        transport=tap,
        on_completed=keep,
        observers=(phases,),
        reach_timeout_s=REACH_S,
        hold_timeout_s=HOLD_S,
        release_timeout_s=RELEASE_S,
        control_timeout_s=500.0,
    )
    async with controller:
        discovered = len(tap.calls)
        async with controller.cut("step-1"):
            await fleet.clock.sleep(20.0)
    assert len(tap.calls) - discovered > 20
    for sent in tap.calls[discovered:]:
        left_s = phases.budget_end_s(sent) - sent.sent_s
        assert sent.request.timeout_s <= left_s + SLACK_S, sent.site
        if sent.deadline_ts is not None:
            server_s = sent.deadline_ts - fleet.clock.now_ts() + fleet.clock.monotonic() - sent.sent_s
            assert server_s <= left_s + 1e-3, sent.site
            if sent.route in ("agent-checkpoint/prepare", "resources-checkpoint/prepare", "model-admission/status"):
                assert 0 < server_s < sent.request.timeout_s, sent.site
    for task in (call, *rollouts):
        task.cancel()
    await asyncio.gather(call, *rollouts, return_exceptions=True)


class EveryCallTakes4Seconds:
    """A plan of faults: a slow network."""

    def fault_for(self, _site: CallSite) -> Fault:
        return Fault(FaultKind.DELAYED, 4.0)


@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("reach_s", [3.0, 10.0, 15.0])
@virtual_time
async def test_a_budget_covers_all_of_the_phases(tmp_path: Path, fence: FenceVariant, reach_s: float) -> None:
    """Each call would fit, all together do not: it ends with the budget, whichever phase runs (F-19)."""
    fleet = Fleet(fence)
    transport = FaultyTransport(fleet.transport(), EveryCallTakes4Seconds())
    async with fleet.controller(tmp_path, transport=transport, reach_timeout_s=reach_s) as controller:
        cut = await controller.begin_cut("step-1")
        began = fleet.clock.monotonic()
        with pytest.raises(DeadlineExceeded, match="reach_timeout_s") as caught:
            await cut.prepare()
        rolled_back = fleet.clock.monotonic() - began
        await cut.discard()
        await controller.end(cut)
        await transport.settled()
        assert await fleet.everybody_accepts()
    assert rolled_back <= reach_s + 2.0 + 3 * 4.0 + 5.0  # three waves of resumes, and a call that still ran
    assert caught.value.phase in ("preflight", "draining")
    assert caught.value.stood


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_body_that_outlives_the_hold_budget_is_named(tmp_path: Path, fence: FenceVariant) -> None:
    """Everybody is reopened when the budget ends, although the body still runs; nothing is published."""
    fleet = Fleet(fence)
    async with fleet.controller(tmp_path, hold_timeout_s=60.0) as controller:
        cut = controller.cut("step-1")
        await cut.__aenter__()
        await fleet.clock.sleep(70.0)
        assert await fleet.everybody_accepts()
        with pytest.raises(DeadlineExceeded, match="the caller's own code took the time") as caught:
            await cut.__aexit__(None, None, None)
        assert (caught.value.budget, caught.value.phase, caught.value.stood) == ("hold", "committed", {})
        assert controller.store.list() == ()
        async with controller.cut("step-2"):
            await fleet.clock.sleep(50.0)


@virtual_time
async def test_an_export_that_outlives_the_hold_budget_is_named(tmp_path: Path) -> None:
    """By who has not exported yet, and nobody else."""
    fleet = Fleet()
    stuck = ScriptedFaults(
        {("main/policy", EXPORT_OF_POLICY, nth): Fault(FaultKind.REPLY_STUCK) for nth in range(2, 9)}
    )
    transport = FaultyTransport(fleet.transport(), stuck)
    async with fleet.controller(tmp_path, transport=transport, hold_timeout_s=30.0) as controller:
        with pytest.raises(DeadlineExceeded, match="hold_timeout_s") as caught:
            await controller.cut("step-1").__aenter__()
    assert caught.value.phase == "committing"
    assert set(caught.value.stood) == {ParticipantKey("main", "policy")}
    assert await fleet.everybody_accepts()


@virtual_time
async def test_a_restored_body_that_outlives_the_hold_budget_is_held_closed(tmp_path: Path) -> None:
    """Half a restore is never opened by a clock; retried and resumed, it goes on."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1"):
        pass
    fresh = Fleet(restore_expected=True)
    async with fresh.controller(tmp_path, hold_timeout_s=60.0) as controller:
        with pytest.raises(ExceptionGroup) as caught:
            async with controller.restore("step-1"):
                await fresh.clock.sleep(70.0)
        assert caught.group_contains(RestoreFailed)
        assert caught.group_contains(DeadlineExceeded, match="hold_timeout_s")
        assert not await fresh.everybody_accepts()
        held = controller.unsettled
        assert isinstance(held, PhasedRestore)
        await held.retry()
        await held.resume()
    assert await fresh.everybody_accepts()
