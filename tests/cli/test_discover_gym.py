"""``quiesce discover`` and a cut over servers that nobody listed: NeMo Gym's own configuration names them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.command import Command, last_object
from support.gym_configs import CANARY
from support.servers import closed_port
from support.workload import Deployment, deployment

from quiesce.fsm.vocabulary import Role

COMPONENTS = {
    Role.POLICY: ("policy_model", "responses_api_models", "vllm_model"),
    Role.AUXILIARY: ("judge", "responses_api_models", "genrm_model"),
    Role.AGENT: ("agent", "responses_api_agents", "simple_agent"),
    Role.RESOURCES: ("tools", "resources_servers", "mcqa"),
}
REST = """
leftover:
  resources_servers:
    code_gen:
      num_processes: 64
environment:
  environment_servers:
    legacy_agent: {entrypoint: app.py, host: 127.0.0.1, port: 9}
policy_base_url: http://127.0.0.1:9000/v1
policy_api_key: canary
"""


@pytest.fixture(scope="module")
def idle() -> Iterator[Deployment]:
    """Servers on which nothing runs."""
    with deployment() as servers:
        yield servers


def entry(role: Role, port: int | None) -> str:
    """The server of a role in a resolved configuration."""
    name, component, implementation = COMPONENTS[role]
    judge = "judge_model_server: {type: responses_api_models, name: judge}," if role is Role.RESOURCES else ""
    settings = f"{judge} entrypoint: app.py, api_key: canary, host: 127.0.0.1, port: {port}"
    return f"{name}: {{{component}: {{{implementation}: {{{settings}}}}}}}\n"


def config_of(ports: dict[Role, int | None], directory: Path) -> str:
    """A configuration of ours that names a resolved one beside it."""
    text = "".join(entry(role, port) for role, port in ports.items()) + REST
    (directory / "resolved.yaml").write_text(text, encoding="utf-8")
    path = directory / "quiesce.toml"
    path.write_text('root = "root"\n[deployment.main]\ngym_config = "resolved.yaml"\n', encoding="utf-8")
    return str(path)


def ports_of(servers: Deployment) -> dict[Role, int | None]:
    """Where each role is served."""
    return {role: urlsplit(url).port for role, url in servers.urls.items()}


def test_discover_shows_what_the_configuration_says(quiesce: Command, idle: Deployment, tmp_path: Path) -> None:
    """Everybody who was asked, everybody who was not, what is odd, and no key."""
    config = config_of(ports_of(idle), tmp_path)
    answered = quiesce("discover", "--config", config, "--json")
    assert answered.exit_code == 0, answered.stderr
    found = last_object(answered)
    roles = {one["name"]: one["role"] for one in found["participants"]}
    assert roles == {"policy_model": "policy", "judge": "auxiliary", "agent": "agent", "tools": "resources"}
    gym = found["gym"]["main"]
    assert gym["source"] == str(tmp_path / "resolved.yaml")
    assert gym["policy_base_urls"] == ["http://127.0.0.1:9000/v1"]
    servers = {server["name"]: server for server in gym["servers"]}
    assert [name for name, server in servers.items() if not server["asked"]] == ["environment"]
    assert servers["judge"] == {
        "name": "judge",
        "component": "responses_api_models",
        "implementation": "genrm_model",
        "host": "127.0.0.1",
        "port": ports_of(idle)[Role.AUXILIARY],
        "num_workers": None,
        "instance_role": None,
        "upstreams": [],
        "named_by": ["tools:judge_model_server"],
        "asked": True,
    }
    assert [one["name"] for one in gym["left_out"]] == ["leftover"]
    assert any("judge states no instance_role" in note for note in found["notes"])
    shown = quiesce("discover", "--config", config)
    assert "resolved.yaml: 5 servers, 4 asked; leftover is a leftover" in shown.stdout
    assert "environment_servers have no role in a checkpoint" in shown.stdout
    assert CANARY not in answered.output + answered.stderr + shown.output + shown.stderr


def test_a_cut_over_servers_that_gym_named(quiesce: Command, idle: Deployment, tmp_path: Path) -> None:
    """The participants of the configuration are cut as if they had been listed."""
    config = config_of(ports_of(idle), tmp_path)
    cut = quiesce("checkpoint", "--label", "step-1", "--config", config, "--json")
    assert cut.exit_code == 0, cut.stderr
    assert last_object(cut)["ok"] is True
    assert quiesce("verify", "step-1", "--config", config).exit_code == 0
    assert idle.phases() == {"idle"}


def test_a_server_that_is_not_there_is_named_with_all_the_others(
    quiesce: Command, idle: Deployment, tmp_path: Path
) -> None:
    """Nobody listed them, so the error says whom the configuration named, and where."""
    config = config_of(ports_of(idle) | {Role.AGENT: closed_port()}, tmp_path)
    failed = quiesce("discover", "--config", config)
    assert failed.exit_code == 1
    assert "main/agent gave no answer" in failed.stderr
    assert "resolved.yaml names 4 servers to ask:\n  agent at http://127.0.0.1:" in failed.stderr
    assert CANARY not in failed.output + failed.stderr
    asked = last_object(quiesce("discover", "--config", config, "--json"))["asked"]
    assert {one["name"] for one in asked} == {"policy_model", "agent", "tools", "judge"}
    assert all(one["url"].startswith("http://127.0.0.1:") and one["deployment"] == "main" for one in asked)


def test_a_configuration_that_cannot_be_used_is_wrong_usage(quiesce: Command, tmp_path: Path) -> None:
    """Ports that were never allocated: every server is named with its path of keys, and nobody was asked."""
    failed = quiesce("discover", "--config", config_of(dict.fromkeys(Role, -1), tmp_path), "--json")
    assert failed.exit_code == 2
    problems = last_object(failed)["problems"]
    assert len(problems) == 4
    assert all(".port is -1: none was allocated" in problem for problem in problems)


def test_a_file_that_is_not_there_is_wrong_usage(quiesce: Command, tmp_path: Path) -> None:
    """The path is the one beside our own file."""
    config = config_of(dict.fromkeys(Role, -1), tmp_path)
    (tmp_path / "resolved.yaml").unlink()
    failed = quiesce("discover", "--config", config)
    assert failed.exit_code == 2
    assert f"{tmp_path / 'resolved.yaml'}: cannot be read" in failed.stderr
