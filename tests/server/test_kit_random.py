"""Random control traffic over whole servers: every call is answered, and everybody can be opened again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asgi import Caller
from support.kit import Kit
from support.stores import A0, settle
from support.virtual_loop import run_virtual

from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.participants.server.runs import Runs

PATHS = {
    "policy": ("/model-admission/{}", "/model-checkpoint/{}", "pause"),
    "agent": ("/agent-checkpoint/{}", "/agent-checkpoint/{}", "prepare"),
    "resources": ("/resources-checkpoint/{}", "/resources-checkpoint/{}", "prepare"),
}
NAMES = ("prepare", "resume", "commit", "restore", "status")

Order = tuple[str, str, float, float, bool]
ORDERS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from([-1.0, 0.5, 5.0, 60.0]),  # deadline
        st.sampled_from([0.0, 0.0, 0.1, 1.0, 40.0]),  # time until the next
        st.booleans(),  # the client leaves
    ),
    max_size=14,
)


async def _now_and_then_at_a_boundary(runs: Runs) -> None:
    async with runs.begin(A0) as execution:
        for index in range(1, 1_000_000):
            await asyncio.sleep(2.0)
            await execution.commit_boundary(boundary_index=index)


def _send(kit: Kit, component: str, order: Order, directory: Path) -> Caller:
    name, id_, in_s, _, _ = order
    admission, checkpoint, prepare = PATHS[component]
    server = kit.server(component)
    if name == "status":
        return kit.asking(server, admission.format("status"), id_, in_s=in_s)
    if name in {"prepare", "resume"}:
        return kit.sending(server, admission.format(prepare if name == "prepare" else name), id_, in_s=in_s)
    members: dict[str, object] = {"checkpoint_dir": str(directory / id_)}
    if component == "policy" and name == "commit":
        members["continuation_indexes"] = []
    return kit.sending(server, checkpoint.format(name), id_, in_s=in_s, members=members)


async def _live(component: str, variant: FenceVariant, orders: list[Order], directory: Path) -> None:
    kit = Kit(variant)
    server = kit.server(component)
    await kit.stores.seed(A0)
    work: list[asyncio.Future[None]] = [asyncio.ensure_future(_now_and_then_at_a_boundary(kit.stores.runs))]
    busy = [kit.work_call(kit.policy, "/v1/responses", A0), kit.work_call(kit.resources, "/hang", A0)]
    asyncio.get_running_loop().call_later(3.0, kit.work.go.set)
    calls = []
    for order in orders:
        call = _send(kit, component, order, directory)
        calls.append(call)
        await settle(3)
        if order[4]:
            call.task.cancel()
        await asyncio.sleep(order[3])
        if variant is FenceVariant.STRICT:
            assert server.fence.state.closed is (server.fence.state.active is not None)
    await asyncio.sleep(100.0)  # whatever still ran has ended
    assert server.fence.state.running == frozenset()
    for order, call in zip(orders, calls, strict=True):
        assert order[4] or call.status in {200, 409, 500}, order
    await _opens_again(kit, component)
    for call in busy:
        assert (await call.done()).status in {200, 409}
    work[0].cancel()
    await asyncio.gather(*work, *(call.task for call in calls), return_exceptions=True)


async def _opens_again(kit: Kit, component: str) -> None:
    """A resume under the id that holds the fence, or a fresh one, opens the server, whatever was done to it."""
    server = kit.server(component)
    active = server.fence.state.active
    holder = "fresh" if active is None else str(active)
    resumed = await kit.post(server, PATHS[component][0].format("resume"), holder)
    assert resumed.status == 200
    state = server.fence.state
    assert (state.phase, state.active, state.closed) == (FencePhase.IDLE, None, False)


@pytest.mark.parametrize("component", list(PATHS))
@pytest.mark.parametrize("variant", [FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE])
def test_any_traffic_is_answered_and_leaves_a_server_that_can_be_opened(
    component: str, variant: FenceVariant, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Calls in any order, with any deadline, from clients that may leave: none hangs, and a resume always opens."""

    @settings(max_examples=40, deadline=None)
    @given(ORDERS)
    def lives(orders: list[Order]) -> None:
        run_virtual(_live(component, variant, orders, tmp_path_factory.mktemp("cut")))

    lives()
