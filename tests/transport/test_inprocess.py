"""What is special about calls without a network: the handlers live here too."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.control_app import ControlApp
from support.virtual_loop import virtual_time

from quiesce.participants.errors import ConfigurationError, MaybeApplied, NeverSent
from quiesce.transport import AsgiTransport, ControlRequest, StaticTokenProvider

CANARY = "canary-7c1f"
POINT: ContextVar[str] = ContextVar("point", default="nothing")


def call(path: str, origin: str = "http://tools:8000", timeout_s: float = 60.0) -> ControlRequest:
    """A POST to an application."""
    return ControlRequest(participant="tools", method="POST", url=origin + path, body=b"{}", timeout_s=timeout_s)


async def test_nobody_answers_where_nothing_is_mounted() -> None:
    """An origin without an application is a server that is not there; mounting and unmounting are start and kill."""
    transport = AsgiTransport()
    with pytest.raises(NeverSent, match="no application is mounted at http://tools:8000"):
        await transport.send(call("/status/200"))
    transport.mount("http://tools:8000/", ControlApp())
    assert (await transport.send(call("/status/200"))).status == 200
    transport.unmount("http://tools:8000")
    with pytest.raises(NeverSent):
        await transport.send(call("/status/200"))
    await transport.aclose()


async def test_origins_are_compared_as_origins() -> None:
    """Case and a default port make no difference, another port does."""
    transport = AsgiTransport({"HTTP://Tools": ControlApp()})
    assert (await transport.send(call("/status/200", "http://tools:80"))).status == 200
    with pytest.raises(NeverSent):
        await transport.send(call("/status/200", "http://tools:81"))
    with pytest.raises(NeverSent):
        await transport.send(call("/status/200", "https://tools"))
    with pytest.raises(NeverSent):
        await transport.send(call("/status/200", "http://xn--"))


@pytest.mark.parametrize("url", ["", "tools:8000", "ftp://tools", "http://tools/prefix", "http://", "http://[::1"])
def test_what_is_no_origin(url: str) -> None:
    """Applications are mounted by origin; anything else is refused by name."""
    with pytest.raises(ConfigurationError):
        AsgiTransport({url: ControlApp()})


@virtual_time
async def test_a_handler_outlives_its_client() -> None:
    """The handler of a call that timed out runs to its end and can be waited for (F17)."""
    app = ControlApp()
    transport = AsgiTransport({"http://tools:8000": app})
    with pytest.raises(MaybeApplied, match="no complete reply within 60 s"):
        await transport.send(call("/hang"))
    assert transport.running == 1
    asyncio.get_running_loop().call_later(3600, app.release.set)
    await transport.join()
    assert app.finished.is_set()
    assert transport.running == 0
    assert asyncio.get_running_loop().time() == pytest.approx(60 + 3600)


@virtual_time
async def test_closing_waits_for_handlers_and_then_cancels_them() -> None:
    """A handler that would run for ever is cancelled when the transport closes, after it had its chance."""
    app = ControlApp()
    transport = AsgiTransport({"http://tools:8000": app})
    with pytest.raises(MaybeApplied):
        await transport.send(call("/hang"))
    await transport.aclose()
    assert transport.running == 0
    assert app.client_left.is_set()
    assert not app.finished.is_set()


@virtual_time
async def test_a_handler_that_is_cancelled_cuts_its_call() -> None:
    """A handler that cancels itself is a connection that breaks, and never its caller's cancellation."""

    async def gives_up(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - the shape of ASGI
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise asyncio.CancelledError

    transport = AsgiTransport({"http://tools:8000": gives_up})
    with pytest.raises(MaybeApplied, match="cut in its middle"):
        await transport.send(call("/"))


@virtual_time
async def test_a_handler_that_says_nothing_has_crashed() -> None:
    """An application that returns without a reply is a 500, as behind a real server."""

    async def silent(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - the shape of ASGI
        return

    assert (await AsgiTransport({"http://tools:8000": silent}).send(call("/"))).status == 500


@virtual_time
async def test_an_endless_sender_does_not_hold_up_the_loop() -> None:
    """A handler that only sends lets its client reach the cap, and everybody else their turn."""

    async def endless(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - the shape of ASGI
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})

    transport = AsgiTransport({"http://tools:8000": endless})
    with pytest.raises(MaybeApplied, match="larger than"):
        await transport.send(call("/"))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()  # in virtual time it would go on for ever: it never sleeps
    await transport.join()


@virtual_time
async def test_a_compressed_reply_is_refused() -> None:
    """A content encoding is refused here too, so that a test without sockets finds what HTTP would."""

    async def compressed(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - the shape of ASGI
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-encoding", b"gzip")]})
        await send({"type": "http.response.body", "body": b"x"})

    with pytest.raises(MaybeApplied, match="content encoding 'gzip'"):
        await AsgiTransport({"http://tools:8000": compressed}).send(call("/"))


@virtual_time
async def test_context_variables_stay_with_the_caller() -> None:
    """A handler sees nothing of its caller's context, as behind a network."""
    seen: list[str] = []

    async def looks(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - the shape of ASGI
        seen.append(POINT.get())

    POINT.set("set by the caller")
    await AsgiTransport({"http://tools:8000": looks}).send(call("/"))
    assert seen == ["nothing"]


@virtual_time
async def test_a_crash_is_logged_without_the_token() -> None:
    """The handler's traceback is in the log, and the header that it was called with is not."""
    transport = AsgiTransport({"http://tools:8000": ControlApp()}, StaticTokenProvider(CANARY))
    request = ControlRequest(
        participant="tools", method="POST", url="http://tools:8000/crash", timeout_s=60, authorized=True
    )
    with capture_logs() as logs:
        assert (await transport.send(request)).status == 500
    (entry,) = logs
    assert (entry["event"], entry["participant"], entry["call"]) == (
        "in_process_handler_failed",
        "tools",
        "POST /crash",
    )
    assert "a participant's bug" in entry["traceback"]
    assert CANARY not in str(logs)
