"""The way to the cut: in which order participants are closed, what is waited for, and how an abort gets out of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import virtual_time
from support.wiretap import Wiretap

from quiesce.controller import CompletedResult, DeadlineExceeded, OnCompletedMisused
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt
from quiesce.transport.port import ControlReply

SLICE_S = 5.0
NO_SUCH_ROUTE = ControlReply(404, {"content-type": "application/json"}, b'{"detail":"Not Found"}')


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_overlapped_agents_park_while_policies_drain_and_resources_come_last(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """The policy is closed before an agent is asked, agents park before it is drained, resources come when all have."""
    fleet = Fleet(fence)
    rollout = fleet.rollout("r0", 40)
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()
    asyncio.get_running_loop().call_later(7.0, fleet.let_calls_end.set)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller, controller.cut("step-1"):
        pass
    pause, agent, tools = (
        tap.to(route)[-1]
        for route in ("model-admission/pause", "agent-checkpoint/prepare", "resources-checkpoint/prepare")
    )
    assert pause.answered_s is not None
    assert agent.answered_s is not None
    assert pause.answered_s <= tap.to("agent-checkpoint/prepare")[0].sent_s
    assert agent.answered_s < tap.to("model-admission/status")[-1].answered_s  # type: ignore[operator]  # both answered
    assert agent.answered_s <= tools.sent_s
    rollout.cancel()
    await asyncio.gather(call, rollout, return_exceptions=True)


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_policies_first_touches_nobody_else_before_every_policy_is_drained(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """Neither a prepare nor, where the drain is given up, a resume reaches an agent or a resource server."""
    fleet = Fleet(fence)
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()
    tap = Wiretap(fleet.transport())
    settings = {"transport": tap, "drain": "policies_first", "reach_timeout_s": 20.0}
    async with fleet.controller(tmp_path, **settings) as controller:  # type: ignore[arg-type]  # settings of two kinds
        with pytest.raises(DeadlineExceeded, match="main/policy"):
            await controller.cut("step-1").__aenter__()
        assert {call.site.participant for call in tap.mutating()} == {"main/policy"}
        assert await fleet.everybody_accepts()
        asyncio.get_running_loop().call_later(7.0, fleet.let_calls_end.set)
        drained_s = fleet.clock.monotonic() + 7.0
        async with controller.cut("step-2"):
            pass
    agents = [call for call in tap.mutating() if call.site.participant == "main/agent"]
    assert agents[0].sent_s >= drained_s
    await call


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_prepares_go_out_in_slices_and_an_abort_waits_for_no_more_than_one(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """However long the budget, no prepare may run on for longer than a slice, and an abort is as quick (F17)."""
    fleet = Fleet(fence)
    rollout = fleet.stuck("r0")
    await asyncio.sleep(0)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, reach_timeout_s=600.0) as controller:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(32.0), controller.cut("step-1"):
                raise AssertionError
        took_s = fleet.clock.monotonic() - 32.0
    prepares = tap.to("agent-checkpoint/prepare")
    assert len(prepares) >= 6
    for prepare in prepares:
        assert prepare.deadline_ts is not None
        assert prepare.deadline_ts - fleet.clock.now_ts() <= SLICE_S - (fleet.clock.monotonic() - prepare.sent_s) + 1e-3
    assert took_s <= SLICE_S + 1.0
    assert await fleet.everybody_accepts()
    rollout.cancel()
    await asyncio.gather(rollout, return_exceptions=True)


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_busy_session_is_waited_for_until_it_is_free(tmp_path: Path, fence: FenceVariant) -> None:
    """A resource server's refusal at the end of its slice is no refusal; what is saved is what the session came to."""
    fleet = Fleet(fence)
    await fleet.seed_session("r0")
    busy = asyncio.create_task(fleet.tool_call("r0"))
    await fleet.tool_began.wait()
    asyncio.get_running_loop().call_later(12.0, fleet.let_tools_end.set)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller, controller.cut("step-1") as cut:
        assert await busy == 200
        saved = next((cut.directory / "deployments/main/resources/tools").glob("r0*.json"))
        assert json.loads(saved.read_text())["state"] == {"turns": 1}
    assert 3 <= len(tap.to("resources-checkpoint/prepare")) <= 6
    assert await fleet.everybody_accepts()


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_an_abort_while_a_session_is_busy_ends_within_a_slice(tmp_path: Path, fence: FenceVariant) -> None:
    """The recorded server refuses the resume while its prepare runs: that is waited for, and no longer."""
    fleet = Fleet(fence)
    await fleet.seed_session("r0")
    busy = asyncio.create_task(fleet.tool_call("r0"))
    await fleet.tool_began.wait()
    async with fleet.controller(tmp_path, reach_timeout_s=600.0) as controller:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(21.0), controller.cut("step-1"):
                raise AssertionError
        assert fleet.clock.monotonic() - 21.0 <= SLICE_S + 2.0
        assert await fleet.everybody_accepts()
    fleet.let_tools_end.set()
    assert await busy == 200


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_straggler_is_named_and_waited_for(tmp_path: Path, fence: FenceVariant) -> None:
    """It is in the notes by name, and in the snapshot."""
    fleet = Fleet(fence)
    rollout = fleet.stuck("slow")
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(23.0, fleet.let_calls_end.set)
    async with fleet.controller(tmp_path, straggler_after_s=10.0) as controller, controller.cut("step-1") as cut:
        pass
    assert fleet.clock.monotonic() >= 23.0
    assert any("main/agent" in note and "slow" in note and "waited for" in note for note in cut.result.notes)
    assert cut.result.rollouts == (AttemptId("slow", 0),)
    await rollout


