"""What becomes of a command whose beginning or whose output is cut off: a sentence and an exit code, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quiesce.cli import main
from quiesce.cli.entry import INTERRUPTED
from quiesce.cli.main import COMMANDS
from quiesce.cli.standard_output import READER_GONE

FULL = Path("/dev/full")
INTERRUPTED_IMPORT = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "quiesce.cli.main":
            raise KeyboardInterrupt
from quiesce.cli.entry import main
sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.skipif(not FULL.exists(), reason="there is no device here that is always full")
@pytest.mark.parametrize("arguments", [["diagram", "transaction"], ["diagram", "--json"]], ids=" ".join)
def test_a_full_output_is_named(arguments: list[str]) -> None:
    """The command says what cannot be written, and nothing of what stands: it has only told something."""
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "quiesce.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "quiesce: standard output cannot be written (No space left on device)\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_only_a_command_that_acts_says_that_it_stands(name: str) -> None:
    """Where to look at what was done is no advice for one that has done nothing."""
    said = main._what_stands(["--log-level", "info", name, "--json"])
    acts = name in {"checkpoint", "restore", "recover", "settle", "abort", "prune"}
    assert ("what was done before stands" in said) is acts


@pytest.mark.parametrize(
    "arguments",
    [
        ["diagram", "transaction"],
        ["diagram", "--json"],
        ["--help"],
        ["checkpoint", "--help"],
        ["check", "--variant", "strict", "--only", "restore, no fault"],
    ],
    ids=" ".join,
)
def test_a_reader_that_has_gone_ends_any_command_in_silence(arguments: list[str]) -> None:
    """``quiesce diagram | head -1`` says nothing of it, and the exit code is the shells' own for it."""
    with gone() as nobody:
        ended = subprocess.run(
            [sys.executable, "-m", "quiesce.cli.main", *arguments],
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (READER_GONE, "")


def test_what_went_wrong_keeps_its_exit_code_though_nobody_reads_it() -> None:
    """Behind ``2>&1 | head`` too a script learns it; the object on the output is there where that is read."""
    command = [sys.executable, "-m", "quiesce.cli.main", "check", "--only", "no such words", "--json"]
    with gone() as nobody:
        both = subprocess.run(command, stdout=nobody, stderr=nobody, check=False)
        one = subprocess.run(command, stdout=subprocess.PIPE, stderr=nobody, text=True, check=False)
    assert (both.returncode, one.returncode) == (2, 2)
    assert json.loads(one.stdout)["ok"] is False


@contextmanager
def gone() -> Iterator[int]:
    """A pipe that nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


def test_ctrl_c_before_anything_was_begun_is_a_sentence() -> None:
    """While the command is still being loaded nothing can be owed to anybody."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (INTERRUPTED, "")
    assert ended.stderr == "quiesce: interrupted before anything was begun\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_an_error_of_usage_is_json_where_json_was_asked_for(*, as_json: bool) -> None:
    """Usage goes to standard error; the object stands on the last line of the output."""
    arguments = ["diagram", "--nope", *(["--json"] if as_json else [])]
    ended = subprocess.run(
        [sys.executable, "-m", "quiesce.cli.main", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "--nope" in ended.stderr
    if as_json:
        said = json.loads(ended.stdout.splitlines()[-1])
        assert (said["ok"], said["type"]) == (False, "UsageError")
        assert "--nope" in said["error"]
    else:
        assert ended.stdout == ""
