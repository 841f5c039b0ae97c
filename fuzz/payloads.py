"""Hypothesis strategies for what goes over the wire, made from the wire models: valid requests, and malformed ones.

    @given(bodies(wire.ControlEnvelope))
    def test_my_parser(body): ...

A body is a plain value, ready for ``json.dumps``. Every valid one passes the model it was made from; a malformed call
breaks exactly one thing and says which rule it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hypothesis import strategies as st
from pydantic import BaseModel

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.spoiled import Spoiling, spoilings_of
from quiesce.fuzz.subject import routes_for
from quiesce.participants.dialects.gym_a.routes import Route
from quiesce.participants.strict_json import compact

__all__ = ["ValidCall", "bodies", "malformed_calls", "valid_calls"]

Schema: TypeAlias = Mapping[str, object]

TEXT_CHARS_MAX: Final = 40
ITEMS_MAX: Final = 3
NUMBER_MAX: Final = 10**9
_EXTRA: Final = st.dictionaries(
    st.text(min_size=1, max_size=8).map("x_{}".format), st.integers() | st.text(), max_size=2
)


@dataclass(frozen=True, slots=True)
class ValidCall:
    """A route and a body (or query) that it takes; ``spoiling`` is set for one that it must refuse."""

    route: Route
    fields: Mapping[str, object]
    spoiling: Spoiling | None = None

    def content(self) -> bytes | Mapping[str, str] | None:
        """A malformed call as it goes on the wire: the content of a POST, the query of a GET."""
        return None if self.spoiling is None else self.spoiling.apply(self.fields)


def bodies(model: type[BaseModel]) -> st.SearchStrategy[dict[str, object]]:
    """Values that ``model`` takes, as plain JSON. Models that ignore unknown fields get some now and then."""
    schema = model.model_json_schema()
    lenient = model.model_config.get("extra") == "ignore"
    found = _object(schema, schema)
    if lenient:
        found = st.builds(lambda own, extra: {**extra, **own}, found, _EXTRA)
    return found.filter(lambda fields: _takes(model, fields))


def valid_calls(role: Role) -> st.SearchStrategy[ValidCall]:
    """Requests that a server of this role understands, whether it grants them or not."""
    choices = []
    for route in dict.fromkeys(routes_for(role).values()):
        model = route.request or route.query
        fields = st.just({}) if model is None else bodies(model)
        choices.append(st.builds(ValidCall, st.just(route), fields))
    return st.one_of(choices)


def malformed_calls(role: Role) -> st.SearchStrategy[ValidCall]:
    """Requests that a server of this role must refuse with 422."""
    choices = []
    for route in dict.fromkeys(routes_for(role).values()):
        model = route.request or route.query
        if model is not None:
            spoilings: Sequence[Spoiling] = spoilings_of(route)
            choices.append(st.builds(ValidCall, st.just(route), bodies(model), st.sampled_from(spoilings)))
    return st.one_of(choices)


def _takes(model: type[BaseModel], fields: Mapping[str, object]) -> bool:
    try:
        model.model_validate_json(compact(dict(fields)))
    except ValueError:
        return False
    return True


def _object(root: Schema, schema: Schema) -> st.SearchStrategy[dict[str, object]]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return st.just({})
    if not properties:
        return _mapping(root, schema)
    own = {name: _value(root, part) for name, part in properties.items()}
    return st.fixed_dictionaries(
        {name: own[name] for name in own if name in required},
        optional={name: own[name] for name in own if name not in required},
    )


def _mapping(root: Schema, schema: Schema) -> st.SearchStrategy[dict[str, object]]:
    values = schema.get("additionalProperties")
    if not isinstance(values, Mapping):
        return st.just({})
    return st.dictionaries(st.text(max_size=TEXT_CHARS_MAX), _value(root, values), max_size=ITEMS_MAX)


def _value(root: Schema, schema: Schema) -> st.SearchStrategy[object]:
    schema = _resolved(root, schema)
    choices, names = schema.get("anyOf"), schema.get("enum")
    if isinstance(choices, list):
        return st.one_of([_value(root, choice) for choice in choices])
    if isinstance(names, list):
        return st.sampled_from(names)
    if "const" in schema:
        return st.just(schema["const"])
    return _KINDS.get(str(schema.get("type")), _object)(root, schema)


def _number(_root: Schema, schema: Schema) -> st.SearchStrategy[object]:
    least = _bound(schema, "minimum", -NUMBER_MAX)
    return st.floats(least, NUMBER_MAX, allow_nan=False, allow_infinity=False)


def _integer(_root: Schema, schema: Schema) -> st.SearchStrategy[object]:
    return st.integers(_bound(schema, "minimum", -NUMBER_MAX), _bound(schema, "maximum", NUMBER_MAX))


def _list(root: Schema, schema: Schema) -> st.SearchStrategy[object]:
    items, least = schema.get("items", {}), _bound(schema, "minItems", 0)
    inner = _value(root, items) if isinstance(items, Mapping) else st.none()
    return st.lists(inner, min_size=least, max_size=max(least, ITEMS_MAX))


def _text(_root: Schema, schema: Schema) -> st.SearchStrategy[object]:
    pattern, least = schema.get("pattern"), _bound(schema, "minLength", 0)
    if isinstance(pattern, str):
        longest = _bound(schema, "maxLength", NUMBER_MAX)
        # in the models `$` matches the very end only; Python's would let a final newline pass
        exact = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern
        return st.from_regex(exact, alphabet=st.characters(codec="ascii")).filter(lambda text: len(text) <= longest)
    longest = min(_bound(schema, "maxLength", TEXT_CHARS_MAX), TEXT_CHARS_MAX)
    return st.text(st.characters(codec="utf-8"), min_size=least, max_size=max(least, longest))


def _bound(schema: Schema, name: str, otherwise: int) -> int:
    found = schema.get(name)
    return int(found) if isinstance(found, int | float) else otherwise


def _resolved(root: Schema, schema: Schema) -> Schema:
    reference = schema.get("$ref")
    definitions = root.get("$defs")
    if not isinstance(reference, str) or not isinstance(definitions, Mapping):
        return schema
    found = definitions.get(reference.rsplit("/", 1)[-1])
    return found if isinstance(found, Mapping) else schema


_KINDS: Final[Mapping[str, Callable[[Schema, Schema], st.SearchStrategy[object]]]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": lambda _root, _schema: st.booleans(),
    "null": lambda _root, _schema: st.none(),
    "array": _list,
}
