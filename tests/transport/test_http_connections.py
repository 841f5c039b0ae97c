"""How many connections there are, how long they are kept, and what is left of a call."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import uvicorn
from support.control_app import ControlApp
from support.servers import Peer, bare, served

from quiesce.participants.errors import ConfigurationError, MaybeApplied
from quiesce.transport import KEEPALIVE_S, REQUEST_BODY_MAX, ControlRequest, HttpTransport


def call(url: str, method: str = "POST", timeout_s: float = 60.0) -> ControlRequest:
    """A call with plenty of time."""
    return ControlRequest(participant="tools", method=method, url=url, timeout_s=timeout_s)


async def _serve_for_ever(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.reply()


def test_connections_are_kept_for_less_time_than_servers_keep_theirs() -> None:
    """The default is below uvicorn's, so that no POST meets a connection that its server is just closing."""
    servers_s = inspect.signature(uvicorn.Config).parameters["timeout_keep_alive"].default
    assert 0 < KEEPALIVE_S < servers_s / 2


@pytest.mark.parametrize(("keepalive_s", "connections"), [(1000.0, 1), (1e-9, 3)])
async def test_an_idle_connection_is_reused_until_it_expires(keepalive_s: float, connections: int) -> None:
    """Calls one after the other share a connection, and never one that was idle for too long."""
    async with bare(_serve_for_ever) as wire:
        transport = HttpTransport(keepalive_s=keepalive_s)
        for _ in range(3):
            await transport.send(call(wire.url + "/prepare"))
        await transport.aclose()
        assert wire.connections == connections
        assert len(wire.heads) == 3


async def test_a_read_is_repeated_on_a_fresh_connection() -> None:
    """A GET that meets a connection which just closed is sent again; it changes nothing."""

    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.reply()
        if (await peer.request()).startswith(b"GET /b") and wire.connections > 1:
            await peer.reply()

    async with bare(once) as wire:
        transport = HttpTransport(keepalive_s=1000)
        await transport.send(call(wire.url + "/a", "GET"))
        assert (await transport.send(call(wire.url + "/b", "GET"))).status == 200
        await transport.aclose()
        assert (wire.connections, len(wire.heads)) == (2, 3)


async def test_a_bounded_number_of_connections_completes_a_larger_wave() -> None:
    """Fifty calls through four connections all succeed, never more than four at once, and none is left open."""
    app = ControlApp()
    async with served(app) as url:
        transport = HttpTransport(max_connections=4)
        app.expected = 4
        replies = await asyncio.gather(*(transport.send(call(url + "/meet")) for _ in range(50)))
        assert {reply.status for reply in replies} == {200}
        assert app.inside_peak == 4
        assert transport.open_connections == 0
        await transport.aclose()


async def test_a_bound_holds_over_many_origins() -> None:
    """A connection that is idle at one participant does not keep another one from being called."""
    app = ControlApp()
    async with served(app) as one, served(app) as two, served(app) as three:
        transport = HttpTransport(max_connections=1)
        for _ in range(2):
            for url in (one, two, three):
                assert (await transport.send(call(url + "/status/200"))).status == 200
                assert transport.open_connections == 0
        await transport.aclose()


async def test_cancelling_many_calls_leaves_nothing_open() -> None:
    """Two hundred calls cancelled while they connect or wait: no connection, no task, nothing in the way of others."""
    app = ControlApp()
    async with served(app) as url:
        transport = HttpTransport()
        calls = [asyncio.create_task(transport.send(call(url + "/hang"))) for _ in range(100)]
        await app.started.wait()
        calls += [asyncio.create_task(transport.send(call(url + "/hang"))) for _ in range(100)]
        await asyncio.sleep(0)
        for each in calls:
            each.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} == {asyncio.CancelledError}
        assert transport.open_connections == 0
        assert (await transport.send(call(url + "/status/200"))).status == 200
        app.release.set()
        await transport.aclose()


async def test_a_request_that_is_not_read_ends_too() -> None:
    """A large body that the server does not take ends with its time-out, and the task that writes it with it."""

    async def deaf(_: Peer) -> None:
        await left.wait()

    left = asyncio.Event()
    async with bare(deaf) as wire:
        transport = HttpTransport()
        before = asyncio.all_tasks()
        large = ControlRequest(
            participant="tools", method="POST", url=wire.url, timeout_s=0.2, body=bytes(REQUEST_BODY_MAX)
        )
        with pytest.raises(MaybeApplied, match="no complete reply"):
            await transport.send(large)
        assert transport.open_connections == 0
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() - before if "write_bytes" in str(task.get_coro())] == []
        left.set()
        await transport.aclose()


async def test_an_unusable_reply_costs_its_connection() -> None:
    """What is left of a reply that was not read to its end never becomes the next call's reply."""

    async def two(peer: Peer) -> None:
        await peer.request()
        if wire.connections == 1:
            await peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"x" * 50)
        else:
            await peer.reply(b"fresh")
        await peer.until_left()

    async with bare(two) as wire:
        transport = HttpTransport(keepalive_s=1000)
        capped = ControlRequest(participant="tools", method="POST", url=wire.url, timeout_s=60, body_cap=10)
        with pytest.raises(MaybeApplied, match="larger than the 10 bytes"):
            await transport.send(capped)
        assert (await transport.send(call(wire.url + "/prepare"))).body == b"fresh"
        await transport.aclose()


@pytest.mark.parametrize(
    "options",
    [{"max_connections": 0}, {"max_connections": -1}, {"keepalive_s": 0}, {"connect_timeout_s": float("nan")}],
)
def test_options_that_make_no_sense(options: dict[str, float]) -> None:
    """A bound of nothing, or a time that is none, is refused at once."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        HttpTransport(**options)  # type: ignore[arg-type]  # one bad option at a time


def test_a_transport_can_be_made_without_a_loop() -> None:
    """Construction opens nothing and needs no event loop; its repr tells the bound."""
    transport = HttpTransport(max_connections=7)
    assert transport.open_connections == 0
    assert "7" in repr(transport)
    asyncio.run(transport.aclose())
