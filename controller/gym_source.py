"""Where a resolved NeMo Gym configuration comes from: a file, or the head server of a running Gym.

Its text holds API keys in clear. It is read, the servers are taken out of it, and nothing else is kept; it is not
logged, and no error repeats any of it. The head server is asked once, without a token, without following redirects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from quiesce.controller.clock import Clock
from quiesce.controller.config import Config, DeploymentConfig, ParticipantConfig
from quiesce.controller.discovery import Discovered, DiscoveryFailed, discover
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError, ControlRequestError, ProtocolViolation, TopologyError
from quiesce.participants.excerpts import printable
from quiesce.participants.gym_config import GymConfiguration, read_gym_configuration
from quiesce.participants.gym_config_participants import GymParticipants, participants_of
from quiesce.participants.gym_config_yaml import TEXT_BYTES_MAX, text_in_json
from quiesce.transport.logs import log_named
from quiesce.transport.port import ControlReply, ControlRequest, Transport

__all__ = ["GLOBAL_CONFIG_ROUTE", "FromGym", "discover_configured", "read_gym_sources"]

_log: Final = log_named("quiesce.controller")

GLOBAL_CONFIG_ROUTE: Final = "/global_config_dict_yaml"
BODY_BYTES_MAX: Final = 2 * TEXT_BYTES_MAX
"""Bytes of the head server's reply: the text again, with its line ends and quotes escaped."""
HTTP_OK: Final = 200
HEAD_TIMEOUT_S: Final = 15.0
"""A head server has its text at hand; ``control_timeout_s``, where it is shorter, bounds it as well."""
HEAD_PATIENCE_S: Final = 2.0
"""After so long it is said what is waited for."""
NAMED_MAX: Final = 100
"""Servers that the note on a failed discovery names."""


@dataclass(frozen=True, slots=True)
class FromGym:
    """What came from the sources.

    Attributes:
        config: the configuration, in which every deployment lists its participants, wherever they came from.
        found: what was read, by the name of each deployment that names a Gym.
        notes: what was odd, each a sentence.
    """

    config: Config
    found: Mapping[str, GymConfiguration] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


async def read_gym_sources(config: Config, transport: Transport) -> FromGym:
    """Read the resolved configuration of each deployment that names one. No participant is called.

    Raises:
        ConfigurationError: a file cannot be read, or a text is no resolved configuration.
        TopologyError: its servers cannot be used from here; every problem is named.
        Unreachable: a head server gave no answer.
        ControlRequestError, ProtocolViolation: it gave another one.
    """
    deployments = dict(config.deployment)
    found: dict[str, GymConfiguration] = {}
    notes: list[str] = []
    for name, deployment in config.deployment.items():
        if deployment.gym_config is None and deployment.gym_head is None:
            continue
        found[name] = await _read(name, deployment, transport, config.control_timeout_s)
        head_host = urlsplit(deployment.gym_head).hostname if deployment.gym_head else None
        to_ask = participants_of(found[name], head_host=head_host)
        deployments[name] = _listing(deployment, to_ask, found[name].source)
        notes += to_ask.notes
    return FromGym(config.model_copy(update={"deployment": deployments}), found, tuple(notes))


async def discover_configured(config: Config, transport: Transport, clock: Clock) -> tuple[Config, Discovered]:
    """Read the sources, then ask everybody and validate what they declare.

    The configuration that comes back lists its participants, so that whoever asks them again asks the same ones.

    Raises:
        QuiesceError: as :func:`read_gym_sources` and :func:`~quiesce.controller.discovery.discover`. An error of
            discovery carries, as notes, whom each Gym configuration named.
    """
    from_gym = await read_gym_sources(config, transport)
    try:
        found = await discover(from_gym.config, transport, clock)
    except (DiscoveryFailed, TopologyError) as error:
        error.asked = asked_of(from_gym.config)
        for note in _named(from_gym):
            error.add_note(note)
        raise
    return from_gym.config, replace(found, notes=(*from_gym.notes, *found.notes), gym=from_gym.found)


def asked_of(config: Config) -> tuple[tuple[ParticipantKey, str], ...]:
    """Whom a configuration names to be asked, each with its address."""
    return tuple(
        (ParticipantKey(name, one.name), one.url)
        for name, deployment in config.deployment.items()
        for one in deployment.participants
    )


