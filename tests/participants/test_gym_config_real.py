"""Real resolved configurations of NeMo Gym, where they lie beside the project: found is what is expected of each."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from support.gym_configs import REAL

from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import TopologyError
from quiesce.participants.gym_config import GymConfiguration, GymServer, read_gym_configuration
from quiesce.participants.gym_config_participants import GymParticipants, participants_of
from quiesce.participants.gym_config_yaml import text_in_json

pytestmark = [
    pytest.mark.source,
    pytest.mark.skipif(
        not REAL.is_dir(), reason="real Gym configurations are others' data and not part of the project"
    ),
]

Expected = dict[str, Any]
"""An entry of expected.json: JSON of several types."""

SILENT = {
    "single_tool_call": set(),
    "workplace_assistant": set(),
    "genrm_rlhf_stage3": {"genrm_model"},
    "genrm_rlhf_stage3_roles_stated": set(),
    "rlvr_stage1_many_environments": {"genrm_model", "safety_judge_model", "nl2bash_judge_model"},
    "math_with_local_judge": {"qwen3_30ba3b_instruct_2507_model_server"},
    "tau2_workers_user_simulator": {"gpt-5_2-2025-12-11"},
    "gym070_environment_servers": {"support_model", "embedding_model"},
}
"""The model servers that must be named as probable judges or simulators, where the configuration can be used."""


@cache
def expected() -> dict[str, Expected]:
    """What the folder itself expects of each of its configurations."""
    text = (REAL / "expected.json").read_text(encoding="utf-8") if REAL.is_dir() else "{}"
    found: dict[str, Expected] = json.loads(text)
    return found


def configuration_of(name: str) -> GymConfiguration:
    """What is read out of one of them."""
    text = (REAL / f"{name}.resolved.yaml").read_text(encoding="utf-8")
    return read_gym_configuration(text, source=name)


def to_ask(name: str) -> GymParticipants:
    """Whom to ask according to one of them."""
    return participants_of(configuration_of(name))


def as_expected(server: GymServer) -> Expected:
    """A server in the words of expected.json; what is written as an interpolation is not kept of it."""
    upstreams: object = list(server.upstreams) if len(server.upstreams) > 1 else next(iter(server.upstreams), None)
    return {
        "server_name": server.name,
        "component": server.component,
        "implementation": server.implementation,
        "host": server.host,
        "port": server.port,
        "num_workers": server.num_workers,
        "instance_role": server.instance_role,
        "upstream_url_key": server.upstream_key,
        "upstream_url_resolved": upstreams,
        "referenced_by": sorted(str(reference) for reference in server.references),
    }


def without_what_is_not_kept(server: Expected) -> Expected:
    """A server of expected.json in the same form."""
    kept = {key: value for key, value in server.items() if key != "upstream_url_as_written"}
    return {**kept, "referenced_by": sorted(kept["referenced_by"])}


def test_the_ten_are_there() -> None:
    """An empty folder would let every other test pass."""
    assert len(expected()) == 10
    assert sum(len(entry["servers"]) for entry in expected().values()) > 100


@pytest.mark.parametrize("name", expected())
def test_every_server_is_found_as_expected(name: str) -> None:
    """Names, components, addresses, workers, roles, upstreams and references; a port by interpolation comes on top."""
    servers = [as_expected(server) for server in configuration_of(name).servers if not server.has_interpolated_port]
    wanted = [without_what_is_not_kept(server) for server in expected()[name]["servers"]]
    assert servers == sorted(wanted, key=lambda server: str(server["server_name"]))


@pytest.mark.parametrize("name", expected())
def test_everything_else_with_a_component_is_named(name: str) -> None:
    """What Gym does not take for a server is left out with a reason, or has a port that only Gym's check denies."""
    configuration = configuration_of(name)
    others = {entry.name for entry in configuration.left_out} | {entry.name for entry in configuration.unusable}
    others |= {server.name for server in configuration.servers if server.has_interpolated_port}
    assert others == set(expected()[name]["component_entries_that_are_not_servers"])
    head = expected()[name]["head_server"]
    assert configuration.head == (head["host"], head["port"])


@pytest.mark.parametrize("name", SILENT)
def test_whom_to_ask_and_whom_to_doubt(name: str) -> None:
    """Everybody but environment servers, at their addresses; a probable judge without a role is named as such."""
    servers = expected()[name]["servers"]
    asked = {s["server_name"]: s for s in servers if s["component"] != "environment_servers"}
    found = to_ask(name)
    assert {one.name: one.url for one in found.participants} == {
        server: f"http://{entry['host']}:{entry['port']}" for server, entry in asked.items()
    }
    doubted = {note.split()[1] for note in found.notes if "it is probably a judge" in note}
    assert doubted == SILENT[name]
    assert found.policy_base_urls


def test_stated_roles_are_expected() -> None:
    """A policy, its copy that inherited the role, and a judge."""
    roles = {one.name: one.role for one in to_ask("genrm_rlhf_stage3_roles_stated").participants}
    assert roles["policy_model"] is roles["policy_model_reasoning_off"] is Role.POLICY
    assert roles["genrm_model"] is Role.AUXILIARY


@pytest.mark.parametrize(
    ("name", "fragments"),
    [
        ("offline_placeholder_ports", ["port is -1"] * 3),
        (
            "traps_fixed_ports",
            ["newton_bench_simple_agent and ragtruth", "policy_model and policy_model_copy_same_address"],
        ),
    ],
)
def test_two_of_them_cannot_be_used(name: str, fragments: list[str]) -> None:
    """Ports that were never allocated, and two pairs of servers at one address."""
    with pytest.raises(TopologyError) as caught:
        to_ask(name)
    assert len(caught.value.problems) == len(fragments)
    assert all(part in problem for part, problem in zip(fragments, caught.value.problems, strict=True))


def exchanges() -> list[Expected]:
    """Recorded exchanges of head servers that served a configuration."""
    text = (REAL / "head_server_global_config.http.json").read_text(encoding="utf-8") if REAL.is_dir() else ""
    kept: list[Expected] = json.loads(text)["exchanges"] if text else []
    return [
        one for one in kept if one["config"] and one["response"]["status"] == 200 and "yaml" in one["request"]["path"]
    ]


def test_what_a_head_server_served_is_what_the_file_holds() -> None:
    """The recorded bodies are JSON strings whose text yields the same servers as the files."""
    served = [one for one in exchanges() if one["request"]["method"] == "GET"]
    assert len(served) >= 4
    for one in served:
        text = text_in_json(one["response"]["body"])
        assert text is not None
        read = read_gym_configuration(text, source=one["config"])
        assert read == configuration_of(one["config"])
