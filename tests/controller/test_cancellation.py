"""A caller that is cancelled at any moment: of a cut, of a restore, once or again while it is being undone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import VirtualLoop, run_virtual, virtual_time

from quiesce.controller import Controller, PhasedRestore
from quiesce.controller.cancellation import finish_first
from quiesce.controller.catalog import SnapshotState
from quiesce.controller.journal import read_journal
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.transport.port import ControlReply, ControlRequest, Transport

Scenario = Callable[[Callable[["asyncio.Task[None]"], None]], Coroutine[Any, Any, bool]]


class SteppingLoop(VirtualLoop):
    """Cancels a task at chosen turns of the loop, counted from when it is told which task."""

    def __init__(self, turns: tuple[int, ...]) -> None:
        super().__init__()
        self._turns = turns
        self._turn = 0
        self._target: asyncio.Task[None] | None = None

    def aim(self, task: asyncio.Task[None]) -> None:
        self._target, self._turn = task, 0

    def _run_once(self) -> None:
        self._turn += 1
        if self._target is not None and self._turn in self._turns:
            self._target.cancel()
        super()._run_once()  # type: ignore[misc]  # asyncio's own, which its stubs do not show


def cancelled_at(turns: tuple[int, ...], scenario: Scenario) -> bool:
    """Run a scenario whose task is cancelled at these turns; whether the task met the first of them alive."""
    with asyncio.Runner(loop_factory=lambda: SteppingLoop(turns)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SteppingLoop)
        return runner.run(scenario(loop.aim))


def every_turn(scenario: Scenario, *, then: tuple[int, ...] = (), first: int = 1, step: int = 1) -> int:
    """Cancel at every turn until the task ends before it is cancelled; which turn that was."""
    for turn in range(first, 3_000, step):
        try:
            alive = cancelled_at((turn, *(turn + more for more in then)), scenario)
        except BaseException as error:
            error.add_note(f"cancelled at turn {turn}")
            raise
        if not alive:
            return turn
    raise AssertionError("it never ended")


def journal_ends(root: Path) -> set[str]:
    """Where the journals under a root say that their transactions stand; a transaction that called nobody has none."""
    ends = set()
    for path in (root / ".quiesce" / "journal").glob("*.ndjson"):
        records = [record for record in read_journal(path).records if record.machine == TRANSACTION.name]
        ends.add(records[-1].target)
    return ends


def cut_scenario(root: Path, fence: FenceVariant) -> Scenario:
    """A cut with a session, a finished result and a body; afterwards everybody accepts work, whatever happened."""
    roots = itertools.count(1)

    async def scenario(aim: Callable[[asyncio.Task[None]], None]) -> bool:
        fleet = Fleet(fence)
        await fleet.rollout("done", 1)
        await fleet.seed_session("r0")
        own = root / str(next(roots))
        async with fleet.controller(own, on_completed=keep) as controller:

            async def take() -> None:
                async with controller.cut("step") as cut:
                    await asyncio.sleep(0.1)
                    (cut.directory / "trainer" / "weights").write_text("w")

            task = asyncio.create_task(take())
            aim(task)
            await asyncio.wait([task])
            assert controller.unsettled is None
            assert not controller.is_busy
            assert controller.running is None
            assert await fleet.everybody_accepts()
            assert journal_ends(own) <= {"resumed" if not task.cancelled() else "aborted", "resumed"}
            states = [entry.state for entry in controller.store.list()]
            assert states == [SnapshotState.VALID] or (task.cancelled() and not states)
            assert list((own / ".quiesce" / "staging").iterdir()) == []
            if not task.cancelled():
                task.result()
            return task.cancelled()

    return scenario


def restore_scenario(root: Path, fence: FenceVariant) -> Scenario:
    """A restore with a body; afterwards it is done, nobody was touched, or it is held closed until it is aborted."""

    async def scenario(aim: Callable[[asyncio.Task[None]], None]) -> bool:
        fleet = Fleet(fence)
        async with fleet.controller(root) as controller:

            async def bring_back() -> None:
                async with controller.restore("step"):
                    await asyncio.sleep(0.1)

            task = asyncio.create_task(bring_back())
            aim(task)
            await asyncio.wait([task])
            await settled_restore(fleet, controller)
            if not task.cancelled():
                task.result()
            return task.cancelled()

    return scenario


async def settled_restore(fleet: Fleet, controller: Controller) -> None:
    """Held closed by name and reopened by an abort alone, or everybody accepts work."""
    held = controller.unsettled
    if held is not None:
        assert isinstance(held, PhasedRestore)
        assert held.state is TransactionState.RESTORE_FAILED
        restored = "policy" in {key.name for key in held.to_restart()}
        assert fleet.apps["policy"].fence.state.closed or not restored
        await held.abort()
    assert await fleet.everybody_accepts()


IS_WHOLE = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
SHARDS = range(1, 5 if IS_WHOLE else 2)
"""Every turn is in one of them; what is not the whole takes steps instead."""
in_shards = pytest.mark.parametrize("first", SHARDS)
pytestmark = pytest.mark.timeout(900 if IS_WHOLE else 120)
Record = Callable[[str, object], None]


def swept_turns(record: Record, what: str, scenario: Scenario, first: int, step: int, *then: int) -> int:
    """Cancel at a shard's turns; at which turn the task had ended."""
    step = len(SHARDS) if IS_WHOLE else step
    ended = every_turn(scenario, then=then, first=first, step=step)
    record("swept", f"turns of the loop at which {what} is cancelled: {(ended - first) // step}")
    return ended


