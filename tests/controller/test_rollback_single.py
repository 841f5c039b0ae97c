"""The rows of the rollback table that the recorded single-worker servers lead to, played by the real controller.

Their handlers run on after a resume, and end late (wire-protocol F13 to F17). What the controller said is compared call
by call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fleet import Fleet
from support.ground import CoordinatedFleet, Ground, on_every_ground

from quiesce.controller.clock import Clock
from quiesce.controller.errors import InDoubt, UnexpectedFence
from quiesce.fsm.tables.fence import FenceEvent, FenceVariant
from quiesce.participants.errors import Unreachable
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import Receive, Scope, Send

PREPARE, RESUME = "agent-checkpoint/prepare", "agent-checkpoint/resume"


def recorded(clock: Clock) -> Fleet:
    """Single-worker servers with the recorded fences."""
    return Fleet(FenceVariant.GYM_A_SINGLE, clock=clock)


def recorded_owing(clock: Clock) -> Fleet:
    """The same; the tools were started to be restored and never were (F20)."""
    return Fleet(FenceVariant.GYM_A_SINGLE, restore_expected=True, clock=clock)


def coordinated(clock: Clock) -> CoordinatedFleet:
    """A policy behind its coordinator, whose exports another server serves."""
    return CoordinatedFleet(FenceVariant.GYM_A_SINGLE, clock=clock)


def straggler(fleet: Fleet) -> asyncio.Task[None]:
    """A rollout that never comes to a boundary; cancelling it retires it."""

    async def run() -> None:
        async with fleet.runs.begin(AttemptId("straggler", 0)):
            await asyncio.get_running_loop().create_future()

    return asyncio.create_task(run())


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel it and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# 409 invalid_phase, capabilities busy


def assert_opened_after_waiting(said: list[str]) -> None:
    """Refusals and readings, as many as it took, then a resume that passes, and perhaps a reading."""
    opened = said.index("resume 200")
    assert set(said[:opened]) <= {"resume invalid_phase", "capabilities 200"}
    assert said[opened + 1 :] in ([], ["capabilities 200"])


@on_every_ground(recorded)
async def test_a_resume_while_a_prepare_runs_waits_for_it(ground: Ground, root: Path) -> None:
    """F13: the resource server is busy freezing, its resume is refused; when the prepare has ended it is resumed."""
    fleet = ground.fleet
    assert await fleet.seed_session("r0") == 200
    call = asyncio.create_task(fleet.tool_call("r0"))
    await fleet.tool_began.wait()
    ground.after("tools", "resume", 1, fleet.let_tools_end.set)
    await ground.cancelled_cut(root, ground.arrival("tools", FenceEvent.PREPARE))
    assert await call == 200
    said = ground.said("tools")
    assert said[:2] == ["prepare 200", "resume invalid_phase"]
    assert_opened_after_waiting(said[2:])
    await ground.next_cut_works(root)


@on_every_ground(recorded)
async def test_a_resume_while_a_commit_runs_waits_for_it(ground: Ground, root: Path) -> None:
    """F13: the policy is busy exporting, its resume is refused; when the commit has ended it is resumed."""
    go_on = hold_export(ground.fleet)
    ground.after("policy", "resume", 1, go_on.set)
    await ground.cancelled_cut(root, ground.arrival("policy", FenceEvent.COMMIT))
    said = ground.said("policy")
    assert said[:4] == ["pause 200", "capabilities 200", "commit 200", "resume invalid_phase"]
    assert_opened_after_waiting(said[4:])
    await ground.next_cut_works(root)


@on_every_ground(coordinated)
async def test_a_coordinators_resume_does_not_end_the_export_beside_it(ground: Ground, root: Path) -> None:
    """The coordinator opens at once; the cut is over only when the model server's commit has ended, and then read."""
    exporting = asyncio.Event()
    go_on = hold_export(ground.fleet, exporting)
    ground.after("policy", "resume", 1, go_on.set)
    await ground.cancelled_cut(root, exporting)
    assert ground.said("policy") == ["pause 200", "capabilities 200", "commit 200", "resume 200", "capabilities 200"]
    await ground.next_cut_works(root)


def hold_export(fleet: Fleet, begun: asyncio.Event | None = None) -> asyncio.Event:
    """Let the policy's next export wait for the event that is returned; ``begun`` is set when it waits."""
    go_on, real = asyncio.Event(), fleet.ledger.export

    async def export(**asked: object) -> object:
        if begun is not None:
            begun.set()
        await go_on.wait()
        return await real(**asked)  # type: ignore[arg-type]  # passed on as it came

    fleet.ledger.export = export  # type: ignore[method-assign,assignment]  # an export that waits
    return go_on


# 409 invalid_phase, phase preparing, no active id


