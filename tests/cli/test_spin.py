"""Spin from the command line: what it is run on, how its word is read, and what is said where it is missing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from support.pinned_states import PINNED
from support.spin import needs_spin
from typer.testing import CliRunner, Result

from quiesce.cli import check, promela, spin
from quiesce.cli.spin import SpinFailed, SpinMissing, SpinRun, differences, run_spin
from quiesce.fsm.explore import Exploration, Kind, Verdict
from quiesce.fsm.explore_model import Setup
from quiesce.fsm.explore_suites import suite

SMALL = next(setup for setup in suite("strict") if setup.name.endswith("agent (strict), restore, no fault"))
TOLD = """\
pan:1: assertion violated closed_is_known (at depth 6)
pan:2: assertion violated never_resumed (at depth 28)
pan:7: assertion violated closed_is_known (at depth 5)
pan:9: invalid end state (at depth 11)

State-vector 20 byte, depth reached 31, errors: 9
     1018 states, stored
     1811 states, matched
     2829 transitions (= stored+matched)
        0 atomic steps

Stats on memory usage (in Megabytes):
    0.054\tequivalent memory usage for states (stored*(State-vector + overhead))
    0.262\tactual memory usage for states
"""
FOUND = Exploration(
    "made up",
    states=1018,
    transitions=2828,
    depth=30,
    complete=True,
    verdicts=(
        Verdict("closed_is_known", Kind.ALWAYS, holds=False, trace=("a",) * 6),
        Verdict("settled_is_open", Kind.ALWAYS, holds=True),
        Verdict("every state that may not rest has a step", Kind.NO_DEADLOCK, holds=True),
        Verdict("everybody can accept work again, or is named", Kind.RECOVERABLE, holds=False, trace=("a",)),
        Verdict("resumed", Kind.SOMETIMES, holds=True, trace=("a",) * 29),
        Verdict("healed", Kind.SOMETIMES, holds=False),
    ),
)
RUN = SpinRun(1018, 2828, 31, {"closed_is_known": 6, "never_resumed": 29}, 0.01, 262_000.0)


def run(*arguments: str) -> Result:
    """The command in an application of its own."""
    app = typer.Typer()
    app.callback()(lambda: None)  # with one command only, typer would drop its name
    check.register(app)
    return CliRunner().invoke(app, ["check", *arguments])


def last_object(result: Result) -> dict[str, Any]:
    """The JSON object on the last line of standard output."""
    found = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def search_only(monkeypatch: pytest.MonkeyPatch, *setups: Setup) -> None:
    """Let every suite be these set-ups."""
    monkeypatch.setattr(check, "suite", lambda _name, _times, **_fleets: setups)


# what Spin says


def test_the_word_of_spin_is_read() -> None:
    """Counts, the transition of the beginning left out, and the shortest trail of each violation, are taken from it."""
    read = spin._read(TOLD, 0.01, complete=True)
    violated = {"closed_is_known": 6, "never_resumed": 29, "invalid end state": 12}
    assert read == SpinRun(1018, 2828, 31, violated, 0.01, 262_000.0)


@pytest.mark.parametrize(
    "told",
    [
        "",
        TOLD.replace("states, stored", "things"),
        f"error: max search depth too small\n{TOLD}",
        f"{TOLD}out of memory\n",
    ],
)
def test_a_search_of_spin_that_was_cut_short_is_no_search(told: str) -> None:
    """Output without counts, or of a search that hit a bound, is an error with what Spin said."""
    with pytest.raises(SpinFailed, match="did not search to the end"):
        spin._read(told, 0.01, complete=True)


def test_those_who_agree_have_no_differences() -> None:
    """Equal counts and verdicts are agreement, though recoverable is the explorer's alone."""
    assert differences(FOUND, RUN) == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"states": 1017}, "the explorer has 1,018 states, Spin 1,017"),
        ({"transitions": 2829}, "the explorer has 2,828 transitions, Spin 2,829"),
        ({"violated": {"never_resumed": 29}}, "closed_is_known: violated by the explorer; Spin keeps closed_is_known"),
        ({"violated": {**RUN.violated, "settled_is_open": 9}}, "Spin violates settled_is_open"),
        ({"violated": {**RUN.violated, "no_deadlock": 9}}, "Spin violates no_deadlock"),
        ({"violated": {"closed_is_known": 6}}, "resumed: holds by the explorer; Spin keeps never_resumed"),
        ({"violated": {**RUN.violated, "never_healed": 9}}, "healed: violated by the explorer; Spin violates"),
        ({"violated": {**RUN.violated, "closed_is_known": 5}}, "trail has 5 steps, the explorer's shortest 6"),
        (
            {"violated": {**RUN.violated, "enumerated": 9}},
            "Spin violates enumerated, of which the explorer knows nothing",
        ),
    ],
)
def test_every_disagreement_is_told(changed: dict[str, Any], said: str) -> None:
    """A count, a verdict, a shorter trail or an assertion of Spin's own that differs is told, and nothing else."""
    (difference,) = differences(FOUND, replace(RUN, **changed))
    assert said in difference


# running it


def test_what_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Spin or a compiler the error names both, and the Debian packages; nothing is written."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(SpinMissing, match="spin and gcc not found; on Debian: apt-get install spin gcc"):
        run_spin("", tmp_path)
    assert list(tmp_path.iterdir()) == []


@needs_spin
def test_what_is_no_promela_is_refused_by_spin(tmp_path: Path) -> None:
    """A text that Spin cannot read is an error with the words of Spin itself."""
    with pytest.raises(SpinFailed, match=r"spin exited with \d+: .*Error: "):
        run_spin("active proctype a() { nonsense nonsense }\n", tmp_path)


