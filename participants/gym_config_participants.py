"""From the servers of a resolved NeMo Gym configuration to the participants of a deployment.

Every problem is reported at once, each with the path of keys and what to do. What is only odd becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import Component, InstanceRole
from quiesce.participants.errors import InvalidIdentity, TopologyError
from quiesce.participants.gym_config import GymConfiguration, GymServer
from quiesce.participants.gym_config_addresses import located
from quiesce.participants.gym_config_yaml import key_path
from quiesce.participants.identity import check_identity

__all__ = ["GymParticipant", "GymParticipants", "participants_of"]

NAMED_MAX: Final = 20
"""Names in one sentence."""
SENTENCES_MAX: Final = 50

_ROLES: Final[Mapping[str, Role]] = {
    Component.AGENT.value: Role.AGENT,
    Component.RESOURCES.value: Role.RESOURCES,
}
_MODEL_ROLES: Final[Mapping[str, Role]] = {
    InstanceRole.POLICY.value: Role.POLICY,
    InstanceRole.AUXILIARY.value: Role.AUXILIARY,
}


@dataclass(frozen=True, slots=True)
class GymParticipant:
    """One server to ask.

    Attributes:
        name: its routing name.
        url: the base URL of its control routes.
        role: what it must turn out to be; None for a model server that states no role.
        upstreams: the endpoints that a model server forwards to; empty where they are unknown.
    """

    name: str
    url: str
    role: Role | None
    upstreams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GymParticipants:
    """Everybody to ask, sorted by name, and what deserves attention (each note a sentence)."""

    participants: tuple[GymParticipant, ...]
    policy_base_urls: tuple[str, ...]
    notes: tuple[str, ...]


def participants_of(configuration: GymConfiguration, *, head_host: str | None = None) -> GymParticipants:
    """Whom to ask.

    ``head_host`` is the host at which the head server was asked for the configuration; None for a file.

    Raises:
        TopologyError: an address that cannot be used from here, one address for two servers, a port that was never
            allocated, a name that may not be used, an entry that may be one of several servers, or no server at all.
            What is only odd is in its notes.
    """
    places = located(configuration, head_host=head_host)
    asked = [server for server in configuration.servers if server.is_asked]
    problems = [
        *(unusable.problem for unusable in configuration.unusable),
        *places.problems,
        *_bad_names(asked),
        *_nobody(configuration, asked),
    ]
    notes = _told(configuration, [*places.notes, *configuration.notes, *_notes(configuration, asked)])
    if problems:
        error = TopologyError(_told(configuration, problems))
        for note in notes:
            error.add_note(note)
        raise error
    return GymParticipants(
        participants=tuple(_participant(server, places.urls[server.name]) for server in asked),
        policy_base_urls=configuration.policy_base_urls,
        notes=notes,
    )


def _participant(server: GymServer, url: str) -> GymParticipant:
    role = _ROLES.get(server.component) or _MODEL_ROLES.get(server.instance_role or "")
    return GymParticipant(server.name, url, role, server.upstreams)


def _bad_names(asked: Sequence[GymServer]) -> Iterator[str]:
    for server in asked:
        try:
            check_identity(server.name, field="a server's name")
        except InvalidIdentity as error:
            yield f"{error}; rename the server in Gym's configuration"


def _nobody(configuration: GymConfiguration, asked: Sequence[GymServer]) -> Iterator[str]:
    """Problems of a configuration that leaves nobody to ask."""
    if asked or configuration.unusable:
        return
    reasons = [f"{_shown(entry.name)} {entry.reason}" for entry in configuration.left_out[:NAMED_MAX]]
    yield "; ".join(["names no server that can be asked", *reasons])


def _notes(configuration: GymConfiguration, asked: Sequence[GymServer]) -> Iterator[str]:
    for server in configuration.servers:
        for remark in server.remarks:
            yield f"{_shown(server.name)} {remark}"
    for entry in configuration.left_out:
        if not entry.is_leftover:
            yield f"{_shown(entry.name)} is not asked: it {entry.reason}"
    yield from _not_asked(configuration.servers)
    yield from _roles(configuration, [server for server in asked if server.component == Component.MODEL.value])


def _not_asked(servers: Sequence[GymServer]) -> Iterator[str]:
    kinds = dict.fromkeys(server.component for server in servers if not server.is_asked)
    for kind in kinds:
        names = [server.name for server in servers if server.component == kind]
        yield f"{_shown(kind)} have no role in a checkpoint and are not asked: {_listed(map(_shown, names))}"


def _roles(configuration: GymConfiguration, models: Sequence[GymServer]) -> Iterator[str]:
    """Warnings about model servers that state no role: by default each of them claims to be a policy."""
    silent = [server for server in models if server.instance_role is None]
    doubtful = {server.name: why for server in silent if (why := _not_a_policy(server, configuration.policy_base_urls))}
    for name, why in doubtful.items():
        yield (
            f"{_shown(name)} states no instance_role, and {why}: it is probably a judge or a simulator, and unless "
            "its server says auxiliary it is paused while policy work waits for it; set instance_role: auxiliary on it"
        )
    rest = [server.name for server in silent if server.name not in doubtful]
    if len(rest) > 1:
        yield (
            f"{_listed(map(_shown, rest))} state no instance_role, so each claims to be a policy unless its server "
            "says otherwise; set instance_role: auxiliary on those that are not"
        )


def _not_a_policy(server: GymServer, policy_base_urls: Sequence[str]) -> str:
    """Why a model server is probably none; an empty text where nothing says so."""
    if server.upstreams and policy_base_urls and set(server.upstreams).isdisjoint(policy_base_urls):
        return "its upstream is none of policy_base_url"
    if server.references and not any(reference.is_model_of_agent for reference in server.references):
        verb = "names" if len(server.references) == 1 else "name"
        return f"only {_listed(map(str, server.references))} {verb} it"
    return ""


def _shown(name: str) -> str:
    return key_path([name])


def _listed(words: Iterable[str]) -> str:
    listed = list(words)
    more = len(listed) - NAMED_MAX
    return ", ".join(listed[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _told(configuration: GymConfiguration, sentences: Sequence[str]) -> tuple[str, ...]:
    """Sentences with their source, at most 50 of them."""
    more = len(sentences) - SENTENCES_MAX
    shown = [*sentences[:SENTENCES_MAX], *([f"and {more} more"] if more > 0 else [])]
    return tuple(f"{configuration.source}: {sentence}" for sentence in shown)
