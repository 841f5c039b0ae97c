"""A controller that was stopped, and goes on after another one took its root: whatever it was about to do is harmless.

It is stopped at each call that changes something, after its last look at the epoch: that very call goes out once it
goes on, and nothing after it. It goes on while the other one recovers, right after that, or much later.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest
from support.crashes import VARIANTS, Scene, build, goes_on, saved_root, scene
from support.mortal import StoppableTransport
from support.virtual_loop import run_virtual, virtual_time

from quiesce.controller import Controller, PhasedRestore, RootHeld, Superseded
from quiesce.controller.files import LocalFiles
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.takeover import set_aside
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant

LATE_S: Final = 60.0
FILES: Final = LocalFiles()
on_every_fence = pytest.mark.parametrize("variant", VARIANTS)


class GoesOn(StrEnum):
    """When the stopped controller goes on."""

    MEANWHILE = "while the other one recovers"
    AFTERWARDS = "right after it has recovered"
    LATE = "much later"


async def stopped(controller: Controller) -> None:
    """No more beats, as in a process that stands still."""
    assert controller._tenure is not None
    assert controller._tenure._beating is not None
    controller._tenure._beating.cancel()
    await asyncio.gather(controller._tenure._beating, return_exceptions=True)


async def cut(controller: Controller) -> None:
    """A cut without a trainer."""
    async with controller.cut("first"):
        pass


async def restore(controller: Controller) -> None:
    """A restore without a trainer."""
    async with controller.restore("base"):
        pass


async def taken_over(here: Scene, live: Callable[[Controller], Awaitable[None]], nth: int, when: GoesOn) -> int:
    """A life that is stopped at its nth call; the calls that it would have made, had it not been stopped."""
    way = StoppableTransport(here.ground.way, nth)
    zombie = here.controller(transport=way)
    await zombie.open()
    living = asyncio.ensure_future(live(zombie))
    stopping = asyncio.ensure_future(way.stopped.wait())
    await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not way.stopped.is_set():
        await living
        await zombie.close()
        return way.calls
    await stopped(zombie)
    if when is GoesOn.MEANWHILE:
        here.ground.before(*_first_of_recovery(here), way.go.set)
    async with here.controller() as successor:
        if when is GoesOn.LATE:
            await here.fleet.clock.sleep(LATE_S)
        way.go.set()
        # the very last resume may find everything done, and then that is what it tells
        told = (await asyncio.gather(living, return_exceptions=True))[0]
        assert told is None or isinstance(told, Superseded)
        assert told is not None or nth == way.calls
        assert len(way.late) <= 1
        await here.fleet.clock.sleep(LATE_S)
        await finished(here, successor)
    await zombie.close()
    return way.calls


def _first_of_recovery(here: Scene) -> tuple[str, str, int]:
    """The first resume that the other one will send: resource servers are reopened first, then policies."""
    touched = [said.who for said in here.ground.way.log if said.what in ("pause", "prepare", "restore")]
    who = next((name for name in ("tools", "policy", "agent") if name in touched), "policy")
    return who, "resume", here.ground.way.counts[who, "resume"] + 1


async def finished(here: Scene, successor: Controller) -> None:
    """Nobody is closed, whatever arrived late; what is held is a restore, and can be retried."""
    held = successor.unsettled
    if held is not None:
        assert isinstance(held, PhasedRestore)
        await held.retry()
        await held.resume()
        await successor.settle()
        await goes_on(here.fleet)
    elif any(one.account.is_restore and one.state == "aborted" for one in successor.recovered):
        # nobody held anything of it when it was taken over; servers that wait for a restore still do
        await restore(successor)
        await goes_on(here.fleet)
    assert await here.fleet.everybody_accepts()
    here.check_snapshots(successor)
    async with successor.cut("next"):
        pass
    assert await here.fleet.everybody_accepts()
    here.check_journals(successor)


@pytest.mark.parametrize("when", GoesOn)
@on_every_fence
@pytest.mark.parametrize("live", [cut, restore])
def test_a_call_that_was_under_way_at_a_take_over_is_harmless(
    tmp_path: Path,
    live: Callable[[Controller], Awaitable[None]],
    variant: FenceVariant,
    when: GoesOn,
    record_property: Callable[[str, object], None],
) -> None:
    """Each call of a cut and of a restore in turn, the prepares, exports, imports and resumes among them."""
    run_virtual(saved_root(tmp_path / "base", variant))

    async def one(root: Path, nth: int) -> int:
        shutil.copytree(tmp_path / "base", root)
        async with scene(root, build(variant, restore_expected=live is restore)) as here:
            working = [here.fleet.rollout(name, 200) for name in ("r0", "r1") if live is cut]
            await here.fleet.clock.sleep(2.5)
            calls = await taken_over(here, live, nth, when)
            assert not any(rollout.done() for rollout in working)
            return calls

    calls = run_virtual(one(tmp_path / "clean", 0))
    assert calls >= 6
    for nth in range(1, calls + 1):
        try:
            run_virtual(one(tmp_path / str(nth), nth))
        except BaseException as error:
            error.add_note(f"stopped at call {nth}, and went on {when}")
            raise
    record_property("swept", f"calls at which a controller was stopped and taken over: {calls}")


@virtual_time
async def test_a_rename_that_was_under_way_at_a_take_over_fails(tmp_path: Path) -> None:
    """What was staged was renamed away first, so that the late rename finds nothing, and nothing is published."""
    async with scene(tmp_path, build(FenceVariant.STRICT)) as here:
        zombie = here.controller()
        await zombie.open()
        taken = await zombie.begin_cut("first")
        await taken.prepare()
        await taken.commit()
        await stopped(zombie)
        staged = taken.directory
        came_to: list[str] = []

        def rename() -> None:
            # the look at the epoch was before; what is left of publishing is the rename
            taken._storage.tenure = None
            try:
                taken._storage.publish()
            except QuiesceError as error:
                came_to.append(type(error).__name__)
            else:
                came_to.append("published")

        here.ground.before(*_first_of_recovery(here), rename)
        async with here.controller() as successor:
            assert [one.state for one in successor.recovered] == ["aborted"]
            assert not staged.exists()
            rename()
            assert came_to in (["StorageFailed"] * 2, ["SnapshotInvalid"] * 2)
            await taken.discard()
            assert successor.store.list() == ()
        assert await here.fleet.everybody_accepts()
        await zombie.end(taken)
        await zombie.close()


def test_a_removal_that_was_under_way_at_a_take_over_finds_nothing(tmp_path: Path) -> None:
    """It was about to remove what it had staged; that stands elsewhere now, and what came after it is not its own."""
    store = SnapshotStore(tmp_path)
    store.prepare()
    store.stage("first-00000000", ("main",))
    assert set_aside(FILES, RootLayout(tmp_path), "first-00000000") is not None
    store.stage("second-00000000", ("main",))
    store.discard("first-00000000")
    assert store.layout.staged("second-00000000").exists()
    assert set_aside(FILES, RootLayout(tmp_path), "first-00000000") is None


@virtual_time
async def test_of_two_controllers_that_start_at_once_one_recovers(tmp_path: Path) -> None:
    """The other one is told who holds the root, and has called nobody."""
    async with scene(tmp_path, build(FenceVariant.STRICT)) as here:
        dead = here.controller()
        await dead.open()
        taken = await dead.begin_cut("first")
        await taken.prepare()
        await stopped(dead)
        before = len(here.ground.way.log)
        one, other = here.controller(), here.controller()
        told = await asyncio.gather(one.open(), other.open(), return_exceptions=True)
        assert [type(error) for error in told if error is not None] == [RootHeld]
        winner = one if told[0] is None else other
        assert [recovered.state for recovered in winner.recovered] == ["aborted"]
        resumes = [said for said in here.ground.way.log[before:] if said.checkpoint_id == taken.wire_id]
        assert len(resumes) == len({said.who for said in resumes}) == 3
        assert {said.what for said in resumes} == {"resume"}
        assert await here.fleet.everybody_accepts()
        await winner.close()
        with contextlib.suppress(Superseded):
            await dead.end(taken)
        await dead.close()
