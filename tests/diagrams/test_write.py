"""The generated folder: written whole, compared whole, and nobody else's files touched."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from quiesce.diagrams import Difference, DifferenceKind, UnknownMachine, check, find_sheet, pages, sheets, write_all


def test_what_is_written_is_current(tmp_path: Path) -> None:
    """After writing, nothing differs, every machine has its picture and page, and nothing else lies there."""
    folder = tmp_path / "new" / "generated"
    written = write_all(folder)
    assert check(folder) == ()
    assert {path.name for path in folder.iterdir()} == {path.name for path in written} == set(pages())
    assert {"transaction.md", "transaction.mmd", "fence-strict-policy.mmd", "phases.md", "README.md"} <= set(pages())


def test_each_difference_is_named(tmp_path: Path) -> None:
    """A changed file is stale, a removed one missing, the page of a machine that is gone superfluous."""
    write_all(tmp_path)
    (tmp_path / "release.md").write_text((tmp_path / "release.md").read_text() + " ")
    (tmp_path / "participant.mmd").unlink()
    (tmp_path / "gone.md").write_text((tmp_path / "joint.md").read_text())
    (tmp_path / "notes.md").write_text("# mine\n")
    assert check(tmp_path) == (
        Difference("gone.md", DifferenceKind.SUPERFLUOUS),
        Difference("participant.mmd", DifferenceKind.MISSING),
        Difference("release.md", DifferenceKind.STALE),
    )
    assert str(check(tmp_path)[2]) == "stale: release.md"


def test_writing_repairs_and_spares_what_is_not_ours(tmp_path: Path) -> None:
    """Writing again ends every difference, removes our superfluous page, and keeps a file without our mark."""
    write_all(tmp_path)
    (tmp_path / "release.md").write_text("old")
    (tmp_path / "gone.md").write_text((tmp_path / "joint.md").read_text())
    (tmp_path / "notes.md").write_text("# mine\n")
    write_all(tmp_path)
    assert check(tmp_path) == ()
    assert not (tmp_path / "gone.md").exists()
    assert (tmp_path / "notes.md").read_text() == "# mine\n"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails leaves the old contents and no temporary file."""
    write_all(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_all(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


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
    with pytest.raises(UnknownMachine, match="--format markdown"):
        find_sheet("phases").mermaid()
