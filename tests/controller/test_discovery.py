"""Discovery: everybody is asked, every problem is named with its remedy, and nobody is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from support.participants import IdleParticipant, capabilities_of
from support.virtual_loop import VirtualClock, virtual_time

from quiesce.controller.config import Config, DeploymentConfig, ParticipantConfig
from quiesce.controller.discovery import Discovered, DiscoveryFailed, discover
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role, Verb
from quiesce.participants.errors import ControlRequestError, QuiesceError, TopologyError
from quiesce.transport import AsgiTransport, StaticTokenProvider

SECRET = "s3cret-token"

Fleet = dict[str, IdleParticipant]


def fleet() -> Fleet:
    """One healthy server of each role."""
    return {
        "policy": IdleParticipant(Role.POLICY, token=SECRET, name="policy", instance="p-1"),
        "judge": IdleParticipant(Role.AUXILIARY, token=SECRET, name="judge"),
        "agent": IdleParticipant(Role.AGENT, token=SECRET, name="agent"),
        "tools": IdleParticipant(Role.RESOURCES, token=SECRET, name="tools"),
    }


def config_of(servers: Mapping[str, object], **settings: str) -> Config:
    """A configuration that names each server at ``http://<name>``; ``name__key`` sets a key of one of them."""
    participants = []
    for name in servers:
        extra = {key.split("__")[1]: value for key, value in settings.items() if key.startswith(f"{name}__")}
        participants.append(ParticipantConfig.model_validate({"name": name, "url": f"http://{name}", **extra}))
    return Config(root=Path("/nowhere"), deployment={"main": DeploymentConfig(participants=tuple(participants))})


def transport_to(servers: Fleet, token: str | None = SECRET) -> AsgiTransport:
    """The servers in this process."""
    applications = {f"http://{name}": server.app for name, server in servers.items()}
    return AsgiTransport(applications, StaticTokenProvider(token))


async def discovered(servers: Fleet, config: Config | None = None, token: str | None = SECRET) -> Discovered:
    """Discover these servers."""
    transport = transport_to(servers, token)
    try:
        return await discover(config or config_of(servers), transport, VirtualClock())
    finally:
        await transport.aclose()


async def failure(servers: Fleet, config: Config | None = None, token: str | None = SECRET) -> DiscoveryFailed:
    """The error of a discovery that must fail; it never holds the token."""
    with pytest.raises(DiscoveryFailed) as caught:
        await discovered(servers, config, token)
    assert SECRET not in f"{caught.value}{caught.value!r}{caught.value.exceptions!r}"
    return caught.value


@virtual_time
async def test_a_healthy_fleet_is_found_in_topology_order() -> None:
    """Everybody is there with role, phases, incarnation and fingerprint."""
    found = await discovered(fleet())
    assert [participant.key.name for participant in found.participants] == ["tools", "agent", "judge", "policy"]
    roles = {participant.key.name: participant.role for participant in found.participants}
    assert roles == {"policy": Role.POLICY, "judge": Role.AUXILIARY, "agent": Role.AGENT, "tools": Role.RESOURCES}
    judge, policy = found.participants[2], found.participants[3]
    assert judge.phases == {Phase.PREFLIGHT}
    assert {Phase.PREPARE, Phase.COMMIT, Phase.RESTORE} <= policy.phases
    assert (policy.key, policy.instance) == (ParticipantKey("main", "policy"), "p-1")
    assert list(found.fingerprints()) == ["main"]
    assert len(found.fingerprints()["main"]) == 64
    assert any("policy_base_urls is not set" in note for note in found.notes)


@virtual_time
async def test_discovery_has_no_effect() -> None:
    """Only capabilities, status and empty requests are sent; the judge is asked for its capabilities alone (F-24)."""
    servers = fleet()
    await discovered(servers)
    for server in servers.values():
        for request, body in server.requests:
            assert body in {"", "{}"}, request
        assert server.calls()[0] == "capabilities"
    assert servers["judge"].calls() == ["capabilities"]
    assert set(servers["policy"].calls()) == {
        "capabilities",
        "pause",
        "model_status",
        "model_resume",
        "model_commit",
        "model_restore",
    }


