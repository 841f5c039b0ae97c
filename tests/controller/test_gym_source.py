"""A resolved NeMo Gym configuration from a file and from a head server: who is asked, what is said, what is not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from support.gym_configs import CANARY, FOLDER, GymHead, text_of
from support.participants import IdleParticipant
from support.servers import bare, closed_port, served
from support.virtual_loop import VirtualClock, virtual_time

from quiesce.controller import Controller, gym_source
from quiesce.controller.clock import SystemClock
from quiesce.controller.config import Config, DeploymentConfig
from quiesce.controller.discovery import DiscoveryFailed
from quiesce.controller.gym_source import discover_configured, read_gym_sources
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import ParticipantKey, Role
from quiesce.participants.errors import (
    ConfigurationError,
    ControlRequestError,
    MaybeApplied,
    ProtocolViolation,
    TopologyError,
    Unreachable,
)
from quiesce.transport import AsgiTransport, FaultyTransport, HttpTransport, ScriptedFaults, StaticTokenProvider
from quiesce.transport.faults import Fault, FaultKind

SECRET = "s3cret-token"
HEAD = "http://127.0.0.1:11000"


def config_of(deployment: dict[str, object], *, root: Path = Path("/nowhere"), timeout_s: float = 60.0) -> Config:
    """A configuration whose one deployment has these settings."""
    return Config(
        root=root, control_timeout_s=timeout_s, deployment={"main": DeploymentConfig.model_validate(deployment)}
    )


def file_of(name: str) -> dict[str, object]:
    """The setting that names one of our files."""
    return {"gym_config": FOLDER / f"{name}.yaml"}


def fleet() -> dict[int, IdleParticipant]:
    """The servers of ``plain.yaml``, by port."""
    return {
        5001: IdleParticipant(Role.POLICY, token=SECRET, name="policy"),
        5002: IdleParticipant(Role.RESOURCES, token=SECRET, name="tools"),
        5003: IdleParticipant(Role.AGENT, token=SECRET, name="agent"),
    }


def transport_to(servers: dict[int, IdleParticipant], head: GymHead | None = None) -> AsgiTransport:
    """These servers on loopback, and the head server at its usual port, all in this process."""
    applications = {f"http://127.0.0.1:{port}": server.app for port, server in servers.items()}
    if head is not None:
        applications[HEAD] = head.app
    return AsgiTransport(applications, StaticTokenProvider(SECRET))


def told(error: BaseException) -> str:
    """Everything that an error and the errors behind it say and keep."""
    text = ""
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None:
            text += f"{one}{one!r}{vars(one)!r}"
            waiting += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, ExceptionGroup) else ())]
    return text


async def refusal(config: Config, head: GymHead | None = None) -> QuiesceError:
    """The error of a discovery that must fail before anybody is asked; it holds no canary and no token."""
    servers = fleet()
    with pytest.raises(QuiesceError) as caught:
        await discover_configured(config, transport_to(servers, head), VirtualClock())
    assert not any(server.requests for server in servers.values())
    assert CANARY not in told(caught.value)
    assert SECRET not in told(caught.value)
    return caught.value


@virtual_time
async def test_everybody_in_a_file_is_asked() -> None:
    """The servers of the file are the participants, with the policy's endpoints compared."""
    servers = fleet()
    config, found = await discover_configured(config_of(file_of("plain")), transport_to(servers), VirtualClock())
    assert {str(one.key): (one.url, one.role) for one in found.participants} == {
        "main/policy_model": ("http://127.0.0.1:5001", Role.POLICY),
        "main/tools": ("http://127.0.0.1:5002", Role.RESOURCES),
        "main/agent": ("http://127.0.0.1:5003", Role.AGENT),
    }
    assert found.notes == ()
    assert [server.name for server in found.gym["main"].servers] == ["agent", "policy_model", "tools"]
    listed = config.deployment["main"]
    assert [one.name for one in listed.participants] == ["agent", "policy_model", "tools"]
    assert (listed.gym_config, listed.policy_base_urls) == (None, ("http://127.0.0.1:9000/v1",))


@virtual_time
async def test_a_configuration_that_lists_its_participants_is_left_alone() -> None:
    """Without a Gym, nothing is read and nothing is said of one."""
    servers = fleet()
    rows = [{"name": str(port), "url": f"http://127.0.0.1:{port}"} for port in servers]
    config = config_of({"participants": rows})
    listed, found = await discover_configured(config, transport_to(servers), VirtualClock())
    assert listed == config
    assert found.gym == {}


