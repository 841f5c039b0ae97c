"""Counterexamples at the command line: written by ``quiesce check``, told, drawn and printed by ``quiesce replay``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from support.command import last_object
from support.counterexamples import counterexample_of
from typer.testing import CliRunner, Result

from quiesce.cli import check, replay_counterexample
from quiesce.cli.output import ExitCode
from quiesce.fsm.explore_suites import suite
from quiesce.fuzz.counterexample import counterexample_text, parse_counterexample
from quiesce.fuzz.errors import ReplayInvalid

BUG = "a resume that is refused from idle is taken for success"
FIRST = suite("strict")[0]


def checked(monkeypatch: pytest.MonkeyPatch, *arguments: str, expects: tuple[str, ...]) -> Result:
    """``quiesce check`` of one set-up that must reach ``expects``."""
    setup = replace(FIRST, expects=expects)
    monkeypatch.setattr(check, "suite", lambda _name, _times, **_fleets: (setup,))
    app = typer.Typer()
    app.callback()(lambda: None)
    check.register(app)
    return CliRunner().invoke(app, ["check", "--variant", "strict", *arguments])


def replayed(content: bytes, **options: bool) -> Result:
    """The replay of a file's content, in an application of its own."""
    app = typer.Typer()
    app.command()(lambda: replay_counterexample.replay_counterexample(content, "mine.json", **options))
    return CliRunner().invoke(app, [])


def test_a_violation_is_told_on_every_engine_and_drawn() -> None:
    """The actions, what each of the three replays came to, and the sequence diagram; exit 1."""
    found = counterexample_of(BUG)
    result = replayed(counterexample_text(found).encode())
    assert result.exit_code == ExitCode.FAILED
    lines = result.stdout.splitlines()
    assert "table engine: VIOLATED again" in lines
    assert "transitions engine: VIOLATED again" in lines
    assert (
        f"real stack in process, virtual time: stands where the tables stand after each of {len(found.actions)} "
        "actions: VIOLATED again"
    ) in lines
    assert "sequenceDiagram" in lines
    assert any(line.startswith("changed: RELEASE: releasing --wrong_phase--> inspecting") for line in lines)
    assert all(f"  {number:3}. {action}" in lines for number, action in enumerate(found.actions, start=1))


def test_the_same_in_json() -> None:
    """One object on the last line, and the exit code with it."""
    found = counterexample_of(BUG)
    result = replayed(counterexample_text(found).encode(), as_json=True)
    told: dict[str, Any] = last_object(result)
    assert result.exit_code == ExitCode.FAILED
    assert told["ok"] is False
    assert [replay["shown"] for replay in told["replays"]] == [True, True, True]
    assert told["claim"]["name"] == "settled_is_open"
    assert told["mermaid"].startswith("sequenceDiagram\n")


def test_a_test_and_a_picture_alone() -> None:
    """With --pytest and --mermaid nothing else is printed, and printing is success."""
    content = counterexample_text(counterexample_of(BUG)).encode()
    printed = replayed(content, as_pytest=True)
    assert printed.exit_code == ExitCode.WORKED
    compile(printed.stdout, "test_made.py", "exec")
    drawn = replayed(content, as_mermaid=True)
    assert drawn.exit_code == ExitCode.WORKED
    assert drawn.stdout.startswith("sequenceDiagram\n")


@pytest.mark.parametrize(("content", "reason"), [(b"\xff", "no UTF-8 text"), (b"{}", r"line 1: schema_version")])
def test_what_is_no_counterexample_is_refused(content: bytes, reason: str) -> None:
    """A file that cannot be used is refused by name and place, and nothing is replayed."""
    result = replayed(content)
    assert isinstance(result.exception, ReplayInvalid)
    assert result.exception.source == "mine.json"
    with pytest.raises(ReplayInvalid, match=rf"mine\.json: .*{reason}"):
        raise result.exception


def test_a_check_writes_what_it_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Witnesses are written if asked for, into a folder that is made; each is a file that a replay takes."""
    folder = tmp_path / "new" / "folder"
    arguments = ("--counterexample-dir", str(folder), "--witnesses")
    result = checked(monkeypatch, *arguments, expects=("resumed", "aborted"))
    assert result.exit_code == ExitCode.WORKED
    files = sorted(folder.iterdir())
    assert [file.name.split("--")[1] for file in files] == ["aborted.json", "resumed.json"]
    for file in files:
        assert f"  written: {file}" in result.stdout
        assert parse_counterexample(file.read_text(encoding="utf-8"), str(file)).is_witness
        again = replayed(file.read_bytes())
        assert again.exit_code == ExitCode.WORKED
        assert "table engine: seen again" in again.stdout


def test_a_check_without_violations_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where all holds there is no counterexample in the folder."""
    folder = tmp_path / "none"
    result = checked(monkeypatch, "--counterexample-dir", str(folder), expects=("resumed",))
    assert result.exit_code == ExitCode.WORKED
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What cannot be written, and witnesses without a place for them, are wrong usage."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    arguments = ("--counterexample-dir", str(tmp_path / "file"), "--witnesses")
    result = checked(monkeypatch, *arguments, expects=("resumed",))
    assert result.exit_code == ExitCode.USAGE
    assert "cannot write" in result.stderr
    result = checked(monkeypatch, "--witnesses", expects=("resumed",))
    assert result.exit_code == ExitCode.USAGE
    assert "--witnesses needs --counterexample-dir" in result.stderr
