"""House rules that no linter knows: short functions, reasons beside ignores, tests that say what must hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.house import ROOT, parsed, source_files

pytestmark = pytest.mark.source

LINES_MAX = 70
IGNORE = re.compile(r"#\s*(?:noqa|type:\s*ignore|pragma)")
WITH_REASON = re.compile(r"# (?:noqa: [A-Z0-9, ]+?|type: ignore\[[a-z, -]+\]|pragma: no (?:cover|branch)) +(?:-|#) +\S")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files_with_tests() -> list[Path]:
    """Every Python file that is ours, tests and benchmarks included."""
    return source_files() + [path for folder in ("tests", "bench") for path in sorted((ROOT / folder).rglob("*.py"))]


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a file."""
    return (node for node in ast.walk(parsed(path)) if isinstance(node, Function))


def lines(function: Function) -> int:
    """How many lines a function has, from its ``def`` to its end."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def bare_ignores(text: str) -> list[int]:
    """Numbers of the lines that silence a tool without a reason."""
    numbered = enumerate(text.splitlines(), start=1)
    return [number for number, line in numbered if IGNORE.search(line) and not WITH_REASON.search(line)]


def test_no_function_is_too_long() -> None:
    """Every function fits on a screen."""
    files = files_with_tests()
    assert len(files) > 50
    long = [
        f"{_short(path)}:{f.lineno} {f.name} {lines(f)}"
        for path in files
        for f in functions(path)
        if lines(f) > LINES_MAX
    ]
    assert long == []


def test_every_ignore_has_its_reason() -> None:
    """A line that silences a tool says why, on the same line."""
    mine = Path(__file__)
    files = [path for path in files_with_tests() if path != mine]
    bare = [f"{_short(path)}:{number}" for path in files for number in bare_ignores(path.read_text(encoding="utf-8"))]
    assert bare == []


def test_every_test_says_what_must_hold() -> None:
    """Each test function, in a class or not, has a docstring."""
    tests = [(path, f) for path in (ROOT / "tests").rglob("test_*.py") for f in functions(path) if _is_test(f)]
    assert len(tests) > 100
    assert [f"{_short(path)}:{f.lineno} {f.name}" for path, f in tests if not ast.get_docstring(f)] == []


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("x = 1  # noqa", True),
        ("x = 1  # noqa: S101", True),
        ("x = 1  # type: ignore", True),
        ("x = 1  # type: ignore[misc]", True),
        ("x = 1  # noqa: S101, S102 - because", False),
        ("x = 1  # type: ignore[misc]  # because", False),
        ("x = 1  # a note", False),
    ],
)
def test_a_bare_ignore_is_noticed(line: str, bare: bool) -> None:  # noqa: FBT001 - a table
    """The rule tells an ignore with a reason from one without."""
    assert bare_ignores(line) == ([1] if bare else [])


def _is_test(function: Function) -> bool:
    return function.name.startswith("test_")


def _short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
