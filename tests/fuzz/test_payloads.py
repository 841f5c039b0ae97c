"""Payloads from the wire models: valid ones are understood by a server, malformed ones are refused as such."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from support.asgi import ask
from support.virtual_loop import run_virtual

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.kit import KIT_TOKEN, build_kit_server
from quiesce.fuzz.payloads import ValidCall, bodies, malformed_calls, valid_calls
from quiesce.fuzz.spoiled import spoiling_of, spoilings_of
from quiesce.fuzz.subject import routes_for
from quiesce.participants.dialects.gym_a.routes import ROUTES
from quiesce.participants.errors import ConfigurationError

REQUESTS = [route.request for route in ROUTES if route.request is not None]
REPLIES = [route.reply for route in ROUTES]
BEARER = {"authorization": f"Bearer {KIT_TOKEN}"}


@pytest.mark.parametrize("model", dict.fromkeys([*REQUESTS, *REPLIES]), ids=lambda model: model.__name__)
def test_every_body_passes_the_model_it_was_made_from(model: type[BaseModel]) -> None:
    """Requests and replies of every route can be generated, as plain JSON."""

    @settings(max_examples=15, deadline=None)
    @given(bodies(model))
    def holds(body: dict[str, object]) -> None:
        model.model_validate_json(json.dumps(body))

    holds()


@pytest.mark.parametrize("role", Role)
def test_a_valid_call_is_understood_by_a_server(role: Role) -> None:
    """Whatever a valid call asks for, it is not refused as malformed and crashes nothing."""

    @settings(max_examples=25, deadline=None)
    @given(st.lists(valid_calls(role), max_size=5))
    def holds(calls: list[ValidCall]) -> None:
        run_virtual(_all_understood(role, calls))

    holds()


async def _all_understood(role: Role, calls: list[ValidCall]) -> None:
    app = build_kit_server(role).app
    for call in calls:
        fields = {**call.fields, "checkpoint_dir": "/nonexistent/x"} if "checkpoint_dir" in call.fields else call.fields
        if call.route.method == "GET":
            query = {name: str(value) for name, value in fields.items() if value is not None}
            reply = await ask(app, "GET", call.route.path, query=query, headers=BEARER)
        else:
            reply = await ask(app, "POST", call.route.path, json_body=fields, headers=BEARER)
        assert reply.status in {200, 409}, (call.route.path, fields, reply.raw)


@pytest.mark.parametrize("role", Role)
def test_a_malformed_call_is_refused_by_a_server(role: Role) -> None:
    """Each spoiling of each route is answered with 422, with and without a bearer."""

    @settings(max_examples=40, deadline=None)
    @given(malformed_calls(role), st.booleans())
    def holds(call: ValidCall, bearer: bool) -> None:  # noqa: FBT001 - given
        run_virtual(_refused(role, call, BEARER if bearer else {}))

    holds()


async def _refused(role: Role, call: ValidCall, headers: dict[str, str]) -> None:
    content = call.content()
    app = build_kit_server(role).app
    if isinstance(content, bytes):
        reply = await ask(app, call.route.method, call.route.path, body=content, headers=headers)
    else:
        reply = await ask(app, call.route.method, call.route.path, query=content, headers=headers)
    assert reply.status == 422, (call.route.path, call.spoiling, reply.raw)
    assert app.fence.state.active is None


@pytest.mark.parametrize("role", Role)
def test_every_spoiled_body_fails_its_model(role: Role) -> None:
    """A spoiling that the model takes would accuse good servers."""
    for route in routes_for(role).values():
        if route.request is None:
            continue
        example = _example(route.request)
        for spoiling in spoilings_of(route):
            content = spoiling.apply(example)
            assert isinstance(content, bytes)
            with pytest.raises(ValidationError):
                route.request.model_validate_json(content)


def _example(model: type[BaseModel]) -> dict[str, object]:
    fields: dict[str, object] = {
        "checkpoint_id": "a",
        "deadline_ts": 1.9e9,
        "checkpoint_dir": "/d",
        "continuation_indexes": [],
        "rollout_id": "r",
        "attempt_index": 0,
        "execution_generation": 1,
        "result_identity": "i",
        "result_digest": "0" * 64,
    }
    receipt = {name: fields[name] for name in list(fields)[4:]}
    own = {name: value for name, value in {**fields, "executions": [receipt]}.items() if name in model.model_fields}
    model.model_validate_json(json.dumps(own))
    return own


def test_a_spoiling_that_is_none_is_refused() -> None:
    """A replay file may name what this version does not know."""
    route = routes_for(Role.POLICY)[next(iter(routes_for(Role.POLICY)))]
    with pytest.raises(ConfigurationError, match="no malformed form"):
        spoiling_of(route, "upside-down")