@virtual_time
async def test_a_stateless_server_is_not_probed() -> None:
    """Who takes no part in a cut needs no control routes."""
    servers = fleet()
    servers["tools"] = IdleParticipant(
        Role.RESOURCES, name="tools", checkpoint_mode="stateless", without=["resources_prepare", "resources_commit"]
    )
    found = await discovered(servers)
    assert found.participants[0].phases == {Phase.PREFLIGHT}
    assert servers["tools"].calls() == ["capabilities"]


@virtual_time
async def test_a_missing_route_is_found_before_anybody_is_paused() -> None:
    """The coordinator's control application declares export_restore without the routes for it (wire-protocol F23)."""
    servers = fleet()
    servers["policy"] = IdleParticipant(
        Role.POLICY,
        name="policy",
        token=SECRET,
        multi_process={"mode": "coordinator", "num_workers": 2},
        without=["model_commit", "model_restore"],
    )
    failed = await failure(servers)
    assert len(failed.problems) == 1
    assert "main/policy" in failed.problems[0]
    assert "/ng-control/v1/model-checkpoint/commit with 404" in failed.problems[0]
    assert "nobody was paused" in str(failed)


@virtual_time
async def test_commit_and_restore_may_be_served_elsewhere() -> None:
    """With a checkpoint_url the two routes are expected, and later called, there and the others at the url."""
    servers = fleet()
    servers["policy"] = IdleParticipant(Role.POLICY, name="policy", token=SECRET, without=["model_commit"])
    servers["exports"] = IdleParticipant(Role.POLICY, token=SECRET)
    listed = {name: server for name, server in servers.items() if name != "exports"}
    found = await discovered(servers, config_of(listed, policy__checkpoint_url="http://exports/"))
    assert servers["exports"].calls() == ["model_commit", "model_restore"]
    assert "model_restore" not in servers["policy"].calls()
    policy = found.participants[3]
    assert policy.base_url(Verb.EXPORT) == policy.base_url(Verb.IMPORT) == "http://exports"
    assert policy.base_url(Verb.CLOSE) == policy.base_url(Verb.RELEASE) == "http://policy"


@pytest.mark.parametrize("token", ["wrong", None])
@virtual_time
async def test_a_refused_token_is_found_before_anybody_is_paused(token: str | None) -> None:
    """A wrong or a missing token is named for each participant that takes part, and the judge is not blamed."""
    failed = await failure(fleet(), token=token)
    assert [str(problem).split(" answered ")[0] for problem in failed.problems] == [
        "main/tools",
        "main/agent",
        "main/policy",
    ]
    assert all("401" in problem and "control token" in problem for problem in failed.problems)
    assert all(isinstance(error, ControlRequestError) for error in failed.exceptions)


async def _hang() -> Response:
    await asyncio.Event().wait()
    raise AssertionError("never reached")


async def _crash() -> Response:
    raise RuntimeError("a participant's bug")


def _always(response: Callable[[], Response]) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return response()

    return answer


NO_PARTICIPANTS: dict[str, tuple[Callable[[], Awaitable[Response]], str]] = {
    "html": (_always(lambda: HTMLResponse("<html>Welcome to nginx!</html>")), "text/html"),
    "bad gateway": (_always(lambda: HTMLResponse("<html>Bad Gateway</html>", 502)), "with 502"),
    "not found": (_always(lambda: PlainTextResponse("Not Found", 404)), "with 404"),
    "redirect": (_always(lambda: Response(status_code=307, headers={"location": "http://other/"})), "redirects"),
    "empty": (_always(Response), "cannot be believed"),
    "truncated": (_always(lambda: Response(b'{"component": "respons', media_type="application/json")), "no JSON"),
    "list": (_always(lambda: Response(b"[]", media_type="application/json")), "no object"),
    "other shape": (_always(lambda: Response(b'{"status": "ok"}', media_type="application/json")), "component"),
    "huge": (_always(lambda: Response(b" " * (17 << 20), media_type="application/json")), "larger than"),
    "hanging": (_hang, "check that the server runs"),
    "crashing": (_crash, "500"),
}


@pytest.mark.parametrize("kind", NO_PARTICIPANTS)
@virtual_time
async def test_what_is_no_participant_is_named(kind: str) -> None:
    """Whatever answers at an address in place of a participant is named with what it did; nothing else fails."""
    instead, fragment = NO_PARTICIPANTS[kind]
    servers = fleet()
    servers["agent"] = IdleParticipant(Role.AGENT, instead=instead)
    failed = await failure(servers)
    assert len(failed.problems) == 1
    assert "main/agent" in failed.problems[0]
    assert fragment in failed.problems[0]


