"""A cut and a restore over real HTTP servers: the whole way once, on real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.fleet import ROLES, Fleet, keep
from support.ground import OVER_HTTP, Ground, on_every_ground

from quiesce.controller.clock import Clock
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.execution import ExecutionRetired

TURN_S = 0.02


def strict(clock: Clock) -> Fleet:
    """Our fence."""
    return Fleet(FenceVariant.STRICT, clock=clock, turn_s=TURN_S)


def recorded(clock: Clock) -> Fleet:
    """The recorded one."""
    return Fleet(FenceVariant.GYM_A_SINGLE, clock=clock, turn_s=TURN_S)


async def killed_and_restored(ground: Ground, root: Path) -> None:
    """Work in flight at the cut goes on after everybody was killed and restored: each rollout once, as attempt 1."""
    fleet = ground.fleet
    rollouts = [fleet.rollout(f"r{number}", 10_000) for number in range(3)]
    done = fleet.rollout("done", 1)
    await fleet.seed_session("r0")
    await done
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()
    loop = asyncio.get_running_loop()
    ground.before("policy", "status", 1, lambda: loop.call_later(0.1, fleet.let_calls_end.set))  # inside the long poll
    async with ground.controller(root, on_completed=keep) as controller:
        async with controller.cut("step-1") as cut:
            assert not await fleet.everybody_accepts()
            (cut.directory / "trainer" / "weights").write_text("w")
        assert await fleet.everybody_accepts()
        assert await call == 200
        assert controller.store.verify("step-1").is_good
    assert sorted(cut.result.rollouts) == [AttemptId(f"r{number}", 0) for number in range(3)]

    for rollout in rollouts:
        rollout.cancel()
    with pytest.raises((asyncio.CancelledError, ExecutionRetired)):
        await rollouts[0]
    await asyncio.gather(*rollouts, return_exceptions=True)
    fleet.restore_expected = True
    for name in ROLES:
        fleet.restart(name)
    async with ground.controller(root) as controller:
        async with controller.restore("step-1") as restored:
            assert (restored.directory / "trainer" / "weights").read_text() == "w"
            await restored.discard([AttemptId("r2", 0)])
        assert await fleet.everybody_accepts()
        async with controller.cut("step-2"):
            pass
    assert [record.attempt for record in fleet.runs.restored()] == [AttemptId(f"r{number}", 1) for number in range(2)]
    assert list(fleet.states) == [AttemptId("r0", 1)]


@on_every_ground(strict, grounds=(OVER_HTTP,))
async def test_a_cut_and_a_restore_of_our_own_servers(ground: Ground, root: Path) -> None:
    """Drained, published, killed, restored, and cut again."""
    await killed_and_restored(ground, root)


@on_every_ground(recorded, grounds=(OVER_HTTP,))
async def test_a_cut_and_a_restore_of_servers_that_behave_as_recorded(ground: Ground, root: Path) -> None:
    """The same with the recorded fence."""
    await killed_and_restored(ground, root)
