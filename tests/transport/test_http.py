"""What only a network can do: each failure is told apart by whether a byte of the request may have left."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.servers import Peer, Script, bare, closed_port

from quiesce.participants.errors import ConfigurationError, MaybeApplied, NeverSent
from quiesce.transport import ControlReply, ControlRequest, HttpTransport, StaticTokenProvider

AUTHORITY = trustme.CA()
"""Made anew in each run; nobody else vouches for it."""
CANARY = "canary-7c1f"


def call(url: str, **parts: Any) -> ControlRequest:  # noqa: ANN401 - any field of the request
    """A POST with plenty of time, unless told otherwise."""
    parts = {"participant": "tools", "method": "POST", "body": b"{}", "timeout_s": 30.0, **parts}
    return ControlRequest(url=url, **parts)


async def send(url: str, transport: HttpTransport | None = None, **parts: Any) -> ControlReply:  # noqa: ANN401 - as call
    """One call over a transport of its own; nothing may stay open after it."""
    transport = transport or HttpTransport()
    try:
        return await transport.send(call(url, **parts))
    finally:
        await transport.aclose()
        assert transport.open_connections == 0


def server_tls() -> ssl.SSLContext:
    """A server's context with a certificate that nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


class TestNeverSent:
    """Until a connection is there, nothing has left."""

    async def test_a_refused_port(self) -> None:
        """A server that is not there is never sent to, and the text says why."""
        with pytest.raises(NeverSent, match="cannot be connected to: Connection refused"):
            await send(f"http://127.0.0.1:{closed_port()}/prepare")

    async def test_an_unknown_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name that does not resolve is never sent to."""

        async def unknown(*_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
        with pytest.raises(NeverSent, match="its host name cannot be resolved"):
            await send("http://participant.invalid/prepare")

    async def test_a_host_name_that_is_none(self) -> None:
        """A host that no resolver could be asked for is never sent to."""
        with pytest.raises(NeverSent):
            await send("http://xn--/prepare")

    async def test_an_untrusted_certificate(self) -> None:
        """A certificate that nobody vouches for ends the call before anything is sent, token included."""
        async with bare(Peer.until_left, tls=server_tls()) as wire:
            with pytest.raises(NeverSent, match=r"certificate is not trusted: unable to get local issuer"):
                await send(wire.url + "/prepare")
            assert wire.heads == []

    async def test_a_server_that_speaks_no_tls(self) -> None:
        """A plain server at an https URL fails in the handshake."""

        async def plain(peer: Peer) -> None:
            await peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with bare(plain) as wire:
            with pytest.raises(NeverSent, match="TLS handshake failed"):
                await send(wire.url.replace("http:", "https:") + "/prepare")

    @pytest.mark.parametrize(
        ("connect_timeout_s", "timeout_s", "reason"),
        [(0.05, 1000.0, "connecting to it took too long"), (1000.0, 0.05, "no connection to it within 0.05 s")],
    )
    async def test_a_connection_that_is_never_ready(
        self, connect_timeout_s: float, timeout_s: float, reason: str
    ) -> None:
        """Whichever time-out ends a handshake that nobody answers, nothing was sent."""
        async with bare(Peer.until_left) as wire:
            url = wire.url.replace("http:", "https:") + "/prepare"
            with pytest.raises(NeverSent, match=reason):
                await send(url, HttpTransport(connect_timeout_s=connect_timeout_s), timeout_s=timeout_s)

    async def test_a_place_in_the_pool_that_is_never_free(self) -> None:
        """A call that waits for its turn until its time is up was never sent."""
        async with bare(_read_and_wait) as wire:
            transport = HttpTransport(max_connections=1)
            first = asyncio.create_task(transport.send(call(wire.url + "/hang")))
            while not wire.heads:  # noqa: ASYNC110 - what is awaited is a request on a socket
                await asyncio.sleep(0.001)
            with pytest.raises(NeverSent, match=r"no connection to it within 0\.05 s"):
                await transport.send(call(wire.url + "/prepare", timeout_s=0.05))
            waiting = asyncio.create_task(transport.send(call(wire.url + "/prepare")))
            await asyncio.sleep(0)
            await transport.aclose()
            with pytest.raises(MaybeApplied, match="closed during the call"):
                await first
            with pytest.raises(NeverSent, match="closed"):
                await waiting
            assert len(wire.heads) == 1


async def _read_and_wait(peer: Peer) -> None:
    await peer.request()
    await peer.until_left()


async def _read_and_close(peer: Peer) -> None:
    await peer.request()


async def _read_and_reset(peer: Peer) -> None:
    await peer.request()
    peer.reset()


async def _half_a_body(peer: Peer) -> None:
    await peer.request()
    await peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")


async def _half_a_chunk(peer: Peer) -> None:
    await peer.request()
    await peer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n64\r\nhalf")


async def _half_a_head(peer: Peer) -> None:
    await peer.request()
    await peer.write(b"HTTP/1.1 200 OK\r\ncontent-le")


async def _garbage(peer: Peer) -> None:
    await peer.request()
    await peer.write(b"\x00\x01" + CANARY.encode() + b"\r\n\r\n")
    await peer.until_left()


async def _endless_head(peer: Peer) -> None:
    await peer.request()
    await peer.write(b"HTTP/1.1 200 OK\r\nx-fill: " + b"x" * 100_000)
    await peer.until_left()


class TestMaybeApplied:
    """As soon as something may have left, nobody can say that it was not applied."""

    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            (_read_and_close, "closed the connection before it replied"),
            (_read_and_reset, "the connection broke"),
            (_half_a_head, "closed the connection before it replied"),
            (_half_a_body, "the reply was cut in its middle"),
            (_half_a_chunk, "the reply was cut in its middle"),
            (_garbage, "what it answered is not HTTP"),
            (_endless_head, "what it answered is not HTTP"),
        ],
    )
    async def test_a_reply_that_is_none(self, script: Script, reason: str) -> None:
        """Cut, reset or no HTTP at all: the request was delivered, once, and no byte of the reply is repeated."""
        async with bare(script) as wire:
            with pytest.raises(MaybeApplied, match=reason) as caught:
                await send(wire.url + "/prepare")
            assert len(wire.heads) == 1
        assert CANARY not in str(caught.value)

    async def test_a_server_that_hangs(self) -> None:
        """Silence after the request ends with the time-out, and the connection with it."""
        async with bare(_read_and_wait) as wire:
            with pytest.raises(MaybeApplied, match=r"no complete reply within 0\.1 s"):
                await send(wire.url + "/prepare", timeout_s=0.1)
            await wire.over.wait()

    @pytest.mark.parametrize(
        "head", [b"HTTP/1.1 200 OK\r\nx-fill: ", b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n"]
    )
    async def test_slow_bytes_do_not_stretch_the_time_out(self, head: bytes) -> None:
        """A byte now and then, in the head or in the body, is no reason to wait for longer than the whole may take."""

        async def trickle(peer: Peer) -> None:
            await peer.request()
            await peer.write(head)
            while True:
                await peer.write(b"x")
                await asyncio.sleep(0.01)

        async with bare(trickle) as wire:
            with pytest.raises(MaybeApplied, match=r"no complete reply within 0\.1 s"):
                await send(wire.url + "/prepare", timeout_s=0.1)
            await wire.over.wait()

    @pytest.mark.parametrize("length", [b"", b"content-length: 100000000\r\n"])
    async def test_a_hundred_megabytes_are_not_read(self, length: bytes) -> None:
        """Reading stops at the cap and the connection is closed, whether the length was declared or not."""
        chunked = b"" if length else b"transfer-encoding: chunked\r\n"

        async def flood(peer: Peer) -> None:
            await peer.request()
            await peer.write(b"HTTP/1.1 200 OK\r\n" + length + chunked + b"\r\n")
            piece = b"x" * 100_000
            for _ in range(1000):
                await peer.write(piece if length else b"%x\r\n%b\r\n" % (len(piece), piece))

        async with bare(flood) as wire:
            with pytest.raises(MaybeApplied, match="larger than the 1048576 bytes"):
                await send(wire.url + "/commit", body_cap=2**20)
            await wire.over.wait()
            assert wire.written < 30_000_000  # the cap and what the sockets' own buffers took

    @pytest.mark.parametrize("encoding", [b"gzip", b"br", b"GZIP, identity"])
    async def test_a_compressed_body_is_refused(self, encoding: bytes) -> None:
        """A content encoding that was not asked for is refused unread: it could unpack to any size."""

        async def compressed(peer: Peer) -> None:
            await peer.request()
            await peer.reply(gzip.compress(b"x" * 1_000_000), headers=b"content-encoding: %b\r\n" % encoding)

        async with bare(compressed) as wire:
            with pytest.raises(MaybeApplied, match="content encoding"):
                await send(wire.url + "/commit")

    async def test_a_kept_connection_that_dies(self) -> None:
        """A POST that meets a dying connection may have been applied, and is not sent again."""

        async def once(peer: Peer) -> None:
            await peer.request()
            await peer.reply()
            await peer.request()

        async with bare(once) as wire:
            transport = HttpTransport(keepalive_s=1000)
            assert (await transport.send(call(wire.url + "/a"))).status == 200
            with pytest.raises(MaybeApplied, match="closed the connection before it replied"):
                await send(wire.url + "/b", transport)
            assert (wire.connections, len(wire.heads)) == (1, 2)


class TestReplies:
    """What is an answer, however odd."""

    @pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
    async def test_a_redirect_is_not_followed(self, status: str) -> None:
        """A redirect is the answer; nothing arrives at the other origin, and its location shows no secret."""
        async with bare(_read_and_close) as other:
            location = other.url.replace("//", "//user:secret@") + "/prepare?key=secret#secret"

            async def redirect(peer: Peer) -> None:
                await peer.request()
                await peer.reply(b"", status=status, headers=b"location: %b\r\n" % location.encode())

            async with bare(redirect) as wire:
                reply = await send(wire.url + "/prepare", HttpTransport(StaticTokenProvider(CANARY)), authorized=True)
            assert other.connections == 0
        assert reply.status == int(status[:3])
        assert reply.headers["location"] == other.url + "/prepare"

    async def test_an_html_page_is_a_reply(self) -> None:
        """An ingress that answers for the participant is handed on for the dialect to judge."""

        async def ingress(peer: Peer) -> None:
            await peer.request()
            await peer.reply(
                b"<html>bad gateway</html>", status="502 Bad Gateway", headers=b"content-type: text/html\r\n"
            )

        async with bare(ingress) as wire:
            reply = await send(wire.url + "/prepare")
        assert (reply.status, reply.headers["content-type"]) == (502, "text/html")
        assert reply.body == b"<html>bad gateway</html>"

    async def test_a_body_that_ends_with_its_connection(self) -> None:
        """A reply of an old server, which closes in place of declaring a length, is complete."""

        async def old(peer: Peer) -> None:
            await peer.request()
            await peer.write(b"HTTP/1.0 200 OK\r\n\r\n{}")

        async with bare(old) as wire:
            assert (await send(wire.url + "/prepare")).body == b"{}"

    async def test_tls_with_a_context_of_ones_own(self) -> None:
        """A private authority is trusted by giving a context that knows it."""

        async def one(peer: Peer) -> None:
            await peer.request()
            await peer.reply(b"secure")

        context = ssl.create_default_context()
        AUTHORITY.configure_trust(context)
        async with bare(one, tls=server_tls()) as wire:
            reply = await send(wire.url + "/prepare", HttpTransport(tls=context))
        assert reply.body == b"secure"


async def _serve_for_ever(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.reply()


class TestEnvironment:
    """Nothing is read from the environment that would send a call, or a credential, elsewhere."""

    async def test_proxy_variables_are_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """F-26: Proxy variables that point to a dead address change nothing."""
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{closed_port()}")
        async with bare(_serve_for_ever) as wire:
            assert (await send(wire.url + "/prepare")).status == 200

    async def test_netrc_is_ignored(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Credentials of a netrc file are not sent."""
        (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login someone password {CANARY}\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        async with bare(_serve_for_ever) as wire:
            await send(wire.url + "/prepare")
            assert b"authorization" not in wire.heads[0].lower()

    async def test_a_proxy_that_is_asked_for_is_used(self) -> None:
        """With the option set, the proxy gets the call, also for a name that only it can resolve."""
        async with bare(_serve_for_ever) as proxy:
            reply = await send("http://participant.invalid/prepare", HttpTransport(proxy=proxy.url))
            assert reply.status == 200
            assert proxy.heads[0].startswith(b"POST http://participant.invalid/prepare HTTP/1.1")

    async def test_a_proxy_is_named_in_errors(self) -> None:
        """A proxy that is not there, and one that refuses a tunnel, are named; nothing was sent."""
        gone = f"http://127.0.0.1:{closed_port()}"
        with pytest.raises(NeverSent, match=f"proxy cannot be reached.*{gone}"):
            await send("http://participant.invalid/prepare", HttpTransport(proxy=gone))

        async def refusing(peer: Peer) -> None:
            await peer.request()
            await peer.reply(b"", status="403 Forbidden")

        async with bare(refusing) as proxy:
            transport = HttpTransport(StaticTokenProvider(CANARY), proxy=proxy.url)
            with pytest.raises(NeverSent, match=f"refused the tunnel with status 403.*{proxy.url}"):
                await send("https://participant.invalid/prepare", transport, authorized=True)
            assert CANARY.encode() not in proxy.heads[0]

    @pytest.mark.parametrize(
        "proxy", ["", "localhost", "socks5://127.0.0.1:1080", "http://", f"http://me:{CANARY}@127.0.0.1:1"]
    )
    def test_a_proxy_that_cannot_be_used(self, proxy: str) -> None:
        """A proxy of another kind, or with credentials, is refused when it is configured, without showing them."""
        with pytest.raises(ConfigurationError, match="proxy") as caught:
            HttpTransport(proxy=proxy)
        assert CANARY not in str(caught.value)
