"""Spin in tests: where it is missing, and a trail of it as the actions that the explorer knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from quiesce.cli.spin import missing_programs
from quiesce.fsm.explore_model import System

__all__ = ["needs_spin", "replayed", "takes", "trail_of"]

needs_spin = pytest.mark.skipif(
    bool(missing_programs()), reason=f"Spin cannot be run: {' and '.join(missing_programs())} not installed"
)

_NOTE = re.compile(r"^  \d+,? /\* (\d+): (.*) \*/$")
_PRINTED = re.compile(r"^ *(controller|s\d+) (\d+) (\d+)$", re.MULTILINE)


def takes(model: str, folder: Path) -> str:
    """What Spin has to say against a model when it makes a verifier of it; nothing if all is well."""
    (folder / "taken.pml").write_text(model, encoding="utf-8")
    command = ["spin", "-a", "taken.pml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or done.stdout + done.stderr
    return done.stdout + done.stderr


def trail_of(folder: Path) -> list[str]:
    """The actions of the trail that Spin left in ``folder``, by the notes of the model."""
    noted = _notes((folder / "model.pml").read_text(encoding="utf-8"))
    # it exits with 1 where the trail ends in an assertion
    command = ["spin", "-t", "-B", "model.pml"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    return [
        noted[who, int(number)] + ("; its record fails" if int(alternative) else "")
        for who, number, alternative in _PRINTED.findall(said)
    ]


def _notes(model: str) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    who = ""
    for line in model.splitlines():
        if line.startswith("hidden int "):
            name = line.removeprefix("hidden int ").split("[")[0]
            who = "controller" if name.startswith("told_event_") else name.split("_")[0] if "_to_" in name else ""
        elif who and (note := _NOTE.match(line)):
            found[who, int(note[1])] = note[2]
    return found


def replayed(system: System, actions: list[str]) -> set[int]:
    """Every state that these actions can lead to, one after the other, in the explorer's own composition."""
    states = set(system.initial())
    for action in actions:
        states = {target for state in states for name, target in system.steps(state) if name == action}
    return states
