"""Every trap of a resolved NeMo Gym configuration, each in a small one of ours: who is found, what is said."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.gym_configs import CANARY, NAMES, configuration_of, text_of

from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import ConfigurationError, QuiesceError, TopologyError
from quiesce.participants.gym_config import read_gym_configuration
from quiesce.participants.gym_config_participants import participants_of

HOME = "127.0.0.1"
POLICY, TOOLS, AGENT = {"policy_model": 5001}, {"tools": 5002}, {"agent": 5003}
ALL = POLICY | TOOLS | AGENT
ONE_SILENT = "state no instance_role, so each claims to be a policy"


@dataclass(frozen=True)
class Trap:
    """What a configuration must yield. ``ports`` are those of the participants, in order of their names, at ``HOME``.

    ``urls`` are those that are elsewhere. ``notes`` are fragments, one for each note, in order.
    """

    number: int
    ports: dict[str, int]
    notes: tuple[str, ...] = ()
    urls: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()


TRAPS = {
    "plain": Trap(1, ALL),
    "encoded_as_json": Trap(1, ALL),
    "implementation_is_no_name": Trap(2, POLICY | {"code_gen": 5002, "mcqa": 5004, "one": 5003, "other": 5005}),
    "entries_without_server": Trap(
        3,
        ALL | {"two_components": 5004, "other_key_first": 5005},
        (
            "other_key_first begins with another key (it is not repeated): Gym starts a server only where",
            "two_components also names responses_api_agents, without an address",
            "no_port is not asked: it has no port",
            "two_implementations is not asked: it has two implementations under one component",
        ),
        left_out=("no_port", "two_implementations"),
        leftovers=(
            "component_is_empty",
            "component_is_null",
            "left_copy",
            "left_delete",
            "left_inherit",
            "override_only",
        ),
    ),
    "copy_of_a_copy": Trap(
        4,
        ALL | {"policy_model_thinking": 5004, "copied_and_complete": 5006},
        (
            "copied_and_complete begins with _copy",
            "copied_and_complete still holds _copy",
            f"policy_model, policy_model_thinking {ONE_SILENT}",
        ),
        leftovers=("policy_model_copy_of_copy",),
    ),
    "interpolations": Trap(
        5, ALL, ("policy_model has an interpolated port: Gym warns", "tools has an interpolated port: Gym warns")
    ),
    "upstreams": Trap(
        6,
        ALL
        | {"openai": 5004, "own_vllm": 5005, "with_a_key_in_it": 5006, "with_a_query": 5007}
        | {"from_elsewhere": 5008, "from_a_secret": 5009},
        (
            "from_a_secret.responses_api_models.vllm_model.base_url leads to ${policy_api_key}",
            "from_elsewhere.responses_api_models.vllm_model.base_url needs the variable 'ELSEWHERE'",
            "with_a_key_in_it.responses_api_models.vllm_model.base_url is no plain URL",
            "with_a_query.responses_api_models.vllm_model.base_url is no plain URL",
            ONE_SILENT,
        ),
    ),
    "ports": Trap(
        7,
        ALL,
        (
            "port_is_absent is not asked: it has no port",
            "port_is_null is not asked",
            "port_is_zero is not asked",
            "port_is_zero_text is not asked",
        ),
        left_out=("port_is_absent", "port_is_null", "port_is_zero", "port_is_zero_text"),
    ),
    "hosts": Trap(
        8,
        POLICY,
        (
            "no_host.resources_servers.mcqa.host is not stated: 10.0.0.7 is asked, which is the",
            "six.resources_servers.workplace_assistant.host is ::, which is an address to bind: 10.0.0.2 is",
            "tools.resources_servers.workplace_assistant.host is 0.0.0.0, which is an address to bind: 10.0.0.2 is",
        ),
        urls={
            "agent": "http://10.0.0.9:5003",
            "no_host": "http://10.0.0.7:5006",
            "six": "http://10.0.0.2:5004",
            "six_agent": "http://[fd00::5]:5005",
            "tools": "http://10.0.0.2:5002",
        },
    ),
    "loopback": Trap(8, ALL, urls={"named_localhost": "http://localhost:5004"}),
    "head_server_is_a_wildcard": Trap(9, POLICY | AGENT),
    "roles": Trap(
        11,
        ALL
        | {"judge": 5004, "stated_policy": 5005, "stated_judge": 5006, "misspelt_key": 5007, "misspelt_role": 5008}
        | {"simulator": 5009, "nobody_names_it": 5011},
        (
            "misspelt_key.responses_api_models.vllm_model.instance_roles is no setting; instance_role is",
            "misspelt_role.responses_api_models.vllm_model.instance_role is neither 'policy' nor 'auxiliary'",
            "tools.resources_servers.workplace_assistant.instance_role is stated, but only model servers have one",
            "judge states no instance_role, and only tools:verifiers.maths.0 names it: it is probably a judge",
            "simulator states no instance_role, and its upstream is none of policy_base_url: it is probably a judge",
            f"misspelt_key, misspelt_role, nobody_names_it, policy_model {ONE_SILENT}",
        ),
    ),
    "workers": Trap(
        12,
        ALL
        | {"by_text": 5004, "by_interpolation": 5005, "null_workers": 5006, "unknown_workers": 5007}
        | {"odd_workers": 5008},
        (
            "odd_workers.responses_api_models.vllm_model.num_workers is no whole number",
            "unknown_workers.responses_api_models.vllm_model.num_workers needs the variable 'WORKERS'",
            ONE_SILENT,
        ),
    ),
    "order": Trap(13, POLICY | {"Ant": 5002, "ant": 5004, "zebra": 5003}),
    "environment_servers": Trap(
        14,
        ALL,
        (
            "environment_without_port is not asked: it cannot be used",
            "environment_servers have no role in a checkpoint and are not asked: environment, environment_without",
            "grading_servers have no role in a checkpoint and are not asked: of_a_later_gym",
        ),
        left_out=("environment_without_port",),
    ),
    "unknown_settings": Trap(15, ALL),
    "names": Trap(16, ALL | {"gpt-5_2-2025-12-11": 5004, "0.9_tools": 5005}, (ONE_SILENT,)),
}

REFUSED = {
    "one_of_several": (
        3,
        (
            "two_components could be any of two_components.resources_servers.mcqa and two_components.responses_api_",
            "two_implementations could be any of",
        ),
    ),
    "interpolations_that_need_more": (
        5,
        (
            "agent.responses_api_agents.simple_agent.host follows more than 16 interpolations, perhaps in a circle",
            "judge.responses_api_models.vllm_model.port names ${not.there}, which is not in the document",
            "policy_model.responses_api_models.vllm_model.host needs the variable 'NODE'",
            "secret.responses_api_models.vllm_model.host leads to ${policy_api_key}, which by its name is a secret",
            "tools.resources_servers.mcqa.port needs OmegaConf's resolver oc.select for 'ports.tools'",
            "unfilled.responses_api_models.vllm_model.host is '???', which was never filled in",
        ),
    ),
    "ports_that_are_none": (
        7,
        (
            "agent.responses_api_agents.simple_agent.port is a text that is no port number",
            "second_agent.responses_api_agents.simple_agent.port is no whole number",
            "third_agent.responses_api_agents.simple_agent.port is no whole number",
            "other_tools.resources_servers.workplace_assistant.port is not between 1 and 65535",
            "policy_model.responses_api_models.vllm_model.port is -1: none was allocated",
            "tools.resources_servers.workplace_assistant.port is not between 1 and 65535",
        ),
    ),
    "hosts_that_are_none": (
        8,
        (
            "agent.responses_api_agents.simple_agent.host is no text",
            "policy_model.responses_api_models.vllm_model.host is no host name and no IP address",
            "second_agent.responses_api_agents.simple_agent.host is no host name and no IP address",
            "third_agent.responses_api_agents.simple_agent has an address that makes no URL",
        ),
    ),
    "head_server_without_host": (
        9,
        ("policy_model.responses_api_models.vllm_model.host is 0.0.0.0, which is an address to bind, and nothing",),
    ),
    "same_address": (
        10,
        (
            "agent and wildcard have the same address 127.0.0.1:5003",
            "environment and other_agent have the same address 127.0.0.1:5004",
            "policy_model and policy_model_copy have the same address 127.0.0.1:5001",
        ),
    ),
    "names_that_are_none": (
        16,
        ("'../policy' must begin", "'a b' must begin", "'con' is a reserved", r"'two\nlines' must", "129 characters"),
    ),
    "nobody": (3, ("names no server that can be asked",)),
    "source_of_a_configuration": (7, ("names no server that can be asked; agent has no port",)),
}

NO_CONFIGURATION = {
    "masked_printout": (17, "line 6: holds '****' where Gym's printouts hide a value"),
    "masked_printout_unquoted": (17, "line 6: holds '****' where Gym's printouts hide a value"),
}


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_seen_through(name: str) -> None:
    """Exactly the right servers are asked, sorted by name and at the right addresses, and what is odd is said."""
    trap = TRAPS[name]
    configuration = configuration_of(name)
    to_ask = participants_of(configuration)
    urls = {server: f"http://{HOME}:{port}" for server, port in trap.ports.items()} | trap.urls
    assert {one.name: one.url for one in to_ask.participants} == urls
    assert [one.name for one in to_ask.participants] == sorted(urls)
    assert len(to_ask.notes) == len(trap.notes), to_ask.notes
    for note, fragment in zip(to_ask.notes, trap.notes, strict=True):
        assert note.startswith(f"{name}.yaml: ")
        assert fragment in note
    assert [entry.name for entry in configuration.left_out if not entry.is_leftover] == list(trap.left_out)
    assert [entry.name for entry in configuration.left_out if entry.is_leftover] == list(trap.leftovers)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_with_every_problem(name: str) -> None:
    """Each problem names the file and the path of keys; there is one for each server that cannot be asked."""
    _, fragments = REFUSED[name]
    with pytest.raises(TopologyError) as caught:
        participants_of(configuration_of(name))
    assert len(caught.value.problems) == len(fragments), caught.value.problems
    for problem, fragment in zip(caught.value.problems, fragments, strict=True):
        assert problem.startswith(f"{name}.yaml: ")
        assert fragment in problem


@pytest.mark.parametrize("name", NO_CONFIGURATION)
def test_a_saved_printout_is_refused(name: str) -> None:
    """Gym masks values in what it prints, so such a text is no configuration, whether it still is YAML or not."""
    _, fragment = NO_CONFIGURATION[name]
    with pytest.raises(ConfigurationError, match=r"yaml: line 6: ") as caught:
        configuration_of(name)
    assert fragment in str(caught.value)
    assert "gym_head" in str(caught.value)


def test_a_refusal_carries_what_is_only_odd() -> None:
    """One round of correction is enough: what else was noticed stands in the error's notes."""
    text = text_of("entries_without_server").replace("port: 5004", "port: 5005")
    with pytest.raises(TopologyError, match="other_key_first and two_components have the same address") as caught:
        participants_of(read_gym_configuration(text, source="here"))
    assert len(caught.value.__notes__) == 4
    assert caught.value.__notes__[0].startswith("here: other_key_first begins with another key")


