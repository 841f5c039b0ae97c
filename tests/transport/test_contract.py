"""What every transport promises (the numbered contract of quiesce.transport.port), one suite for all of them."""

from __future__ import annotations

import asyncio
import json
import resource
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.transports import Opener, Setup

from quiesce.participants.errors import ConfigurationError, MaybeApplied, NeverSent, Unreachable
from quiesce.transport import StaticTokenProvider, Token

CANARY = "canary-7c1f"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room for the thousand connections of both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Rotating:
    """A provider whose first token has been revoked."""

    def __init__(self, newest: str) -> None:
        self.newest = newest
        self.refreshes = 0

    async def current(self) -> Token | None:
        return Token("old")

    async def refreshed(self) -> Token | None:
        self.refreshes += 1
        return Token(self.newest)


class Forgetful:
    """A provider that cannot read its source a second time."""

    async def current(self) -> Token | None:
        return Token("old")

    async def refreshed(self) -> Token | None:
        raise OSError(CANARY)


class Failing:
    """A provider that cannot read its source and says too much about it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def current(self) -> Token | None:
        raise self.error

    async def refreshed(self) -> Token | None:
        raise self.error


async def echo(setup: Setup, **parts: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of the request
    """What the participant was sent."""
    reply = await setup.send("/echo", **parts)
    seen: dict[str, Any] = json.loads(reply.body)
    return seen


@pytest.mark.parametrize("status", [200, 202, 204, 307, 401, 404, 409, 422, 500, 503])
async def test_every_status_is_a_reply(setup: Setup, status: int) -> None:
    """A refusal, a redirect and a crash are answers: the transport hands them on and judges none of them."""
    assert (await setup.send(f"/status/{status}")).status == status


async def test_a_crash_of_the_handler_is_a_500(setup: Setup) -> None:
    """A handler that raises answers 500 through every transport."""
    assert (await setup.send("/crash", method="POST", body=b"{}")).status == 500


async def test_header_names_are_lower_case_and_cookies_are_dropped(setup: Setup) -> None:
    """Names reach the caller in lower case, repeated ones joined, and no cookie is handed on or sent back."""
    headers = (await setup.send("/names")).headers
    assert headers["x-one"] == "a, b"
    assert all(name == name.lower() for name in headers)
    assert "set-cookie" not in headers
    assert "cookie" not in (await echo(setup))["headers"]


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, 3_000_000])
async def test_the_body_arrives_whole(setup: Setup, size: int) -> None:
    """Reply bodies of any size below the cap arrive byte for byte."""
    assert (await setup.send(f"/size/{size}")).body == b"x" * size


@pytest.mark.parametrize("size", [0, 2, 70_000, 2_000_000])
async def test_the_request_body_arrives_whole(setup: Setup, size: int) -> None:
    """Request bodies arrive byte for byte, as JSON, also those that are written in slices."""
    body = bytes(range(256)) * (size // 256) + b"y" * (size % 256)
    seen = await echo(setup, method="POST", body=body)
    assert bytes.fromhex(seen["body"]) == body
    assert seen["method"] == "POST"
    assert seen["headers"]["content-length"] == str(size)
    assert seen["headers"]["content-type"] == "application/json"


async def test_a_call_without_a_body_sends_none(setup: Setup) -> None:
    """A GET has no content type and no body."""
    seen = await echo(setup)
    assert seen["body"] == ""
    assert "content-type" not in seen["headers"]


async def test_compression_is_never_asked_for(setup: Setup) -> None:
    """Every request asks for the identity encoding, so that the cap counts what is read."""
    assert (await echo(setup))["headers"]["accept-encoding"] == "identity"


async def test_further_headers_are_sent(setup: Setup) -> None:
    """What the caller adds arrives, for example a trace context."""
    seen = await echo(setup, headers={"traceparent": "00-abc-def-01"})
    assert seen["headers"]["traceparent"] == "00-abc-def-01"


QUERIES = st.dictionaries(st.text(min_size=1), st.text(), max_size=4)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queries=st.lists(QUERIES, min_size=5, max_size=10))
def test_queries_arrive_as_they_were_given(opener: Opener, queries: list[dict[str, str]]) -> None:
    """Whatever is in a name or a value, the participant decodes exactly that."""

    async def roundtrips() -> list[dict[str, str]]:
        async with opener() as setup:
            return [dict((await echo(setup, query=query))["query"]) for query in queries]

    assert asyncio.run(roundtrips()) == queries


async def test_only_authorized_calls_carry_the_bearer(opener: Opener) -> None:
    """The token goes with authorized requests and with no other."""
    async with opener(StaticTokenProvider(CANARY)) as setup:
        assert (await echo(setup, authorized=True))["headers"]["authorization"] == f"Bearer {CANARY}"
        assert "authorization" not in (await echo(setup, authorized=False))["headers"]


@pytest.mark.parametrize("tokens", [None, StaticTokenProvider(None)])
async def test_without_a_token_there_is_no_header(opener: Opener, tokens: StaticTokenProvider | None) -> None:
    """With no provider, or one that has no token, an authorized request goes without the header."""
    async with opener(tokens) as setup:
        assert "authorization" not in (await echo(setup, authorized=True))["headers"]


async def test_a_401_is_repeated_once_with_the_newest_token(opener: Opener) -> None:
    """A token that was revoked meanwhile is read again once, and the call succeeds with the new one."""
    tokens = Rotating("right")
    async with opener(tokens) as setup:
        assert (await setup.send("/unauthorized", method="POST", body=b"{}", authorized=True)).status == 200
        assert setup.app.bearers == ["Bearer old", "Bearer right"]
        assert tokens.refreshes == 1


@pytest.mark.parametrize("newest", ["old", "wrong"])
async def test_a_401_is_not_repeated_for_ever(opener: Opener, newest: str) -> None:
    """The same token is not tried again, and a newer one that is refused too is the answer."""
    async with opener(Rotating(newest)) as setup:
        assert (await setup.send("/unauthorized", method="POST", body=b"{}", authorized=True)).status == 401
        assert len(setup.app.calls) == (1 if newest == "old" else 2)


async def test_a_401_stands_when_there_is_no_newer_token(opener: Opener) -> None:
    """A provider that fails to look again leaves the refusal as the answer."""
    async with opener(Forgetful()) as setup:
        assert (await setup.send("/unauthorized", method="POST", body=b"{}", authorized=True)).status == 401
        assert setup.app.bearers == ["Bearer old"]


@pytest.mark.parametrize("error", [ConfigurationError("the variable X is not set"), OSError(CANARY)])
async def test_without_a_usable_token_nothing_is_sent(opener: Opener, error: Exception) -> None:
    """A provider that fails keeps the call from being sent; only our own errors' texts are repeated."""
    async with opener(Failing(error)) as setup:
        with pytest.raises(NeverSent) as caught:
            await setup.send("/echo", authorized=True)
        assert setup.app.calls == []
    assert ("the variable X is not set" in str(caught.value)) == isinstance(error, ConfigurationError)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("path", ["/hang", "/drip"])