@virtual_time
async def test_every_problem_is_reported_at_once_within_the_time_of_one() -> None:
    """One server that is not there, one that hangs and one that refuses: three problems after one time-out."""
    servers = fleet()
    servers["agent"] = IdleParticipant(Role.AGENT, instead=_hang)
    servers["judge"] = IdleParticipant(Role.AUXILIARY, instead=_always(lambda: PlainTextResponse("no", 403)))
    config = config_of(servers)
    del servers["tools"]
    failed = await failure(servers, config)
    assert sorted(problem.split(" ")[0] for problem in failed.problems) == ["main/agent", "main/judge", "main/tools"]
    assert asyncio.get_running_loop().time() < config.control_timeout_s + 10
    assert isinstance(failed, QuiesceError)
    matching, rest = failed.split(ControlRequestError)
    assert isinstance(matching, DiscoveryFailed)
    assert isinstance(rest, DiscoveryFailed)
    assert [len(matching.exceptions), len(rest.exceptions)] == [1, 2]


@virtual_time
async def test_many_participants_are_asked_concurrently_within_a_bound() -> None:
    """Two hundred servers that take a second each are done in a few seconds, with at most 64 calls under way."""
    policy = fleet()["policy"]
    shared = IdleParticipant(Role.RESOURCES)
    shared.delay_s = 1.0
    names = [f"tools{number}" for number in range(200)]
    servers: Fleet = {"policy": policy, **dict.fromkeys(names, shared)}
    numbers = iter(range(200))

    async def distinct() -> Response:
        return JSONResponse(capabilities_of(Role.RESOURCES, name=f"own{next(numbers)}", checkpoint_mode="stateless"))

    shared.instead = distinct
    await discovered(servers)
    assert shared.inside_peak == 64
    assert asyncio.get_running_loop().time() == pytest.approx(4)


@virtual_time
async def test_what_does_not_make_a_deployment_is_refused_with_every_reason() -> None:
    """The rules of the topology apply to what was declared; nobody is probed before they hold."""
    servers = fleet()
    servers["judge"] = IdleParticipant(Role.POLICY, name="judge", token=SECRET)
    servers["tools"] = IdleParticipant(
        Role.RESOURCES, name="tools", multi_process={"mode": "unmanaged", "num_workers": 4}
    )
    with pytest.raises(TopologyError) as caught:
        await discovered(servers, config_of(servers, judge__role="auxiliary"))
    assert len(caught.value.problems) == 2
    assert "mark the server itself auxiliary" in str(caught.value)
    assert "4 workers" in str(caught.value)
    assert servers["policy"].calls() == ["capabilities"]


@virtual_time
async def test_more_than_one_deployment_is_refused_for_now() -> None:
    """Two deployments are read from a configuration and refused before anybody is paused."""
    servers = fleet()
    config = config_of(servers)
    second = config.deployment["main"].participants[0].model_copy(update={"name": "other", "url": "http://other"})
    servers["other"] = IdleParticipant(Role.POLICY, name="other")
    both = {**config.deployment, "second": DeploymentConfig(participants=(second,))}
    with pytest.raises(TopologyError, match="2 deployments are configured"):
        await discovered(servers, config.model_copy(update={"deployment": both}))


@virtual_time
async def test_a_held_participant_is_found_and_noted() -> None:
    """Somebody else's checkpoint does not keep discovery from finding its way; it is said who holds what."""
    servers = fleet()
    servers["agent"] = IdleParticipant(
        Role.AGENT, name="agent", token=SECRET, phase="prepared", active_checkpoint_id="other-1"
    )
    servers["tools"] = IdleParticipant(Role.RESOURCES, name="tools", token=SECRET, phase="preparing")
    found = await discovered(servers)
    held = [note for note in found.notes if "is held" in note]
    assert held[0].startswith("main/agent is held by 'other-1' (phase prepared)")
    assert held[1].startswith("main/tools is held by nobody that it names")


@virtual_time
async def test_nobody_configured_is_refused() -> None:
    """A cut over nobody is never begun (F-12)."""
    with pytest.raises(TopologyError, match="over nobody"):
        await discovered({}, Config(root=Path("/nowhere"), enabled=False))
