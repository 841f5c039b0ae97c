"""Random traffic and random workers at a recorded coordinator: every call is answered, and it can be opened again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.asgi import Caller
from support.coordinated import CoordinatedKit
from support.stores import A0, B0, settle
from support.virtual_loop import run_virtual

from quiesce.fsm.tables.fence import FencePhase
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.server import ControlRefusal

REPLIES: dict[str, type[BaseModel]] = {
    "pause": wire.PauseReply,
    "resume": wire.ResumeReply,
    "abort_inflight": wire.AbortInflightReply,
    "commit": wire.ModelCommitReply,
    "restore": wire.ModelRestoreReply,
    "status": wire.CoordinatorStatus,
}
WORKER_NAMES = ("w0", "w1")
CALLS = st.tuples(
    st.sampled_from(sorted(REPLIES)),
    st.sampled_from(["x", "y", "z"]),
    st.sampled_from([-1.0, 0.2, 5.0, 60.0]),  # deadline
    st.booleans(),  # the client leaves
)
CHANGES = st.tuples(
    st.sampled_from(WORKER_NAMES), st.sampled_from(["leave", "register", "fall_silent", "wake", "slow", "quick"])
)
ORDERS = st.lists(st.tuples(CALLS | CHANGES, st.sampled_from([0.0, 0.0, 0.1, 0.5, 3.0])), max_size=16)


def change(kit: CoordinatedKit, name: str, what: str) -> None:
    """Something becomes of a worker."""
    worker = kit.workers[name]
    match what:
        case "register":
            try:
                kit.workers.register(name)
            except ControlRefusal:
                assert worker.gate.closed
        case "slow" | "quick":
            worker.slow_down(1.0 if what == "slow" else 0.0)
        case _:
            getattr(worker, what)()


def send(kit: CoordinatedKit, call: tuple[str, str, float, bool], directory: Path) -> Caller:
    """A control call on its way."""
    name, id_, in_s, _ = call
    members: dict[str, Any] = {}
    match name:
        case "status":
            return kit.asking(id_, wait_state="paused", timeout_s=1.0)
        case "commit" | "restore":
            members = {"checkpoint_dir": str(directory / id_)}
            if name == "commit":
                members["continuation_indexes"] = []
            return kit.sending(f"/model-checkpoint/{name}", id_, in_s=in_s, at=kit.model_server, **members)
        case "abort_inflight":
            members = A0._asdict()
    return kit.sending(f"/model-admission/{name}", id_, in_s=in_s, **members)


async def live(orders: list[tuple[Any, float]], directory: Path) -> None:
    """One life of a coordinator; in the end its workers are well again, and it is opened."""
    kit = CoordinatedKit()
    busy = [kit.work_call("w0", A0), kit.work_call("w1", B0)]
    asyncio.get_running_loop().call_later(2.0, kit.work.go.set)
    calls: list[tuple[str, Caller]] = []
    for order, pause_s in orders:
        if len(order) == 2:
            change(kit, *order)
        else:
            calls.append((order[0], send(kit, order, directory)))
            await settle(3)
            if order[3]:
                calls.pop()[1].task.cancel()
        await asyncio.sleep(pause_s)
    await asyncio.sleep(100.0)  # whatever still ran has ended
    for name, call in calls:
        assert call.status in {200, 409, 500}, (name, call.status)
        if call.status == 200:
            REPLIES[name].model_validate_json(call.raw)
    assert kit.control.fence.state.running == frozenset()
    await opens_again(kit)
    assert {(await call.done()).status for call in busy} <= {200, 409}


async def opens_again(kit: CoordinatedKit) -> None:
    """Whoever holds it is resumed, which lets a missing worker register (F19), and a pause with its resume heals it."""
    for name in WORKER_NAMES:
        kit.workers[name].slow_down(0.0)
        kit.workers[name].wake()
    state = kit.control.fence.state
    holder = "fresh" if state.active is None else str(state.active)
    if state.phase is not FencePhase.IDLE:
        assert (await kit.resume(holder)).code in {None, "missing_workers"}
    for name in WORKER_NAMES:
        if not kit.workers[name].connected:
            kit.workers.register(name)
    if kit.control.fence.state.phase is not FencePhase.IDLE:
        assert (await kit.resume(holder)).status == 200
    assert (await kit.pause("healing")).status == 200
    assert (await kit.resume("healing")).status == 200
    assert kit.where() == ("idle", None, [False, False])


def test_any_traffic_is_answered_and_leaves_a_coordinator_that_can_be_opened(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Calls in any order from clients that may leave, workers that come and go: none hangs, and calls open it again."""

    @settings(max_examples=200, deadline=None)
    @given(ORDERS)
    def lives(orders: list[tuple[Any, float]]) -> None:
        run_virtual(live(orders, tmp_path_factory.mktemp("cut")))

    lives()
