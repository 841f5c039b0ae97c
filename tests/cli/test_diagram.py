"""``quiesce diagram`` as a user meets it: output, errors and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from support.mermaid import read_picture
from typer.testing import CliRunner, Result

from quiesce.cli.diagram import register
from quiesce.diagrams import sheets


def run(*arguments: str) -> Result:
    """The command in an application of its own."""
    app = typer.Typer()
    app.callback()(lambda: None)  # with one command only, typer would drop its name
    register(app)
    return CliRunner().invoke(app, ["diagram", *arguments])


def last_object(result: Result) -> dict[str, object]:
    """The JSON object on the last line of standard output."""
    found = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_without_a_machine_all_are_named() -> None:
    """Every machine stands on a line of its own, with what it is."""
    result = run()
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [sheet.name for sheet in sheets()]
    machines = last_object(run("--json"))["machines"]
    assert isinstance(machines, list)
    assert [machine["name"] for machine in machines] == [sheet.name for sheet in sheets()]


def test_a_machine_is_drawn() -> None:
    """The picture is printed alone, so that it can be piped into a file."""
    result = run("TRANSACTION")
    assert result.exit_code == 0
    assert "committed" in read_picture(result.stdout).titles


def test_a_machine_is_listed() -> None:
    """In Markdown the picture and the tables are printed."""
    result = run("phases", "--format", "markdown")
    assert result.exit_code == 0
    assert result.stdout.startswith("# phases")
    assert last_object(run("release", "--format", "markdown", "--json"))["format"] == "markdown"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("transacton",), "did you mean transaction"),
        (("phases",), "--format markdown"),
        (("--check", "release"), "leave out MACHINE"),
        (("--format", "markdown"), "needs a MACHINE"),
        (("--check", "--output", "no/such/folder"), "there is no folder no/such/folder"),
        (("--format", "svg", "release"), "svg"),
    ],
)
def test_wrong_usage_is_exit_two(arguments: tuple[str, ...], says: str) -> None:
    """Each wrong use says what is wrong on standard error, prints no result, and exits 2."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_a_stale_folder_is_exit_one(tmp_path: Path) -> None:
    """The check passes right after writing; then it names each stale file, what to run, and exits 1."""
    folder = str(tmp_path)
    assert run("--output", folder).exit_code == 0
    assert run("--check", "--output", folder).exit_code == 0
    (tmp_path / "release.md").write_text("old")
    result = run("--check", "--output", folder, "--json")
    assert result.exit_code == 1
    assert "stale: release.md" in result.stderr
    assert f"quiesce diagram --output {folder}" in result.stderr
    found = last_object(result)
    assert (found["ok"], found["differences"]) == (False, {"release.md": "stale"})


def test_a_folder_that_cannot_be_written_is_exit_one(tmp_path: Path) -> None:
    """A folder whose parent is a file is an error with its reason, not a traceback."""
    (tmp_path / "file").write_text("")
    result = run("--output", str(tmp_path / "file" / "below"))
    assert result.exit_code == 1
    assert "cannot write" in result.stderr
    assert "Not a directory" in result.stderr


def test_json_of_a_write_names_the_files(tmp_path: Path) -> None:
    """Writing reports the folder and what was written."""
    found = last_object(run("--output", str(tmp_path), "--json"))
    assert found["ok"] is True
    assert found["files"] == sorted(path.name for path in tmp_path.iterdir())