def _named(from_gym: FromGym) -> Iterator[str]:
    """Whom each Gym configuration named, and what was odd about it: nobody listed these participants by hand."""
    for name, configuration in from_gym.found.items():
        asked = from_gym.config.deployment[name].participants
        listed = "".join(f"\n  {participant.name} at {participant.url}" for participant in asked[:NAMED_MAX])
        more = f"\n  and {len(asked) - NAMED_MAX} more" if len(asked) > NAMED_MAX else ""
        yield f"{configuration.source} names {len(asked)} servers to ask:{listed}{more}"
    yield from from_gym.notes


async def _read(name: str, deployment: DeploymentConfig, transport: Transport, timeout_s: float) -> GymConfiguration:
    if deployment.gym_config is not None:
        return await asyncio.to_thread(_read_file, deployment.gym_config)
    head = f"the Gym head server {deployment.gym_head} of deployment {name}"
    request = ControlRequest(
        participant=head,
        method="GET",
        url=f"{deployment.gym_head}{GLOBAL_CONFIG_ROUTE}",
        timeout_s=min(timeout_s, HEAD_TIMEOUT_S),
        body_cap=BODY_BYTES_MAX,
    )
    said = asyncio.get_running_loop().call_later(HEAD_PATIENCE_S, _say_what_is_waited_for, head, request.timeout_s)
    try:
        reply = await transport.send(request)
    finally:
        said.cancel()
    text = _text_of(reply, head, request.call)
    return await asyncio.to_thread(read_gym_configuration, text, source=f"gym_head {deployment.gym_head}")


def _say_what_is_waited_for(head: str, timeout_s: float) -> None:
    _log.warning("waiting_for_head_server", head=head, gives_up_after_s=timeout_s)


def _read_file(path: Path) -> GymConfiguration:
    """Read and understand a file; in a thread, since both take their time."""
    source = printable(str(path))
    text, problem = _text_in(path)
    if problem:
        raise ConfigurationError(f"{source}: {problem}; name another file with gym_config")
    return read_gym_configuration(text, source=source)


def _text_in(path: Path) -> tuple[str, str]:
    """The file's text, or what is wrong: errors of the decoder keep the bytes, so that none of them is handed on."""
    try:
        if path.exists() and not path.is_file():
            return "", "is no regular file"
        with path.open("rb") as file:
            content = file.read(TEXT_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        return "", f"cannot be read: {getattr(error, 'strerror', None) or 'it is no path'}"
    if len(content) > TEXT_BYTES_MAX:
        return "", f"is larger than {TEXT_BYTES_MAX >> 20} MiB; is it the right file?"
    text = _decoded(content)
    return ("", "is not UTF-8 text") if text is None else (text, "")


def _text_of(reply: ControlReply, head: str, call: str) -> str:
    """The YAML in a reply of the head server: its body is one JSON string.

    Raises:
        ControlRequestError: another status than 200.
        ProtocolViolation: another body.
    """
    if reply.status != HTTP_OK:
        raise ControlRequestError(
            participant=head, call=call, status=reply.status, error_code=None, detail=_remedy(reply.status)
        )
    body = _decoded(reply.body)
    text = None if body is None else text_in_json(body)
    if text is None:
        raise ProtocolViolation(
            participant=head,
            call=call,
            reason="the body is not one JSON string that holds YAML (it is not repeated); is gym_head the address of "
            "NeMo Gym's head server?",
        )
    return text


def _remedy(status: int) -> str:
    if 300 <= status < 400:  # noqa: PLR2004 - the class of redirects
        return "redirects are not followed; write the address where the head server itself listens"
    return "is gym_head the address of NeMo Gym's head server?"


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _listing(deployment: DeploymentConfig, to_ask: GymParticipants, source: str) -> DeploymentConfig:
    """The deployment with its participants listed. What the operator wrote about the policy's endpoints wins."""
    participants = tuple(
        ParticipantConfig(name=one.name, url=one.url, role=one.role, upstream=one.upstreams)
        for one in to_ask.participants
    )
    try:
        return DeploymentConfig(
            participants=participants,
            policy_base_urls=deployment.policy_base_urls or to_ask.policy_base_urls,
        )
    except ValueError:
        raise TopologyError([f"{source}: names {len(participants)} servers, which is more than is supported"]) from None
