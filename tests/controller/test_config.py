"""The configuration: what a good file gives, and that every bad one is refused with place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from quiesce.controller.config import Config, DeploymentConfig, ParticipantConfig, load_config, parse_config
from quiesce.controller.config_environment import SETTINGS
from quiesce.controller.configuration_errors import ConfigurationProblems
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import ConfigurationError

WHOLE = """
root = "/shared/run-7"
reach_timeout_s = 90
hold_timeout_s = 600.5
drain = "policies_first"
straggler_after_s = 30
token_variable = "MY_TOKEN"

[deployment.main]
participants = [
  { name = "policy_model", url = "http://10.0.0.5:8000/", role = "policy", upstream = "http://10.0.0.5:9000/v1" },
  { name = "judge", url = "https://judge.internal", role = "auxiliary" },
  { name = "agent", url = "http://[::1]:8000", checkpoint_url = "http://10.0.0.7:8001/prefix" },
]
policy_base_urls = ["http://10.0.0.5:9000/v1"]
"""

SERVERS = '[deployment.main]\nparticipants = [{ name = "a", url = "http://h:1" }]\n'


def parse(text: str, environment: dict[str, str] | None = None) -> Config:
    """Parse with nothing from this process's environment."""
    return parse_config(text, source="q.toml", directory=Path("/etc/quiesce"), environment=environment or {})


def refused(text: str, environment: dict[str, str] | None = None) -> str:
    """The text of the refusal."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text, environment)
    return str(caught.value)


def test_a_whole_file_is_read() -> None:
    """Every key of the documented file arrives with its meaning."""
    config = parse(WHOLE)
    assert config.root == Path("/shared/run-7")
    assert (config.reach_timeout_s, config.hold_timeout_s) == (90, 600.5)
    assert config.drain is DrainMode.POLICIES_FIRST
    assert (config.straggler_after_s, config.token_variable, config.enabled) == (30, "MY_TOKEN", True)
    main = config.deployment["main"]
    assert [participant.name for participant in main.participants] == ["policy_model", "judge", "agent"]
    assert main.participants[0].url == "http://10.0.0.5:8000"
    assert main.participants[0].role is Role.POLICY
    assert main.participants[0].upstream == ("http://10.0.0.5:9000/v1",)
    assert main.participants[2].checkpoint_url == "http://10.0.0.7:8001/prefix"
    assert main.policy_base_urls == ("http://10.0.0.5:9000/v1",)


def test_a_relative_root_starts_at_the_files_directory(tmp_path: Path) -> None:
    """``root = "snapshots"`` means beside the file, wherever the command is run."""
    (tmp_path / "q.toml").write_text(f'root = "../{tmp_path.name}/snapshots"\n{SERVERS}')
    assert load_config(tmp_path / "q.toml", environment={}).root == tmp_path / "snapshots"


def test_a_server_may_have_several_upstreams() -> None:
    """A list of upstreams is kept in its order; a bad one is named by its place."""
    text = with_servers(" }", ', upstream = ["http://u:1/", "http://u:2"] }')
    assert parse(text).deployment["main"].participants[0].upstream == ("http://u:1", "http://u:2")
    assert "participants[0].upstream[1]:" in refused(text.replace("http://u:2", "u:2"))


def test_a_gym_configuration_may_name_the_servers_instead() -> None:
    """A file is relative to the configuration's own directory; a head server is an address like any other."""
    table = 'root = "/r"\n[deployment.main]\n'
    beside = parse(f'{table}gym_config = "../resolved.yaml"\n').deployment["main"]
    assert (beside.gym_config, beside.participants) == (Path("/etc/resolved.yaml"), ())
    assert parse(f'{table}gym_config = "/x/y.yaml"\n').deployment["main"].gym_config == Path("/x/y.yaml")
    head = parse(f'{table}gym_head = "http://10.0.0.2:11000/"\n').deployment["main"]
    assert (head.gym_head, head.gym_config) == ("http://10.0.0.2:11000", None)


def test_disabled_needs_no_servers() -> None:
    """With ``enabled = false`` nobody is called, so nobody need be named."""
    config = parse('root = "/r"\nenabled = false\n')
    assert not config.enabled
    assert not config.deployment


def test_several_deployments_parse() -> None:
    """More than one deployment is read here; whether it is supported is the topology's decision."""
    config = parse(f'root = "/r"\n{SERVERS}{SERVERS.replace("main", "second")}')
    assert list(config.deployment) == ["main", "second"]


