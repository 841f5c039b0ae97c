"""``quiesce check`` as a user meets it: states, verdicts, a counterexample, bounds and exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import typer
from support.pinned_states import PINNED
from typer.testing import CliRunner, Result

from quiesce.cli import check, output
from quiesce.cli.promela import Opinion, SecondOpinions
from quiesce.cli.spin import SpinRun
from quiesce.cli.stopping import Stopped, Stopping
from quiesce.fsm.explore import Exploration, Progress, explore
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_properties import ALWAYS
from quiesce.fsm.explore_suites import SUITES, suite

HIDE: Final = b"\x1b[?25l"
SHOW: Final = b"\x1b[?25h"
FIRST = suite("strict")[0]
DUPLICATE = next(setup for setup in suite("gym_a_single") if setup.name.endswith("cut, duplicate"))


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
    """Let every suite be these set-ups: a search of all takes longer than a test of the command should."""
    monkeypatch.setattr(check, "suite", lambda _name, _times, **_fleets: setups)


def test_every_suite_can_be_chosen() -> None:
    """The variants that the command takes are the suites that there are."""
    assert {variant.value for variant in check.Variant} == set(SUITES)


def test_a_proof_says_how_much_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """States, transitions, depth and speed of each search, the verdict of each property, and exit 0."""
    search_only(monkeypatch, FIRST)
    result = run("--variant", "strict")
    assert result.exit_code == 0, result.output
    states, transitions, depth = PINNED[FIRST.name]
    assert f"{FIRST.name}: {states:,} states, {transitions:,} transitions, depth {depth}, " in result.stdout
    assert "states/s: holds" in result.stdout
    for claim in ALWAYS:
        assert f"holds      always       {claim.name} (1 of 1 search): {claim.meaning}" in result.stdout
    assert "holds      recoverable  everybody can accept work again, or is named" in result.stdout
    assert f"{states:,} states and {transitions:,} transitions in 1 search" in result.stdout
    assert result.stdout.endswith("\nholds\n")


def test_without_a_variant_all_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variant has its turn, and the totals are over all of them."""
    search_only(monkeypatch, FIRST)
    found = last_object(run("--json"))
    assert found["ok"] is True
    assert found["complete"] is True
    assert len(found["searches"]) == len(SUITES)
    assert run().stdout.endswith("\nevery property that is claimed holds in every search\n")
    assert found["states"] == PINNED[FIRST.name][0] * len(SUITES)
    assert found["depth"] == PINNED[FIRST.name][2]
    verdicts = found["searches"][0]["verdicts"]
    assert {verdict["kind"] for verdict in verdicts} == {"always", "no deadlock", "recoverable", "sometimes"}
    assert all(verdict["holds"] is True and "trace" not in verdict for verdict in verdicts)


def test_a_violation_is_shown_as_a_list_of_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property that does not hold is named with its meaning and a shortest way to break it; exit 1."""
    search_only(monkeypatch, replace(DUPLICATE, waives={}))
    result = run("--variant", "gym_a_single")
    assert result.exit_code == 1
    assert "states/s: VIOLATED" in result.stdout
    assert "always settled_takes_next_cut: violated: whoever is reported open has a fence" in result.stdout
    assert "      1. asked to Begin" in result.stdout
    assert "agent: close arrives, and will again" in result.stdout
    assert "VIOLATED   always       settled_takes_next_cut (0 of 1 search)" in result.stdout
    assert "to keep what is violated, and to replay, draw and test it: --counterexample-dir DIR\n" in result.stdout
    assert result.stdout.endswith("\nVIOLATED\n")
    found = last_object(run("--variant", "gym_a_single", "--json"))
    assert found["ok"] is False
    violated = [verdict for verdict in found["searches"][0]["verdicts"] if verdict["holds"] is False]
    assert {verdict["name"] for verdict in violated} == {"settled_takes_next_cut", "settled_is_quiet"}
    assert all(verdict["trace"][0] == "asked to Begin" for verdict in violated)


def test_what_is_not_claimed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waived property is not counted as holding; it is listed with the reason."""
    search_only(monkeypatch, DUPLICATE)
    result = run("--variant", "gym_a_single")
    assert result.exit_code == 0
    assert "not claimed             settled_takes_next_cut (1 of 1 search): a second delivery" in result.stdout
    assert "always       settled_takes_next_cut" not in result.stdout


