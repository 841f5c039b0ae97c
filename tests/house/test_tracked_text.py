"""Nothing that belongs to one machine stands in the tree."""

from __future__ import annotations

import re

import pytest
from support.house import ROOMS, ROOT

pytestmark = pytest.mark.source

# character classes keep this file from finding itself
MACHINE_PATH = re.compile(r"/(?:home|Users|work|root)/[A-Za-z]")
REGISTRY = re.compile(r"index[-]url|pythonhosted[.]org|pypi[.]org/simple")
SUFFIXES = {".py", ".toml", ".txt", ".md", ".mmd", ".yaml", ".yml", ".cfg", ".sh"}


def test_no_machine_path_and_no_registry() -> None:
    """Source, documents and settings name no home folder and no package registry."""
    places = [ROOT / name for name in (*ROOMS, "tests", "bench", "docs", ".ci")]
    files = [path for place in places for path in place.rglob("*") if path.is_file() and "data" not in path.parts]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    read = [path for path in files if path.suffix in SUFFIXES or path.name in {"Makefile", "run"}]
    assert len(read) > 20
    found = [p.relative_to(ROOT).as_posix() for p in read if _offends(p.read_text(encoding="utf-8"))]
    assert found == []


def _offends(text: str) -> bool:
    return bool(MACHINE_PATH.search(text) or REGISTRY.search(text))
