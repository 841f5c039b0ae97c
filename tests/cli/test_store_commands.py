"""``init``, ``list`` and ``prune``: a first configuration, what there is, and what goes."""

from __future__ import annotations

import errno
import os
import re
import signal
from pathlib import Path

import pytest
from support.command import Command, last_object
from support.faulty_files import FaultyFiles
from support.snapshots import trainer_only, tree_of

from quiesce.cli import verify
from quiesce.cli.sample_configuration import sample_configuration
from quiesce.cli.stopping import Stopping
from quiesce.controller.config import Config, DeploymentConfig, ParticipantConfig, load_config, parse_config
from quiesce.controller.epoch import Holder
from quiesce.controller.files import LocalFiles
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.snapshots import SnapshotStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with snapshots a, b and c, the newest c, and one that is torn."""
    store = SnapshotStore(tmp_path / "root", files=FaultyFiles())
    for number, label in enumerate(("a", "b", "c", "torn"), start=1):
        trainer_only(store, f"{label}-{number:08x}", label=label, created_at=1_800_000_000.0 + number)
    (store.layout.snapshot("torn-00000004") / "MANIFEST.json").write_text("{")
    return tmp_path / "root"


def test_a_sample_configuration_is_written_once(
    quiesce: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be read as it stands; a second time nothing is overwritten, also where a link stands there."""
    monkeypatch.chdir(tmp_path)
    first = quiesce("init")
    assert first.exit_code == 0
    assert "quiesce discover" in first.stdout
    config = load_config(tmp_path / "quiesce.toml")
    assert config.root == tmp_path / "checkpoints"
    assert [one.name for one in config.deployment["main"].participants] == ["policy_model", "judge", "tools", "agent"]
    (tmp_path / "quiesce.toml").write_text("# mine")
    second = quiesce("init", "--json")
    assert second.exit_code == 2
    assert "left as it is" in last_object(second)["error"]
    assert (tmp_path / "quiesce.toml").read_text() == "# mine"
    (tmp_path / "link.toml").symlink_to(tmp_path / "nowhere.toml")
    assert quiesce("init", "--config", "link.toml").exit_code == 2
    assert not (tmp_path / "nowhere.toml").exists()
    assert quiesce("init", "--config", "no/such/folder.toml").exit_code == 2
    assert last_object(quiesce("init", "--config", "other.toml", "--json"))["config"] == str(tmp_path / "other.toml")


def test_the_sample_names_every_setting_and_each_can_be_used(tmp_path: Path) -> None:
    """Taking the comment sign from any setting leaves a configuration that can be read."""
    text = sample_configuration()
    for model in (Config, DeploymentConfig, ParticipantConfig):
        assert [name for name in model.model_fields if not re.search(rf"\b{name}\b", text)] == []
    settings = re.findall(r"^#(\w+) = .*$", text, re.MULTILINE)
    assert len(settings) >= 15
    for name in settings:
        used = re.sub(rf"^#{name} = ", f"{name} = ", text, flags=re.MULTILINE)
        if name.startswith("gym_"):  # they are given in place of the participants
            used = re.sub(r"^participants = \[.*?^\]$", "", used, flags=re.MULTILINE | re.DOTALL)
        parse_config(used, source=name, directory=tmp_path, environment={})


def test_the_list_names_every_snapshot_and_what_is_none(quiesce: Command, root: Path) -> None:
    """The newest first; a torn one is reported with its reason; nothing changes (F-24, F-41)."""
    before = tree_of(root)
    listed = last_object(quiesce("list", "--root", str(root), "--json"))
    assert [entry["label"] for entry in listed["snapshots"]] == ["c", "b", "a", None]
    assert [entry["state"] for entry in listed["snapshots"]] == ["valid"] * 3 + ["torn"]
    assert listed["snapshots"][0]["size_bytes"] > 0
    shown = quiesce("list", "--root", str(root))
    assert shown.exit_code == 0
    assert shown.stdout.index("c-00000003") < shown.stdout.index("a-00000001") < shown.stdout.index("torn-00000004")
    assert "2027-01-15" in shown.stdout
    assert tree_of(root) == before
    empty = quiesce("list", "--root", str(root / "elsewhere"))
    assert (empty.exit_code, empty.stdout) == (0, f"there is no snapshot in {root / 'elsewhere' / 'snapshots'}\n")


