"""Malformed requests, made from the wire models: each breaks one thing, and says which rule that is about.

A request is spoiled by name, so that a step can carry the name and a replay finds the same request again. What the
recorded servers are known to take (text that spells a number, ``true`` for 1) is not among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from quiesce.participants.dialects.gym_a.routes import Route
from quiesce.participants.errors import ConfigurationError

__all__ = ["Fields", "Spoiling", "spoiling_of", "spoilings_of"]

Fields: TypeAlias = Mapping[str, object]

TOO_LONG_ID: Final = "x" * 129
BAD_IDS: Final[Mapping[str, object]] = {
    "path": "../escape",
    "empty": "",
    "too-long": TOO_LONG_ID,
    "leading-dot": ".hidden",
    "blank": "two words",
    "newline": "line\n",
    "slash": "a/b",
    "not-ascii": "caf\u00e9",
    "number": 7,
    "null": None,
}
BAD_DEADLINES: Final[Mapping[str, object]] = {"text": "soon", "null": None, "list": [1.0]}
_NUMBERS_OF_NO_JSON: Final = {"nan": "NaN", "infinity": "Infinity", "minus-infinity": "-Infinity"}
_BODIES: Final = {
    "none": b"",
    "cut": b'{"checkpoint_id":',
    "array": b"[]",
    "text": b'"text"',
    "null": b"null",
    "not-utf8": b'{"checkpoint_id":"\xff\xfe"}',
}
_ENVELOPE: Final = frozenset({"checkpoint_id", "deadline_ts", "schema_version"})
_MAY_BE_EMPTY: Final = frozenset({"checkpoint_dir"})
"""Text of which the wire does not say that it must not be empty."""
_PLACEHOLDER: Final = "\u0000number\u0000"


@dataclass(frozen=True, slots=True)
class Spoiling:
    """One way to make a request malformed. ``apply`` takes the valid body's or query's fields.

    It gives the content of a POST, or the query of a GET.
    """

    name: str
    rule_id: str
    apply: Callable[[Fields], bytes | Mapping[str, str]]


@lru_cache(maxsize=64)
def spoilings_of(route: Route) -> tuple[Spoiling, ...]:
    """Every spoiling of a route's requests, in a fixed order."""
    if route.request is not None:
        return tuple(_of_body(route.request.model_json_schema()))
    if route.query is not None:
        return tuple(_of_query(route.query.model_json_schema()))
    return ()


def spoiling_of(route: Route, name: str) -> Spoiling:
    """The spoiling of this name.

    Raises:
        ConfigurationError: the route has none of this name.
    """
    found = next((spoiling for spoiling in spoilings_of(route) if spoiling.name == name), None)
    if found is None:
        raise ConfigurationError(f"there is no malformed form {name!r} of {route.method} {route.path}")
    return found


def _of_body(schema: Mapping[str, object]) -> Iterator[Spoiling]:
    properties, required = _properties(schema), _required(schema)
    for name, content in _BODIES.items():
        yield Spoiling(f"body.{name}", "request.body", _constant(content))
    yield _changed("unknown-field", "request.unknown-field", lambda fields: {**fields, "include_everything": True})
    for name in required:
        yield _changed(f"missing.{name}", "request.missing-field", _without(name))
    if "checkpoint_id" in properties:
        for kind, value in BAD_IDS.items():
            yield _changed(f"id.{kind}", "request.id", _with("checkpoint_id", value))
        for number in (0, 2):
            yield _changed(f"schema-version.{number}", "request.schema-version", _with("schema_version", number))
        yield _changed("schema-version.text", "request.schema-version", _with("schema_version", "one"))
        yield from _bad_deadlines()
    for name, field_schema in properties.items():
        if name not in _ENVELOPE:
            for kind, value in _wrong_values(schema, field_schema):
                if value == "" and name in _MAY_BE_EMPTY:
                    continue
                yield _changed(f"type.{name}.{kind}", "request.types", _with(name, value))


def _bad_deadlines() -> Iterator[Spoiling]:
    for kind, value in BAD_DEADLINES.items():
        yield _changed(f"deadline.{kind}", "request.deadline", _with("deadline_ts", value))
    for kind, literal in _NUMBERS_OF_NO_JSON.items():

        def content(fields: Fields, literal: str = literal) -> bytes:
            text = json.dumps({**fields, "deadline_ts": _PLACEHOLDER})
            return text.replace(json.dumps(_PLACEHOLDER), literal).encode()

        yield Spoiling(f"deadline.{kind}", "request.deadline", content)


def _of_query(schema: Mapping[str, object]) -> Iterator[Spoiling]:
    properties = _properties(schema)
    for name in _required(schema):
        yield Spoiling(f"missing.{name}".replace("_", "-"), "request.query", _as_query(_without(name)))
    bad: dict[str, tuple[str, str]] = {
        f"id.{kind}": ("checkpoint_id", value) for kind, value in BAD_IDS.items() if isinstance(value, str)
    }
    if "deadline_ts" in properties:
        bad |= {f"deadline.{kind}": ("deadline_ts", kind) for kind in ("soon", "nan", "inf")}
    if "anyOf" in properties.get("wait_state", {}) and "const" in json.dumps(properties["wait_state"]):
        bad["wait-state.other"] = ("wait_state", "draining")
        bad["timeout.negative"] = ("timeout_s", "-1")
    if "timeout_s" in properties:
        bad["timeout.text"] = ("timeout_s", "long")
    for name, (parameter, value) in bad.items():
        yield Spoiling(name, "request.query", _as_query(_with(parameter, value)))


def _wrong_values(schema: Mapping[str, object], field_schema: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    kind = _resolved(schema, field_schema).get("type")
    yield "null", None
    if kind == "string":
        yield "number", 7
        yield "empty", ""
    elif kind == "integer":
        yield "text", "many"
        yield "negative", -1
        yield "fraction", 1.5
    elif kind == "array":
        yield "text", "none"
        yield "of-numbers", [7]
        yield "of-empty", [{}]


def _resolved(schema: Mapping[str, object], part: Mapping[str, object]) -> Mapping[str, object]:
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return part
    definitions = schema.get("$defs")
    found = definitions.get(reference.rsplit("/", 1)[-1]) if isinstance(definitions, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _properties(schema: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    found = schema.get("properties", {})
    return found if isinstance(found, Mapping) else {}


def _required(schema: Mapping[str, object]) -> tuple[str, ...]:
    found = schema.get("required", [])
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def _changed(name: str, rule_id: str, change: Callable[[Fields], Fields]) -> Spoiling:
    return Spoiling(name.replace("_", "-"), rule_id, lambda fields: json.dumps(dict(change(fields))).encode())


def _with(name: str, value: object) -> Callable[[Fields], Fields]:
    return lambda fields: {**fields, name: value}


def _without(name: str) -> Callable[[Fields], Fields]:
    return lambda fields: {other: value for other, value in fields.items() if other != name}


def _as_query(change: Callable[[Fields], Fields]) -> Callable[[Fields], Mapping[str, str]]:
    return lambda fields: {name: str(value) for name, value in change(fields).items()}


def _constant(content: bytes) -> Callable[[Fields], bytes]:
    return lambda _fields: content