def test_the_environment_overrides_every_scalar_setting() -> None:
    """Each top-level setting but the deployments has its variable, and the variable wins."""
    scalars = {name for name, field in Config.model_fields.items() if name != "deployment"}
    assert set(SETTINGS) == scalars
    texts = {
        "root": "/elsewhere",
        "enabled": "no",
        "drain": "overlapped",
        "straggler_policy": "wait",
        "last_cut_signals": "SIGTERM, SIGUSR1",
        "last_cut_label": "before-the-end",
        "token_variable": "OTHER",
        "proxy": "http://proxy:3128",
        "hash_trainer_files": "true",
        "keep_latest_k": "3",
    }
    wanted = {name: texts.get(name, "7.5") for name in scalars} | {"reach_timeout_s": "100"}
    config = parse(WHOLE, {f"QUIESCE_{name.upper()}": text for name, text in wanted.items()})
    assert config.root == Path("/elsewhere")
    assert (config.enabled, config.hash_trainer_files, config.keep_latest_k) == (False, True, 3)
    assert (config.reach_timeout_s, config.straggler_after_s) == (100, 7.5)
    assert (config.last_cut_signals, config.last_cut_label) == (("SIGTERM", "SIGUSR1"), "before-the-end")
    assert (config.drain, config.token_variable) == (DrainMode.OVERLAPPED, "OTHER")


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "true", '"3"', "1e3"])
def test_how_many_snapshots_stay_is_a_positive_whole_number(value: str) -> None:
    """Anything else is refused, in the file and in the environment."""
    assert "keep_latest_k" in refused(f'root = "/r"\nenabled = false\nkeep_latest_k = {value}\n')
    assert "KEEP_LATEST_K" in refused(
        'root = "/r"\nenabled = false\n', {"QUIESCE_KEEP_LATEST_K": value.strip('"') + "x"}
    )


def test_unrelated_and_empty_variables_are_left_alone() -> None:
    """An orchestrator's service variables, the token's own and empty ones change nothing."""
    environment = {
        "QUIESCE_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "QUIESCE_SERVICE_HOST": "10.0.0.1",
        "QUIESCE_ROOT": "",
        "QUIESCE_TOKEN_VARIABLES": "s3cret",
    }
    text = WHOLE.replace("MY_TOKEN", "QUIESCE_TOKEN_VARIABLES")
    assert parse(text, environment).root == Path("/shared/run-7")


def with_servers(old: str, new: str) -> str:
    """A file that is right but for one place in its list of servers."""
    assert old in SERVERS
    return f'root = "/r"\n{SERVERS.replace(old, new)}'


