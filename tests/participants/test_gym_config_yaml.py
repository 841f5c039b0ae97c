"""The text of a resolved configuration: what is read as what, every limit, and that nothing but our error comes out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.gym_configs import CANARY, NAMES, text_of

from quiesce.participants import gym_config_yaml
from quiesce.participants.errors import ConfigurationError, QuiesceError
from quiesce.participants.gym_config import read_gym_configuration
from quiesce.participants.gym_config_participants import participants_of
from quiesce.participants.gym_config_scalars import Opaque
from quiesce.participants.gym_config_yaml import (
    ALIASES_MAX,
    DEPTH_MAX,
    NODES_MAX,
    TEXT_BYTES_MAX,
    Document,
    Node,
    key_path,
    parse_document,
    text_in_json,
)
from quiesce.participants.urls import check_base_url


def parsed(text: str) -> Document:
    """The document in a text that errors call "here"."""
    return parse_document(text, source="here")


def refusal(text: str) -> str:
    """The text of the refusal, which keeps no other error: those of the library hold the whole text."""
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    message = str(caught.value)
    assert message.startswith("here: ")
    assert CANARY not in message
    return message


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers: PyYAML may have been built without the fast one."""
    monkeypatch.setattr(gym_config_yaml, "_LOADER", getattr(yaml, request.param))


SCALARS = {
    "text": "text",
    "'5'": "5",
    '"a: b"': "a: b",
    "5": 5,
    "-1": -1,
    "0x10": 16,
    "010": 8,
    "1_000": 1000,
    "1:30": 90,
    "yes": True,
    "off": False,
    "true": True,
    "~": None,
    "null": None,
    "": None,
    "???": "???",
    "=": "=",
    "!!str 5": "5",
    "!!int '5'": 5,
    "! 5": 5,
    "1.5": Opaque("1.5"),
    ".nan": Opaque(".nan"),
    "2026-11-30": Opaque("2026-11-30"),
    "2026-99-99": Opaque("2026-99-99"),
    "0x_": Opaque("0x_"),
    "!!python/object/apply:os.system rm": Opaque("rm"),
    "!gym/path /srv": Opaque("/srv"),
    "!!binary canary": Opaque("canary"),
    "9" * 40: int("9" * 40),
    "9" * 41: "9" * 41,
}


@pytest.mark.usefixtures("_loader")
@pytest.mark.parametrize("written", SCALARS)
def test_a_scalar_is_read_by_the_rules_of_yaml(written: str) -> None:
    """Text, integers, truth values and null; the rest stays unread, and no tag ever builds anything."""
    [value] = parsed(f"key: {written}\n").values()
    assert (type(value), value) == (type(SCALARS[written]), SCALARS[written])


def test_what_is_unread_is_not_shown() -> None:
    """An unread value may be a secret."""
    assert CANARY not in repr(Opaque(CANARY))


def as_loaded(node: Node) -> object:
    """A tree as the plain safe loader would give it, with text in place of what we leave unread."""
    if isinstance(node, Opaque):
        return str(yaml.safe_load(node.text))
    if isinstance(node, Mapping):
        return {key: as_loaded(value) for key, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [as_loaded(value) for value in node]
    return node


def with_text(loaded: object) -> object:
    """A tree of the plain safe loader in the same form."""
    if isinstance(loaded, dict):
        return {str(key) if key is not None else "null": with_text(value) for key, value in loaded.items()}
    if isinstance(loaded, list):
        return [with_text(value) for value in loaded]
    return loaded if isinstance(loaded, str | int | None) else str(loaded)


@pytest.mark.usefixtures("_loader")
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("masked_")])
def test_the_tree_is_that_of_the_plain_safe_loader(name: str) -> None:
    """Our builder and PyYAML's agree on every configuration of ours."""
    text = text_of(name).replace("!gym/path ", "")
    inner = text_in_json(text)
    assert as_loaded(parsed(text)) == with_text(yaml.safe_load(text if inner is None else inner))


