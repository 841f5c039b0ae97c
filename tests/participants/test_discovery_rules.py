"""Topology validation: each rule names the server and what to do, and all problems are told at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.declarations import Changed, found, healthy

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import AdmissionState, CheckpointMode, InstanceRole, WorkerMode
from quiesce.participants.discovery_rules import CONTINUATION_INDEX, Discovered, validate_topology
from quiesce.participants.errors import TopologyError
from quiesce.participants.topology import Topology

ENDPOINTS = ["http://10.0.0.5:9000/v1"]
Change = Callable[[list[Discovered]], list[Discovered]]


def test_a_healthy_deployment_passes_with_notes_on_what_was_not_checked() -> None:
    """The topology comes back; without policy endpoints the endpoint check is skipped and that is said."""
    topology, notes = validate_topology(healthy())
    assert topology == Topology.of(participant.contract for participant in healthy())
    assert len(notes) == 1
    assert "policy_base_urls" in notes[0]


def test_an_unknown_upstream_is_a_note_and_no_error() -> None:
    """Where the upstream is unknown the check is skipped and reported, naming the server."""
    _, notes = validate_topology(healthy(), policy_endpoints=ENDPOINTS)
    assert notes == ("the upstream of 'policy_model' is unknown: whether it is the trainer's policy was not checked",)


@pytest.mark.parametrize(
    "upstream", ["http://10.0.0.5:9000/v1", "http://10.0.0.5:9000/v1/", "HTTP://10.0.0.5:9000/v1", "10.0.0.5:9000/v1"]
)
def test_an_upstream_is_compared_as_an_address(upstream: str) -> None:
    """A final slash, the case of the scheme and a missing scheme do not make another endpoint."""
    servers = [found(Role.POLICY, "policy_model", 8000, upstreams=(upstream,))]
    assert validate_topology(servers, policy_endpoints=ENDPOINTS)[1] == ()


def test_a_policy_with_several_ranks_needs_one_common_endpoint() -> None:
    """A server may forward to one endpoint for each rank."""
    servers = [found(Role.POLICY, "policy_model", 8000, upstreams=("http://10.0.0.9:1/v1", ENDPOINTS[0]))]
    assert validate_topology(servers, policy_endpoints=ENDPOINTS)[1] == ()


def test_two_policies_are_allowed() -> None:
    """A second policy server, for example with other sampling settings, is no error (wire-protocol 9 #3)."""
    validate_topology([*healthy(), found(Role.POLICY, "policy_model_2", 8004)])


def _with(server: Discovered) -> Change:
    return lambda servers: [*servers, server]


def _changed(index: int, **changes: Changed) -> Change:
    def change(servers: list[Discovered]) -> list[Discovered]:
        contract = servers[index].contract
        declared = replace(contract.declaration, **changes)
        servers[index] = replace(servers[index], contract=replace(contract, declaration=declared))
        return servers

    return change


def _configured(index: int, **changes: Changed) -> Change:
    def change(servers: list[Discovered]) -> list[Discovered]:
        servers[index] = replace(servers[index], **changes)
        return servers

    return change


PROBLEMS: list[tuple[str, Change, tuple[str, ...]]] = [
    ("no policy", lambda servers: servers[1:], ("no policy model",)),
    ("nobody", lambda _: [], ("no policy model",)),
    ("unmanaged workers", _changed(3, worker_mode=WorkerMode.UNMANAGED, num_workers=4), ("'tools'", "4 workers")),
    (
        "routing name twice",
        _with(found(Role.RESOURCES, "tools", 8009, participant_name="tools_2")),
        ("routing name 'tools'", "twice"),
    ),
    ("same address", _with(found(Role.RESOURCES, "more", 8003)), ("'tools' and 'more'", "same address")),
    (
        "same address written otherwise",
        lambda servers: [*servers, replace(found(Role.RESOURCES, "more", 1), address="http://LOCALHOST:8003/")],
        ("'tools' and 'more'", "same address"),
    ),
    (
        "own name twice",
        _with(
            replace(
                found(Role.RESOURCES, "tools", 8009),
                contract=replace(found(Role.RESOURCES, "tools", 8009).contract, server_name="tools_2"),
            )
        ),
        ("'tools' and 'tools_2'", "call themselves", "own name"),
    ),
    (
        "model without a role",
        _changed(1, instance_role=None),
        ("'judge'", "without instance_role", "policy or auxiliary"),
    ),
    (
        "role on a server that is no model",
        _changed(2, instance_role=InstanceRole.POLICY),
        ("'solver_agent'", "only model servers"),
    ),
    (
        "configured as auxiliary, claims policy",
        _configured(0, declared_role=Role.AUXILIARY),
        ("'policy_model'", "claims to be a policy", "auxiliary (instance_role: auxiliary)"),
    ),
    (
        "configured as another role",
        _configured(3, declared_role=Role.AGENT),
        ("'tools'", "configured as agent", "turns out to be resources"),
    ),
    (
        "upstream is none of the trainer's",
        _configured(0, upstreams=("http://judge.example:9/v1",)),
        ("'policy_model'", "judge.example", "mark it auxiliary"),
    ),
    ("several deployments", _configured(1, deployment="second"), ("2 deployments", "not supported yet", "docs/")),
    (
        "policy without a token",
        _changed(0, admission_states=(AdmissionState.ACCEPTING,), checkpoint_mode=CheckpointMode.STATELESS),
        ("'policy_model'", "cannot be paused", "control token"),
    ),
    ("agent that cannot acknowledge", _changed(2, features=(CONTINUATION_INDEX,)), ("'solver_agent'", "lacks", "ack")),
    ("policy without its index", _changed(0, features=()), ("'policy_model'", "external_storage_reference_index_v1")),
    ("own name that is a path", _changed(3, participant_name="../x"), ("'tools'", "../x", "path")),
]


@pytest.mark.parametrize(("change", "words"), [row[1:] for row in PROBLEMS], ids=[row[0] for row in PROBLEMS])
def test_each_problem_is_named_with_what_to_do(change: Change, words: tuple[str, ...]) -> None:
    """One thing that is wrong gives one problem, which names the server and the remedy."""
    with pytest.raises(TopologyError) as refused:
        validate_topology(change(healthy()), policy_endpoints=ENDPOINTS)
    assert len(refused.value.problems) == 1, refused.value
    for word in words:
        assert word in refused.value.problems[0]


def test_all_problems_are_told_at_once_in_numbered_lines() -> None:
    """Somebody who has made five mistakes learns of five, not of one after another."""
    servers = healthy()
    for _, change, _ in (PROBLEMS[2], PROBLEMS[9], PROBLEMS[12], PROBLEMS[14]):
        servers = change(servers)
    with pytest.raises(TopologyError) as refused:
        validate_topology(servers)
    assert len(refused.value.problems) >= 4
    lines = str(refused.value).splitlines()
    assert lines[0] == f"the topology has {len(refused.value.problems)} problems:"
    assert [line.split(".")[0].strip() for line in lines[1:]] == [str(n) for n in range(1, len(lines))]


def test_an_agent_that_does_not_export_needs_no_features() -> None:
    """Features are needed of those who take part in commit and restore only."""
    servers = _changed(2, features=(), checkpoint_mode=CheckpointMode.RESTART_ONLY)(healthy())
    validate_topology(servers)
