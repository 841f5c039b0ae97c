"""What a control route checks, in which order, and what it says about itself, for every role."""

from __future__ import annotations

import json

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as AppRoute
from support.asgi import Caller, ask
from support.kit import CONTROL, TOKEN, Kit
from support.virtual_loop import virtual_time

from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.participants.dialects.gym_a.routes import INSTANCE_HEADER, Route, routes_served_by
from quiesce.participants.dialects.gym_a.wire import Capabilities
from quiesce.participants.errors import ConfigurationError, InvalidIdentity
from quiesce.participants.server import control
from quiesce.participants.server.answers import Message, Receive, Scope, Send
from quiesce.participants.server.auth import Bearer
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.mount import mount_auxiliary, mount_policy

COMPONENTS = {Role.POLICY: "policy", Role.AUXILIARY: "aux", Role.AGENT: "agent", Role.RESOURCES: "resources"}
GUARDED = [(role, route) for role in Role for route in routes_served_by(role) if route.authorized]
EVERY_GUARDED = pytest.mark.parametrize(
    ("role", "route"), GUARDED, ids=[f"{role.value}-{route.name}" for role, route in GUARDED]
)
EVERY_ROLE = pytest.mark.parametrize("role", Role, ids=str)


def _valid(kit: Kit, route: Route) -> dict[str, object]:
    """A body or query that the route's model takes."""
    receipt = {
        "rollout_id": "r",
        "attempt_index": 0,
        "execution_generation": 1,
        "result_identity": "i",
        "result_digest": "0" * 64,
    }
    if route.name == "acknowledge":
        return receipt
    if route.name == "acknowledge_completed":
        return {"executions": [receipt]}
    body: dict[str, object] = {"checkpoint_id": "x", "deadline_ts": kit.deadline(30)}
    for model in (route.request, route.query):
        members = {} if model is None else model.model_fields
        extra = {"checkpoint_dir": "/c", "continuation_indexes": [], "rollout_id": "r", "attempt_index": 0}
        body |= {name: value for name, value in extra.items() if name in members}
    return body


async def _send(
    server: MountedServer, route: Route, content: dict[str, object], authorization: str | bytes | None
) -> Caller:
    headers = {} if authorization is None else {"authorization": authorization}
    if route.request is None:
        return await ask(server, route.method, route.path, query=content, headers=headers)
    return await ask(server, route.method, route.path, json_body=content, headers=headers)


@EVERY_GUARDED
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        TOKEN,
        f"bearer {TOKEN}",
        f"Bearer  {TOKEN}",
        f"Bearer {TOKEN} ",
        f"Bearer {TOKEN}x",
        "Bearer ",
        "Bearer caf\u00e9".encode(),
        b"Bearer \xff\xfe",
    ],
)
@virtual_time
async def test_a_call_without_the_bearer_is_refused_and_changes_nothing(
    role: Role, route: Route, authorization: str | bytes | None
) -> None:
    """Every route but capabilities wants the exact header; a header that is no ASCII is wrong, not a crash."""
    kit = Kit()
    server = kit.server(COMPONENTS[role])
    before = server.fence.state
    reply = await _send(server, route, _valid(kit, route), authorization)
    assert (reply.status, reply.json) == (401, {"detail": "missing or invalid control-plane bearer token"})
    assert server.fence.state == before


@EVERY_GUARDED
@virtual_time
async def test_a_malformed_call_is_422_even_without_a_bearer(role: Role, route: Route) -> None:
    """Validation runs before authorization on the wire (2.0), so that probing for a route needs no id (F23)."""
    kit = Kit()
    reply = await _send(kit.server(COMPONENTS[role]), route, {}, None)
    assert reply.status == 422
    assert all(problem["loc"][0] == ("body" if route.request else "query") for problem in reply.json["detail"])


@EVERY_GUARDED
@virtual_time
async def test_every_control_reply_names_the_incarnation(role: Role, route: Route) -> None:
    """Success, refusal, 401 and 422 carry the same instance, which another process has not."""
    kit, other = Kit(), Kit()
    server = kit.server(COMPONENTS[role])
    body = _valid(kit, route)
    replies = [
        await _send(server, route, body, f"Bearer {TOKEN}"),
        await _send(server, route, body, None),
        await _send(server, route, {}, None),
        await ask(server, "GET", f"{CONTROL}/capabilities"),
    ]
    assert {reply.reply_headers[INSTANCE_HEADER] for reply in replies} == {server.instance}
    assert other.server(COMPONENTS[role]).instance != server.instance


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff", b'{"checkpoint_id":"x","deadline_ts":NaN}'],
    ids=repr,
)
@virtual_time
async def test_a_body_that_is_no_envelope_is_422(body: bytes) -> None:
    """Nothing, half a document, another type, no UTF-8, NaN: each is a clear 422 and nothing is closed."""
    kit = Kit()
    reply = await ask(kit.policy, "POST", f"{CONTROL}/model-admission/pause", body=body, headers=kit.bearer())
    assert reply.status == 422
    assert reply.json["detail"]
    assert not kit.policy.fence.state.closed