def test_sentences_are_bounded() -> None:
    """Fifty problems are told, and how many more there are."""
    text = "".join(
        f"s{number}: {{resources_servers: {{x: {{entrypoint: a, host: h, port: -1}}}}}}\n" for number in range(60)
    )
    with pytest.raises(TopologyError) as caught:
        participants_of(read_gym_configuration(text, source="here"))
    assert len(caught.value.problems) == 51
    assert caught.value.problems[-1] == "here: and 10 more"


def test_every_trap_has_a_configuration() -> None:
    """None of the seventeen is forgotten, and no file lies about untested."""
    numbers = {trap.number for trap in TRAPS.values()} | {number for number, _ in REFUSED.values()}
    assert numbers | {number for number, _ in NO_CONFIGURATION.values()} == set(range(1, 18))
    assert sorted([*TRAPS, *REFUSED, *NO_CONFIGURATION]) == NAMES


def test_roles_are_expected_where_they_are_known() -> None:
    """An agent and a resource server are known by their component, a model server by what it states, else not."""
    roles = {one.name: one.role for one in participants_of(configuration_of("roles")).participants}
    assert (roles["agent"], roles["tools"]) == (Role.AGENT, Role.RESOURCES)
    assert (roles["stated_policy"], roles["stated_judge"]) == (Role.POLICY, Role.AUXILIARY)
    assert {roles[name] for name in ("policy_model", "judge", "misspelt_key", "misspelt_role")} == {None}


