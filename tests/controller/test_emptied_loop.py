"""An event loop that ends everything in it, as asyncio.run does at a second Ctrl-C: nothing hangs or is forgotten."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import VirtualLoop

from quiesce.controller.catalog import SnapshotState
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.transport.port import ControlReply, ControlRequest, Transport

T = TypeVar("T")
IS_WHOLE = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
SHARDS = range(1, 4 if IS_WHOLE else 2)
"""Every turn is in one of them; what is not the whole takes steps instead."""
pytestmark = pytest.mark.timeout(900 if IS_WHOLE else 120)


class EmptyingLoop(VirtualLoop):
    """Cancels a task, and at a later turn everything that came of it, but for what goes on in the servers."""

    def __init__(self, first: int, later: int) -> None:
        super().__init__()
        self._first, self._then = first, first + later
        self._turn = 0
        self._target: asyncio.Task[None] | None = None
        self._spared: set[asyncio.Task[object]] = set()

    def aim(self, task: asyncio.Task[None]) -> None:
        self._target, self._turn = task, 0
        self._spared = asyncio.all_tasks(self) - {task}

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:  # noqa: ANN401 - asyncio's own signature
        """What a spared task begins is spared as well."""
        task = super().create_task(coro, **named)
        if asyncio.current_task(self) in self._spared:
            self._spared.add(task)
        return task

    def spare(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that is not ended with the others."""
        task = self.create_task(work)
        self._spared.add(task)
        return task

    def _run_once(self) -> None:
        self._turn += 1
        if self._target is not None and self._turn == self._first:
            self._target.cancel()
        if self._target is not None and self._turn == self._then:
            for task in asyncio.all_tasks(self) - self._spared:
                task.cancel()
        super()._run_once()  # type: ignore[misc]  # asyncio's own, which its stubs do not show


class Elsewhere:
    """A transport whose calls, once sent, go on in the server whatever becomes of the client."""

    def __init__(self, inner: Transport, loop: EmptyingLoop) -> None:
        self._inner = inner
        self._loop = loop

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry a call."""
        return await asyncio.shield(self._loop.spare(self._inner.send(request)))

    async def aclose(self) -> None:
        """Nothing of its own is held."""
        await self._inner.aclose()


async def emptied(loop: EmptyingLoop, root: Path, fence: FenceVariant) -> bool:
    """A cut in a loop that is emptied, and the controller after it; whether the cut was still there to be ended."""
    fleet = Fleet(fence)
    await fleet.seed_session("r0")
    controller = fleet.controller(root, on_completed=keep, transport=Elsewhere(fleet.transport(), loop))
    await controller.open()

    async def take() -> None:
        async with controller.cut("step") as cut:
            await asyncio.sleep(0.1)
            (cut.directory / "trainer" / "weights").write_text("w")

    task = asyncio.create_task(take())
    loop.aim(task)
    ended, _ = await asyncio.wait([task], timeout=600.0)
    assert ended, "it hangs"
    await controller.close()
    async with fleet.controller(root, on_completed=keep) as controller:
        assert controller.unsettled is None, controller.unsettled.held()
        assert await fleet.everybody_accepts()
        assert {entry.state for entry in controller.store.list()} <= {SnapshotState.VALID}
    return task.cancelled() or task.exception() is not None


@pytest.mark.parametrize("first", SHARDS)
@pytest.mark.parametrize("later", [1, 2, 5, 20])
@pytest.mark.parametrize("fence", FENCES)
def test_whatever_is_under_way_ends_and_the_next_controller_finishes_it(
    tmp_path: Path, record_property: Callable[[str, object], None], fence: FenceVariant, later: int, first: int
) -> None:
    """At every turn of the loop of a cut; what nobody finished any more stands in the journal (F-32)."""
    step = len(SHARDS) if IS_WHOLE else 37
    for turn in itertools.count(first, step):
        with asyncio.Runner(loop_factory=partial(EmptyingLoop, turn, later)) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, EmptyingLoop)
            try:
                alive = runner.run(emptied(loop, tmp_path / str(turn), fence))
            except BaseException as error:
                error.add_note(f"at turn {turn}")
                raise
        if not alive:
            break
    assert turn > 100
    record_property("swept", f"turns of the loop at which it ends all of its tasks: {(turn - first) // step}")
