"""Whether what was discovered can be cut: every rule, every problem at once, nobody paused yet.

Sources: wire-protocol 1.1, 1.2, 5.1, 7.2; 9 #2, #3, #33, #43, #44, #48.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import (
    AdmissionState,
    CheckpointMode,
    Component,
    Contract,
    InstanceRole,
    WorkerMode,
)
from quiesce.participants.errors import InvalidIdentity, TopologyError
from quiesce.participants.excerpts import escaped
from quiesce.participants.layout import check_participant_name
from quiesce.participants.topology import Topology

__all__ = ["ACKNOWLEDGEMENT", "CONTINUATION_INDEX", "STORAGE_INDEX", "Discovered", "validate_topology"]

ACKNOWLEDGEMENT: Final = "completed_result_acknowledgement"
CONTINUATION_INDEX: Final = "agent_continuation_index_v1"
STORAGE_INDEX: Final = "external_storage_reference_index_v1"

_FEATURES_NEEDED: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.POLICY: (STORAGE_INDEX,),
    Role.AGENT: (ACKNOWLEDGEMENT, CONTINUATION_INDEX),
}


@dataclass(frozen=True, slots=True)
class Discovered:
    """One configured participant and what it declared.

    Attributes:
        contract: routing name and declaration.
        address: the control URL.
        deployment: name of its deployment.
        declared_role: what the configuration says that it must turn out to be; None for anything.
        upstreams: the endpoints that a model server forwards to, one for each rank; empty where they are unknown.
    """

    contract: Contract
    address: str
    deployment: str = "main"
    declared_role: Role | None = None
    upstreams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Scene:
    found: tuple[Discovered, ...]
    policy_endpoints: frozenset[str]


Rule = Callable[[_Scene], Iterator[str]]


def validate_topology(
    found: Sequence[Discovered], *, policy_endpoints: Iterable[str] = ()
) -> tuple[Topology, tuple[str, ...]]:
    """The topology, and notes on what could not be checked.

    ``policy_endpoints`` are the trainer's own policy endpoints (``policy_base_urls``).

    Raises:
        TopologyError: with every problem, each naming the server and what to do.
    """
    scene = _Scene(tuple(found), frozenset(_endpoint(url) for url in policy_endpoints))
    problems = list(dict.fromkeys(problem for rule in _RULES for problem in rule(scene)))
    if problems:
        raise TopologyError(problems)
    return Topology.of(participant.contract for participant in found), tuple(_notes(scene))


def _who(participant: Discovered) -> str:
    return escaped(participant.contract.server_name)


def _one_deployment(scene: _Scene) -> Iterator[str]:
    names = sorted({participant.deployment for participant in scene.found})
    if len(names) > 1:
        yield (
            f"{len(names)} deployments are configured ({', '.join(map(escaped, names))}), and one cut over several is "
            "not supported yet: configure one; see docs/limits.md#several-deployments"
        )


def _unique_names(scene: _Scene) -> Iterator[str]:
    yield from _repeated(
        scene,
        lambda participant: participant.contract.server_name,
        lambda name, _: f"the routing name {escaped(name)} is configured twice: give each participant its own name",
    )


def _unique_addresses(scene: _Scene) -> Iterator[str]:
    yield from _repeated(
        scene,
        lambda participant: _endpoint(participant.address),
        lambda address, who: f"{who} have the same address {escaped(address)}: one server would be paused twice",
    )


def _unique_own_names(scene: _Scene) -> Iterator[str]:
    def key(participant: Discovered) -> str:
        declared = participant.contract.declaration
        return f"{declared.component.value} {declared.participant_name}"

    yield from _repeated(
        scene,
        key,
        lambda name, who: (
            f"{who} both call themselves {escaped(name)}: their artefacts would lie in one folder; "
            "give each server its own name"
        ),
    )


def _repeated(scene: _Scene, key: Callable[[Discovered], str], problem: Callable[[str, str], str]) -> Iterator[str]:
    groups: dict[str, list[Discovered]] = defaultdict(list)
    for participant in scene.found:
        groups[key(participant)].append(participant)
    for value, members in groups.items():
        if len(members) > 1:
            yield problem(value, " and ".join(_who(member) for member in members))


def _usable_names(scene: _Scene) -> Iterator[str]:
    for participant in scene.found:
        contract = participant.contract
        try:
            check_participant_name(contract.role, contract.participant_name)
        except InvalidIdentity as error:
            yield f"{_who(participant)} has an own name that may not become a path: {error}"


def _unmanaged(scene: _Scene) -> Iterator[str]:
    for participant in scene.found:
        declared = participant.contract.declaration
        if declared.worker_mode is WorkerMode.UNMANAGED:
            yield (
                f"{_who(participant)} has {declared.num_workers} workers and nothing that answers for all of them: a "
                "control call would reach one; run it with one worker or behind its coordinator"
            )


def _roles_where_they_belong(scene: _Scene) -> Iterator[str]:
    for participant in scene.found:
        declared = participant.contract.declaration
        is_model = declared.component is Component.MODEL
        if is_model and declared.instance_role is None:
            yield f"{_who(participant)} is a model server without instance_role: set it to policy or auxiliary"
        if not is_model and declared.instance_role is not None:
            yield (
                f"{_who(participant)} is a {declared.component.value} server with instance_role "
                f"{declared.instance_role.value}: only model servers have one; remove it"
            )


def _roles_as_configured(scene: _Scene) -> Iterator[str]:
    for participant in scene.found:
        wanted, role = participant.declared_role, participant.contract.role
        if wanted is None or wanted is role:
            continue
        if wanted is Role.AUXILIARY and role is Role.POLICY:
            yield (
                f"{_who(participant)} is configured as auxiliary, but the server claims to be a policy and would be "
                "paused while policy work waits for it: mark the server itself auxiliary (instance_role: auxiliary)"
            )
        else:
            yield f"{_who(participant)} is configured as {wanted.value}, but turns out to be {role.value}: correct one"


def _a_policy(scene: _Scene) -> Iterator[str]:
    if not any(participant.contract.role is Role.POLICY for participant in scene.found):
        yield "there is no policy model among the participants: name the server that the trainer's policy answers from"


def _policies_can_pause(scene: _Scene) -> Iterator[str]:
    for participant in scene.found:
        declared = participant.contract.declaration
        is_policy = declared.component is Component.MODEL and declared.instance_role is InstanceRole.POLICY
        if is_policy and AdmissionState.PAUSED not in declared.admission_states:
            yield (
                f"{_who(participant)} is a policy model that cannot be paused (it offers "
                f"{', '.join(declared.admission_states) or 'nothing'}): it probably has no control token; set one"
            )


def _upstreams(scene: _Scene) -> Iterator[str]:
    for participant in _to_compare(scene):
        endpoints = {_endpoint(url) for url in participant.upstreams}
        if endpoints and not endpoints & scene.policy_endpoints:
            named = ", ".join(escaped(url) for url in participant.upstreams[:3])
            yield (
                f"{_who(participant)} claims to be a policy, but its upstream {named} is none of the trainer's policy "
                "endpoints: mark it auxiliary (instance_role: auxiliary), or add the endpoint to policy_base_urls"
            )


def _to_compare(scene: _Scene) -> Iterator[Discovered]:
    for participant in scene.found:
        stated = participant.contract.declaration.instance_role
        if scene.policy_endpoints and stated is InstanceRole.POLICY:
            yield participant


def _features(scene: _Scene) -> Iterator[str]:
    for participant in scene.found:
        declared = participant.contract.declaration
        if declared.checkpoint_mode is not CheckpointMode.EXPORT_RESTORE:
            continue
        needed = _FEATURES_NEEDED.get(participant.contract.role, ())
        missing = [feature for feature in needed if feature not in declared.features]
        if missing:
            yield f"{_who(participant)} exports, but lacks {' and '.join(missing)}: upgrade it or exclude it"


def _notes(scene: _Scene) -> Iterator[str]:
    policies = [
        participant
        for participant in scene.found
        if participant.contract.declaration.instance_role is InstanceRole.POLICY
    ]
    if policies and not scene.policy_endpoints:
        yield "policy_base_urls is not set: whether each policy serves the trainer's own endpoints was not checked"
        return
    for participant in policies:
        if not participant.upstreams:
            yield f"the upstream of {_who(participant)} is unknown: whether it is the trainer's policy was not checked"


def _endpoint(url: str) -> str:
    """``url`` as endpoints are compared: lower-case origin with its port, path without a final slash."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return url.rstrip("/")
    host = (parts.hostname or "").lower().replace("localhost", "127.0.0.1")
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


_RULES: Final[tuple[Rule, ...]] = (
    _one_deployment,
    _unique_names,
    _unique_addresses,
    _unique_own_names,
    _usable_names,
    _unmanaged,
    _roles_where_they_belong,
    _roles_as_configured,
    _a_policy,
    _policies_can_pause,
    _upstreams,
    _features,
)