REFUSALS = {
    "unknown key": (f'root = "/r"\nhold_timeout = 6\n{SERVERS}', ("q.toml: hold_timeout:", "'hold_timeout_s'")),
    "unknown section": ('root = "/r"\n[deployments.main]\n', ("deployments:", "mean 'deployment'")),
    "unknown key of a server": (
        'root = "/r"\n[deployment.main]\nparticipants = [{ name = "a", ulr = "http://h" }]',
        ("deployment.main.participants[0].ulr: unknown key", "'url'", "participants[0].url: is missing"),
    ),
    "unknown key unlike any": (f'root = "/r"\nzzz = 6\n{SERVERS}', ("zzz:", "the keys here are root, enabled")),
    "missing root": (SERVERS, ("q.toml: root: is missing", "file system that everybody sees")),
    "root with a tilde": (f'root = "~/x"\n{SERVERS}', ("root:", "write the path out")),
    "root that cannot be printed": (f'root = "/a\\u0000b"\n{SERVERS}', ("root:", "cannot be printed")),
    "text for a number": (f'root = "/r"\nreach_timeout_s = "12"\n{SERVERS}', ("reach_timeout_s:", "valid number")),
    "yes for a number": (f'root = "/r"\nreach_timeout_s = true\n{SERVERS}', ("reach_timeout_s:", "valid number")),
    "number for a flag": (f'root = "/r"\nenabled = 1\n{SERVERS}', ("enabled:", "valid boolean")),
    "negative time": (f'root = "/r"\nhold_timeout_s = -1\n{SERVERS}', ("hold_timeout_s:", "greater than 0")),
    "no finite time": (f'root = "/r"\nhold_timeout_s = nan\n{SERVERS}', ("hold_timeout_s:", "finite number")),
    "endless time": (f'root = "/r"\nhold_timeout_s = inf\n{SERVERS}', ("hold_timeout_s:",)),
    "bad choice": (f'root = "/r"\ndrain = "fast"\n{SERVERS}', ("drain:", "'overlapped' or 'policies_first'")),
    "restart": (f'root = "/r"\nstraggler_policy = "restart"\n{SERVERS}', ("needs straggler_after_s",)),
    "a signal that is none": (
        f'root = "/r"\ngrace_s = 9.0\nlast_cut_signals = ["SIGKILL"]\n{SERVERS}',
        ("last_cut_signals", "'SIGTERM' or 'SIGUSR1'"),
    ),
    "a label that is a path": (f'root = "/r"\nlast_cut_label = "../x"\n{SERVERS}', ("last_cut_label",)),
    "straggler after the deadline": (
        f'root = "/r"\nreach_timeout_s = 10\nstraggler_after_s = 10\n{SERVERS}',
        ("straggler_after_s must be shorter than reach_timeout_s",),
    ),
    "no deployment": ('root = "/r"\n', ("no servers are named", "[deployment.main]")),
    "empty deployment": ('root = "/r"\n[deployment.main]\nparticipants = []\n', ("names no server",)),
    "deployments that differ in case": (
        f'root = "/r"\n{SERVERS}{SERVERS.replace("main", "Main")}',
        ("differ in case only",),
    ),
    "deployment that is a path": (with_servers(".main", '."../x"'), ("deployment:", "'../x'")),
    "server that is a path": (with_servers('"a"', '"../x"'), ("participants[0].name:", "'../x'")),
    "server that is no table": ('root = "/r"\n[deployment.main]\nparticipants = [7]\n', ("[0]: must be a table",)),
    "nobody named": (
        'root = "/r"\n[deployment.main]\n',
        ("deployment.main: names no server", "participants", "gym_config", "gym_head"),
    ),
    "servers named twice": (
        f'root = "/r"\n{SERVERS}gym_config = "x.yaml"\n',
        ("deployment.main: names its servers in 2 ways (participants, gym_config)",),
    ),
    "servers named in three ways": (
        f'root = "/r"\n{SERVERS}gym_config = "x.yaml"\ngym_head = "http://h:1"\n',
        ("names its servers in 3 ways (participants, gym_config, gym_head)",),
    ),
    "an empty list beside a file": (
        'root = "/r"\n[deployment.main]\nparticipants = []\ngym_config = "x.yaml"\n',
        ("participants:", "names no server"),
    ),
    "head server without scheme": (
        'root = "/r"\n[deployment.main]\ngym_head = "10.0.0.2:11000"\n',
        ("deployment.main.gym_head:", "http:// or https://"),
    ),
    "head server that is a wildcard": (
        'root = "/r"\n[deployment.main]\ngym_head = "http://0.0.0.0:11000"\n',
        ("deployment.main.gym_head:", "an address that a server binds"),
    ),
    "head server that is the other wildcard": (
        'root = "/r"\n[deployment.main]\ngym_head = "http://[::]:11000"\n',
        ("deployment.main.gym_head:", "an address that a server binds"),
    ),
    "empty gym file": (
        'root = "/r"\n[deployment.main]\ngym_config = ""\n',
        ("deployment.main.gym_config:", "is empty"),
    ),
    "gym file with a tilde": (
        'root = "/r"\n[deployment.main]\ngym_config = "~/x.yaml"\n',
        ("deployment.main.gym_config:", "write the path out"),
    ),
    "gym file that is a number": ('root = "/r"\n[deployment.main]\ngym_config = 7\n', ("deployment.main.gym_config:",)),
    "role": (with_servers(" }", ', role = "judge" }'), ("role:", "'auxiliary'")),
    "no TOML": ("root = \n", ("q.toml: is not valid TOML", "line 1")),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_bad_file_is_refused_with_place_and_remedy(name: str) -> None:
    """The refusal names the file, the key and what to do."""
    text, fragments = REFUSALS[name]
    message = refused(text)
    assert "q.toml" in message
    for fragment in fragments:
        assert fragment in message


@pytest.mark.parametrize(
    ("url", "fragment"),
    [
        ("10.0.0.5:8000", "http:// or https://"),
        ("ftp://h", "http:// or https://"),
        ("http://", "must name a host"),
        ("http://h:0", "port above 0"),
        ("http://h:99999", "is no URL"),
        ("http://h:1x", "is no URL"),
        ("http://h/?q=1", "no query and no fragment"),
        ("http://h/#x", "no query and no fragment"),
        ("http://h/a b", "a blank"),
        ("http://h/\\u0007", "not printable"),
        ("http://h\\u00e9", "not printable ASCII"),
        ("http://" + "h" * 2100, "longer than 2048"),
    ],
)
def test_a_bad_url_is_refused(url: str, fragment: str) -> None:
    """A URL that no control route can be appended to is named with what is wrong."""
    message = refused(with_servers("http://h:1", url))
    assert "deployment.main.participants[0].url:" in message
    assert fragment in message


def test_no_refusal_repeats_a_secret() -> None:
    """Credentials in a URL, a token in the place of a variable's name or under an unknown key are not repeated."""
    text = (
        'root = "/r"\ntoken = "s3cret-a"\ntoken_variable = "s3cret-b"\nproxy = "http://u:s3cret-c@p"\n'
        + SERVERS.replace("http://h:1", "http://user:s3cret-d@h:1")
    )
    with pytest.raises(ConfigurationProblems) as caught:
        parse(text)
    assert len(caught.value.problems) == 4
    assert "s3cret" not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("variable", "text", "fragment"),
    [
        ("QUIESCE_REACH_TIMEOUT_S", "soon", "environment variable QUIESCE_REACH_TIMEOUT_S: 'soon' is not a number"),
        ("QUIESCE_REACH_TIMEOUT_S", "-1", "environment variable QUIESCE_REACH_TIMEOUT_S: must be greater than 0"),
        ("QUIESCE_ENABLED", "maybe", "'maybe' is neither true nor false"),
        ("QUIESCE_REACH_TIMEOUT", "12", "did you mean QUIESCE_REACH_TIMEOUT_S?"),
        ("QUIESCE_DRAIN", "fast", "environment variable QUIESCE_DRAIN: must be 'overlapped'"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(variable: str, text: str, fragment: str) -> None:
    """What came from the environment is blamed on the variable, never on the file."""
    assert fragment in refused(WHOLE, {variable: text})


def test_every_problem_is_reported_at_once() -> None:
    """Two mistakes are two numbered sentences, so that one correction round is enough."""
    with pytest.raises(ConfigurationProblems) as caught:
        parse('root = "/r"\nhold_timeout_s = 0\ndrain = 3\n' + SERVERS, {"QUIESCE_ENABLED": "?"})
    assert len(caught.value.problems) == 3
    assert "has 3 problems:\n  1. " in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    """The refusal names the path and the option by which another one is named."""
    with pytest.raises(ConfigurationError, match=r"missing\.toml: cannot be read: .*--config"):
        load_config(tmp_path / "missing.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'root = "\xe9"\n')
    with pytest.raises(ConfigurationError, match="not UTF-8 text"):
        load_config(tmp_path / "latin.toml")
    (tmp_path / "huge.toml").write_bytes(b"#" * (4 * 2**20 + 1))
    with pytest.raises(ConfigurationError, match="larger than 4 MiB"):
        load_config(tmp_path / "huge.toml")


def test_a_configuration_made_in_code_has_the_same_rules() -> None:
    """A relative root and too many servers are refused there too."""
    with pytest.raises(ValidationError, match="must be an absolute path"):
        Config(root=Path("run"), enabled=False)
    one = ParticipantConfig(name="a", url="http://h:1")
    with pytest.raises(ValidationError, match="at most 20000 are supported"):
        DeploymentConfig(participants=(one,) * 20_001)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in another way than its own error, and none of these names a server."""
    with pytest.raises(ConfigurationError, match=r"q\.toml"):
        parse(text)


def test_what_is_public_is_described() -> None:
    """Every key has a description: refusals quote it."""
    for model in (Config, DeploymentConfig, ParticipantConfig):
        for name, field in model.model_fields.items():
            assert field.description, name


def test_a_problem_is_told_once() -> None:
    """Several words of one variable that are wrong in the same way: what is to be mended is one thing."""
    environment = {"QUIESCE_LAST_CUT_SIGNALS": '["SIGHUP", "SIGINT"]'}
    with pytest.raises(ConfigurationProblems) as caught:
        parse(f'root = "/r"\n{SERVERS}', environment)
    (problem,) = caught.value.problems
    assert "QUIESCE_LAST_CUT_SIGNALS" in problem