@on_every_ground(recorded)
async def test_an_orphan_fence_is_opened_by_a_resume_under_a_fresh_id(ground: Ground, root: Path) -> None:
    """F16: the resume passes at once, the prepare ends late and leaves preparing with nobody; ``-h1`` opens it."""
    rollout = straggler(ground.fleet)
    ground.after("agent", "resume", 1, lambda: cancelled(rollout))
    await ground.cancelled_cut(root, ground.arrival("agent", FenceEvent.PREPARE))
    assert ground.said("agent") == [
        "prepare stale_checkpoint",
        "resume 200",
        "capabilities 200",
        "resume -h1 200",
        "capabilities 200",
    ]
    for used_up in (ground.wire_id, f"{ground.wire_id}-h1"):
        assert await ground.ask("agent", PREPARE, used_up) == "stale_checkpoint"
    await ground.next_cut_works(root)


@on_every_ground(recorded)
async def test_an_orphan_fence_that_was_there_before_is_reported_and_pauses_nobody(ground: Ground, root: Path) -> None:
    """Another controller's leftovers: the cut names the agent before anybody is closed; a fresh resume repairs it."""
    rollout = straggler(ground.fleet)
    arrived = ground.arrival("agent", FenceEvent.PREPARE)
    late = asyncio.create_task(ground.ask("agent", PREPARE, "another"))
    await arrived.wait()
    assert await ground.ask("agent", RESUME, "another") == "200"
    await cancelled(rollout)
    assert await late == "stale_checkpoint"
    assert (await ground.fleet.phases())["agent"] == ("preparing", None)
    async with ground.controller(root) as controller:
        with pytest.raises(UnexpectedFence, match="main/agent"):
            async with controller.cut("first"):
                raise AssertionError("the agent is held")
    assert ground.said("policy") == ground.said("agent") == []
    assert await ground.ask("agent", RESUME, "repair") == "200"
    await ground.next_cut_works(root)


# late ends of somebody else's prepare


class LateEnd:
    """The next prepare of an agent waits until it is told how to end, whatever the executions do."""

    def __init__(self, fleet: Fleet) -> None:
        self._told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._real = fleet.runs.wait_ready
        self._fleet = fleet
        fleet.runs.wait_ready = self._wait  # type: ignore[method-assign,assignment]  # a wait that ends late

    async def _wait(self, _deadline: float) -> bool:
        self._fleet.runs.wait_ready = self._real  # type: ignore[method-assign]  # only the first one
        return await self._told

    def end(self, *, ready: bool) -> None:
        self._told.set_result(ready)


async def abandoned_prepare(ground: Ground) -> tuple[LateEnd, asyncio.Task[str], asyncio.Task[None]]:
    """Another controller's prepare that still waits after its resume, and the rollout that it waited for."""
    rollout = straggler(ground.fleet)
    late, arrived = LateEnd(ground.fleet), ground.arrival("agent", FenceEvent.PREPARE)
    prepare = asyncio.create_task(ground.ask("agent", PREPARE, "another"))
    await arrived.wait()
    assert await ground.ask("agent", RESUME, "another") == "200"
    return late, prepare, rollout


async def cut_that_the_late_end_meets(ground: Ground, root: Path, *, ready: bool, phase: str) -> None:
    """Our agent stands at the cut when the other prepare ends; the cut is given up before anybody exports."""
    late, prepare, rollout = await abandoned_prepare(ground)

    async def end() -> None:
        late.end(ready=ready)
        await prepare

    ground.before("agent", "prepare", 1, lambda: cancelled(rollout))
    ground.after("agent", "prepare", 1, end)
    async with ground.controller(root) as controller:
        with pytest.raises(UnexpectedFence, match=f"main/agent.*{phase}"):
            async with controller.cut("first"):
                raise AssertionError("the agent fell back from the cut")
        assert controller.store.list() == ()
    assert not any("commit" in line for who in ("policy", "agent", "tools") for line in ground.said(who))
    assert ground.said("agent") == ["prepare 200", "capabilities 200", "resume 200"]
    assert await ground.fleet.everybody_accepts()


@on_every_ground(recorded)
async def test_a_late_end_that_takes_prepared_away_ends_the_cut_before_an_export(ground: Ground, root: Path) -> None:
    """F14: ours falls to preparing; the phase is read again before the commit, everybody is opened, the next works."""
    await cut_that_the_late_end_meets(ground, root, ready=True, phase="preparing")
    await ground.next_cut_works(root)


@on_every_ground(recorded)
async def test_a_late_time_out_that_frees_the_fence_ends_the_cut_before_an_export(ground: Ground, root: Path) -> None:
    """F15: the agent reads idle though it is closed; the reading ends the cut, and a resume from idle opens it."""
    await cut_that_the_late_end_meets(ground, root, ready=False, phase="idle")
    await ground.next_cut_works(root)


@on_every_ground(recorded)
async def test_no_new_cut_begins_while_our_own_abandoned_prepare_may_run(ground: Ground, root: Path) -> None:
    """An aborted cut is over only when its prepare has ended: until then no other id goes to that agent."""
    rollout = straggler(ground.fleet)
    order: list[str] = []

    async def end() -> None:
        order.append("the resume is answered")
        await cancelled(rollout)

    ground.after("agent", "resume", 1, end)
    ground.after("agent", "prepare", 1, lambda: order.append("the prepare has ended"))
    await ground.cancelled_cut(root, ground.arrival("agent", FenceEvent.PREPARE))
    assert order == ["the resume is answered", "the prepare has ended"]
    await ground.next_cut_works(root)


