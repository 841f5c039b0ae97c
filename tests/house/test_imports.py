"""Who may import whom: the contracts hold, and they would notice if they did not."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.house import ROOMS, ROOT, parsed, source_files

pytestmark = pytest.mark.source

# a file to add, what it imports, and the contract that must break
INTRUDERS = {
    "fsm/intruder.py": ("quiesce.transport", "cli > fuzz > controller > transport > participants > fsm"),
    "fsm/tables/intruder.py": ("time", "fsm does no I/O and reads no clock"),
    "controller/intruder.py": ("transitions", "only fsm.machine knows the transitions library"),
    "participants/dialects/intruder.py": ("socket", "participants parses and verifies; only its server does I/O"),
    "transport/intruder.py": ("quiesce.participants.server", "the client's side never imports the server kit"),
    "diagrams/intruder.py": ("quiesce.participants", "diagrams imports only fsm"),
    "fsm/other.py": ("quiesce.diagrams", "nothing that runs depends on its pictures"),
}


def _lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts on the rooms that lie below ``tree/quiesce``."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def _copy(tree: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tree)
    for room in ROOMS:
        shutil.copytree(ROOT / room, tree / "quiesce" / room, ignore=shutil.ignore_patterns("__pycache__"))


def test_contracts_hold(tmp_path: Path) -> None:
    """No room imports what it may not."""
    _copy(tmp_path)
    run = _lint(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


def test_contracts_notice_an_intruder(tmp_path: Path) -> None:
    """Each contract breaks when a file does what it forbids."""
    _copy(tmp_path)
    for path, (imported, _) in INTRUDERS.items():
        (tmp_path / "quiesce" / path).write_text(f"import {imported}\n", encoding="utf-8")
    run = _lint(tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    broken = {line.rsplit(" BROKEN", 1)[0] for line in run.stdout.splitlines() if " BROKEN" in line}
    assert broken >= {contract for _, contract in INTRUDERS.values()}


def test_the_linter_bans_each_bare_room(tmp_path: Path) -> None:
    """``import fsm`` works from the root of the repository, and is a lint error for every room in both forms."""
    lines = [line for room in ROOMS for line in (f"import {room}", f"from {room} import anything")]
    intruder = tmp_path / "intruder.py"
    intruder.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            f"--config={ROOT / 'pyproject.toml'}",
            "--select=TID251",
            "--output-format=concise",
            "--no-cache",
            str(intruder),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.count("TID251") == len(lines), run.stdout + run.stderr


def test_no_file_imports_a_bare_room() -> None:
    """No file of ours does, whatever the linter was told to leave out."""
    files = source_files() + sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "bench").rglob("*.py"))
    assert len(files) > 20
    bare = [f"{path.relative_to(ROOT)}: {name}" for path in files for name in _imported(path) if _root(name) in ROOMS]
    assert bare == []


def _imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names


def _root(name: str) -> str:
    return name.split(".", 1)[0]
