"""What becomes of a command whose beginning or whose output is cut off: a sentence and an exit code, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quiesce.cli.entry import INTERRUPTED

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
    """The command says what cannot be written, and that what it did before stands."""
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "quiesce.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("quiesce: standard output cannot be written (No space left on device)")
    assert ended.stderr.count("\n") == 1


def test_a_reader_that_has_gone_is_no_failure() -> None:
    """``quiesce diagram | head -1`` says nothing of it."""
    command = subprocess.Popen(
        [sys.executable, "-m", "quiesce.cli.main", "diagram", "transaction"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    command.stdout.close()
    _, said = command.communicate(timeout=60)
    assert said == ""


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
