"""What errors and notes say of the values of a resolved NeMo Gym configuration (docs/gym-configuration.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.gym_configs import text_of

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.gym_config import read_gym_configuration
from quiesce.participants.gym_config_participants import participants_of

PROBE = "zzprobe"
PLAIN = (
    PROBE,
    f"two words {PROBE}",
    f"http://{PROBE}:1/v1",
    f"http://user:{PROBE}@host/",
    f"${{oc.env:NAME,{PROBE}}}",
    [PROBE],
    {PROBE: PROBE},
)
REFERENCES = (f"${{{PROBE}}}", f"${{{PROBE}:name}}")
ADDRESSES = {"host", "default_host"}


def leaves(node: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every plain value of a document."""
    if not isinstance(node, dict | list):
        yield path
        return
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield from leaves(value, (*path, key))


def exchanged(node: Any, path: tuple[Any, ...], value: object) -> Any:  # noqa: ANN401 - a document
    """The document with another value at a path."""
    if not path:
        return value
    key, *rest = path
    if isinstance(node, dict):
        return {**node, key: exchanged(node[key], tuple(rest), value)}
    return [*node[:key], exchanged(node[key], tuple(rest), value), *node[key + 1 :]]


def told(document: object) -> str:
    """The notes, or the error."""
    try:
        found = participants_of(read_gym_configuration(json.dumps(document), source="a.yaml"))
    except QuiesceError as error:
        return str(error)
    return " ".join(found.notes)


@pytest.mark.parametrize("name", ["hosts", "upstreams", "workers"])
def test_of_all_values_only_hosts_and_references_are_repeated(name: str) -> None:
    """Each value of a document exchanged in turn: it is in no error and in no note, unless it says where to connect."""
    document = yaml.safe_load(text_of(name))
    repeated = set()
    for path in leaves(document):
        key = next(part for part in reversed(path) if isinstance(part, str))
        for value in (*PLAIN, *REFERENCES):
            if PROBE in told(exchanged(document, path, value)):
                repeated.add((key, value in REFERENCES))
    assert {key for key, is_reference in repeated if not is_reference} <= ADDRESSES
    assert any(is_reference for _, is_reference in repeated)
