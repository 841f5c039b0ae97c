"""Names say what a thing is: words that say nothing are not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.house import ROOT, parsed, source_files

pytestmark = pytest.mark.source

FORBIDDEN = {"manager", "managers", "helper", "helpers", "util", "utils", "data", "process", "handle"}

# names that something outside dictates, and what
DICTATED = {
    "handle_async_request": "httpx.AsyncBaseTransport",
    "MultiProcess": "the capability multi_process of the wire",
}


def words(name: str) -> list[str]:
    """The words of an identifier: ``HTTPDataPort`` and ``http_data_port`` are http, data, port."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [word.lower() for word in re.split(r"_+|\d+", spaced) if word]


def offences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each function and class in ``tree`` whose name holds a forbidden word."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name not in DICTATED and FORBIDDEN & set(words(node.name)):
            yield node.lineno, node.name


def test_functions_and_classes_are_named_for_what_they_are() -> None:
    """No function or class of ours is called a manager, a helper, data, and so on."""
    files = source_files()
    assert len(files) > 10
    assert [f"{_short(path)}:{line} {name}" for path in files for line, name in offences(parsed(path))] == []


def test_modules_and_folders_are_named_for_what_they_are() -> None:
    """No file or folder of ours is, either."""
    named = [path.relative_to(ROOT).with_suffix("") for path in source_files()]
    assert [str(path) for path in named if any(FORBIDDEN & set(words(part)) for part in path.parts)] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class DataPort: ...", True),
        ("class HTTPManager: ...", True),
        ("def process_reply(): ...", True),
        ("async def handle(): ...", True),
        ("class Outer:\n    def get_utils(self): ...", True),
        ("def metadata(): ...", False),
        ("def processed(): ...", False),
        ("class Handler: ...", False),
        ("async def handle_async_request(): ...", False),
        ("data = process(handle)", False),
    ],
)
def test_the_rule_finds_parts_of_names_and_nothing_else(source: str, found: bool) -> None:  # noqa: FBT001 - a table
    """Whole words of defined names count; longer words, calls and local variables do not."""
    assert bool(list(offences(ast.parse(source)))) is found


def _short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