def test_a_bound_that_is_hit_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too few states allowed the answer is undecided, said so, and exit 1."""
    search_only(monkeypatch, FIRST)
    result = run("--variant", "strict", "--states-max", "100")
    assert result.exit_code == 1
    assert "bound hit: undecided" in result.stdout
    assert "1 search was bounded before everything was seen" in result.stdout
    found = last_object(run("--variant", "strict", "--states-max", "100", "--json"))
    assert (found["ok"], found["complete"], found["states"]) == (False, False, 100)
    assert all(verdict["holds"] is not False for verdict in found["searches"][0]["verdicts"])


def test_a_real_variant_is_searched_as_often_as_asked() -> None:
    """``--times`` is how often a class of faults strikes; the suite itself takes it."""
    assert {max(setup.budgets.values()) for setup in suite("strict", 2)} == {1, 2}


def test_more_participants_and_two_classes_of_faults_are_asked_for() -> None:
    """``--participants`` and ``--pairs`` choose the searches; of equals one stands for the others."""
    wanted = ("--variant", "strict", "--participants", "3", "--json")
    only = ("--only", "policy (strict) + agent (strict) + agent (strict), restore, no fault")
    reduced, full = last_object(run(*wanted, *only)), last_object(run(*wanted, *only, "--full"))
    assert reduced["ok"] is full["ok"] is True
    assert 0 < reduced["states"] < full["states"]
    assert reduced["depth"] == full["depth"]
    pair = last_object(
        run("--variant", "strict", "--pairs", "--json", "--only", "auxiliary (strict), cut, loss + store")
    )
    assert [search["name"].rpartition(", ")[2] for search in pair["searches"]] == ["loss + store"]
    assert pair["ok"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ("--variant", "gym_b"),
        ("--times", "0"),
        ("--times", "4"),
        ("--participants", "1"),
        ("--participants", "5"),
        ("--states-max", "0"),
        ("--states-max", "many"),
        ("x",),
    ],
    ids=" ".join,
)
def test_wrong_usage_searches_nothing(arguments: tuple[str, ...]) -> None:
    """An unknown variant, a number out of range or an argument too many is wrong usage: exit 2."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert "states/s" not in result.output


def test_a_terminal_sees_how_far_the_search_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where standard error is a terminal, the search's progress is shown there while it runs."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    with check._shown("a search", Stopping()) as watch:
        assert watch is not None
        watch(Progress(states=1_234, waiting=56, depth=7))
    captured = capsys.readouterr()
    assert "a search: 1,234 states, 56 to look at, depth 7" in captured.err
    assert captured.out == ""


def test_elsewhere_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe or a log there is no progress."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with check._shown("a search", Stopping()) as watch:
        assert watch is None


