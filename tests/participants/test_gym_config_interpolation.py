"""Interpolations: what is followed, what says why it is not, and that no text makes it endless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiesce.participants.gym_config_interpolation import Interpolations, Unresolved, is_interpolated
from quiesce.participants.gym_config_scalars import Opaque
from quiesce.participants.gym_config_yaml import Document, Node

DOCUMENT: Document = {
    "host": "10.0.0.1",
    "port": 8000,
    "fraction": Opaque("1.5"),
    "yes": True,
    "nothing": None,
    "urls": ["http://a", "http://b"],
    "nested": {"host": "${host}", "deeper": {"port": "${port}"}, "0": "zero"},
    "alias": "${nested}",
    "chain": "${nested.host}",
    "unfilled": "???",
    "circle": "${circle}",
    "policy_api_key": "canary",
    "tokens": {"host": "canary"},
    "doubled": "${doubled}${doubled}",
    "b": "${host}${host}${host}${host}",
    "long": "x" * 3000,
    "twice": "${long}${long}",
    **{f"l{n}": "".join([f"${{l{n - 1}}}"] * 4) for n in range(1, 12)},
    "l0": "x",
}


def resolved(node: Node) -> Node:
    """The value in that document."""
    return Interpolations(DOCUMENT).value(node)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("plain", "plain"),
        ("$plain {a}", "$plain {a}"),
        (5, 5),
        (None, None),
        ("${host}", "10.0.0.1"),
        ("${ host }", "10.0.0.1"),
        ("${port}", 8000),
        ("${yes}", True),
        ("${nothing}", None),
        ("${urls}", ["http://a", "http://b"]),
        ("${urls[1]}", "http://b"),
        ("${urls.0}", "http://a"),
        ("${nested.host}", "10.0.0.1"),
        ("${nested.deeper.port}", 8000),
        ("${nested[deeper].port}", 8000),
        ("${nested.0}", "zero"),
        ("${alias.host}", "10.0.0.1"),
        ("${chain}", "10.0.0.1"),
        ("http://${host}:${port}/v1", "http://10.0.0.1:8000/v1"),
        ("v${fraction}", "v1.5"),
        ("${b}", "10.0.0.1" * 4),
    ],
)
def test_what_the_document_holds_is_followed(written: Node, value: Node) -> None:
    """Through chains, lists and mappings, and inside a longer text."""
    assert resolved(written) == value


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("???", "is '???', which was never filled in"),
        ("${unfilled}", "is '???', which was never filled in"),
        ("${gone}", "names ${gone}, which is not in the document"),
        ("${nested.gone}", "names ${nested.gone}"),
        ("${host.x}", "names ${host.x}"),
        ("${urls.2}", "names ${urls.2}"),
        ("${urls.x}", "names ${urls.x}"),
        ("${urls.99999999999}", "names ${urls.99999999999}"),
        ("x${nothing}", "puts ${nothing} into a text, though it is none"),
        ("x${urls}", "puts ${urls} into a text"),
        ("x${yes}", "puts ${yes} into a text"),
        ("${circle}", "perhaps in a circle"),
        ("${doubled}", "perhaps in a circle"),
        ("${l11}", "more than"),
        ("${twice}", "grows longer than 4096 characters"),
        ("${policy_api_key}", "leads to ${policy_api_key}, which by its name is a secret"),
        ("http://${tokens.host}", "leads to ${tokens.host}, which by its name is a secret"),
        ("${oc.env:NODE}", "needs the variable 'NODE' of the environment of Gym's own process"),
        ("${oc.env:NODE,canary}", "needs the variable 'NODE'"),
        ("${oc.env:${host}}", "nested, escaped or not closed"),
        ("${oc.env:canary-in-a-strange-place}", "needs OmegaConf's resolver 'oc.env'"),
        ("${oc.select:a.b,canary}", "needs OmegaConf's resolver oc.select for 'a.b'"),
        ("${oc.decode:canary}", "needs OmegaConf's resolver 'oc.decode'"),
        ("${ca nary:x}", "needs a resolver of OmegaConf"),
        ("${.host}", "neither ${a.b} nor ${resolver:...}"),
        ("${}", "neither ${a.b} nor"),
        ("${a b}", "neither ${a.b} nor"),
        ("${host", "not closed"),
        ("${a${host}}", "nested"),
        ("\\${host}", "escaped"),
        ("${host}" * 100, "more than"),
        ("${" * 100_000, "nested"),
    ],
)
def test_what_cannot_be_known_says_why(written: str, reason: str) -> None:
    """The reason names what is missing, and never a value or a default."""
    with pytest.raises(Unresolved) as caught:
        resolved(written)
    assert reason in str(caught.value)
    assert "canary" not in str(caught.value)


def test_only_text_with_an_opening_is_interpolated() -> None:
    """Numbers, null and plain text are not."""
    assert is_interpolated("a${b}")
    assert not any(is_interpolated(node) for node in ("a$b", 5, None, ["${a}"]))


@given(st.dictionaries(st.sampled_from("abc"), st.text(alphabet="${}abc.:[]\\0", max_size=12)), st.text("${}abc.:"))
def test_any_text_is_resolved_or_says_why(document: dict[str, str], written: str) -> None:
    """No document makes it fail in another way, or run without end."""
    try:
        value = Interpolations(document).value(written)
    except Unresolved:
        return
    assert value == written or is_interpolated(written)
