"""What is asked of a request before it can be sent, so that sending has no bad input."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.participants.errors import ConfigurationError
from quiesce.transport import REPLY_BODY_CAP, REQUEST_BODY_MAX, ControlRequest
from quiesce.transport.limits import LOCATION_LENGTH_MAX
from quiesce.transport.reply_headers import sanitized_location

CANARY = "canary-7c1f"


def request(**parts: Any) -> ControlRequest:  # noqa: ANN401 - any field of the request
    """A request that can be sent, except for what is given."""
    usual = {"participant": "tools", "method": "POST", "url": "http://10.0.0.5:8000/prepare", "timeout_s": 5.0}
    return ControlRequest(**{**usual, **parts})


def test_defaults() -> None:
    """A request says nothing more than it must: no token, no query, no headers, the usual cap."""
    usual = request()
    assert (usual.authorized, usual.query, dict(usual.headers), usual.body) == (False, None, {}, None)
    assert usual.body_cap == REPLY_BODY_CAP == 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("url", "call"),
    [
        ("http://10.0.0.5:8000/ng-control/v1/capabilities", "POST /ng-control/v1/capabilities"),
        ("https://[::1]:8000/a%20b", "POST /a%20b"),
        ("http://tools", "POST /"),
    ],
)
def test_a_call_is_named_by_method_and_path(url: str, call: str) -> None:
    """Errors and fault scripts name a call without host and query."""
    assert request(url=url).call == call


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tools:8000/prepare",
        "ftp://tools/prepare",
        "http:///prepare",
        "http://tools:0/prepare",
        "http://tools:99999/prepare",
        "http://tools:port/prepare",
        "http://[::1/prepare",
        "http://tools/prepare?wait_s=5",
        "http://tools/prepare#now",
        "http://tools/pre pare",
        "http://tools/prepare\n",
        "http://tools/prepare\r\nx: y",
        f"http://{CANARY}@tools/prepare",
        f"http://user:{CANARY}@tools/prepare",
    ],
)
def test_a_url_that_cannot_be_called(url: str) -> None:
    """A URL of another kind, with a query, with credentials or with control characters is refused by name."""
    with pytest.raises(ConfigurationError, match="'tools' cannot be sent: its URL") as caught:
        request(url=url)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("method", ["", "get", "PUT", "DELETE", "POST\r\n"])
def test_a_method_that_is_none(method: str) -> None:
    """Control calls read or change: GET or POST."""
    with pytest.raises(ConfigurationError, match="GET or POST"):
        request(method=method)


@pytest.mark.parametrize("timeout_s", [math.nan, math.inf, -math.inf])
def test_a_time_out_that_is_none(timeout_s: float) -> None:
    """Every call ends: no endless time-out and none that is no number."""
    with pytest.raises(ConfigurationError, match="finite number of seconds"):
        request(timeout_s=timeout_s)


def test_bounds_on_bodies() -> None:
    """A cap of nothing and a body beyond the limit are refused; a body at the limit is not."""
    with pytest.raises(ConfigurationError, match="body_cap"):
        request(body_cap=0)
    at_limit = bytes(REQUEST_BODY_MAX)
    assert request(body=at_limit).body is at_limit
    with pytest.raises(ConfigurationError, match="split the call"):
        request(body=at_limit + b"x")


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {CANARY}"},
        {"host": "elsewhere"},
        {"cookie": CANARY},
        {"content-length": "5"},
        {"Traceparent": "00"},
        {"": "x"},
        {"a b": "x"},
        {"x-label": f"{CANARY}\r\nx: y"},
        {"x-label": f"{CANARY}\x00"},
        {"x-label": "é"},
    ],
)
def test_headers_that_cannot_be_sent(headers: dict[str, str]) -> None:
    """What the transport sets, and what would end a header early, is refused without showing its value."""
    with pytest.raises(ConfigurationError, match="header") as caught:
        request(headers=headers)
    assert CANARY not in str(caught.value)


def test_a_request_does_not_show_its_body() -> None:
    """The repr names the call, and neither body nor headers."""
    shown = repr(request(body=CANARY.encode(), headers={"x-label": CANARY}))
    assert "/prepare" in shown
    assert CANARY not in shown


@given(target=st.text(max_size=400))
def test_a_location_is_safe_to_show(target: str) -> None:
    """Whatever a server puts there: short, printable ASCII, and never a query or credentials."""
    shown = sanitized_location(f"https://user:{CANARY}@other{target}?token={CANARY}")
    assert len(shown) <= LOCATION_LENGTH_MAX
    assert all(" " < character < "\x7f" for character in shown)
    assert f"token={CANARY}" not in shown


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("https://other:9/prepare", "https://other:9/prepare"),
        (f"https://user:{CANARY}@other:9/prepare?t={CANARY}#{CANARY}", "https://other:9/prepare"),
        ("/prepare/", "/prepare/"),
        ("http://[broken", "(malformed)"),
        ("/a\r\nset-cookie: x", "/aset-cookie:x"),
    ],
)
def test_a_location_keeps_what_helps(target: str, shown: str) -> None:
    """Host, port and path stay; credentials, query, fragment and control characters go."""
    assert sanitized_location(target) == shown
