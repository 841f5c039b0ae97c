"""For real: a controller process killed with SIGKILL, or stopped and taken over, and participants killed, over HTTP.

``make test`` takes a sample; ``HYPOTHESIS_PROFILE=thorough`` (``make test-all``) one point for each kind of record and
each role, and before and after each kind of call. The servers are processes of ``quiesce serve``, with rollouts in
flight.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from support.killed import COUNTS_ONLY, Point, deployed

from quiesce.controller import PhasedRestore
from quiesce.controller.files import LocalFiles
from quiesce.controller.recovery import find_unfinished
from quiesce.fsm.vocabulary import Role

IS_THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
CUT_POINTS: Final = 4
RESTORE_POINTS: Final = 3
VICTIM_POINTS: Final = 3
LANES: Final = 4
"""So many deployments at a time: most of the time is waiting for heart beats that do not come."""
TURNS: Final = {"r1": 40, "r2": 60}
LONG_S: Final = 1200 if IS_THOROUGH else 240
SHARDS: Final = range(10 if IS_THOROUGH else 1)
"""So that no test takes long and several cores, or machines, can share the points."""
IN_RECOVERY: Final[Sequence[Point]] = [(kind, nth) for nth in range(1, 9) for kind in ("record", "before", "after")]
"""Where recoveries are killed, one after the other."""
in_shards = pytest.mark.parametrize("shard", SHARDS)
FENCES: Final = ("strict", "gym_a_single")
COUNTED: Final[dict[str, dict[str, list[str]]]] = {}
"""The points of a cut, by fence."""


def points(names: dict[str, list[str]], wanted: int) -> list[Point]:
    """The first point of each name; of those, unless all are tried, so many, evenly spread."""
    found: list[Point] = []
    for kind, passed in names.items():
        first = {name: place for place, name in reversed(list(enumerate(passed, start=1)))}
        found += [(kind, place) for place in sorted(first.values())]
    if IS_THOROUGH:
        return found
    return [found[(2 * number + 1) * len(found) // (2 * wanted)] for number in range(wanted)]


async def points_of_a_cut(directory: Path, fence: str) -> dict[str, list[str]]:
    """The points of a cut without a death, counted once."""
    if fence not in COUNTED:
        COUNTED[fence] = await counted(directory / "clean", directory / "root", "cut", fence)
    return COUNTED[fence]


async def counted(directory: Path, root: Path, what: str, fence: str) -> dict[str, list[str]]:
    """The points of a life without a death. A cut leaves its snapshot in the root."""
    async with deployed(directory, root, fence=fence, expects_restore=what == "restore") as here:
        if what == "cut":
            for rollout_id in TURNS:
                here.begin(rollout_id, 400)
            await asyncio.sleep(1.0)
        code, told = await here.live(what, COUNTS_ONLY)
        assert (code, told["error"]) == (0, None)
        names: dict[str, list[str]] = told["names"]
        return names


async def in_lanes(work: Sequence[Callable[[], object]]) -> None:
    """Do all of it, a few at a time; the first failure ends it."""
    limit = asyncio.Semaphore(LANES)

    async def one(job: Callable[[], object]) -> None:
        async with limit:
            await job()  # type: ignore[misc]  # each is a coroutine function

    async with asyncio.TaskGroup() as group:
        for job in work:
            group.create_task(one(job))


def dealt(chosen: list[Any], fence: str, shard: int) -> list[Any]:
    """Of what is tried on one fence or the other, in turn: what is tried on this one in this shard."""
    mine = chosen[FENCES.index(fence) :: len(FENCES)] if IS_THOROUGH else chosen
    return mine[shard :: len(SHARDS)]


def deaths(chosen: Sequence[Point]) -> list[tuple[Point, Point | None]]:
    """Points of a cut, and where the recovery of what is left then dies: each at another point, or of some none."""
    return [
        (point, IN_RECOVERY[number % len(IN_RECOVERY)] if IS_THOROUGH or number % 2 else None)
        for number, point in enumerate(chosen)
    ]


async def cuts_that_die(directory: Path, fence: str, mine: Sequence[tuple[Point, Point | None]]) -> None:
    """One deployment on which one controller after the other dies in its cut, and sometimes in its recovery."""
    async with deployed(directory, directory / "root", fence=fence) as here:
        for rollout_id, turns in TURNS.items():
            here.begin(rollout_id, turns)
        for point, second in mine:
            code, _ = await here.live("cut", point)
            assert code == -signal.SIGKILL, point
            if second is not None:
                # a recovery that makes fewer steps than that ends well, which is as good
                code, _ = await here.live("recover", second)
                assert code in (-signal.SIGKILL, 0), (point, second)
            controller = here.controller()
            recovered = await controller.recover()
            await controller.close()
            assert all(one.is_settled and not one.problem for one in recovered), (point, second, recovered)
            await here.everybody_accepts()
            here.check_snapshots()
        await here.finished()
        code, told = await here.live("cut", COUNTS_ONLY)
        assert (code, told["error"]) == (0, None)


@pytest.mark.timeout(LONG_S)
@in_shards
@pytest.mark.parametrize("fence", FENCES if IS_THOROUGH else FENCES[:1])
async def test_a_controller_that_is_killed_in_its_cut(
    tmp_path: Path, fence: str, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """Everybody goes on, no half snapshot is to be seen, every rollout ends as it must, and the next cut works."""
    chosen = deaths(points(await points_of_a_cut(tmp_path, fence), CUT_POINTS))[shard :: len(SHARDS)]
    lanes = [chosen[lane::LANES] for lane in range(LANES)]
    await in_lanes(
        [
            lambda lane=lane, mine=mine: cuts_that_die(tmp_path / f"lane-{lane}", fence, mine)  # type: ignore[misc]  # a closure
            for lane, mine in enumerate(lanes)
        ]
    )
    record_property("swept", f"points at which a real controller was killed in its cut: {len(chosen)}")
    seconds = sum(second is not None for _, second in chosen)
    record_property("swept", f"recoveries of a real controller that were killed: {seconds}")


async def restore_that_dies(directory: Path, base: Path, fence: str, point: Point) -> None:
    """Fresh servers; a controller dies in its restore; another process finishes that."""
    shutil.copytree(base, directory / "root")
    async with deployed(directory, directory / "root", fence=fence, expects_restore=True) as here:
        code, _ = await here.live("restore", point)
        assert code == -signal.SIGKILL, point
        async with here.controller() as controller:
            held = controller.unsettled
            if isinstance(held, PhasedRestore):
                await held.retry()
                await held.resume()
                await controller.settle()
            elif not controller.recovered or controller.recovered[0].state == "aborted":
                async with controller.restore("killed"):
                    pass
        await here.everybody_accepts()
        assert find_unfinished(LocalFiles(), controller.store.layout) == ()
        for rollout_id in TURNS:
            here.begin(rollout_id, 400, attempt_index=1)
        await asyncio.sleep(0.5)
        assert not any(running.done() for running in here.rollouts.values())


@pytest.mark.timeout(LONG_S)
@in_shards
@pytest.mark.parametrize("fence", FENCES if IS_THOROUGH else FENCES[1:])
async def test_a_controller_that_is_killed_in_its_restore(
    tmp_path: Path, fence: str, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """Nobody runs on half a restore; it is retried under its own id, and the rollouts go on."""
    await counted(tmp_path / "clean", tmp_path / "base", "cut", fence)
    shutil.copytree(tmp_path / "base", tmp_path / "root")
    names = await counted(tmp_path / "clean-restore", tmp_path / "root", "restore", fence)
    chosen = points(names, RESTORE_POINTS)[shard :: len(SHARDS)]
    await in_lanes(
        [
            lambda n=n, point=point: restore_that_dies(tmp_path / str(n), tmp_path / "base", fence, point)  # type: ignore[misc]  # a closure
            for n, point in enumerate(chosen)
        ]
    )
    record_property("swept", f"points at which a real controller was killed in its restore: {len(chosen)}")


async def cut_whose_participant_dies(directory: Path, fence: str, victim: Role, point: Point) -> None:
    """A participant is killed; the controller lives, and reopens the others or names whom it cannot."""
    async with deployed(directory, directory / "root", fence=fence) as here:
        here.begin("r1", 400)
        await asyncio.sleep(0.5)
        await here.live("cut", point, victim=victim)
        await here.everybody_accepts(but=[victim])
        here.check_snapshots()
        left = find_unfinished(LocalFiles(), here.controller().store.layout)
        owed = {key.name for account in left for key in account.touched}
        assert owed <= {here.fleet.servers[victim].name}


@pytest.mark.timeout(LONG_S)
@in_shards
@pytest.mark.parametrize("fence", FENCES if IS_THOROUGH else FENCES[:1])
async def test_a_participant_that_is_killed_in_a_cut(
    tmp_path: Path, fence: str, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """The others are open soon, and whoever is dead is the only one who may be named in doubt."""
    names = await points_of_a_cut(tmp_path, fence)
    chosen = points({"record": names["record"]}, VICTIM_POINTS)
    victims = (Role.POLICY, Role.AGENT, Role.RESOURCES)
    pairs = (
        [(role, point) for role in victims for point in chosen]
        if IS_THOROUGH
        else list(zip(victims, chosen, strict=True))
    )
    pairs = dealt(pairs, fence, shard)
    await in_lanes(
        [
            lambda n=n, role=role, point=point: cut_whose_participant_dies(tmp_path / str(n), fence, role, point)  # type: ignore[misc]  # a closure
            for n, (role, point) in enumerate(pairs)
        ]
    )
    record_property("swept", f"points at which a real participant was killed: {len(pairs)}")


async def stopped_and_taken_over(directory: Path, fence: str, point: Point) -> None:
    """A controller is stopped with SIGSTOP; another one takes over; the first goes on and does nothing more."""
    async with deployed(directory, directory / "root", fence=fence) as here:
        here.begin("r1", 400)
        await asyncio.sleep(0.5)
        child = await here.start("cut", point, number=signal.SIGSTOP)
        await asyncio.wait_for(here.stands_still(child), 100)
        async with here.controller() as controller:
            assert controller.unsettled is None
            await here.everybody_accepts()
            child.send_signal(signal.SIGCONT)
            output, _ = await asyncio.wait_for(child.communicate(), 100)
            told = output.decode()
            await asyncio.sleep(1.0)
            await here.everybody_accepts()
            here.check_snapshots()
            assert "Superseded" in told or '"error": null' in told
            async with controller.cut("next"):
                pass
        await here.everybody_accepts()


@pytest.mark.timeout(LONG_S)
@in_shards
@pytest.mark.parametrize("fence", FENCES if IS_THOROUGH else FENCES[:1])
async def test_a_controller_that_is_stopped_and_taken_over(
    tmp_path: Path, fence: str, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """At records and calls of a cut: what it does when it goes on is refused, or had been done."""
    names = await points_of_a_cut(tmp_path, fence)
    chosen = dealt(points({"record": names["record"], "before": names["before"]}, VICTIM_POINTS), fence, shard)
    await in_lanes(
        [
            lambda n=n, point=point: stopped_and_taken_over(tmp_path / str(n), fence, point)  # type: ignore[misc]  # a closure
            for n, point in enumerate(chosen)
        ]
    )
    record_property("swept", f"points at which a real controller was stopped and taken over: {len(chosen)}")