REFUSALS = {
    "empty": ("", "is empty"),
    "blank": (" \n", "is empty"),
    "only a comment": ("# canary\n", "holds no mapping"),
    "a list": ("- canary\n", "holds no mapping of server names and settings"),
    "a text": ("canary\n", "holds no mapping"),
    "a page": ("<html><body>canary</body></html>", "holds no mapping"),
    "a JSON text inside a JSON text": (json.dumps(json.dumps("a: canary")), "holds no mapping"),
    "two documents": ("a: 1\n---\nb: canary\n", "line 2: a second document begins"),
    "a tab": ("a:\n\tb: canary\n", "is not valid YAML at line 2"),
    "an unknown alias": ("a: *canary\n", "is not valid YAML|an alias names nothing"),
    "an open quote": ('a: "canary\n', "is not valid YAML at line"),
    "a control character": ("a: canary\x01\n", "is not valid YAML"),
    "half a character": ("a: canary\ud800\n", "half a character"),
    "half a character in JSON": ('"a: canary\\ud800"', "half a character"),
    "a key twice": (
        "a:\n  b:\n    c: canary\n    c: 1\n",
        "line 4: its key stands twice in .*; remove one",
    ),
    "a server twice": ("a: 1\nb: 2\na: canary\n", "line 3: its key stands twice"),
    "a key twice in a list": ("a:\n- x: 1\n  x: canary\n", "line 3: its key stands twice"),
    "a secret as a key, twice": ("canary: 1\ncanary: 2\n", "line 2: its key stands twice"),
    "a key twice below a secret": ("canary:\n  b: 1\n  b: 2\n", "line 3: its key stands twice"),
    "a mapping as key below a secret": ("canary:\n  ? {x: 1}\n  : 1\n", "line 2: a key is no text"),
    "a mask below a secret": ("canary:\n  api_key: '****'\n", r"line 2: holds '\*\*\*\*' where Gym's printouts"),
    "a mask under a secret": ("canary_key: '****'\n", r"line 1: holds '\*\*\*\*' where Gym's printouts"),
    "an anchor that is a secret": ("a: &canary\n  b: *canary\n", "line 2: an alias names nothing"),
    "a tag that is a secret": ("!canary {a: 1, a: 2}\n", "line 1: its key stands twice"),
    "a handle that nobody declared": ("a: !canary!x 1\n", "is not valid YAML at line 1"),
    "a merge": ("a: &a {x: 1}\nb:\n  <<: *a\n", "line 3: '<<' merges mappings"),
    "a mapping as key": ("a:\n  ? {x: 1}\n  : canary\n", "line 2: a key is no text"),
    "a list as key": ("? [canary]\n: 1\n", "line 1: a key is no text"),
    "an alias as key": ("a: &a canary\nb:\n  *a : 1\n", "line 3: a key is no text"),
    "an alias to what it is in": ("a: &a\n  b: *a\n", "line 2: an alias names nothing that stands before it"),
    "an alias to what it is in, once more": ("a: &a 1\nb: &a [*a]\n", "line 2: an alias names nothing"),
    "too deep in blocks": ("\n".join(f"{' ' * depth}a:" for depth in range(DEPTH_MAX + 1)), "more than 64 deep"),
    "too deep in brackets": ("a: " + "[" * 100_000, "more than 64 deep|is not valid YAML"),
    "too deep by aliases": ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 30 + "*a" + "]" * 30, "64 deep"),
    "too many aliases": ("a: &a 1\nb: [" + "*a," * (ALIASES_MAX + 1) + "]", "more than 256 aliases"),
    "a billion laughs": (
        "a0: &a0 [canary,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
        "more than 100000 keys and values, each alias counted",
    ),
    "too large": ("#" * (TEXT_BYTES_MAX + 1), "larger than 4 MiB"),
}


@pytest.mark.usefixtures("_loader")
@pytest.mark.parametrize("name", REFUSALS)
def test_a_bad_text_is_refused_without_repeating_it(name: str) -> None:
    """The refusal says where it is and what is wrong; no value of the text is in it, nor in an error behind it."""
    text, pattern = REFUSALS[name]
    assert re.search(pattern, refusal(text))


def test_too_many_values_are_refused() -> None:
    """What is built of a text is bounded, however small each value is."""
    assert "more than 100000 keys and values" in refusal("a: [" + "1," * NODES_MAX + "]")


@pytest.mark.usefixtures("_loader")
def test_aliases_within_the_limits_are_followed() -> None:
    """A configuration that was written by hand may share a value; its copies are equal."""
    document = parsed("a: &a {host: 127.0.0.1, ports: [1, 2]}\nb: *a\nc: [*a, *a]\nd: &d 5\ne: *d\n")
    assert document["b"] == document["a"]
    assert document["c"] == [document["a"], document["a"]]
    assert document["e"] == 5


def test_an_anchor_may_be_used_again() -> None:
    """The last definition before an alias counts, as in YAML."""
    assert parsed("a: &x 1\nb: *x\nc: &x 2\nd: *x\n") == {"a": 1, "b": 1, "c": 2, "d": 2}


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('"a: 1\\n"', "a: 1\n"),
        (' "a: 1"\n', "a: 1"),
        ('"a": 1', None),
        ("a: 1", None),
        ('"a', None),
        ("[1]", None),
        ("", None),
    ],
)
def test_a_json_string_is_told_from_yaml(text: str, inside: str | None) -> None:
    """Only one whole JSON string is unwrapped; YAML may begin with a quote too."""
    assert text_in_json(text) == inside
    if inside is not None:
        assert parsed(text) == {"a": 1}


def test_a_path_of_keys_is_safe_in_a_sentence() -> None:
    """Odd keys are escaped, long ones and long paths are cut."""
    assert key_path(["policy_model", "vllm-model", "port"]) == "policy_model.vllm-model.port"
    assert key_path(["a b", "c\n", "x.y"]) == r"'a b'.'c\n'.'x.y'"
    assert key_path("abcdefghijklmnop") == "a.b.c.d.e.f.g.h.i.j.k.l...."
    assert len(key_path(["x" * 1000])) <= 80


