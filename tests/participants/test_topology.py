"""The topology and its fingerprint: what it is made of, what changes it and what does not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.declarations import contract, healthy

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import (
    AdmissionState,
    CheckpointMode,
    ConcurrencyContract,
    Contract,
    InstanceRole,
    WorkerMode,
)
from quiesce.participants.topology import Topology

# wire-protocol 7.4
WORKED_EXAMPLE = (
    '{"participants":[{"admission_states":["accepting"],"checkpoint_mode":"export_restore",'
    '"concurrency_contract":"serialized_per_session","instance_role":null,"multi_process":'
    '{"mode":"single_worker","num_workers":1},"participant":{"component":"responses_api_agents",'
    '"participant_name":"solver_agent","server_name":"solver_agent"},"schema_version":1},{"admission_states":'
    '["accepting","draining","paused"],"checkpoint_mode":"export_restore","concurrency_contract":"stateless",'
    '"instance_role":"policy","multi_process":{"mode":"single_worker","num_workers":1},"participant":'
    '{"component":"responses_api_models","participant_name":"policy_model","server_name":"policy_model"},'
    '"schema_version":1}],"schema_version":1}'
)
WORKED_DIGEST = "ef11b3c45c8e7070c61060644cdcc09487e8776f395ed339f17533a11f37e51a"

CONTRACTS = [participant.contract for participant in healthy()]


def example() -> Topology:
    """The two participants of the worked example."""
    return Topology.of([contract(Role.POLICY, "policy_model"), contract(Role.AGENT, "solver_agent")])


def test_the_worked_example_to_the_byte() -> None:
    """706 bytes and the digest of the wire document."""
    assert example().canonical_bytes() == WORKED_EXAMPLE.encode()
    assert len(example().canonical_bytes()) == 706
    assert example().fingerprint() == WORKED_DIGEST


@given(st.permutations(CONTRACTS), st.randoms(use_true_random=False))
def test_order_features_and_order_of_states_do_not_matter(order: list[Contract], rng: random.Random) -> None:
    """Discovery order, the order of admission states, and features leave the fingerprint as it is."""
    changed = []
    for each in order:
        states = list(each.declaration.admission_states)
        rng.shuffle(states)
        features = tuple(rng.sample(["a", "b", "c"], k=rng.randint(0, 3)))
        changed.append(
            Contract(each.server_name, replace(each.declaration, admission_states=tuple(states), features=features))
        )
    assert Topology.of(changed).fingerprint() == Topology.of(CONTRACTS).fingerprint()


CHANGES = [
    {"participant_name": "other"},
    {"schema_version": 2},
    {"admission_states": (AdmissionState.ACCEPTING, AdmissionState.DRAINING)},
    {"checkpoint_mode": CheckpointMode.RESTART_ONLY},
    {"concurrency_contract": ConcurrencyContract.TRANSACTIONAL_PARALLEL},
    {"worker_mode": WorkerMode.COORDINATOR},
    {"num_workers": 2},
    {"instance_role": InstanceRole.AUXILIARY},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_other_field_matters(change: dict[str, object]) -> None:
    """A change of any field that is not additive gives another fingerprint."""
    policy = contract(Role.POLICY, "policy_model", **change)
    assert Topology.of([policy, contract(Role.AGENT, "solver_agent")]).fingerprint() != WORKED_DIGEST


def test_the_routing_name_matters() -> None:
    """The same server under another routing name is another topology."""
    renamed = Contract("renamed", contract(Role.POLICY, "policy_model").declaration)
    assert Topology.of([renamed, contract(Role.AGENT, "solver_agent")]).fingerprint() != WORKED_DIGEST


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_different_names_give_different_fingerprints(one: str, other: str) -> None:
    """Whatever the characters are, escaping does not make two names equal."""
    first = Topology.of([contract(Role.AGENT, one)]).fingerprint()
    second = Topology.of([contract(Role.AGENT, other)]).fingerprint()
    assert (first == second) is (one == other)


def test_contracts_are_sorted_by_component_routing_name_and_own_name() -> None:
    """In the alphabet of the wire, resource servers stand before agents before models; all can be found."""
    topology = Topology.of(CONTRACTS)
    assert [each.server_name for each in topology.contracts] == ["tools", "solver_agent", "judge", "policy_model"]
    assert [each.server_name for each in topology.with_role(Role.POLICY)] == ["policy_model"]
    assert topology.named("tools") is CONTRACTS[3]
    assert topology.named("nobody") is None


def test_the_saved_object_keeps_features() -> None:
    """What a snapshot keeps says which features were there, although the fingerprint ignores them."""
    participants = Topology.of(CONTRACTS).as_object()["participants"]
    assert isinstance(participants, list)
    assert participants[1]["features"] == ["agent_continuation_index_v1", "completed_result_acknowledgement"]