@virtual_time
async def test_results_are_asked_about_until_the_trainer_owns_them(tmp_path: Path) -> None:
    """A callback that owns nothing yet is asked again; it may be async; each result is acknowledged once."""
    fleet = Fleet()
    await asyncio.gather(*(fleet.rollout(f"done{number}", 1) for number in range(3)))
    asked: list[list[str]] = []

    async def own_late(results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        asked.append([result.attempt.rollout_id for result in results])
        await fleet.clock.sleep(0.3)
        return keep(results)[: len(asked) - 1]

    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, on_completed=own_late) as controller, controller.cut("step-1"):
        pass
    assert asked == [["done0", "done1", "done2"], ["done0", "done1", "done2"], ["done1", "done2"]]
    acknowledged = [call.body["executions"] for call in tap.to("agent-checkpoint/acknowledge-completed")]
    assert [len(receipts) for receipts in acknowledged] == [1, 2]


@virtual_time
async def test_an_agent_without_the_route_for_several_is_sent_one_receipt_a_call(tmp_path: Path) -> None:
    """404 to the batch route is no failure of the cut (wire-protocol 2.15)."""
    fleet = Fleet()
    await asyncio.gather(*(fleet.rollout(f"done{number}", 1) for number in range(5)))
    tap = Wiretap(
        fleet.transport(),
        instead=lambda call: NO_SUCH_ROUTE if call.route == "agent-checkpoint/acknowledge-completed" else None,
    )
    async with fleet.controller(tmp_path, transport=tap, on_completed=keep) as controller, controller.cut("step-1"):
        pass
    assert [call.body["rollout_id"] for call in tap.to("agent-checkpoint/acknowledge")] == [
        f"done{n}" for n in range(5)
    ]


RECEIPT = CompletionReceipt("done", 0, 1, "result-done", "0" * 64)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (lambda _: [CompletionReceipt("other", 0, 1, "x", "0" * 64)], "other attempt 0, which it was not asked about"),
        (lambda _: [RECEIPT], "is not the one that the agent reported"),
        (lambda results: [*keep(results), RECEIPT], "is not the one that the agent reported"),
        (lambda _: None, "it returned None"),
        (lambda _: ["done"], "among the receipts"),
        (lambda _: "done", "it returned 'done'"),
    ],
    ids=["foreign", "altered", "two of one", "none", "no receipt", "text"],
)
@virtual_time
async def test_receipts_that_nobody_asked_about_abort_the_cut(
    tmp_path: Path, returned: Callable[[tuple[CompletedResult, ...]], Iterable[CompletionReceipt]], told: str
) -> None:
    """Acknowledging them would give up a result that nobody owns; nothing is acknowledged."""
    fleet = Fleet()
    await fleet.rollout("done", 1)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, on_completed=returned) as controller:
        with pytest.raises(OnCompletedMisused, match=told):
            await controller.cut("step-1").__aenter__()
        assert await fleet.everybody_accepts()
    assert not tap.to("agent-checkpoint/acknowledge-completed")


@virtual_time
async def test_a_callback_that_hangs_is_named_when_the_budget_is_spent(tmp_path: Path) -> None:
    """The cut ends with the reach budget, the error names the callback, the next cut works (F-14)."""
    fleet = Fleet()
    await fleet.rollout("done", 1)
    began = fleet.clock.monotonic()
    hangs = True

    async def hang(results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        if hangs:
            await asyncio.Event().wait()
        return keep(results)

    async with fleet.controller(tmp_path, on_completed=hang, reach_timeout_s=20.0) as controller:
        with pytest.raises(DeadlineExceeded, match=r"in state draining.*main/agent.*on_completed runs for"):
            await controller.cut("step-1").__aenter__()
        assert fleet.clock.monotonic() - began < 25
        assert await fleet.everybody_accepts()
        hangs = False
        async with controller.cut("step-2"):
            pass


@virtual_time
async def test_a_callback_whose_own_work_was_cancelled_aborts_the_cut_at_once(tmp_path: Path) -> None:
    """Its CancelledError is a failure of the callback, not a cancellation of the cut."""
    fleet = Fleet()
    await fleet.rollout("done", 1)

    async def cancelled(_results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        raise asyncio.CancelledError

    async with fleet.controller(tmp_path, on_completed=cancelled) as controller:
        with pytest.raises(QuiesceError, match="on_completed raised CancelledError"):
            await controller.cut("step-1").__aenter__()
        assert fleet.clock.monotonic() < 10
        assert await fleet.everybody_accepts()