@virtual_time
async def test_the_head_server_is_asked_once_and_without_a_token() -> None:
    """One GET of the one route; its body is one JSON string, and what it yields is what the file yields."""
    servers, head = fleet(), GymHead(text_of("plain"))
    _, found = await discover_configured(config_of({"gym_head": HEAD}), transport_to(servers, head), VirtualClock())
    assert [one.key.name for one in found.participants] == ["tools", "agent", "policy_model"]
    [(method, path, headers)] = head.requests
    assert (method, path) == ("GET", "/global_config_dict_yaml")
    assert "authorization" not in headers
    assert found.gym["main"].source == f"gym_head {HEAD}"


async def test_a_head_server_over_http() -> None:
    """The same over a socket: a real server, real headers, no token."""
    head = GymHead(text_of("environment_servers"))
    transport = HttpTransport(StaticTokenProvider(SECRET))
    async with served(head.app) as url:
        try:
            found = await read_gym_sources(config_of({"gym_head": url}), transport)
        finally:
            await transport.aclose()
    assert [one.name for one in found.config.deployment["main"].participants] == ["agent", "policy_model", "tools"]
    assert len(head.requests) == 1
    assert SECRET not in str(head.requests)
    assert len(found.notes) == 3


@virtual_time
async def test_what_the_operator_wrote_about_endpoints_wins() -> None:
    """policy_base_urls of our own configuration are compared, and Gym's are not."""
    config = config_of(file_of("plain") | {"policy_base_urls": ["http://10.0.0.5:9000/v1"]})
    with pytest.raises(TopologyError, match="'policy_model' claims to be a policy, but its upstream"):
        await discover_configured(config, transport_to(fleet()), VirtualClock())


@virtual_time
async def test_the_capabilities_decide_what_a_model_server_is() -> None:
    """A server that states no role in Gym's configuration is what its own reply says; the warning stands."""
    ports = [5001, 5004, 5005, 5006, 5007, 5008, 5009, 5011]
    servers = {5002: fleet()[5002], 5003: fleet()[5003]}
    servers |= {port: IdleParticipant(Role.AUXILIARY, token=SECRET, name=str(port)) for port in ports}
    servers |= {port: IdleParticipant(Role.POLICY, token=SECRET, name=str(port)) for port in (5001, 5005)}
    _, found = await discover_configured(config_of(file_of("roles")), transport_to(servers), VirtualClock())
    roles = {one.key.name: one.role for one in found.participants}
    assert [name for name, role in roles.items() if role is Role.POLICY] == ["policy_model", "stated_policy"]
    assert roles["judge"] is Role.AUXILIARY
    assert sum("it is probably a judge" in note for note in found.notes) == 2


@virtual_time
async def test_a_stated_role_must_be_the_servers_own() -> None:
    """A judge in Gym's configuration that claims to be a policy would be paused: refused with both roles."""
    ports = [5001, 5004, 5005, 5006, 5007, 5008, 5009, 5011]
    servers = {5002: fleet()[5002], 5003: fleet()[5003]}
    servers |= {port: IdleParticipant(Role.POLICY, token=SECRET, name=str(port)) for port in ports}
    with pytest.raises(TopologyError, match="'stated_judge' is configured as auxiliary, but the server claims to be"):
        await discover_configured(config_of(file_of("roles")), transport_to(servers), VirtualClock())


@virtual_time
async def test_a_failed_discovery_says_whom_gym_named() -> None:
    """Nobody listed these participants by hand, so the error carries their names, addresses and oddities."""
    servers = fleet()
    del servers[5003]
    with pytest.raises(DiscoveryFailed, match="main/agent gave no answer") as caught:
        await discover_configured(config_of(file_of("copy_of_a_copy")), transport_to(servers), VirtualClock())
    named, *notes = caught.value.__notes__
    assert "copy_of_a_copy.yaml names 5 servers to ask:\n  agent at http://127.0.0.1:5003\n" in named
    assert any("still holds _copy" in note for note in notes)
    assert len(caught.value.asked) == 5
    assert (ParticipantKey("main", "agent"), "http://127.0.0.1:5003") in caught.value.asked
    assert CANARY not in named


