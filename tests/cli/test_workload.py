"""The workload's servers over HTTP: whole rollouts, and what they answer to calls that make no sense."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from support.workload import deployed

from quiesce.cli.workload import ServerSettings, build_server, course
from quiesce.cli.workload.bodies import BODY_BYTES_MAX, ToolReply
from quiesce.cli.workload.upstream import Upstream, UpstreamFailed, UpstreamReply, identity_headers
from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import CallParked

Urls = dict[Role, str]
ATTEMPT = AttemptId("r1", 0)


@pytest.fixture
async def urls() -> AsyncIterator[Urls]:
    """Four servers that take no time."""
    async with deployed(latency_s=0) as found:
        yield dict(found)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """A client."""
    async with httpx.AsyncClient(timeout=30) as client:
        yield client


async def test_a_rollout_ends_as_foretold(urls: Urls, http: httpx.AsyncClient) -> None:
    """Its result has one model call and one text a turn, and the tool's reward; asked again, it is the same."""
    body = {"task": "add", "turns": 4}
    reply = await http.post(f"{urls[Role.AGENT]}/run", json=body, headers=identity_headers(ATTEMPT))
    due = course("add", 4)
    assert reply.json() == {
        "id": "result-r1",
        "rollout_id": "r1",
        "attempt_index": 0,
        "turns": 4,
        "observation": due.observation,
        "words": due.words,
        "model_calls": 4,
        "model_words": due.words,
        "began_at_turn": 0,
        "reward": 1.0,
    }
    again = await http.post(f"{urls[Role.AGENT]}/run", json=body, headers=identity_headers(ATTEMPT))
    assert again.json() == reply.json()


async def test_the_tool_gives_no_reward_for_another_course(urls: Urls, http: httpx.AsyncClient) -> None:
    """A session in which a turn is missing, or in which another text stands, is worth nothing."""
    tools, headers = urls[Role.RESOURCES], identity_headers(ATTEMPT)
    await http.post(f"{tools}/seed_session", json={"task": "add"}, headers=headers)
    await http.post(f"{tools}/append", json={"text": "not what the model says"}, headers=headers)
    reply = await http.post(f"{tools}/verify", json={"turns": 1}, headers=headers)
    assert (reply.json()["turns"], reply.json()["reward"]) == (1, 0.0)


async def test_a_policy_without_caller_answers_and_records_nothing(urls: Urls, http: httpx.AsyncClient) -> None:
    """A call that names no rollout gets its text and is in no lineage."""
    asked = {"task": "add", "observation": course("add", 1).observation}
    reply = await http.post(f"{urls[Role.POLICY]}/v1/responses", json=asked)
    assert reply.status_code == 200
    assert reply.json()["call"] is None
    assert "x-nemo-gym-model-call-id" not in reply.headers


async def test_a_policy_without_judge_marks_for_itself(http: httpx.AsyncClient) -> None:
    """The judge only says what anybody can compute, so the course is the same without one."""
    transport = httpx.ASGITransport(build_server(ServerSettings(Role.POLICY, latency_s=0)))
    async with httpx.AsyncClient(transport=transport, base_url="http://policy") as policy, deployed(latency_s=0) as up:
        asked = {"task": "add", "observation": course("add", 3).observation}
        alone = await policy.post("/v1/responses", json=asked)
        judged = await http.post(f"{up[Role.POLICY]}/v1/responses", json=asked)
    assert alone.json()["output_text"] == judged.json()["output_text"]


@pytest.mark.parametrize(
    ("role", "path", "body", "status"),
    [
        (Role.AGENT, "/run", b"{", 422),
        (Role.AGENT, "/run", b'{"task": "a", "turns": 0}', 422),
        (Role.AGENT, "/run", b'{"task": "a", "turns": true}', 422),
        (Role.AGENT, "/run", b'{"task": "a", "turns": 1, "more": 1}', 422),
        (Role.AGENT, "/run", b" " * (BODY_BYTES_MAX + 1), 413),
        (Role.POLICY, "/v1/responses", b'{"task": "a", "observation": "short"}', 422),
        (Role.AUXILIARY, "/v1/responses", b'{"task": "a", "texts": []}', 422),
        (Role.RESOURCES, "/seed_session", b"[]", 422),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused(
    urls: Urls, http: httpx.AsyncClient, role: Role, path: str, body: bytes, status: int
) -> None:
    """It is answered with what is wrong, and the attempt may come again with a better one."""
    headers = identity_headers(ATTEMPT)
    reply = await http.post(f"{urls[role]}{path}", content=body, headers=headers)
    assert reply.status_code == status
    assert reply.json()["detail"]
    good = {"task": "a", "turns": 1}
    if role is Role.AGENT:
        again = await http.post(f"{urls[role]}{path}", json=good, headers=identity_headers(AttemptId("r1", 1)))
        assert again.status_code == 200


async def test_a_run_without_identity_is_refused(urls: Urls, http: httpx.AsyncClient) -> None:
    """An agent cannot save what belongs to no rollout, and says so."""
    reply = await http.post(f"{urls[Role.AGENT]}/run", json={"task": "a", "turns": 1})
    assert reply.status_code == 422
    assert "identity headers" in reply.json()["detail"]


async def test_a_parent_that_is_not_there_is_refused(urls: Urls, http: httpx.AsyncClient) -> None:
    """A call that claims to go on from an unknown one is a conflict, not a new beginning."""
    asked = {
        "task": "a",
        "observation": course("a", 1).observation,
        "parent": {"capture_key": "r1", "model_call_id": "mc-none"},
    }
    reply = await http.post(f"{urls[Role.POLICY]}/v1/responses", json=asked, headers=identity_headers(ATTEMPT))
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "ledger_mismatch")


def answering(status: int, body: object) -> httpx.AsyncClient:
    """A client to which everybody answers the same."""
    return httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(status, json=body)))


@pytest.mark.parametrize("code", ["checkpoint_parked", "resources_admission_closed"])
async def test_a_closed_server_parks_the_call(code: str) -> None:
    """The refusals of a server that is being checkpointed are no failures."""
    upstream = Upstream("the tool", "http://tool", answering(409, {"error": {"code": code}}))
    with pytest.raises(CallParked):
        await upstream.post("/append", ToolReply(observation="0" * 64, turns=0))


@pytest.mark.parametrize(("status", "body"), [(409, {"error": {"code": "stale_attempt"}}), (500, "crash"), (302, {})])
async def test_another_refusal_is_a_failure(status: int, body: object) -> None:
    """Whatever else is no success names the server, the path and the status."""
    upstream = Upstream("the tool", "http://tool", answering(status, body))
    with pytest.raises(UpstreamFailed, match=f"the tool answered /append with {status}"):
        await upstream.post("/append", ToolReply(observation="0" * 64, turns=0))


def test_a_reply_of_another_shape_is_a_failure() -> None:
    """A success whose body is not the expected one is not believed."""
    with pytest.raises(UpstreamFailed, match="is no ToolReply"):
        UpstreamReply({"turns": 1}, None).read_as(ToolReply)


def test_contradicting_settings_are_all_named() -> None:
    """A server that cannot be built says everything that is wrong with its settings, and no token."""
    settings = ServerSettings(Role.AGENT, token="secret", expects_restore=True)
    with pytest.raises(ConfigurationError, match=r"policy=URL.*resources=URL.*only a resource server"):
        build_server(settings)
    assert "secret" not in repr(settings)