def test_a_hostile_name_is_shown_escaped(quiesce: Command, root: Path) -> None:
    """Nothing that stands in the folder reaches the terminal as it is (F-44)."""
    (root / "snapshots" / "a\x1b[2Jb\nc").mkdir()
    shown = quiesce("list", "--root", str(root))
    assert "\x1b[2J" not in shown.stdout
    assert "foreign" in shown.stdout


def test_pruning_keeps_the_newest(quiesce: Command, root: Path) -> None:
    """A dry run says what would go; then it goes; the torn one stays and is named."""
    would = last_object(quiesce("prune", "--keep", "1", "--dry-run", "--root", str(root), "--json"))
    assert (would["kept"], would["removed"]) == (["c-00000003"], ["a-00000001", "b-00000002"])
    assert would["dry_run"] is True
    assert len(last_object(quiesce("list", "--root", str(root), "--json"))["snapshots"]) == 4
    did = quiesce("prune", "--keep", "1", "--root", str(root))
    assert did.exit_code == 0
    assert "removed a-00000001" in did.stdout
    assert "left torn-00000004, which is torn" in did.stdout
    assert "1 snapshot stays" in did.stdout
    left = last_object(quiesce("list", "--root", str(root), "--json"))["snapshots"]
    assert [entry["wire_id"] for entry in left] == ["c-00000003", "torn-00000004"]


def test_how_many_stay_comes_from_the_configuration(quiesce: Command, root: Path, tmp_path: Path) -> None:
    """The option comes before keep_latest_k; without either every snapshot stays."""
    path = tmp_path / "quiesce.toml"
    path.write_text(f'root = "{root}"\nenabled = false\n')
    config = ["--config", str(path), "--dry-run", "--json"]
    assert last_object(quiesce("prune", *config))["removed"] == []
    path.write_text(f'root = "{root}"\nenabled = false\nkeep_latest_k = 2\n')
    assert last_object(quiesce("prune", *config))["removed"] == ["a-00000001"]
    assert len(last_object(quiesce("prune", "--keep", "1", *config))["removed"]) == 2


def test_a_root_that_was_misspelt_is_not_made(quiesce: Command, tmp_path: Path) -> None:
    """Nothing stands there, so nothing is removed, and nothing is left behind by having asked."""
    result = quiesce("prune", "--keep", "1", "--root", str(tmp_path / "no-such-root"), "--json")
    assert (result.exit_code, last_object(result)["kept"], last_object(result)["dry_run"]) == (0, [], False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["list", "prune"])