@virtual_time
async def test_a_body_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control body is read through a cap."""
    monkeypatch.setattr(control, "BODY_BYTES_MAX", 1000)
    kit = Kit()
    body = json.dumps({"checkpoint_id": "x", "deadline_ts": 1.0, "pad": "y" * 1000}).encode()
    reply = await ask(kit.policy, "POST", f"{CONTROL}/model-admission/pause", body=body, headers=kit.bearer())
    assert reply.status == 413


@virtual_time
async def test_the_input_is_not_echoed_in_a_422() -> None:
    """What a client sent by mistake into a malformed body does not come back."""
    kit = Kit()
    reply = await kit.post(kit.policy, "/model-admission/pause", "../canary")
    assert reply.status == 422
    assert b"canary" not in reply.raw


@EVERY_ROLE
@virtual_time
async def test_capabilities_need_no_bearer_and_are_believed_by_our_client(role: Role) -> None:
    """Every role declares itself to anybody, in the shape that our client's strict model takes."""
    kit = Kit()
    server = kit.server(COMPONENTS[role])
    reply = await ask(server, "GET", f"{CONTROL}/capabilities")
    seen = Capabilities.model_validate_json(reply.raw).live()
    assert reply.status == 200
    assert seen.declaration.role is role
    assert seen.declaration.exports is (role is not Role.AUXILIARY)
    assert (seen.phase, seen.active_checkpoint_id, seen.deadline_ts) == (FencePhase.IDLE, None, None)


@EVERY_ROLE
@virtual_time
async def test_without_a_token_there_are_only_capabilities(role: Role) -> None:
    """A server without a control token declares that it takes part in nothing, and has no other control route."""
    kit = Kit(token=None)
    server = kit.server(COMPONENTS[role])
    declared = (await ask(server, "GET", f"{CONTROL}/capabilities")).json
    assert (declared["admission_states"], declared["checkpoint_mode"], declared["features"]) == (
        ["accepting"],
        "stateless",
        [],
    )
    for route in routes_served_by(role):
        if route.authorized:
            assert (await _send(server, route, _valid(kit, route), None)).status == 404


@virtual_time
async def test_an_application_keeps_its_own_routes_and_events() -> None:
    """Paths that are no control routes go to the application, lifespan events too."""
    kit = Kit()
    assert (await ask(kit.policy, "GET", "/health")).json == {"ok": True}
    assert (await ask(kit.policy, "GET", f"{CONTROL}/elsewhere")).status == 404
    started: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        started.append(scope["type"])

    async def receive() -> Message:
        raise AssertionError

    async def send(_message: Message) -> None:
        raise AssertionError

    mounted = mount_policy(app, ledger=kit.stores.ledger, token=TOKEN)
    await mounted({"type": "lifespan"}, receive, send)
    assert started == ["lifespan"]


@EVERY_GUARDED
@virtual_time
async def test_another_method_is_405_and_names_the_right_one(role: Role, route: Route) -> None:
    """A route answers its own method only, and the reply still names the incarnation."""
    kit = Kit()
    server = kit.server(COMPONENTS[role])
    reply = await ask(server, "GET" if route.method == "POST" else "POST", route.path, headers=kit.bearer())
    assert (reply.status, reply.reply_headers["allow"]) == (405, route.method)
    assert reply.reply_headers[INSTANCE_HEADER] == server.instance


@virtual_time
async def test_mounting_leaves_the_applications_own_routing_alone() -> None:
    """An application that names its own routes still finds them: nothing of ours stands in its scope."""

    async def named(request: Request) -> Response:
        return JSONResponse({"url": str(request.url_for("named"))})

    app = Starlette(routes=[AppRoute("/named", named, name="named")])
    kit = Kit()
    mounted = mount_policy(app, ledger=kit.stores.ledger, token=TOKEN)
    assert (await ask(mounted, "GET", "/named")).json["url"].endswith("/named")


@virtual_time
async def test_the_fence_says_where_it_stands_in_capabilities() -> None:
    """Phase, holder and deadline are live, and gone again after resume."""
    kit = Kit()
    deadline = kit.deadline(30)
    await kit.post(kit.resources, "/resources-checkpoint/prepare")
    assert kit.resources.capabilities()["phase"] == "prepared"
    assert kit.resources.capabilities()["active_checkpoint_id"] == "x"
    assert kit.resources.capabilities()["deadline_ts"] == deadline
    await kit.post(kit.resources, "/resources-checkpoint/resume")
    live = [kit.resources.capabilities()[name] for name in ("phase", "active_checkpoint_id", "deadline_ts")]
    assert live == ["idle", None, None]


def test_a_token_that_cannot_be_sent_is_refused_at_the_mount() -> None:
    """A token with line breaks or spaces around it is a configuration error; no token shows in a representation."""
    for token in (" x", "x\n", "a\tb", "\x00"):
        with pytest.raises(ConfigurationError, match="printable"):
            Bearer(token)
    assert TOKEN not in repr(Bearer(TOKEN))


@virtual_time
async def test_an_application_is_mounted_once() -> None:
    """Mounting a mounted application again says so, and names what it is."""
    kit = Kit()
    with pytest.raises(ConfigurationError, match="mounted already, as policy 'policy'"):
        mount_auxiliary(kit.policy, name="judge", token=TOKEN)


@virtual_time
async def test_a_coordinator_fence_or_a_bad_name_is_refused_at_the_mount() -> None:
    """What cannot be served is refused before anything is served."""
    kit = Kit()
    with pytest.raises(ConfigurationError, match="no gym_a_coordinator fence"):
        mount_policy(kit.work.model_app(), ledger=kit.stores.ledger, token=TOKEN, fence=FenceVariant.GYM_A_COORDINATOR)
    with pytest.raises(InvalidIdentity):
        mount_auxiliary(kit.work.model_app(), name="../x", token=TOKEN)


def test_a_server_that_expects_a_restore_needs_a_token() -> None:
    """Without a control token nobody could restore it, so it refuses to start."""
    with pytest.raises(ConfigurationError, match="expects a restore"):
        Kit(token=None, restore_expected=True)
