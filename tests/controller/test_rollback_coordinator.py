"""The rows of the rollback table that a coordinator's policy leads to, played by the real controller on real servers.

The coordinator is the recorded one. What the controller said to it is compared call by call.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.ground import CoordinatedFleet, Ground, on_every_ground

from quiesce.controller.clock import Clock
from quiesce.controller.errors import InDoubt
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import ControlRequestError

PAUSE, RESUME = "model-admission/pause", "model-admission/resume"
IDLE_RESUME = ["resume invalid_phase", "capabilities 200"]


def coordinated(clock: Clock) -> CoordinatedFleet:
    """A policy with two workers behind its coordinator; the others as recorded."""
    return CoordinatedFleet(FenceVariant.GYM_A_SINGLE, clock=clock)


async def failed_cut(ground: Ground, root: Path) -> Exception:
    """A cut that cannot be reached because the coordinator misses a worker, and leaves everybody open; its error."""
    async with ground.controller(root) as controller:
        with pytest.raises(ControlRequestError, match="missing_workers") as caught:
            async with controller.cut("first"):
                raise AssertionError("a worker is missing")
        assert await ground.fleet.everybody_accepts()
        assert controller.store.list() == ()
    return caught.value


# 409 invalid_phase, capabilities idle with no id


@on_every_ground(coordinated)
async def test_the_idle_resume_is_healed_by_a_pause_and_a_resume(ground: Ground, root: Path) -> None:
    """A pause fails for want of a worker, its resume is refused; with the worker back, both pass and use the id up."""
    ground.coordinated.workers["w1"].leave()
    ground.before("policy", "pause", 2, lambda: ground.coordinated.workers.register("w1"))
    await failed_cut(ground, root)
    assert ground.said("policy") == ["pause missing_workers", *IDLE_RESUME, "pause 200", "resume 200"]
    assert await ground.ask("policy", PAUSE, ground.wire_id) == "stale_checkpoint"
    await ground.next_cut_works(root)


@on_every_ground(coordinated)
async def test_a_worker_that_never_returns_leaves_it_open_and_its_id_not_used_up(ground: Ground, root: Path) -> None:
    """Two healing pauses at most; then what reads idle is believed open, and a note says that the id is still good."""
    ground.coordinated.workers["w1"].leave()
    error = await failed_cut(ground, root)
    healing = [*IDLE_RESUME, "pause missing_workers"]
    assert ground.said("policy") == ["pause missing_workers", *healing, *healing, *IDLE_RESUME]
    assert any("could not be used up" in note for note in error.__notes__)
    ground.coordinated.workers.register("w1")
    await ground.next_cut_works(root)


@on_every_ground(coordinated)
async def test_a_silent_worker_is_healed_once_it_acknowledges_again(ground: Ground, root: Path) -> None:
    """F18: the failed pause reopened by itself; the worker does late what it was told, and the second heal holds."""
    ground.coordinated.workers["w1"].fall_silent()
    ground.before("policy", "pause", 3, ground.coordinated.workers["w1"].wake)
    await failed_cut(ground, root)
    healing = [*IDLE_RESUME, "pause missing_workers"]
    assert ground.said("policy") == ["pause missing_workers", *healing, *IDLE_RESUME, "pause 200", "resume 200"]
    await ground.next_cut_works(root)


# 409 missing_workers


@on_every_ground(coordinated)
async def test_missing_workers_at_the_resume_is_resumed_again_and_never_paused(ground: Ground, root: Path) -> None:
    """F19: admission is open, so the published cut only waits for the worker and then uses the id up."""
    workers = ground.coordinated.workers

    async with ground.controller(root) as controller:
        ground.before("policy", "resume", 3, lambda: workers.register("w1"))
        async with controller.cut("first") as cut:
            workers["w1"].leave()
        assert controller.store.verify(cut.wire_id).is_good
    refused = "resume missing_workers"
    assert ground.said("policy") == ["pause 200", "capabilities 200", "commit 200", refused, refused, "resume 200"]
    assert await ground.fleet.everybody_accepts()
    await ground.next_cut_works(root)


@on_every_ground(coordinated)
async def test_a_worker_missing_for_too_long_is_in_doubt_and_settled_once_it_is_back(
    ground: Ground, root: Path
) -> None:
    """The cut stands, the policy is named, no cut begins before it is settled; then it is, by one more resume."""
    workers = ground.coordinated.workers
    async with ground.controller(root, release_timeout_s=1.5) as controller:
        with pytest.raises(InDoubt, match=r"main/policy.*missing_workers.*The snapshot is published"):
            async with controller.cut("first"):
                workers["w1"].leave()
        with pytest.raises(InDoubt, match="main/policy"):
            async with controller.cut("second"):
                raise AssertionError("somebody is in doubt")
        workers.register("w1")
        await controller.settle()
        assert controller.unsettled is None
        assert await ground.fleet.everybody_accepts()
        async with controller.cut("third"):
            pass
    assert {said.removesuffix(" missing_workers") for said in ground.said("policy") if "resume" in said} == {
        "resume",
        "resume 200",
    }


# 409 stale_checkpoint on the healing pause


@on_every_ground(coordinated)
async def test_a_stale_healing_pause_is_healed_under_a_fresh_id(ground: Ground, root: Path) -> None:
    """Somebody else has healed under our id meanwhile: it is used up, so pause and resume go under a fresh one."""
    ground.coordinated.workers["w1"].leave()

    async def heal_as_another() -> None:
        ground.coordinated.workers.register("w1")
        assert await ground.ask("policy", PAUSE, ground.wire_id) == "200"
        assert await ground.ask("policy", RESUME, ground.wire_id) == "200"

    ground.before("policy", "pause", 2, heal_as_another)
    await failed_cut(ground, root)
    assert ground.said("policy") == [
        "pause missing_workers",
        *IDLE_RESUME,
        "pause stale_checkpoint",
        "pause -h1 200",
        "resume -h1 200",
    ]
    assert await ground.ask("policy", PAUSE, f"{ground.wire_id}-h1") == "stale_checkpoint"
    await ground.next_cut_works(root)


# 409 checkpoint_conflict


@on_every_ground(coordinated)
async def test_another_cut_that_took_it_before_the_healing_pause_is_left_alone(ground: Ground, root: Path) -> None:
    """The holder is reported and nothing is called any more; the other cut goes on as if nothing had been."""
    ground.coordinated.workers["w1"].leave()

    async def other_cut() -> None:
        ground.coordinated.workers.register("w1")
        assert await ground.ask("policy", PAUSE, "another-cut") == "200"

    ground.before("policy", "pause", 2, other_cut)
    async with ground.controller(root) as controller:
        with pytest.raises(ControlRequestError, match="missing_workers") as caught:
            async with controller.cut("first"):
                raise AssertionError("a worker is missing")
        assert controller.unsettled is None
    assert ground.said("policy") == [
        "pause missing_workers",
        *IDLE_RESUME,
        "pause checkpoint_conflict",
        "capabilities 200",
    ]
    assert any("another-cut" in note for note in caught.value.__notes__)
    assert (await ground.fleet.phases())["policy"] == ("prepared", "another-cut")
    assert await ground.ask("policy", RESUME, "another-cut") == "200"
    await ground.next_cut_works(root)
