"""What a user can get wrong: each is named, with what to do, before anybody is called and without a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import Command, last_object

from quiesce.participants.control_token import TOKEN_VARIABLES

CLOSED = "http://127.0.0.1:1"
CONFIG = f'root = "root"\n[deployment.main]\nparticipants = [{{ name = "policy_model", url = "{CLOSED}" }}]\n'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration in which nobody is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quiesce.toml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["checkpoint", "--label", "../x"], "label: '../x' must begin with a letter or digit"),
        (["checkpoint", "--label", "latest"], "'latest' is reserved"),
        (["checkpoint", "--label", ""], "label: is empty"),
        (["checkpoint", "--label", "a" * 129], "has 129 characters; at most 90"),
        (["checkpoint", "--metadata", "[1]"], "must be a JSON object"),
        (["checkpoint", "--metadata", "{"], "--metadata is no JSON"),
        (["checkpoint", "--config", "none.toml"], "none.toml: cannot be read"),
        (["restore", "../x"], "snapshot: '../x' must begin"),
        (["restore", ""], "snapshot: is empty"),
        (["restore", "a" * 129], "has 129 characters"),
        (["verify", "../x"], "snapshot: '../x' must begin"),
        (["verify", "x", "--config", "none.toml"], "none.toml: cannot be read"),
        (["serve", "agent"], "say where it is: --upstream policy=URL"),
        (["serve", "policy", "--upstream", "judge=http://a"], "write it as ROLE=URL"),
        (["serve", "policy", "--upstream", "auxiliary=ftp://a"], "is no http(s) URL"),
        (["serve", "policy", "--upstream", "auxiliary=http://[a"], "is no http(s) URL"),
        (["serve", "policy", "--upstream", "agent=http://a"], "calls no agent server"),
        (["serve", "policy", "--upstream=auxiliary=http://a", "--upstream=auxiliary=http://b"], "calls one"),
        (["serve", "policy", "--expect-restore"], "only a resource server can expect a restore"),
        (["serve", "resources", "--ledger", "x"], "only a policy keeps a ledger"),
        (["serve", "policy", "--token-variable", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE is not set"),
        (["serve", "policy", "--name", "../x"], "'../x' must begin"),
        (["serve", "judge"], "judge"),
        (["serve", "auxiliary", "--fence", "gym_a_coordinator"], "only a policy has a coordinator"),
        (["serve", "policy", "--workers", "2"], "2 workers need a coordinator"),
        (["serve", "policy", "--fence", "gym_a_coordinator", "--workers", "0"], "--workers"),
        (["demo", "--fence", "gym_a_coordinator"], "gym_a_coordinator"),
        (["demo", "--rollouts", "3"], "12"),
        (["demo", "--dir", "."], "is not empty; name an empty or a new folder"),
        (["demo", "--dir", "quiesce.toml/x"], "cannot be used"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_wrong_usage_is_exit_two(quiesce: Command, arguments: list[str], says: str, place: Path) -> None:
    """It says what is wrong on standard error, without a traceback, prints no result, and leaves no file."""
    result = quiesce(*arguments)
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert [path.name for path in place.iterdir()] == ["quiesce.toml"]


def test_a_restore_that_nobody_could_command_is_exit_two(quiesce: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource server that expects a restore refuses to start without a token."""
    monkeypatch.delenv(TOKEN_VARIABLES[0])
    result = quiesce("serve", "resources", "--expect-restore")
    assert result.exit_code == 2
    assert "expects a restore" in result.stderr


def test_every_problem_of_a_configuration_is_named(quiesce: Command, place: Path) -> None:
    """Unknown keys are named with their place and, where one is near, the key that was meant."""
    (place / "bad.toml").write_text('rooot = "x"\n' + CONFIG.replace("url", "ulr"))
    result = quiesce("discover", "--config", "bad.toml", "--json")
    assert result.exit_code == 2
    assert "did you mean 'root'?" in result.stderr
    assert "did you mean 'url'?" in result.stderr
    found = last_object(result)
    assert (found["ok"], found["type"]) == (False, "ConfigurationProblems")
    assert found["error"] in result.stderr


@pytest.mark.parametrize("command", ["discover", "checkpoint"])
def test_a_server_that_is_not_there_is_exit_one(quiesce: Command, command: str) -> None:
    """Nothing was done and everybody accepts work: the participant is named, and what to look at."""
    result = quiesce(command, "--json")
    assert result.exit_code == 1
    assert "nobody was paused" in result.stderr
    (problem,) = last_object(result)["problems"]
    assert problem.startswith("main/policy_model gave no answer")
    assert "check that the server runs" in problem


@pytest.mark.parametrize("command", ["restore", "verify"])
def test_a_snapshot_that_is_not_there_is_exit_one(quiesce: Command, command: str) -> None:
    """It is looked for before any participant is called."""
    result = quiesce(command, "step-40", "--json")
    assert result.exit_code == 1
    assert "there is no snapshot in" in result.stderr
    assert last_object(result)["type"] == "SnapshotInvalid"


def test_a_root_below_a_file_is_no_proof(quiesce: Command, place: Path) -> None:
    """A root that cannot be made is named with the reason and the remedy; whom it may hold is not known, as ever."""
    (place / "file").touch()
    (place / "quiesce.toml").write_text(CONFIG.replace('"root"', '"file/below"', 1))
    result = quiesce("checkpoint", "--json")
    assert result.exit_code == 3
    assert "whether somebody is held is not known" in result.stderr
    assert "is a file, not a directory" in result.stderr
    assert "choose another root" in result.stderr
    assert last_object(result)["type"] == "StorageFailed"


def test_a_disabled_configuration_calls_nobody(quiesce: Command, place: Path) -> None:
    """With ``enabled = false`` discover says so, and a checkpoint publishes the trainer's part alone."""
    (place / "quiesce.toml").write_text("enabled = false\n" + CONFIG)
    assert "not enabled" in quiesce("discover").stdout
    result = quiesce("checkpoint", "--label", "alone", "--json")
    assert result.exit_code == 0
    assert last_object(result)["rollouts"] == []
    assert quiesce("verify", "alone").exit_code == 0


@pytest.mark.parametrize("token", ["a b", "a\n", "\u00e4"])
@pytest.mark.parametrize("arguments", [["discover"], ["checkpoint"]], ids=" ".join)
def test_a_token_that_is_none_is_refused_before_anybody_is_asked(
    quiesce: Command, arguments: list[str], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong usage, and the variable is named; its value is not."""
    monkeypatch.setenv(TOKEN_VARIABLES[0], token)
    result = quiesce(*arguments, "--json")
    assert result.exit_code == 2
    assert f"the token in the variable {TOKEN_VARIABLES[0]} contains" in last_object(result)["error"]
    assert repr(token)[1:-1] not in result.output


def test_where_no_token_is_set_that_is_said(quiesce: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what the participants answered: everybody refuses, and the reason is here."""
    for variable in TOKEN_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    result = quiesce("discover", "--json")
    assert result.exit_code != 0
    assert any("there is no control token here: set" in note for note in last_object(result)["notes"])
