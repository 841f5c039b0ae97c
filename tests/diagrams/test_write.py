"""The generated folder: written whole, compared whole, and nobody else's files touched."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest
from support.programs import DOT, needs

from quiesce.diagrams import (
    Difference,
    DifferenceKind,
    DotMissing,
    NotInThisFormat,
    UnknownMachine,
    check,
    find_sheet,
    pages,
    pictures,
    replace_file,
    sheets,
    write_all,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything is written once; tests change copies of it."""
    folder = tmp_path_factory.mktemp("generated")
    with contextlib.suppress(DotMissing):
        write_all(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "generated"))


@needs(DOT)
def test_what_is_written_is_current(tmp_path: Path) -> None:
    """After writing, nothing differs, every machine has its picture and page, and nothing else lies there."""
    target = tmp_path / "new" / "generated"
    written = write_all(target)
    assert check(target) == ()
    assert {path.name for path in target.iterdir()} == {path.name for path in written} == {*pages(), *pictures()}
    forms = (".md", ".mmd", ".dot", ".puml", ".scxml", ".xstate.json")
    assert {*(f"transaction{form}" for form in forms), "phases.md", "sequence-commit.svg", "README.md"} <= set(pages())
    assert {"transaction.svg", "fence-gym-a-single-agent-difference.svg"} <= set(pictures())


@needs(DOT)
def test_each_difference_is_named(folder: Path) -> None:
    """A changed file is stale, a removed one missing, the page of a machine that is gone superfluous."""
    (folder / "release.md").write_text((folder / "release.md").read_text() + " ")
    (folder / "participant.mmd").unlink()
    for form in (".md", ".dot", ".puml", ".svg", ".scxml", ".xstate.json"):
        shutil.copy(folder / f"release{form}" if form != ".md" else folder / "joint.md", folder / f"gone{form}")
    (folder / "notes.md").write_text("# mine\n")
    (folder / "mine.svg").write_text("<svg/>\n")
    gone = ("gone.dot", "gone.md", "gone.puml", "gone.scxml", "gone.svg", "gone.xstate.json")
    assert check(folder) == (
        *(Difference(name, DifferenceKind.SUPERFLUOUS) for name in gone),
        Difference("participant.mmd", DifferenceKind.MISSING),
        Difference("release.md", DifferenceKind.STALE),
    )
    assert str(check(folder)[-1]) == "stale: release.md"


@needs(DOT)
def test_writing_repairs_and_spares_what_is_not_ours(folder: Path) -> None:
    """Writing again ends every difference, removes our superfluous page, and keeps a file without our mark."""
    (folder / "release.md").write_text("old")
    (folder / "release.svg").write_text("old")
    (folder / "gone.md").write_text((folder / "joint.md").read_text())
    (folder / "notes.md").write_text("# mine\n")
    write_all(folder)
    assert check(folder) == ()
    assert not (folder / "gone.md").exists()
    assert (folder / "notes.md").read_text() == "# mine\n"


@needs(DOT)
@pytest.mark.parametrize("change", ["source", "picture"])
def test_a_picture_knows_what_it_was_drawn_from(folder: Path, change: str) -> None:
    """A picture is stale when its table has changed since, and when somebody has changed the picture."""
    path = folder / "transaction.svg"
    seal, drawn = path.read_text().split("\n", 1)
    if change == "source":
        seal = seal.replace("Drawn from ", "Drawn from 0")
    else:
        drawn = drawn.replace("preflight", "takeoff")
    path.write_text(f"{seal}\n{drawn}")
    assert check(folder) == (Difference("transaction.svg", DifferenceKind.STALE),)


@needs(DOT)
def test_a_picture_of_other_dark_colors_is_stale(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put into pictures after ``dot`` has drawn them belongs to what they were drawn from."""
    monkeypatch.setattr("quiesce.diagrams.write.dark_style", lambda: "other colors")
    assert {difference.file for difference in check(folder)} == set(pictures())


@needs(DOT)
def test_checking_and_writing_what_is_current_needs_no_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``dot`` a current folder is found current, and is written again without drawing anything."""
    monkeypatch.setenv("PATH", "/nowhere")
    (folder / "release.mmd").unlink()
    write_all(folder)
    assert check(folder) == ()


def test_without_the_program_everything_else_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pictures must be drawn and ``dot`` is missing, the rest is written and the error names the package."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DotMissing, match="graphviz"):
        write_all(tmp_path)
    assert {difference.file for difference in check(tmp_path)} == set(pictures())


def test_a_full_disk_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails leaves the old contents and no temporary file."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_all(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_link_stays_one(tmp_path: Path) -> None:
    """The file that it leads to is replaced, in its own folder, and nothing else is left in either."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("old")
    link = tmp_path / "page.md"
    link.symlink_to("docs/page.md")
    replace_file(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "docs" / "page.md").read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["docs", "page.md", "page.md"]


def test_a_file_that_is_read_only_is_refused(tmp_path: Path) -> None:
    """Also where its folder may be written, and whoever asks is the superuser."""
    page = tmp_path / "page.md"
    page.write_text("old")
    page.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only"):
        replace_file(page, b"new")
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_what_is_no_file_is_written_into(tmp_path: Path) -> None:
    """A pipe gets the contents and stays a pipe; a folder is refused."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(pipe, b"new")
        assert os.read(reading, 10) == b"new"
    finally:
        os.close(reading)
    assert pipe.is_fifo()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path, b"new")


def test_a_machine_is_found_however_it_is_written() -> None:
    """Case, underscores and hyphens do not matter; names are distinct."""
    assert find_sheet("TRANSACTION") is find_sheet("transaction")
    assert find_sheet("fence_gym_a_single_agent").name == "fence-gym-a-single-agent"
    assert len({sheet.name for sheet in sheets()}) == len(sheets())


@pytest.mark.parametrize(
    ("name", "offer"),
    [("transacton", "did you mean transaction"), ("zzz", "there are: transaction"), ("", "there are")],
)
def test_an_unknown_machine_is_answered_with_an_offer(name: str, offer: str) -> None:
    """The error says which machines there are, or which one was probably meant."""
    with pytest.raises(UnknownMachine, match=offer):
        find_sheet(name)


def test_a_list_has_no_picture() -> None:
    """Asking for the picture of a list of rules says what to ask for instead."""
    with pytest.raises(NotInThisFormat, match="--format markdown"):
        find_sheet("phases").mermaid()
