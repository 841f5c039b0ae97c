"""JSON that may be believed, and foreign text that may be shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.participants.errors import ControlRequestError, NeverSent, ProtocolViolation, Unreachable
from quiesce.participants.excerpts import body_excerpt, escaped, printable
from quiesce.participants.strict_json import NotStrictJson, compact, parse, pretty

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_what_is_written_is_read(value: object) -> None:
    """Both forms of writing come back as they were, and both are ASCII."""
    for text in (compact(value), compact(value, sort_keys=True), pretty(value, indent=1, sort_keys=False)):
        assert parse(text.encode()) == value
        assert text.isascii()


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_as_python_reads_them_or_refused(content: bytes) -> None:
    """Nothing but NotStrictJson is raised, and what is read is what the standard parser reads."""
    try:
        value = parse(content)
    except NotStrictJson:
        return
    assert value == json.loads(content.decode())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b'{"a": 1, "a": 1}', "'a' stands twice"),
        (b'[{"b": {"x": 1, "x": 2}}]', "'x' stands twice"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}{}", "not JSON"),
        (b"{}" + b" " * 100, "at most 64 are read"),
    ],
)
def test_each_refusal_says_why(content: bytes, reason: str) -> None:
    """The reason is short and names the key, the byte or the limit."""
    with pytest.raises(NotStrictJson, match=reason):
        parse(content, bytes_max=200_000 if len(content) > 1000 else 64)


def test_numbers_that_are_none_are_not_written() -> None:
    """NaN would be read by nobody else."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        compact([float("nan")])


@given(st.binary(max_size=2000))
def test_an_excerpt_is_short_and_printable(body: bytes) -> None:
    """Whatever a body holds, at most 200 characters of it are shown, none of which controls a terminal."""
    excerpt = body_excerpt(body)
    assert len(excerpt) <= 200
    assert excerpt.isprintable()


@given(st.text(max_size=400) | st.binary(max_size=400) | st.integers() | st.none() | st.lists(st.text()))
def test_a_value_is_escaped_and_cut(value: object) -> None:
    """A value in an error is one short line of ASCII."""
    shown = escaped(value)
    assert len(shown) <= 80
    assert shown.isascii()
    assert shown.isprintable()


def test_a_short_text_is_shown_whole() -> None:
    """Only what is too long is cut, and that is marked."""
    assert printable("abc", 3) == "abc"
    assert printable("abcdef", 5) == "ab..."


def test_errors_name_who_and_which_call() -> None:
    """The text of each wire error says who answered what; an unanswered call says whether it may have been applied."""
    refused = ControlRequestError(
        participant="main/agent", call="POST /x", status=409, error_code="invalid_phase", detail="idle"
    )
    assert str(refused) == "main/agent answered POST /x with 409 invalid_phase: idle"
    lie = ProtocolViolation(participant="main/agent", call="POST /x", reason="wrong", status=200, excerpt="<html>")
    assert str(lie) == (
        "main/agent: the reply to POST /x cannot be believed (status 200, content type none): wrong; "
        "the body begins: <html>"
    )
    silent = NeverSent(participant="main/agent", call="POST /x", reason="refused")
    assert isinstance(silent, Unreachable)
    assert (silent.applied, str(silent)) == ("no", "main/agent gave no answer to POST /x: refused")
