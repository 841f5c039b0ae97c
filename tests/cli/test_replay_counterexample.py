"""Counterexamples at the command line: written by ``quiesce check``, told, drawn and printed by ``quiesce replay``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from support.command import call, last_object
from support.counterexamples import counterexample_of
from typer.main import get_command
from typer.testing import CliRunner, Result

from quiesce.cli import check, main, replay_counterexample, replay_options
from quiesce.cli.output import ExitCode
from quiesce.cli.replay_options import Way, unfit
from quiesce.fsm import explore_changes
from quiesce.fsm.explore import Kind
from quiesce.fsm.explore_changes import tables_digest
from quiesce.fsm.explore_suites import suite
from quiesce.fuzz.counterexample import Claimed, Explored, counterexample_text, parse_counterexample
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


@pytest.mark.parametrize(
    ("bug", "word", "on_stack"),
    [
        (BUG, r"no longer violated", False),
        (
            "an export is not waited for",
            r"no longer violated: action 16, 'asked to PublishRequested', is not possible there; possible are: .*",
            None,
        ),
    ],
)
def test_after_the_tables_were_mended_it_is_told_that_it_happens_no_more(
    monkeypatch: pytest.MonkeyPatch, bug: str, word: str, *, on_stack: bool | None
) -> None:
    """The same actions on the present tables: refused by name, or nothing is violated by them; exit 0."""
    monkeypatch.setattr(explore_changes, "_declarations", lambda: iter(["what they were"]))
    sound = counterexample_of(bug).model_copy(update={"changes": ()})
    content = counterexample_text(sound.model_copy(update={"tables": tables_digest()}))
    monkeypatch.undo()
    result = replayed(content.encode())
    assert result.exit_code == ExitCode.WORKED, result.output
    assert "found with other tables" in result.stdout
    assert re.search(rf"^table engine: {word}$", result.stdout, re.MULTILINE)
    assert re.search(rf"^transitions engine: {word}$", result.stdout, re.MULTILINE)
    assert f"whether it happens in another way: quiesce check --only '{sound.setup.name}'\n" in result.stdout
    assert "\nas it was found:\n\nsequenceDiagram\n" in result.stdout
    told = last_object(replayed(content.encode(), as_json=True))
    assert (told["ok"], told["same_tables"]) == (True, False)
    assert [replay["shown"] for replay in told["replays"]] == [False, False, on_stack]


@pytest.mark.parametrize(
    ("times", "participants", "pairs", "options"),
    [(1, 2, True, "--pairs"), (2, 2, False, "--times 2"), (1, 3, False, "--participants 3")],
)
def test_the_search_that_is_named_is_the_one_that_it_comes_from(
    times: int, participants: int, *, pairs: bool, options: str
) -> None:
    """With the options that it takes: without them no search has that name."""
    setup = suite("strict", times, participants=participants, pairs=pairs)[-1]
    found = counterexample_of(BUG).model_copy(update={"changes": (), "setup": Explored.of(setup)})
    assert replay_counterexample._search_of(found) == f"quiesce check --only '{setup.name}' {options}"


def test_tables_that_still_do_it_are_told_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the tables were changed elsewhere makes it no better: VIOLATED again, and exit 1."""
    monkeypatch.setattr(explore_changes, "_declarations", lambda: iter(["what they are now"]))
    result = replayed(counterexample_text(counterexample_of(BUG)).encode())
    assert result.exit_code == ExitCode.FAILED
    assert "found with other tables" in result.stdout
    assert "table engine: VIOLATED again" in result.stdout


def test_a_property_whose_name_says_what_it_means_says_it_once() -> None:
    """In the text and in the picture."""
    name = "everybody can accept work again, or is named"
    claim = Claimed(kind=Kind.RECOVERABLE, name=name, meaning=name)
    content = counterexample_text(counterexample_of(BUG).model_copy(update={"claim": claim})).encode()
    for options in ({}, {"as_mermaid": True}):
        lines = replayed(content, **options).stdout.replace("<br/>", " ").splitlines()
        assert any(name in line for line in lines)
        assert all(line.count(name) <= 1 for line in lines)


# what an option has an effect on


def test_every_parameter_of_the_command_stands_in_the_table() -> None:
    """One that is added has to say what it fits."""
    command = get_command(main.app).get_command(None, "replay")  # type: ignore[attr-defined]  # a group
    assert {parameter.name for parameter in command.params} - {"file", "help"} == set(replay_options.FITS)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("name", replay_options.FITS)
def test_an_option_without_effect_is_refused(name: str, way: Way, tmp_path: Path) -> None:
    """Before anything is replayed, by name and with what it is for."""
    written, ways = replay_options.FITS[name]
    counterexample, fuzzed = tmp_path / "check.json", tmp_path / "fuzz.json"
    counterexample.write_text(counterexample_text(counterexample_of(BUG)), encoding="utf-8")
    fuzzed.write_text('{"kind": "quiesce.fuzz", "schema_version": 1}', encoding="utf-8")
    given = {"url": "http://127.0.0.1:9", "fence": "strict", "traffic": "kit", "checkpoint_dir": str(tmp_path)}
    option = [] if name == "url" else [written, *([given[name]] if name in given else [])]
    option += ["QUIESCE_TOKEN"] if name == "token_variable" else []
    url = [given["url"]] if name == "url" or way is Way.AT_URL else []
    file = counterexample if way is Way.COUNTEREXAMPLE else fuzzed
    if (name == "url" and way is Way.IN_PROCESS) or (name == "as_pytest" and way is Way.COUNTEREXAMPLE):
        return  # a URL makes another way of it; a test is printed (above)
    result = call("replay", str(file), *url, *option)
    refused = f"{written} has no effect on {way.value}" in result.output
    assert refused is (way not in ways), result.output
    if refused:
        assert result.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("pair", [("--pytest", "--json"), ("--mermaid", "--json"), ("--pytest", "--mermaid")])
def test_each_prints_one_thing_and_nothing_else(pair: tuple[str, str], tmp_path: Path) -> None:
    """Two of them cannot both be meant."""
    file = tmp_path / "check.json"
    file.write_text(counterexample_text(counterexample_of(BUG)), encoding="utf-8")
    result = call("replay", str(file), *pair)
    assert result.exit_code == ExitCode.USAGE
    assert "exclude each other" in result.output
    assert unfit({"allow_restore", "url"}, Way.AT_URL).startswith("--allow-restore needs --checkpoint-dir")
    assert unfit({"allow_restore", "checkpoint_dir", "url", "as_json"}, Way.AT_URL) == ""


@pytest.mark.parametrize("bug", [BUG, "a lost close is taken for one that never left"])
def test_what_a_replayed_controller_logs_is_not_told(bug: str, tmp_path: Path) -> None:
    """It is no news of any deployment: standard error stays empty."""
    file = tmp_path / "check.json"
    file.write_text(counterexample_text(counterexample_of(bug)), encoding="utf-8")
    result = call("replay", str(file))
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr == ""


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
