"""Where the bearer token comes from, and that it never shows itself."""

from __future__ import annotations

import copy
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.participants.errors import ConfigurationError
from quiesce.transport import TOKEN_VARIABLES, EnvironmentTokenProvider, StaticTokenProvider, Token

CANARY = "canary-7c1f"
CONTROL, CAPTURE = TOKEN_VARIABLES


def test_a_token_hides_itself() -> None:
    """No way of turning it into text shows it, apart from asking for the header."""
    token = Token(CANARY)
    shown = [repr(token), str(token), f"{token}", f"{token!r}", f"{token!s:>30}", str([token]), str({"token": token})]
    shown.append(logging.LogRecord("x", 20, "x", 1, "%s %r", (token, token), None).getMessage())
    assert all(CANARY not in text for text in shown)
    assert not hasattr(token, "__dict__")
    assert token.header() == f"Bearer {CANARY}"


def test_tokens_compare_by_value() -> None:
    """Two tokens of the same text are one token."""
    assert Token(CANARY) == Token(CANARY) == copy.copy(Token(CANARY))
    assert Token(CANARY) != Token("other")
    assert Token(CANARY) != CANARY
    assert len({Token(CANARY), Token(CANARY)}) == 1


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ("", "is empty"),
        (f"{CANARY}\n", "stray newline"),
        (f"{CANARY}\r\nx-injected: yes", "cannot stand in a header"),
        (f"two {CANARY}", "cannot stand in a header"),
        (f"{CANARY}\x00", "cannot stand in a header"),
        (f"{CANARY}é", "cannot stand in a header"),
        (CANARY * 1000, "at most 8000"),
    ],
)
def test_a_token_that_cannot_be_sent(secret: str, reason: str) -> None:
    """A token that would break its header, or that no server takes, is refused without showing it."""
    with pytest.raises(ConfigurationError, match=f"^the variable X.*{reason}") as caught:
        Token(secret, source="the variable X")
    assert CANARY not in str(caught.value)


@given(secret=st.text(max_size=60))
def test_what_is_accepted_is_one_header_value(secret: str) -> None:
    """Whatever is accepted is printable ASCII without a space; all else is refused."""
    fits = bool(secret) and all("!" <= character <= "~" for character in secret)
    try:
        header = Token(secret).header()
    except ConfigurationError:
        assert not fits
    else:
        assert fits
        assert header == f"Bearer {secret}"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({CONTROL: "", CAPTURE: ""}, None),
        ({CONTROL: "one", CAPTURE: "two"}, "one"),
        ({CONTROL: "", CAPTURE: "two"}, "two"),
        ({CAPTURE: "two"}, "two"),
        ({"OTHER": "three"}, None),
    ],
)
async def test_the_order_of_the_variables(environ: dict[str, str], expected: str | None) -> None:
    """The dedicated variable wins, an empty one counts as unset, and with neither there is no token."""
    token = await EnvironmentTokenProvider(environ=environ).current()
    assert token == (None if expected is None else Token(expected))


async def test_a_variable_of_ones_own() -> None:
    """A variable that the configuration names is the only one that is looked at, and it must be set."""
    provider = EnvironmentTokenProvider("MY_TOKEN", environ={CONTROL: "one", "MY_TOKEN": "mine"})
    assert await provider.current() == Token("mine")
    for environ in ({CONTROL: "one"}, {"MY_TOKEN": ""}):
        with pytest.raises(ConfigurationError, match="MY_TOKEN is not set"):
            await EnvironmentTokenProvider("MY_TOKEN", environ=environ).current()


async def test_the_environment_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the process's own environment is read, at every call."""
    monkeypatch.delenv(CAPTURE, raising=False)
    monkeypatch.setenv(CONTROL, "one")
    provider = EnvironmentTokenProvider()
    assert await provider.current() == Token("one")
    monkeypatch.setenv(CONTROL, "two")
    assert await provider.refreshed() == await provider.current() == Token("two")


async def test_a_bad_token_names_its_variable() -> None:
    """The error says which variable to look at, and does not show what is in it."""
    provider = EnvironmentTokenProvider(environ={CONTROL: f"{CANARY}\n"})
    with pytest.raises(ConfigurationError, match=f"{CONTROL}.*stray newline") as caught:
        await provider.current()
    assert CANARY not in str(caught.value) + repr(provider)


async def test_a_static_token() -> None:
    """A given token is always the answer, also as plain text; so is none."""
    for given_token in (CANARY, Token(CANARY)):
        provider = StaticTokenProvider(given_token)
        assert await provider.current() == await provider.refreshed() == Token(CANARY)
        assert CANARY not in repr(provider)
    assert await StaticTokenProvider(None).current() is None
    with pytest.raises(ConfigurationError):
        StaticTokenProvider("")
