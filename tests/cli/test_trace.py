"""``quiesce trace`` as a user meets it: which run a name means, each format, and every journal that can be there."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import typer
from support.command import last_object
from support.runs import cut, healed
from typer.testing import CliRunner, Result

from quiesce.cli.trace import register
from quiesce.controller.journal import JournalFile
from quiesce.controller.records import JournalRecord
from quiesce.controller.root_layout import RootLayout
from quiesce.diagrams import RunRecord

FLEET = ("main/policy", "main/agent", "main/tools")
FIRST, SECOND = "step-40-0000000a", "step-40-0000000b"
RESTORE = "restore-step-40-0000000c"


def run(root: Path, *arguments: str) -> Result:
    """The command in an application of its own."""
    app = typer.Typer()
    app.callback()(lambda: None)  # with one command only, typer would drop its name
    register(app)
    return CliRunner().invoke(app, ["trace", "--root", str(root), *arguments])


async def keep(root: Path, wire_id: str, records: list[RunRecord], *, written_s: float) -> Path:
    """A journal as a controller would have written it."""
    path = RootLayout(root).journal(wire_id)
    journal = JournalFile(path)
    for one in records:
        await journal.append(JournalRecord(one.time_ts, wire_id, one.trace, one.call, one.reply), barrier=False)
    await journal.close()
    os.utime(path, (written_s, written_s))
    return path


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    """A root with two cuts of one label, the second one in doubt, and a restore."""
    await keep(tmp_path, FIRST, cut(FLEET), written_s=1e9)
    await keep(tmp_path, SECOND, cut(FLEET, slow="main/agent", in_doubt="main/tools"), written_s=2e9)
    await keep(tmp_path, RESTORE, healed(), written_s=3e9)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "means"),
    [("step-40", SECOND), (FIRST, FIRST), ("restore-step-40", RESTORE), ("latest", RESTORE)],
)
def test_a_name_means_a_run(root: Path, name: str, means: str) -> None:
    """A label means its newest cut, an id itself, and latest whatever was written last."""
    result = run(root, name)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{means}: ")


def test_the_text_says_who_held_it_up(root: Path) -> None:
    """Who was waited for, and who is still closed, stand in it."""
    text = run(root, "step-40").stdout
    assert "waited 4.9 s for main/agent" in text
    assert "not there: main/tools" in text
    assert "in_doubt_published" in text


def test_each_format_is_what_it_says(root: Path, tmp_path: Path) -> None:
    """HTML, SVG and Mermaid go to standard output or into a file, which is replaced as a whole."""
    for form in ("timeline", "sequence"):
        assert ET.fromstring(run(root, "step-40", "--format", form).stdout).tag.endswith("}svg")  # noqa: S314 - ours
    assert run(root, "step-40", "--format", "mermaid").stdout.startswith("sequenceDiagram\n")
    page = tmp_path / "page.html"
    result = run(root, "step-40", "--format", "html", "--output", str(page))
    assert (result.exit_code, result.stdout) == (0, f"{page}\n")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_json_has_the_numbers(root: Path) -> None:
    """One object with every phase, whom it waited for, and every participant's stages."""
    found = last_object(run(root, "step-40", "--json"))
    assert (found["ok"], found["wire_id"], found["state"]) == (True, SECOND, "in_doubt_published")
    draining = next(phase for phase in found["phases"] if phase["state"] == "draining")
    assert (draining["waited_for"], draining["waited_s"]) == ("main/agent", 4.9)
    states = {lane["participant"]: lane["state"] for lane in found["participants"]}
    assert states == {"main/policy": "resumed", "main/agent": "resumed", "main/tools": "in doubt"}


async def test_many_participants_are_cut_short(tmp_path: Path) -> None:
    """In text forty are shown, or all that there are when all are asked for."""
    await keep(tmp_path, FIRST, cut([f"main/agent_{number}" for number in range(50)]), written_s=1e9)
    shown = [line for line in run(tmp_path, "step-40").stdout.splitlines() if line.startswith("main/")]
    everybody = [line for line in run(tmp_path, "step-40", "--all").stdout.splitlines() if line.startswith("main/")]
    assert (len(shown), len(everybody)) == (40, 50)


def test_a_torn_journal_is_shown_up_to_its_damage(root: Path) -> None:
    """What stands before the damage is shown, and the damage is said on standard error and in the page."""
    path = RootLayout(root).journal(FIRST)
    path.write_bytes(path.read_bytes()[:-30])
    result = run(root, FIRST)
    assert result.exit_code == 0
    assert "the journal is damaged" in result.stderr
    assert "the journal is damaged" in run(root, FIRST, "--format", "html").stdout
    assert "not a whole record" in last_object(run(root, FIRST, "--json"))["damage"]


def test_a_journal_without_a_record_is_exit_one(root: Path) -> None:
    """An empty journal, or one whose first line is damaged, is an error that says which file it is."""
    for content in (b"", b"{"):
        path = RootLayout(root).journal(FIRST)
        path.write_bytes(content)
        result = run(root, FIRST)
        assert result.exit_code == 1
        assert path.name in result.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("step-41", f"there are: {RESTORE}, {SECOND}, {FIRST}"),
        ("step", "no journal of 'step'"),
        ("../step-40", "must begin with a letter or digit"),
        ("", "is empty"),
    ],
)
def test_a_name_that_means_nothing_is_an_error(root: Path, name: str, says: str) -> None:
    """It says which journals there are; a name that is no id never becomes a path."""
    result = run(root, name)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_root_without_journals_is_an_error(tmp_path: Path) -> None:
    """A folder in which no controller has worked is said to have none."""
    result = run(tmp_path / "nowhere", "latest")
    assert result.exit_code == 2
    assert "there is none" in result.stderr


def test_a_file_that_cannot_be_written_is_exit_one(root: Path) -> None:
    """The reason of the system is given, and no traceback."""
    result = run(root, "step-40", "--output", str(root / "no" / "such" / "folder.txt"))
    assert result.exit_code == 1
    assert "cannot write" in result.stderr