@in_shards
@pytest.mark.parametrize(("fence", "step"), list(zip(FENCES, (2, 5), strict=True)))
def test_a_cut_may_be_cancelled_at_any_turn_of_the_loop(
    tmp_path: Path, record_property: Record, fence: FenceVariant, step: int, first: int
) -> None:
    """Everybody accepts work, nothing is half published or left running, the cancellation goes on (F-34, F-37)."""
    assert swept_turns(record_property, "a cut", cut_scenario(tmp_path, fence), first, step) > 100


@in_shards
@pytest.mark.parametrize("then", [(1,), (2, 5), (11, 12, 13)], ids=str)
def test_a_cut_may_be_cancelled_again_while_it_is_undone(
    tmp_path: Path, record_property: Record, then: tuple[int, ...], first: int
) -> None:
    """However often, the undoing goes to its end, and then the cancellation goes on."""
    scenario = cut_scenario(tmp_path, FenceVariant.STRICT)
    assert swept_turns(record_property, "a cut", scenario, first, 7, *then) > 100


@in_shards
@pytest.mark.parametrize(("fence", "then"), [(FENCES[0], ()), (FENCES[1], ()), (FENCES[0], (2, 9))])
def test_a_restore_may_be_cancelled_at_any_turn_of_the_loop(
    tmp_path: Path, record_property: Record, fence: FenceVariant, then: tuple[int, ...], first: int
) -> None:
    """It is done, or nobody was touched, or it is held closed by name; the cancellation goes on."""
    cancelled_at((), cut_scenario(tmp_path, fence))
    scenario = restore_scenario(tmp_path / "1", fence)
    assert swept_turns(record_property, "a restore", scenario, first, 4 if then else 2, *then) > 50


@pytest.mark.parametrize("fence", FENCES)
def test_ctrl_c_aborts_and_then_ends_the_program(tmp_path: Path, fence: FenceVariant) -> None:
    """``asyncio.Runner`` turns the signal into a cancellation, and that into KeyboardInterrupt."""
    fleets: list[Fleet] = []

    async def program() -> None:
        fleet = Fleet(fence)
        fleets.append(fleet)
        async with fleet.controller(tmp_path) as controller, controller.cut("step-1"):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(1.0)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.run(program())
        assert runner.run(fleets[0].everybody_accepts())
    assert list((tmp_path / "snapshots").iterdir()) == []


@virtual_time
async def test_work_that_fails_while_its_caller_is_cancelled_is_the_cancellations_cause() -> None:
    """The cancellation is what the caller must see; why the work failed is not lost."""
    began = asyncio.Event()

    async def fail_late() -> None:
        began.set()
        await asyncio.sleep(1.0)
        raise ValueError("the work failed")

    task = asyncio.create_task(finish_first(fail_late()))
    await began.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="the work failed"):
        await finish_first(fail_late())
    with contextlib.suppress(asyncio.CancelledError):
        await finish_first(_cancelled_from_within())


async def _cancelled_from_within() -> None:
    raise asyncio.CancelledError


class AtPoint:
    """Cancels a task when the point with this number comes: before a call leaves, after its answer, at a step."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._target: asyncio.Task[None] | None = None
        self.passed = 0

    def aim(self, task: asyncio.Task[None]) -> None:
        """Count from now on."""
        self._target = task

    def come(self) -> None:
        """A point is passed."""
        if self._target is not None:
            self.passed += 1
            if self.passed == self._number:
                self._target.cancel()

    async def send(self, inner: Transport, request: ControlRequest) -> ControlReply:
        """Carry a call, with a point at each of its ends."""
        self.come()
        reply = await inner.send(request)
        self.come()
        return reply


@dataclass
class Pointed:
    """A transport with a point before and after each call."""

    inner: Transport
    point: AtPoint

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one."""
        return await self.point.send(self.inner, request)

    async def aclose(self) -> None:
        """Close what is under it."""
        await self.inner.aclose()


