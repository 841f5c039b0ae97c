"""What a program's callbacks raise, also where it is no exception but an end of the program: nobody stays closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from support.fleet import FLEETS, TOKEN, Fleet, keep
from support.served_fleet import served_fleet
from support.virtual_loop import VirtualLoop

from quiesce.controller import BlockingController, Controller, Cut
from quiesce.controller.ports import CompletedResult
from quiesce.fsm.tables.transaction import TRANSACTION
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.replies import CompletionReceipt
from quiesce.transport import StaticTokenProvider

ENDS = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)
every_end = pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)


def raises(end: type[BaseException], target: str) -> Callable[[TraceRecord], None]:
    """An observer that raises once, when the transaction comes to a state."""
    seen: list[str] = []

    def observe(trace: TraceRecord) -> None:
        if trace.machine == TRANSACTION.name and trace.target == target and not seen:
            seen.append(target)
            raise end

    return observe


def run(program: Callable[[Fleet], Coroutine[None, None, None]]) -> type[BaseException] | None:
    """Run a program as ``asyncio.run`` does; what ended it. Then nobody is closed, and no call of it runs any more."""
    fleets: list[Fleet] = []
    ended: type[BaseException] | None = None

    async def whole() -> None:
        fleets.append(Fleet())
        await fleets[0].rollout("done", 1)
        await program(fleets[0])

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            runner.run(whole())
        except BaseException as error:  # noqa: BLE001 - what it is, the test compares
            ended = type(error)
        assert runner.run(fleets[0].everybody_accepts())
    return ended


def labels(root: Path) -> list[str]:
    """What was published."""
    return [entry.name.partition("-e-")[0] for entry in (root / "snapshots").iterdir()]


@every_end
@pytest.mark.parametrize("target", ["preflight", "draining", "paused", "committed", "published", "resumed"])
def test_an_observer_changes_nothing(tmp_path: Path, end: type[BaseException], target: str) -> None:
    """But a Ctrl-C that strikes there is passed on to the program: before the snapshot is published, it aborts."""

    async def program(fleet: Fleet) -> None:
        observers = (raises(end, target),)
        controller = fleet.controller(tmp_path, on_completed=keep, observers=observers)
        async with controller, controller.cut("step-1"):
            pass

    assert run(program) is (KeyboardInterrupt if end is KeyboardInterrupt else None)
    is_published = end is not KeyboardInterrupt or target in ("published", "resumed")
    assert len(labels(tmp_path)) == is_published


@every_end
@pytest.mark.parametrize("is_async", [False, True])
def test_on_completed_fails_the_cut(tmp_path: Path, end: type[BaseException], is_async: bool) -> None:  # noqa: FBT001 - a parameter of a test
    """Whatever it raises is an error of the cut, which is aborted."""

    def fails(_results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        raise end

    async def fails_later(results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        await asyncio.sleep(0.1)
        return fails(results)

    async def program(fleet: Fleet) -> None:
        on_completed = fails_later if is_async else fails
        async with fleet.controller(tmp_path, on_completed=on_completed) as controller, controller.cut("step-1"):
            raise AssertionError

    ended = run(program)
    assert ended is KeyboardInterrupt if end is KeyboardInterrupt else ended is not None
    assert labels(tmp_path) == []


@every_end
def test_the_body_of_an_asked_cut_fails_it(tmp_path: Path, end: type[BaseException]) -> None:
    """The last cut is aborted; the program ends as announced."""

    def body(_cut: Cut) -> None:
        raise end

    async def program(fleet: Fleet) -> None:
        config = fleet.controller(tmp_path).config
        async with Controller(
            config, on_completed=keep, on_asked_cut=body, transport=fleet.transport(), clock=fleet.clock
        ) as controller:
            controller.take_last_cut("asked")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    run(program)
    assert labels(tmp_path) == []


@pytest.mark.parametrize("clock", ["now_ts", "monotonic"])
def test_ctrl_c_in_the_writer_aborts(tmp_path: Path, clock: str) -> None:
    """A second one is raised wherever the loop is: also there, the cut is aborted and nobody waits for ever."""
    struck, reached = 0, [0]
    while reached[0] == struck:
        struck += 1
        reached = [0]
        ended = run(lambda fleet: cut_with(fleet, tmp_path / str(struck), clock, struck, reached))  # noqa: B023 - runs now
        assert (ended is None) == (reached[0] < struck)
    assert struck > 20
    FLEETS.clear()  # a step that was struck before it was recorded is missing in what was told


async def cut_with(fleet: Fleet, root: Path, clock: str, at: int, reached: list[int]) -> None:
    """A cut whose writer is interrupted where it looks at its clock, at the given time that it does."""
    look = getattr(fleet.clock, clock)

    def interrupted() -> float:
        task = asyncio.current_task()
        if task is not None and task.get_name().startswith("transaction") and reached[0] < at:
            reached[0] += 1
            if reached[0] == at:
                raise KeyboardInterrupt
        seen: float = look()
        return seen

    setattr(fleet.clock, clock, interrupted)
    async with fleet.controller(root, on_completed=keep) as controller, controller.cut("step-1"):
        pass


@every_end
def test_an_observer_of_a_blocking_controller(tmp_path: Path, end: type[BaseException]) -> None:
    """It is called on the loop's thread; a Ctrl-C is passed on to the thread that waits."""
    with served_fleet() as servers:
        controller = BlockingController(
            servers.config(tmp_path),
            on_completed=keep,
            tokens=StaticTokenProvider(TOKEN),
            observers=(raises(end, "draining"),),
        )
        expected = pytest.raises(KeyboardInterrupt) if end is KeyboardInterrupt else contextlib.nullcontext()
        with expected, controller, controller.cut("step-1"):
            pass
        assert servers.everybody_accepts()
    assert len(labels(tmp_path)) == (end is not KeyboardInterrupt)