async def test_the_time_out_is_total(setup: Setup, path: str) -> None:
    """A silent reply and one that drips for ever both end when the time is up, as maybe applied."""
    with pytest.raises(MaybeApplied, match=r"no complete reply within 0\.2 s") as caught:
        await setup.send(path, method="POST", body=b"{}", timeout_s=0.2)
    assert caught.value.participant == "tools"
    assert caught.value.call == f"POST {path}"
    assert setup.held() == 0


@pytest.mark.parametrize("left_s", [0.0, -3.5])
async def test_with_no_time_left_nothing_is_sent(setup: Setup, left_s: float) -> None:
    """A call whose time is over before it begins is never sent."""
    with pytest.raises(NeverSent, match="no time was left"):
        await setup.send("/echo", timeout_s=left_s)
    assert setup.app.calls == []


@pytest.mark.parametrize("size", [4097, 10_000_000])
async def test_the_cap_ends_a_reply(setup: Setup, size: int) -> None:
    """One byte more than the cap is refused with the limit in the text; the request counts as delivered."""
    with pytest.raises(MaybeApplied, match="larger than the 4096 bytes"):
        await setup.send(f"/size/{size}", body_cap=4096)
    assert (await setup.send("/size/4096", body_cap=4096)).body == b"x" * 4096