async def cut_cancelled_at(root: Path, fence: FenceVariant, way: str, point: AtPoint) -> None:
    """A cut whose caller goes away at a point, in a way; everybody accepts work and the next cut works."""
    fleet = Fleet(fence)
    await fleet.rollout("done", 1)
    await fleet.seed_session("r0")
    network = Pointed(fleet.transport(), point)
    observers = (lambda _trace: point.come(),)
    async with fleet.controller(root, transport=network, on_completed=keep, observers=observers) as controller:

        async def take() -> None:
            async with controller.cut("step") as cut:
                await asyncio.sleep(0.1)
                (cut.directory / "trainer" / "weights").write_text("w")

        task = asyncio.create_task(take() if way == "task" else asyncio.wait_for(take(), 1e6))
        point.aim(task)
        await asyncio.wait([task])
        assert controller.unsettled is None
        assert not controller.is_busy
        assert await fleet.everybody_accepts()
        states = [entry.state for entry in controller.store.list()]
        assert states == ([SnapshotState.VALID] if "resumed" in journal_ends(root) else [])
        assert task.cancelled() or task.exception() is None
        assert not task.cancelled() or journal_ends(root) <= {"aborted", "resumed"}
        async with controller.cut("next"):
            pass
    assert await fleet.everybody_accepts()


async def restore_cancelled_at(root: Path, fence: FenceVariant, point: AtPoint) -> None:
    """A restore whose caller goes away at a point: done, untouched, or held closed until it is aborted."""
    fleet = Fleet(fence)
    network = Pointed(fleet.transport(), point)
    observers = (lambda _trace: point.come(),)
    async with fleet.controller(root, transport=network, observers=observers) as controller:

        async def bring_back() -> None:
            async with controller.restore("step"):
                await asyncio.sleep(0.1)

        task = asyncio.create_task(bring_back())
        point.aim(task)
        await asyncio.wait([task])
        assert journal_ends(root) <= {"aborted", "resumed", "restore_failed"}
        await settled_restore(fleet, controller)


@pytest.mark.parametrize("way", ["task", "wait_for"])
@pytest.mark.parametrize("fence", FENCES)
def test_a_cut_may_be_cancelled_at_any_call_and_any_record(
    tmp_path: Path, record_property: Callable[[str, object], None], fence: FenceVariant, way: str
) -> None:
    """Before and after each call, and at each step that is written down; the journal says which it became."""
    clean = AtPoint(0)
    run_virtual(cut_cancelled_at(tmp_path / "0", fence, way, clean))
    numbers = range(1, clean.passed + 1, 1 if IS_WHOLE else 4 if way == "task" else 12)
    for number in numbers:
        try:
            run_virtual(cut_cancelled_at(tmp_path / str(number), fence, way, AtPoint(number)))
        except BaseException as error:
            error.add_note(f"cancelled at point {number} of {clean.passed}")
            raise
    record_property("swept", f"points at which a cut is cancelled: {len(numbers)}")


@pytest.mark.parametrize("fence", FENCES)
def test_a_restore_may_be_cancelled_at_any_call_and_any_record(
    tmp_path: Path, record_property: Callable[[str, object], None], fence: FenceVariant
) -> None:
    """Before and after each call, and at each step that is written down."""
    run_virtual(cut_cancelled_at(tmp_path / "saved", fence, "task", AtPoint(0)))

    def root(number: int) -> Path:
        shutil.copytree(tmp_path / "saved" / "snapshots", tmp_path / str(number) / "snapshots")
        return tmp_path / str(number)

    clean = AtPoint(0)
    run_virtual(restore_cancelled_at(root(0), fence, clean))
    numbers = range(1, clean.passed + 1, 1 if IS_WHOLE else 3)
    for number in numbers:
        try:
            run_virtual(restore_cancelled_at(root(number), fence, AtPoint(number)))
        except BaseException as error:
            error.add_note(f"cancelled at point {number} of {clean.passed}")
            raise
    record_property("swept", f"points at which a restore is cancelled: {len(numbers)}")


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_caller_whose_time_is_over_leaves_everybody_open(tmp_path: Path, fence: FenceVariant) -> None:
    """``asyncio.timeout`` around a cut: TimeoutError and nothing else, after everybody was reopened."""
    fleet = Fleet(fence)
    stuck = fleet.stuck("slow")
    async with fleet.controller(tmp_path) as controller:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0), controller.cut("step"):
                raise AssertionError("it never gets there")
        assert await fleet.everybody_accepts()
        assert journal_ends(tmp_path) == {"aborted"}
    stuck.cancel()
