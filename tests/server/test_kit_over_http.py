"""The kit behind a real HTTP server: what only sockets can show."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import httpx
from support.kit import CONTROL, TOKEN, Kit
from support.servers import served
from support.stores import A0

from quiesce.fsm.tables.fence import FencePhase
from quiesce.participants.dialects.gym_a.routes import INSTANCE_HEADER
from quiesce.participants.server.runs import Runs


async def _never_at_a_boundary(runs: Runs) -> None:
    async with runs.begin(A0):
        await asyncio.get_running_loop().create_future()


async def _send_and_leave(origin: str, path: str, body: dict[str, object], arrived: asyncio.Event) -> None:
    """Send a control POST, wait until it has arrived, and close the connection without reading a reply."""
    address = urlsplit(origin)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    content = json.dumps(body).encode()
    head = (
        f"POST {CONTROL}{path} HTTP/1.1\r\nhost: kit\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    await writer.drain()
    await arrived.wait()
    writer.close()
    await writer.wait_closed()


async def test_a_prepare_runs_on_after_its_client_has_disconnected() -> None:
    """F17: the handler outlives its client, holds the fence for its id, and a resume ends it."""
    kit = Kit()
    arrived = asyncio.Event()
    real = kit.stores.runs.request_park

    def request_park() -> None:
        real()
        arrived.set()

    kit.stores.runs.request_park = request_park  # type: ignore[method-assign]  # tells when the call is in
    busy = asyncio.ensure_future(_never_at_a_boundary(kit.stores.runs))
    async with served(kit.agent) as origin, httpx.AsyncClient(base_url=origin, headers=kit.bearer()) as client:
        body = {"checkpoint_id": "x", "deadline_ts": kit.deadline(60)}
        await _send_and_leave(origin, "/agent-checkpoint/prepare", body, arrived)
        seen = await client.get(f"{CONTROL}/capabilities")
        assert (seen.json()["phase"], seen.json()["active_checkpoint_id"]) == ("preparing", "x")
        assert len(kit.agent.fence.state.running) == 1
        resumed = await client.post(f"{CONTROL}/agent-checkpoint/resume", json=body)
        assert resumed.status_code == 200
        assert resumed.headers[INSTANCE_HEADER] == kit.agent.instance
    assert kit.agent.fence.state.phase is FencePhase.IDLE
    assert kit.agent.fence.state.running == frozenset()
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)


async def test_a_stream_is_counted_over_a_real_connection() -> None:
    """A model call that streams is in flight until its end, then the pause has drained by itself."""
    kit = Kit()
    async with served(kit.policy) as origin, httpx.AsyncClient(base_url=origin, headers=kit.bearer()) as client:
        async with client.stream("POST", "/v1/chat/completions", json={}) as reply:
            chunks = reply.aiter_bytes()
            assert await anext(chunks) == b"first "
            body = {"checkpoint_id": "x", "deadline_ts": kit.deadline(60)}
            paused = await client.post(f"{CONTROL}/model-admission/pause", json=body)
            assert paused.json()["state"] == "draining"
            kit.work.go.set()
            assert [chunk async for chunk in chunks] == [b"last"]
        status = await client.get(
            f"{CONTROL}/model-admission/status",
            params={"checkpoint_id": "x", "deadline_ts": kit.deadline(60), "wait_state": "paused", "timeout_s": 30},
        )
        assert status.json()["state"] == "paused"
        assert kit.policy.fence.state.phase is FencePhase.PREPARED


async def test_two_tokens_are_none() -> None:
    """A second authorization header is refused although the first is right: nobody knows which one a proxy believed."""
    kit = Kit()
    right = ("authorization", f"Bearer {TOKEN}")
    async with served(kit.agent) as origin, httpx.AsyncClient(base_url=origin) as client:
        body = {"checkpoint_id": "x", "deadline_ts": kit.deadline(60)}
        path = f"{CONTROL}/agent-checkpoint/resume"
        for headers in ([right, right], [right, ("authorization", "Bearer wrong")]):
            assert (await client.post(path, json=body, headers=headers)).status_code == 401
        assert (await client.post(path, json=body, headers=[right])).status_code == 200