async def test_the_cap_ends_a_reply_without_a_length(setup: Setup) -> None:
    """A reply that declares no length is read up to the cap and no further."""
    with pytest.raises(MaybeApplied, match="larger than the 64 bytes"):
        await setup.send("/drip", body_cap=64)
    assert setup.held() == 0


async def test_a_reply_that_is_cut_is_maybe_applied(setup: Setup) -> None:
    """Half a reply is no reply, and its request was delivered."""
    with pytest.raises(MaybeApplied, match="cut in its middle"):
        await setup.send("/cut", method="POST", body=b"{}")


async def test_cancelling_closes_the_connection_and_the_handler_runs_on(setup: Setup) -> None:
    """The caller gets its cancellation, nothing stays open, the participant sees the client leave and works on."""
    before = len(asyncio.all_tasks())
    call = asyncio.create_task(setup.send("/hang", method="POST", body=b"{}"))
    await setup.app.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert setup.held() == 0
    await setup.app.client_left.wait()
    assert not setup.app.finished.is_set()
    setup.app.release.set()
    await setup.app.finished.wait()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) <= before + 1  # the server's own keep-alive bookkeeping at most


async def test_a_caller_that_is_cancelled_is_never_told_otherwise(setup: Setup) -> None:
    """A time-out of the caller's own is its time-out, not an error of the call."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await setup.send("/hang", method="POST", body=b"{}")


async def test_a_thousand_calls_at_once_succeed(setup: Setup, many_descriptors: None) -> None:
    """A thousand calls are all in the participant at the same moment, and all of them are answered."""
    setup.app.expected = 1000
    calls = [setup.send("/meet", method="POST", body=b"{}", timeout_s=100) for _ in range(1000)]
    replies = await asyncio.gather(*calls)
    assert {reply.status for reply in replies} == {200}
    assert setup.app.inside_peak == 1000


async def test_after_closing_nothing_is_sent(setup: Setup) -> None:
    """A closed transport sends nothing more, says so, and may be closed again."""
    await setup.transport.aclose()
    await setup.transport.aclose()
    with pytest.raises(NeverSent, match="the transport is closed"):
        await setup.send("/echo")
    assert setup.app.calls == []


async def test_closing_interrupts_a_call_that_would_hang(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A participant that never answers does not keep its caller past the closing of the transport."""
    monkeypatch.setattr("quiesce.transport.inprocess.JOIN_TIMEOUT_S", 0.01)
    call = asyncio.create_task(setup.send("/hang", method="POST", body=b"{}", timeout_s=1000))
    await setup.app.started.wait()
    await setup.transport.aclose()
    with pytest.raises(MaybeApplied, match="the transport was closed during the call"):
        await call


@pytest.mark.parametrize("path", ["/hang", "/cut", "/size/100"])
async def test_the_token_is_in_no_error(opener: Opener, path: str) -> None:
    """Neither the text of an error, nor its cause, nor the local variables of its traceback show the token."""
    async with opener(StaticTokenProvider(CANARY)) as setup:
        with pytest.raises(Unreachable) as caught:
            await setup.send(path, method="POST", body=b"{}", authorized=True, timeout_s=0.2, body_cap=10)
        assert setup.app.bearers == [f"Bearer {CANARY}"]
        shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert CANARY not in "".join(shown.format())
        assert CANARY not in repr(setup.transport)