def read(text: str) -> None:
    """Everything that is ever done with a text."""
    participants_of(read_gym_configuration(text, source="here"), head_host="127.0.0.1")


@given(st.text(alphabet=st.characters(codec=None), max_size=300))
@example("a: !<tag:yaml.org,2002:int> x")
@example("%YAML 9.9\n---\na: 1")
@example("\ufeffa: 1")
@example("a: 1\n...\nb")
@example("a: 0b_")
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in another way than our own errors."""
    with pytest.raises(QuiesceError):
        read(text)


FRAGMENTS = [
    *("policy_model:", "agent:", "  responses_api_models:", "  responses_api_agents:", "  environment_servers:"),
    *("    vllm_model:", "    simple_agent:", "      entrypoint: app.py", "      host: 127.0.0.1", "      port: 5001"),
    *("      port: ${a.b}", "      host: ${${a}}", "      base_url: ${policy_base_url}", "      <<: *a", "  - x"),
    *("a: &a", "  b: *a", "  b: ${a.b}", "policy_base_url: [http://h, ${a}]", "head_server: {host: ::, port: x}"),
    *("      port: -1", "      host: '[::1'", "      host: fe80::1%eth0", "      instance_role: [policy]", "_copy: x"),
    *(
        "      num_workers: 1e9",
        "---",
        "? [a]",
        "default_host: '*'",
        "      api_key: '****'",
        "      x: {type: a, name: b}",
    ),
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30))
def test_any_mixture_of_lines_is_read_or_refused(lines: list[str]) -> None:
    """What looks like a configuration and is none does not make the reader fail in another way either."""
    with suppress(QuiesceError):
        read("\n".join(lines))


KEYS = [
    *("a", "b", "host", "port", "entrypoint", "type", "name", "base_url", "instance_role", "num_workers", "_copy"),
    *("responses_api_models", "responses_api_agents", "resources_servers", "environment_servers"),
]
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["app.py", "127.0.0.1", "${a}", "${a.b}", "???", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(st.dictionaries(st.text(max_size=5), TREES, max_size=6))
def test_any_tree_is_read_or_refused(tree: dict[str, object]) -> None:
    """Any value may stand anywhere: a host that is a list, a role that is a mapping, a server that is null."""
    with suppress(QuiesceError):
        read(yaml.safe_dump(tree))


@given(st.dictionaries(st.text(max_size=5), TREES, max_size=6))
def test_any_tree_comes_back_as_it_was(tree: dict[str, object]) -> None:
    """Our builder gives what was dumped, whatever it was."""
    try:
        document = parsed(yaml.safe_dump(tree))
    except ConfigurationError as error:
        assert "half a character" in str(error) or "not valid YAML" in str(error)  # noqa: PT017 - either is right
        return
    assert as_loaded(document) == with_text(yaml.safe_load(yaml.safe_dump(tree)))


PATHS = [
    *(
        ("policy_model", "responses_api_models", "vllm_model", key)
        for key in ("host", "port", "base_url", "entrypoint")
    ),
    *(("policy_model", "responses_api_models", "vllm_model", key) for key in ("instance_role", "num_workers", "judge")),
    *((("agent", "responses_api_agents", "simple_agent")[:depth]) for depth in (1, 2, 3)),
    *(("agent", "responses_api_agents", "simple_agent", key) for key in ("model_server", "port", "_copy")),
    *((key,) for key in ("policy_base_url", "head_server", "default_host", "environment", "a", "b")),
]


def whole() -> dict[str, object]:
    """A configuration of two servers, to be spoilt."""
    address = {"entrypoint": "app.py", "host": "127.0.0.1"}
    model = {**address, "port": 5001, "base_url": "${policy_base_url}"}
    agent = {**address, "port": 5002, "model_server": {"type": "responses_api_models", "name": "policy_model"}}
    return {
        "policy_model": {"responses_api_models": {"vllm_model": model}},
        "agent": {"responses_api_agents": {"simple_agent": agent}},
        "policy_base_url": "http://127.0.0.1:9000/v1",
    }


def put(document: dict[str, object], path: tuple[str, ...], value: object) -> None:
    """Set a value in a nested document; where nothing leads there, nothing is done."""
    inner: object = document
    for key in path[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner[path[-1]] = value


@given(st.lists(st.tuples(st.sampled_from(PATHS), TREES), max_size=4))
def test_any_setting_may_hold_anything(changes: list[tuple[tuple[str, ...], object]]) -> None:
    """Whatever stands in a setting, the rest is asked at usable addresses, or the configuration is refused."""
    document = whole()
    for path, value in changes:
        put(document, path, value)
    try:
        to_ask = participants_of(read_gym_configuration(yaml.safe_dump(document), source="here"))
    except QuiesceError:
        return
    assert all(check_base_url(one.url) == one.url for one in to_ask.participants)
    addresses = [one.url for one in to_ask.participants]
    assert len(addresses) == len(set(addresses)) > 0