def test_upstreams_are_the_models_and_never_their_addresses() -> None:
    """A list, another key, a key that is absent and a URL that may not be repeated."""
    to_ask = participants_of(configuration_of("upstreams"))
    ranks = ("http://127.0.0.1:7001/v1", "http://127.0.0.1:7002/v1")
    assert to_ask.policy_base_urls == ranks
    assert {one.name: one.upstreams for one in to_ask.participants if one.upstreams} == {
        "policy_model": ranks,
        "openai": ranks,
    }
    keys = {server.name: server.upstream_key for server in configuration_of("upstreams").servers}
    assert (keys["openai"], keys["policy_model"], keys["own_vllm"]) == ("openai_base_url", "base_url", None)


def test_interpolated_upstreams_are_followed() -> None:
    """Through a chain, and inside a longer text."""
    [policy] = [one for one in participants_of(configuration_of("interpolations")).participants if one.upstreams]
    assert policy.upstreams == ("http://127.0.0.1:9000/v1",)


def test_numbers_of_workers_are_read_where_they_are_known() -> None:
    """As a number, as text, by interpolation; null, absent and unknown are all None."""
    workers = {server.name: server.num_workers for server in configuration_of("workers").servers}
    stated = {"agent": 16, "policy_model": 4, "by_text": 2, "by_interpolation": 3}
    assert {name: count for name, count in workers.items() if count is not None} == stated