@pytest.mark.parametrize("source", ["file", "head"])
@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("ports_that_are_none", "port is -1: none was allocated"),
        ("same_address", "policy_model and policy_model_copy have the same address"),
        ("interpolations_that_need_more", "leads to ${policy_api_key}, which by its name is a secret"),
        ("masked_printout_unquoted", "a saved printout is no configuration"),
    ],
)
@virtual_time
async def test_what_cannot_be_used_is_refused_before_anybody_is_asked(source: str, name: str, fragment: str) -> None:
    """The refusal names the source, and the head server's text is repeated as little as the file's."""
    setting: dict[str, object] = file_of(name) if source == "file" else {"gym_head": HEAD}
    message = str(await refusal(config_of(setting), GymHead(text_of(name))))
    assert fragment in message
    assert (f"{name}.yaml: " if source == "file" else f"gym_head {HEAD}: ") in message


def _json(content: object) -> Response:
    return JSONResponse(content)


ANSWERS: dict[str, tuple[Callable[[], Response], type[QuiesceError], str]] = {
    "not found": (lambda: PlainTextResponse(CANARY, 404), ControlRequestError, "with 404: is gym_head the address"),
    "not ready": (lambda: PlainTextResponse(CANARY, 503), ControlRequestError, "with 503"),
    "redirect": (
        lambda: Response(status_code=307, headers={"location": f"http://{CANARY}/"}),
        ControlRequestError,
        "with 307: redirects are not followed",
    ),
    "no content": (lambda: Response(status_code=204), ControlRequestError, "with 204"),
    "a page": (lambda: HTMLResponse(f"<html>{CANARY}</html>"), ProtocolViolation, "not one JSON string"),
    "plain YAML": (lambda: PlainTextResponse(text_of("plain")), ProtocolViolation, "not one JSON string"),
    "an object": (lambda: _json({"detail": CANARY}), ProtocolViolation, "not one JSON string"),
    "a cut string": (lambda: Response(b'"canary'), ProtocolViolation, "not one JSON string"),
    "nothing": (lambda: Response(b""), ProtocolViolation, "not one JSON string"),
    "no UTF-8": (lambda: Response(b'"canary\xff"'), ProtocolViolation, "not one JSON string"),
    "no YAML": (lambda: _json(f"a:\n\tb: {CANARY}"), ConfigurationError, "is not valid YAML at line 2"),
    "a list": (lambda: _json(f"- {CANARY}"), ConfigurationError, "holds no mapping"),
    "half a character": (lambda: Response(b'"a: canary\\ud800"'), ConfigurationError, "half a character"),
    "too much": (lambda: _json(CANARY * (2 << 20)), Unreachable, "larger than"),
}


@pytest.mark.parametrize("kind", ANSWERS)
@virtual_time
async def test_what_is_no_head_server_is_named(kind: str) -> None:
    """Whatever answers in place of a head server is named with its address and what it did; nothing is repeated."""
    answer, error, fragment = ANSWERS[kind]
    head = GymHead("")
    head.answer = answer()
    refused = await refusal(config_of({"gym_head": HEAD}), head)
    assert isinstance(refused, error)
    assert fragment in str(refused)
    assert HEAD in str(refused)


