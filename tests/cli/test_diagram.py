"""``quiesce diagram`` as a user meets it: output, errors and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from support.mermaid import read_picture
from support.programs import DOT, needs
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
        (("--check", "--format", "dot"), "leave out --format"),
        (("--check", "no-such-document.md"), "cannot read no-such-document.md"),
        (("--check", "--update", "x.md"), "take one of them"),
        (("--update",), "needs Markdown documents"),
        (("--update", "x.md", "--format", "dot"), "a document's own marks"),
        (("release", "transaction"), "one MACHINE at a time"),
        (("--format", "markdown"), "need a MACHINE"),
        (("--focus", "closing"), "need a MACHINE"),
        (("release", "--focus", "clsing"), "did you mean closing"),
        (("release", "--focus", "closing", "--format", "scxml"), "whole machines"),
        (("phases", "--focus", "closing", "--format", "markdown"), "no machine"),
        (("no.such.module:TABLE",), "there is no module 'no.such.module'"),
        (("quiesce.fsm.tables.release:RELEAS",), "did you mean RELEASE"),
        (("json:TABLE",), "has none at all"),
        (("release:",), "not of the form module:NAME"),
        (("--check", "--output", "no/such/folder"), "there is no folder no/such/folder"),
        (("--format", "gif", "release"), "gif"),
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


def test_a_neighbourhood_is_drawn() -> None:
    """With a focus only what is near is drawn."""
    picture = read_picture(run("release", "--focus", "closing").stdout)
    assert "closing" in picture.titles
    assert "settling" not in picture.titles


def test_a_file_is_written(tmp_path: Path) -> None:
    """A machine goes into the file that is named, or into a folder under its own name and its format's ending."""
    assert run("release", "--format", "dot", "--output", str(tmp_path / "mine.gv")).exit_code == 0
    assert (tmp_path / "mine.gv").read_text().startswith('digraph "RELEASE"')
    found = last_object(run("release", "--format", "xstate", "--output", str(tmp_path), "--json"))
    assert found["file"] == str(tmp_path / "release.xstate.json")
    assert json.loads((tmp_path / "release.xstate.json").read_text())["initial"] == "not_due"


@needs(DOT)
def test_a_png_can_be_piped() -> None:
    """Into a pipe the bytes go as they are."""
    assert run("release", "--format", "png", "--focus", "closing").stdout_bytes.startswith(b"\x89PNG")


@needs(DOT)
def test_a_png_is_no_part_of_a_json_object() -> None:
    """With ``--json`` a PNG needs a file, and the error says so."""
    result = run("release", "--format", "png", "--focus", "closing", "--json")
    assert result.exit_code == 2
    assert "--output FILE" in str(last_object(result)["error"])


def test_without_dot_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where ``dot`` is missing, SVG and PNG end with its package's name and 1; a folder is written but for them."""
    monkeypatch.setenv("PATH", "/nowhere")
    for form in ("svg", "png"):
        result = run("release", "--format", form)
        assert result.exit_code == 1
        assert "apt-get install graphviz" in result.stderr
    result = run("--output", str(tmp_path))
    assert result.exit_code == 1
    assert "all is written but the SVG pictures" in result.stderr
    assert (tmp_path / "release.dot").exists()


DOCUMENT = """\
# Mine
<!-- quiesce:diagram transaction mermaid -->
old
<!-- /quiesce -->
The end.
"""


def test_documents_are_checked_and_made_anew(tmp_path: Path) -> None:
    """A document with an old block is named by the check with 1, made anew by the update, and then current."""
    path = tmp_path / "mine.md"
    path.write_text(DOCUMENT)
    result = run("--check", str(path), "--json")
    assert (result.exit_code, last_object(result)["stale"]) == (1, [str(path)])
    assert f"quiesce diagram --update {path}" in result.stderr
    assert last_object(run("--update", str(path), "--json"))["changed"] == [str(path)]
    path.write_text(DOCUMENT + DOCUMENT)
    assert "2 blocks in 1 document, 1 document changed" in run("--update", str(path)).stdout
    path.write_text(DOCUMENT)
    run("--update", str(path))
    assert "stateDiagram-v2" in path.read_text()
    assert "1 block in 1 document, all current" in run("--check", str(path)).stdout


@pytest.mark.parametrize("option", ["--check", "--update"])
@pytest.mark.parametrize(
    "line", ["", "<!-- quiesce:diagramm transaction -->", "```\n<!-- quiesce:diagram release -->\n```"]
)
def test_a_document_without_a_block_is_refused(tmp_path: Path, option: str, line: str) -> None:
    """A mark that is mistyped would else be current for ever: it is exit 2 with the form of a mark."""
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(DOCUMENT)
    bad.write_text(f"A text.\n{line}\n")
    result = run(option, str(good), str(bad))
    assert result.exit_code == 2
    assert f"{bad}: there is no marked block" in result.stderr
    assert "<!-- quiesce:diagram MACHINE FORMAT -->" in result.stderr
    assert good.read_text() == DOCUMENT


def test_a_module_that_ends_the_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without a guard around its end must not end the command in silence, with an exit code of its own."""
    (tmp_path / "ends_itself.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.chdir(tmp_path)
    result = run("ends_itself:TABLE")
    assert result.exit_code == 2
    assert "'ends_itself' cannot be imported: it ends the program (exit code 3)" in result.stderr


def test_a_faulty_document_is_named_with_its_line(tmp_path: Path) -> None:
    """A block that cannot be made is exit 2 with file and line, and no document is changed."""
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(DOCUMENT)
    bad.write_text(DOCUMENT.replace("transaction", "transacton"))
    result = run("--update", str(good), str(bad))
    assert result.exit_code == 2
    assert f"{bad}: line 2: there is no machine 'transacton'" in result.stderr
    assert good.read_text() == DOCUMENT


def test_a_document_that_is_no_text_is_exit_two(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are refused before anything is changed."""
    path = tmp_path / "mine.md"
    path.write_bytes(b"\xff\xfe\x00")
    result = run("--update", str(path))
    assert result.exit_code == 2
    assert "no UTF-8 text" in result.stderr


def test_a_table_of_ones_own_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``module:NAME`` of the working folder is found, with the annotations beside it, in every format that is text."""
    (tmp_path / "lamps_of_a_user.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    for form in ("mermaid", "markdown", "dot", "plantuml", "scxml", "xstate"):
        result = run("lamps_of_a_user:LAMP", "--format", form)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "press" in result.stdout
    assert "✓ press" in run("lamps_of_a_user:LAMP").stdout
    assert "annotations of LAMP" in run("lamps_of_a_user:WRONG").stderr


OWN = """
from enum import StrEnum

from quiesce.diagrams import Annotations, PathKind
from quiesce.fsm.rows import Row, Table


class Lamp(StrEnum):
    OFF = "off"
    ON = "on"


class Press(StrEnum):
    PRESS = "press"
    BREAK = "break"


rows = (
    Row(Lamp.OFF, Press.PRESS, (), Lamp.ON, (), "light"),
    Row(Lamp.ON, Press.PRESS, (), Lamp.OFF, (), "dark"),
)
LAMP = WRONG = Table("LAMP", "A lamp", Lamp, Press, Lamp.OFF, (), (), rows)
LAMP_ANNOTATIONS = Annotations(events={Press.PRESS: PathKind.HAPPY})
WRONG_ANNOTATIONS = Annotations(events={Press.BREAK: PathKind.FAILURE})
"""