@pytest.mark.parametrize("host", ["10.0.0.2", "gym.internal", "fd00::2"])
def test_loopback_is_useless_from_another_machine(host: str) -> None:
    """With a head server elsewhere, each participant on loopback is refused with both hosts and the remedy."""
    with pytest.raises(TopologyError) as caught:
        participants_of(configuration_of("loopback"), head_host=host)
    assert len(caught.value.problems) == 4
    assert all(host in problem and "default_host" in problem for problem in caught.value.problems)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.1.1"])
def test_loopback_is_right_beside_the_head_server(host: str) -> None:
    """A head server on this machine has its participants on this machine."""
    assert len(participants_of(configuration_of("loopback"), head_host=host).participants) == 4


def test_a_wildcard_is_reached_where_the_head_server_was() -> None:
    """The address that the operator typed wins over the one in the configuration, which is one to bind."""
    to_ask = participants_of(configuration_of("head_server_without_host"), head_host="127.0.0.1")
    assert {one.name: one.url for one in to_ask.participants}["policy_model"] == "http://127.0.0.1:5001"
    assert "where the head server is" in to_ask.notes[0]
    elsewhere = participants_of(read_gym_configuration(WILDCARDS, source="w"), head_host="10.0.0.2")
    assert [one.url for one in elsewhere.participants] == ["http://10.0.0.2:5001"]


def test_a_wildcard_takes_the_loopback_port_too() -> None:
    """Wherever a wildcard is reached from here, on its own machine it has the port of a loopback server as well."""
    text = f"{WILDCARDS}\nagent: {{responses_api_agents: {{x: {{entrypoint: a, host: 127.0.0.1, port: 5001}}}}}}"
    with pytest.raises(TopologyError, match=r"agent and policy_model have the same address 127\.0\.0\.1:5001"):
        participants_of(read_gym_configuration(text, source="here"))


WILDCARDS = """
policy_model: {responses_api_models: {vllm_model: {entrypoint: app.py, host: 0.0.0.0, port: 5001}}}
head_server: {host: 10.9.9.9, port: 11000}
"""


def said(name: str) -> str:
    """Everything that is kept or said of a configuration: its values, its participants, its errors and their causes."""
    try:
        configuration = configuration_of(name)
        kept = repr(configuration)
        return kept + repr(participants_of(configuration))
    except QuiesceError as error:
        told = ""
        cause: BaseException | None = error
        while cause is not None:
            told += repr(cause) + str(cause) + repr(vars(cause))
            cause = cause.__cause__ or cause.__context__
        return told


@pytest.mark.parametrize("name", NAMES)
def test_nothing_secret_is_kept_or_said(name: str) -> None:
    """No key, no default of a variable, no password and no setting that is not needed."""
    assert CANARY in text_of(name)
    assert CANARY not in said(name)