@pytest.mark.parametrize("place", ["a file", "below a file"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_search(place: str, tmp_path: Path) -> None:
    """Not at the end of a long one, when there is something to write."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" if place == "a file" else tmp_path / "file" / "folder"
    result = run("--counterexample-dir", str(folder), "--json")
    assert result.exit_code == 2
    assert f"cannot write into {folder}" in str(last_object(result)["error"])


def test_a_full_memory_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is undecided is said to be, and what to do about it."""

    def explored(*_arguments: object, **_options: object) -> NoReturn:
        raise MemoryError

    search_only(monkeypatch, FIRST)
    monkeypatch.setattr(check, "explore", explored)
    result = run("--json")
    assert result.exit_code == 1
    assert last_object(result)["type"] == "MemoryError"
    assert "undecided, the memory is full; bound the search with --states-max" in result.stderr


# cut short


def stopping_at(monkeypatch: pytest.MonkeyPatch, setup: Setup, number: signal.Signals) -> None:
    """Let this process get a signal while the set-up is searched, as from outside."""

    def explored(system: System, **options: Any) -> Exploration:  # noqa: ANN401 - what explore takes
        if system.name == setup.name:
            options["watch"](Progress(states=1_234, waiting=1, depth=5, violated=("one_active_cut",)))
            os.kill(os.getpid(), number)
        return explore(system, **options)

    monkeypatch.setattr(check, "explore", explored)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_found_before_a_signal_is_told(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """The searches that were made, that they prove nothing, and where it was; the exit code is the shells'."""
    search_only(monkeypatch, replace(DUPLICATE, waives={}), FIRST)
    stopping_at(monkeypatch, FIRST, number)
    result = run("--variant", "strict")
    assert result.exit_code == 128 + number
    assert "VIOLATED   always       settled_takes_next_cut (0 of 1 search)" in result.stdout
    assert "so far     always       quiesced_before_export (1 of 1 search)" in result.stdout
    assert "holds  " not in result.stdout
    assert result.stdout.endswith("interrupted after 1 of 2 searches: these are bounds, not proofs\n")
    where = f"'{FIRST.name}', at 1,234 states and depth 5 (one_active_cut: violated already)"
    assert (
        f"interrupted: {number.name} in {where}; "
        "what it has not found is undecided, and so is what was not begun" in result.stderr
    )
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_same_as_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no search was made to its end; without a signal the member is null."""
    search_only(monkeypatch, FIRST)
    assert last_object(run("--variant", "strict", "--json"))["interrupted"] is None
    stopping_at(monkeypatch, FIRST, signal.SIGTERM)
    found = last_object(run("--variant", "strict", "--json"))
    assert (found["ok"], found["complete"], found["interrupted"]) == (False, False, "SIGTERM")
    assert (found["searches"], found["searches_wanted"], found["depth"]) == ([], 1, 0)


def test_a_command_that_is_stopped_in_a_terminal_shows_the_cursor_again() -> None:
    """As a process of its own, on a terminal: SIGTERM, exit 143, and what hid the cursor has shown it."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "quiesce.cli.main", "check", "--variant", "mixed", "--json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    screen = b""
    while HIDE not in screen:
        screen += os.read(ours, 4096)
    child.send_signal(signal.SIGTERM)
    with suppress(OSError):  # the other end has gone
        while more := os.read(ours, 4096):
            screen += more
    out, _ = child.communicate(timeout=60)
    os.close(ours)
    assert child.returncode == 143
    assert json.loads(out.splitlines()[-1])["interrupted"] == "SIGTERM"
    assert screen.rindex(SHOW) > screen.rindex(HIDE)


def test_a_signal_waits_for_what_must_be_whole() -> None:
    """A display that is set up half could not be taken down again."""
    stopping = Stopping()
    done: list[str] = []

    def displayed() -> None:
        with stopping.whole():
            with stopping.whole():
                stopping.come(signal.SIGTERM)
                done.append("inner")
            done.append("outer")

    with pytest.raises(Stopped):
        displayed()
    assert done == ["inner", "outer"]
    with pytest.raises(Stopped):
        stopping.come(signal.SIGINT)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_signal_while_spin_has_the_last_search_leaves_the_verdicts_proven(
    monkeypatch: pytest.MonkeyPatch,
    as_json: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The explorer has come to the end of all; only Spin's opinion on one is missing, and that is what is said."""
    last = replace(FIRST, name=f"{FIRST.name} again")

    def of(_self: SecondOpinions, system: System, found: Exploration) -> Opinion:
        if system.name == last.name:
            os.kill(os.getpid(), signal.SIGTERM)
        return Opinion(run=SpinRun(found.states, found.transitions, found.depth, {}, 0.1, None))

    search_only(monkeypatch, FIRST, last)
    monkeypatch.setattr(check, "missing_programs", tuple)
    monkeypatch.setattr(SecondOpinions, "of", of)
    result = run("--variant", "strict", "--spin", *(["--json"] if as_json else []))
    assert result.exit_code == 128 + signal.SIGTERM
    assert f"of '{last.name}', whose search is complete; what was not begun is undecided" in result.stderr
    if as_json:
        found = last_object(result)
        assert (found["ok"], found["complete"], found["interrupted"]) == (False, True, "SIGTERM")
        return
    assert "holds      always       quiesced_before_export (2 of 2 searches)" in result.stdout
    assert "so far" not in result.stdout
    assert "bounds" not in result.stdout
    assert "Spin agrees on 1 of 2 searches: states, transitions and verdicts; on the last one it has" in result.stdout
    assert result.stdout.endswith(
        "every property that is claimed holds in every search; what else was asked for of the last search is missing\n"
    )


@pytest.mark.parametrize("words", ["", "  "])
def test_no_words_to_search_by_are_refused(words: str) -> None:
    """They stand in every name, and whoever gives them has lost a variable."""
    result = run("--only", words)
    assert result.exit_code == 2
    assert "--only is given no words; without --only all is searched" in result.stderr


def test_on_a_terminal_lines_are_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows stands under the name of the property; elsewhere a line stays a line, for grep."""
    monkeypatch.setenv("COLUMNS", "60")
    told: list[str] = []
    monkeypatch.setattr(typer, "echo", lambda text, **_options: told.append(text))
    line = f"{'holds':9}  {'always':11}  settled_is_open (1 of 1 search): {'many words ' * 9}"
    output.say(line, indent=24)
    monkeypatch.setattr(sys, "stdout", Terminal())
    output.say(line, indent=24)
    assert told[0] == line
    first, *others = told[1].splitlines()
    assert first.startswith("holds      always       settled_is_open (1 of 1 search):")
    assert len(others) > 1
    assert all(other.startswith((" " * 24 + "many", " " * 24 + "words")) for other in others)
    assert max(map(len, told[1].splitlines())) <= 60


class Terminal(io.StringIO):
    """Standard output that says that it is one."""

    def isatty(self) -> bool:
        return True


def test_what_was_found_before_the_memory_was_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before a signal, and before Spin or the disk fails."""

    def explored(system: System, **options: Any) -> Exploration:  # noqa: ANN401 - what explore takes
        if system.name == DUPLICATE.name:
            raise MemoryError
        return explore(system, **options)

    search_only(monkeypatch, FIRST, DUPLICATE)
    monkeypatch.setattr(check, "explore", explored)
    result = run("--variant", "strict")
    assert result.exit_code == 1
    assert f"{FIRST.name}: " in result.stdout
    assert "interrupted after 1 of 2 searches: these are bounds, not proofs" in result.stdout


def test_what_is_never_reached_is_said_to_have_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A property of which some state must be: how many were seen, and why there is no file."""
    search_only(monkeypatch, replace(FIRST, expects=("healed",)))
    result = run("--variant", "strict", "--counterexample-dir", str(tmp_path))
    assert result.exit_code == 1
    states = f"{PINNED[FIRST.name][0]:,} states"
    assert "  sometimes healed: violated: " in result.stdout
    assert f"never reached in {states}, though the search is made to reach it (what never happens" in result.stdout
    assert list(tmp_path.iterdir()) == []