# 409 checkpoint_conflict


@on_every_ground(recorded)
async def test_another_cut_that_took_it_is_left_alone_and_named(ground: Ground, root: Path) -> None:
    """Our pauses were lost and another's arrived: nothing is done there, the holder is in the error's notes."""
    ground.lose("policy", "pause", 1, 2, 3)
    ground.before("policy", "pause", 3, lambda: ground.ask("policy", "model-admission/pause", "another-cut"))
    async with ground.controller(root, reach_timeout_s=1.5) as controller:
        with pytest.raises(Unreachable) as caught:
            async with controller.cut("first"):
                raise AssertionError("the policy is somebody else's")
        assert controller.unsettled is None
    assert any("another-cut" in note for note in caught.value.__notes__)
    said = ground.said("policy")
    assert said[:4] == ["pause lost", "pause lost", "pause lost", "resume checkpoint_conflict"]
    assert set(said[4:]) <= {"resume checkpoint_conflict", "capabilities 200"}
    assert (await ground.fleet.phases())["policy"] == ("prepared", "another-cut")
    assert await ground.ask("policy", "model-admission/resume", "another-cut") == "200"
    await ground.next_cut_works(root)


# 409 resources_checkpoint_error


@on_every_ground(recorded)
async def test_tools_that_owe_a_restore_are_in_doubt_until_they_are_restarted(ground: Ground, root: Path) -> None:
    """F20: started anew before their prepare they can be prepared, and no call opens them: named, settled in the end.

    Who owes one before is refused by name; these did not when they were asked.
    """
    owing = recorded_owing(ground.fleet.clock)
    ground.before("tools", "prepare", 1, lambda: ground.fleet.apps.update(tools=owing.apps["tools"]))
    async with ground.controller(root) as controller:
        with pytest.raises(ExceptionGroup) as caught:
            async with controller.cut("first"):
                raise AssertionError("another process answered")
        doubts = [str(error) for error in caught.value.exceptions if isinstance(error, InDoubt)]
        assert ["main/tools: it still owes a restore" in said for said in doubts] == [True]
        assert "Nothing was published" in doubts[0]
        assert ground.said("tools")[-1] == "resume resources_checkpoint_error"
        with pytest.raises(InDoubt, match="main/tools"):
            await controller.settle()
        fresh = recorded(ground.fleet.clock)
        ground.fleet.apps["tools"] = fresh.apps["tools"]
        await controller.settle()
        assert controller.unsettled is None
    assert await ground.fleet.everybody_accepts()
    await ground.next_cut_works(root)


# nothing, for too long


@on_every_ground(recorded)
async def test_a_resume_that_is_never_answered_is_in_doubt_by_name_and_settled_later(
    ground: Ground, root: Path
) -> None:
    """The agent hangs on its resume: it alone is named, no cut begins before, and settling opens it at last."""
    async with ground.controller(root, release_timeout_s=1.0) as controller:
        back = hang_on_resume(ground.fleet)
        with pytest.raises(InDoubt, match="main/agent") as caught:
            async with controller.cut("first") as cut:
                pass
        assert caught.value.published is True
        assert [str(key) for key in caught.value.owed] == ["main/agent"]
        assert (await ground.fleet.phases())["policy"] == ("idle", None)
        with pytest.raises(InDoubt, match="main/agent"):
            async with controller.cut("second"):
                raise AssertionError("somebody is in doubt")
        assert ground.wire_id == cut.wire_id
        back()
        await controller.settle()
        assert await ground.fleet.everybody_accepts()
    await ground.next_cut_works(root)


def hang_on_resume(fleet: Fleet) -> Callable[[], None]:
    """Let the agent swallow resumes without an answer until the function that is returned is called."""
    over = asyncio.Event()
    real: Any = fleet.apps["agent"]

    async def hanging(scope: Scope, receive: Receive, send: Send) -> None:
        if str(scope["path"]).endswith("/resume"):
            await over.wait()
        else:
            await real(scope, receive, send)

    hanging.fence = real.fence  # type: ignore[attr-defined]  # looked at, as a server's
    apps: dict[str, Any] = fleet.apps
    apps["agent"] = hanging

    def back() -> None:
        apps["agent"] = real
        over.set()

    return back


@on_every_ground(recorded)
async def test_a_lost_resume_is_repeated_and_gets_the_recorded_reply(ground: Ground, root: Path) -> None:
    """No answer proves nothing: the same resume again, under the same id."""
    ground.lose("agent", "resume", 1)
    with pytest.raises(ValueError, match="the trainer's own"):
        async with ground.controller(root) as controller, controller.cut("first"):
            raise ValueError("the trainer's own")
    assert ground.said("agent")[-2:] == ["resume lost", "resume 200"]
    assert await ground.fleet.everybody_accepts()