def test_a_configuration_that_is_not_there_is_exit_two(quiesce: Command, tmp_path: Path, command: str) -> None:
    """The file is named, and nothing is made."""
    result = quiesce(command, "--config", str(tmp_path / "none.toml"), "--json")
    assert result.exit_code == 2
    assert "none.toml: cannot be read" in last_object(result)["error"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", ["0", "-1"])
def test_the_newest_cannot_be_given_up(quiesce: Command, root: Path, keep: str) -> None:
    """Wrong usage is exit 2 and changes nothing."""
    before = tree_of(root)
    result = quiesce("prune", f"--keep={keep}", "--root", str(root), "--dry-run", "--json")
    assert result.exit_code == 2
    assert "keep at least 1" in last_object(result)["error"]
    assert tree_of(root) == before


def test_what_cannot_be_removed_is_exit_one(quiesce: Command, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest goes; what stays is named (F-43)."""
    removed = FaultyFiles.remove_file

    def stubborn(files: FaultyFiles, path: Path) -> None:
        if "a-00000001" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        removed(files, path)

    monkeypatch.setattr(FaultyFiles, "remove_file", stubborn)
    monkeypatch.setattr("quiesce.controller.housekeeping.LocalFiles", FaultyFiles)
    result = quiesce("prune", "--keep", "1", "--root", str(root), "--json")
    assert result.exit_code == 1
    assert "Permission denied" in result.stderr
    assert last_object(result)["removed"] == ["a-00000001", "b-00000002"]
    assert len(last_object(result)["failed"]) == 1


@pytest.mark.parametrize("holder", ["alive or killed", "unreadable"])
def test_a_root_that_was_not_given_back_is_refused(quiesce: Command, root: Path, holder: str) -> None:
    """Whoever is alive there prunes itself; what a killed one left is recovered first. Nothing changes."""
    path = RootLayout(root).holder(7)
    path.parent.mkdir(parents=True)
    path.write_text(Holder(host="elsewhere", pid=1).model_dump_json() if holder != "unreadable" else "{")
    before = tree_of(root)
    result = quiesce("prune", "--keep", "1", "--root", str(root), "--json")
    assert result.exit_code == 1
    assert last_object(result)["type"] == "RootNotGivenBack"
    assert "`quiesce recover`" in result.stderr
    assert "elsewhere" in result.stderr or holder == "unreadable"
    assert tree_of(root) == before
    path.write_text(Holder(host="elsewhere", pid=1, released=True).model_dump_json())
    assert quiesce("prune", "--keep", "1", "--root", str(root)).exit_code == 0


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_verification_shows_its_progress_on_a_terminal_only(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool
) -> None:
    """A bar on standard error while it reads; in a pipe or a log nothing."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    store = SnapshotStore(root, hash_trainer_files=True)
    trainer_only(store, "hashed-00000009", label="hashed", created_at=1.0)
    assert verify._verified(store, "hashed", Stopping()).is_good
    shown = capsys.readouterr()
    assert ("15/15 bytes" in shown.err) is is_terminal
    assert shown.out == ""


def test_a_verification_that_is_interrupted_says_that_nothing_is_known(
    quiesce: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 and the signal's number, an object on the last line, and a cursor that is shown again."""

    def interrupted(*_asked: object, **_more: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(SnapshotStore, "verify", interrupted)
    result = quiesce("verify", "a", "--root", str(root), "--json")
    assert result.exit_code == 128 + signal.SIGTERM
    assert last_object(result)["interrupted"] == "SIGTERM"
    assert "interrupted by SIGTERM; whether a is good is not known" in result.stderr
    assert result.stderr.rindex("\x1b[?25h") > result.stderr.rindex("\x1b[?25l")


def test_what_was_only_taken_out_of_its_place_is_not_said_to_be_removed(
    quiesce: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in it that this user may not remove: the snapshot is gone, its remains are named, the rest went."""
    real = LocalFiles.remove_file

    def refusing(files: LocalFiles, path: Path) -> None:
        if "a-00000001.1" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(files, path)

    monkeypatch.setattr(LocalFiles, "remove_file", refusing)
    result = quiesce("prune", "--keep", "1", "--root", str(root))
    assert result.exit_code == 1
    assert "took a-00000001 out of its place; not all of it could be removed\nremoved b-00000002\n" in result.stdout
    assert "1 snapshot stays; removed 1, and 0 left-overs" in result.stdout
    assert ".quiesce/trash/a-00000001.1/" in result.stderr


def test_each_reason_of_a_pruning_names_what_it_is_about(quiesce: Command, root: Path) -> None:
    """A journal that cannot be read is named by its id, not as somebody's."""
    (root / ".quiesce" / "journal" / "restore-a-00000009.ndjson").write_text("{")
    result = quiesce("prune", "--keep", "1", "--root", str(root))
    assert "  1. the journal of restore-a-00000009 " in result.stderr