@needs_spin
def test_spin_is_given_a_limited_time(tmp_path: Path) -> None:
    """A program that takes longer than it may is ended, and that is said."""
    with pytest.raises(SpinFailed, match=r"took longer than 0\.0001 s"):
        run_spin("active proctype a() { skip }\n", tmp_path, timeout_s=0.0001)


# the command


def test_without_spin_the_command_says_so_and_searches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--spin`` without Spin is wrong use: exit 2, the packages, and that the proof needs neither."""
    search_only(monkeypatch, SMALL)
    monkeypatch.setattr(check, "missing_programs", lambda: ("spin",))
    result = run("--variant", "strict", "--spin", "--json")
    assert result.exit_code == 2
    assert "--spin needs spin (Debian: apt-get install spin)" in result.stderr
    assert last_object(result)["ok"] is False
    assert "searches" not in last_object(result)


def test_words_that_no_search_has_are_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--only`` chooses by name; what chooses nothing proves nothing, and exits 2."""
    search_only(monkeypatch, SMALL)
    result = run("--variant", "strict", "--only", "no such words")
    assert result.exit_code == 2
    assert "no search has 'no such words' in its name" in result.stderr
    assert len(last_object(run("--variant", "strict", "--only", "no fault", "--json"))["searches"]) == 1


def test_models_are_written_with_a_page_that_explains_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each search is a file, and the page names it with its counts and says how Spin is run; the bytes are stable."""
    search_only(monkeypatch, SMALL)
    folder = tmp_path / "new" / "models"
    result = run("--variant", "strict", "--promela", str(folder), "--json")
    assert result.exit_code == 0, result.output
    (search,) = last_object(result)["searches"]
    model = Path(search["model"])
    assert sorted(folder.iterdir()) == [folder / "README.md", model]
    states, transitions, _ = PINNED[SMALL.name]
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert f"| [{model.name}]({model.name}) | {SMALL.name} | {states} | {transitions} |" in page
    assert "spin -DWITNESS -a MODEL.pml" in page
    before = model.read_bytes()
    assert run("--variant", "strict", "--promela", str(folder)).exit_code == 0
    assert model.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file in the folder's place is an error that names it, and exit 2."""
    search_only(monkeypatch, SMALL)
    (tmp_path / "taken").write_text("", encoding="utf-8")
    result = run("--variant", "strict", "--promela", str(tmp_path / "taken"))
    assert result.exit_code == 2
    assert "cannot write a model" in result.stderr
    assert "taken" in result.stderr


def test_a_bounded_search_gives_no_model_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was not seen to its end is not written; the line says so, and the command fails."""
    search_only(monkeypatch, SMALL)
    result = run("--variant", "strict", "--states-max", "20", "--promela", str(tmp_path))
    assert result.exit_code == 1
    assert "  no model was made, so Spin was not run and nothing is compared: the search ended before" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_bounded_search_says_that_spin_was_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the search, in the total and in the object: whoever asked for a second opinion did not get one."""
    search_only(monkeypatch, SMALL)
    monkeypatch.setattr(check, "missing_programs", lambda: ())
    result = run("--variant", "strict", "--spin", "--states-max", "20")
    assert result.exit_code == 1
    assert "Spin was not asked about 1 search, so nothing is compared: the search ended before" in result.stdout
    assert "Spin agrees" not in result.stdout
    said = last_object(run("--variant", "strict", "--spin", "--states-max", "20", "--json"))["searches"][0]
    assert "spin" not in said
    assert "let it see more states" in said["no_model"]


@needs_spin
def test_spin_agrees_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of Spin are printed with its word, as text and as JSON."""
    search_only(monkeypatch, SMALL)
    states, transitions, _ = PINNED[SMALL.name]
    result = run("--variant", "strict", "--spin")
    assert result.exit_code == 0, result.output
    assert f"  Spin agrees: {states:,} states, {transitions:,} transitions, " in result.stdout
    assert "Spin agrees on 1 of 1 search" in result.stdout
    said = last_object(run("--variant", "strict", "--spin", "--json"))["searches"][0]["spin"]
    assert (said["states"], said["transitions"], said["agrees"]) == (states, transitions, True)


def test_a_disagreement_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Spin sees another number of states, the command names the difference and exits 1, though all holds."""
    search_only(monkeypatch, SMALL)
    monkeypatch.setattr(check, "missing_programs", lambda: ())
    monkeypatch.setattr(promela, "run_spin", lambda *_arguments, **_options: replace(RUN, violated={}))
    result = run("--variant", "strict", "--spin")
    assert result.exit_code == 1
    assert "Spin disagrees" in result.stdout
    assert f"the explorer has {PINNED[SMALL.name][0]:,} states, Spin 1,018" in result.stdout
    assert "Spin agrees on 0 of 1 search" in result.stdout


def test_a_spin_that_fails_is_told_with_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spin said when it failed, and on which search, is the command's error."""

    def fails(*_arguments: object, **_options: object) -> SpinRun:
        raise SpinFailed("pan exited with 1: so it said")

    search_only(monkeypatch, SMALL)
    monkeypatch.setattr(check, "missing_programs", lambda: ())
    monkeypatch.setattr(promela, "run_spin", fails)
    result = run("--variant", "strict", "--spin")
    assert result.exit_code == 1
    assert f"{SMALL.name}: pan exited with 1: so it said" in result.stderr
