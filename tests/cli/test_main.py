"""The command as a whole: its help, its version, and that every command is there."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.command import Command

from quiesce.cli.main import COMMANDS


def test_the_help_names_every_command(quiesce: Command) -> None:
    """Each command stands in the help with what it does."""
    result = quiesce("--help")
    assert result.exit_code == 0
    assert [name for name in COMMANDS if f"  {name} " not in result.stdout] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(quiesce: Command, name: str) -> None:
    """Each command can be imported, says how it is used, and takes ``--json`` unless it speaks JSON anyway."""
    result = quiesce(name, "--help")
    assert result.exit_code == 0
    assert ("--json" in result.stdout) is (name != "serve")


@pytest.mark.parametrize("words", [("trace", "x", "--format", "svg"), ("diagram", "transaction", "--format", "jpeg")])
def test_a_value_that_there_is_not_is_refused_in_plain_words(quiesce: Command, words: tuple[str, ...]) -> None:
    """The option, what was given and what there is to choose from; no word of the library that has looked at it."""
    result = quiesce(*words)
    assert result.exit_code == 2
    assert f"Invalid value for '--format': '{words[-1]}' is not one of" in result.stderr


def test_the_version_is_told(quiesce: Command) -> None:
    """The version needs no command."""
    result = quiesce("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("quiesce ")


def test_only_what_is_asked_for_is_imported() -> None:
    """Drawing a diagram loads neither the controller nor a network library."""
    program = (
        "import sys; from quiesce.cli.main import app; app(['diagram'], standalone_mode=False);"
        "assert not {'aiohttp', 'httpx', 'quiesce.controller'} & set(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "transaction" in found.stdout