async def test_a_head_server_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens, or nobody answers in time: both name the address that was asked."""
    transport = HttpTransport(StaticTokenProvider(SECRET))
    hanging = asyncio.Event()
    try:
        with pytest.raises(Unreachable, match=r"the Gym head server http://127\.0\.0\.1:"):
            await read_gym_sources(config_of({"gym_head": f"http://127.0.0.1:{closed_port()}"}), transport)
        async with bare(lambda _: _wait(hanging)) as wire:
            structlog.reset_defaults()  # entries go to the standard library
            monkeypatch.setattr(gym_source, "HEAD_PATIENCE_S", 0.0)
            monkeypatch.setattr(gym_source, "HEAD_TIMEOUT_S", 0.05)
            with pytest.raises(Unreachable, match=f"the Gym head server {wire.url} of deployment main gave no answer"):
                await read_gym_sources(config_of({"gym_head": wire.url}), transport)
            (waiting,) = [text for text in caplog.messages if "waiting_for_head_server" in text]
            assert wire.url in waiting
            assert "gives_up_after_s=0.05" in waiting
            hanging.set()
    finally:
        await transport.aclose()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _big(path: Path) -> None:
    path.write_bytes(b"#" * (4 * 2**20 + 1))


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "cannot be read: No such file"),
    "a folder": (Path.mkdir, "is no regular file"),
    "a pipe": (os.mkfifo, "is no regular file"),
    "too large": (_big, "larger than 4 MiB"),
    "no UTF-8": (lambda path: path.write_bytes(b"a: canary\xff\n"), "is not UTF-8 text"),
    "empty": (lambda path: path.write_text(""), "is empty"),
    "no YAML": (lambda path: path.write_text("a:\n\tb: canary\n"), "is not valid YAML at line 2"),
}


@pytest.mark.parametrize("kind", FILES)
async def test_a_bad_file_is_named(kind: str, tmp_path: Path) -> None:
    """The refusal names the file and what is wrong with it; what it holds is not repeated."""
    make, fragment = FILES[kind]
    path = tmp_path / "resolved.yaml"
    make(path)
    refused = await refusal(config_of({"gym_config": path}))
    assert isinstance(refused, ConfigurationError)
    assert str(path) in str(refused)
    assert fragment in str(refused)


async def test_a_file_as_it_was_fetched_is_read(tmp_path: Path) -> None:
    """What ``curl`` stores of a head server's reply is one JSON string, and good as it is."""
    (tmp_path / "fetched.json").write_text(json.dumps(text_of("plain")))
    found = await read_gym_sources(config_of({"gym_config": tmp_path / "fetched.json"}), transport_to({}))
    assert len(found.config.deployment["main"].participants) == 3


async def test_the_controller_keeps_to_whom_it_found(tmp_path: Path) -> None:
    """Opening reads the file; transactions run with the participants listed, whatever becomes of the file."""
    path = tmp_path / "resolved.yaml"
    path.write_text(text_of("plain"))
    config = config_of({"gym_config": path}, root=tmp_path)
    async with Controller(config, transport=transport_to(fleet()), clock=SystemClock()) as controller:
        path.unlink()
        opening = controller._opening()
        assert [one.name for one in opening.config.deployment["main"].participants] == [
            "agent",
            "policy_model",
            "tools",
        ]
        assert controller.config is config
        assert controller.discovered is not None
        assert set(controller.discovered.gym) == {"main"}


async def test_a_controller_that_is_off_reads_no_file(tmp_path: Path) -> None:
    """With ``enabled = false`` nobody is called and nothing is read."""
    config = config_of({"gym_config": tmp_path / "missing.yaml"}, root=tmp_path).model_copy(update={"enabled": False})
    async with Controller(config) as controller:
        assert controller.discovered is None


@pytest.mark.parametrize("name", ["plain", "upstreams", "interpolations_that_need_more", "masked_printout"])
async def test_no_key_reaches_a_log_or_a_value(
    name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything that is logged, printed, kept or said at the lowest level holds no canary and no token."""
    caplog.set_level(logging.DEBUG)
    head = GymHead(text_of(name))
    transport = HttpTransport(StaticTokenProvider(SECRET))
    texts: list[str] = []
    async with served(head.app) as url:
        for config in (config_of({"gym_head": url}, timeout_s=5.0), config_of(file_of(name), timeout_s=5.0)):
            try:
                texts.append(repr(await discover_configured(config, transport, SystemClock())))
            except QuiesceError as error:
                texts.append(told(error))
            texts.append(repr(config))
        await transport.aclose()
    assert len(texts) == 4
    output = capfd.readouterr()
    everything = "".join([*texts, caplog.text, output.out, output.err])
    assert CANARY in text_of(name)
    assert CANARY not in everything
    assert SECRET not in everything


@virtual_time
async def test_a_lost_reply_is_no_configuration() -> None:
    """A reply that is lost on its way is an error that names the head server; nobody is asked."""
    servers, head = fleet(), GymHead(text_of("plain"))
    site = (f"the Gym head server {HEAD} of deployment main", "GET /global_config_dict_yaml", 1)
    faulty = FaultyTransport(transport_to(servers, head), ScriptedFaults({site: Fault(FaultKind.REPLY_LOST)}))
    with pytest.raises(MaybeApplied, match="the Gym head server"):
        await discover_configured(config_of({"gym_head": HEAD}), faulty, VirtualClock())
    assert len(head.requests) == 1
    assert not any(server.requests for server in servers.values())
