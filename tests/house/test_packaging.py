"""What is in the tree is what is installed, and what is installed is pinned."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from typing import Any

import pytest
from support.house import ROOMS, ROOT, source_packages

pytestmark = pytest.mark.source

# pip and what it builds with come with Python's own venv
UNPINNED = {"quiesce", "pip", "setuptools", "wheel"}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:  # Any: a TOML document
    """The project's own settings."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_has_its_rows(pyproject: dict[str, Any]) -> None:
    """A folder with an ``__init__.py`` that has no row would be installed nowhere and fail nowhere."""
    folders = source_packages()
    assert {"fsm", "participants/server"} <= set(folders)
    expected = {f"quiesce.{folder.replace('/', '.')}": folder for folder in folders}
    assert pyproject["tool"]["setuptools"]["package-dir"] == expected
    assert sorted(pyproject["tool"]["setuptools"]["packages"]) == sorted(expected)


def test_every_package_is_marked_as_typed() -> None:
    """Each package carries ``py.typed``, without which its annotations are ignored by users' type checkers."""
    assert [folder for folder in source_packages() if not (ROOT / folder / "py.typed").is_file()] == []


def test_every_module_stands_in_a_package() -> None:
    """A module in a folder without ``__init__.py`` would not be installed."""
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert folders == {ROOT / folder for folder in source_packages()}


def test_the_namespace_has_no_root_package() -> None:
    """``quiesce`` is a namespace: an ``__init__.py`` of it, or a folder of that name, would break the rooms."""
    assert not (ROOT / "__init__.py").exists()
    assert not (ROOT / "quiesce").exists()


@pytest.mark.parametrize("section", [("mypy", "packages"), ("importlinter", "root_packages")])
def test_every_tool_knows_every_room(pyproject: dict[str, Any], section: tuple[str, str]) -> None:
    """A room that a tool's list lacks would silently not be checked."""
    tool, key = section
    assert pyproject["tool"][tool][key] == [f"quiesce.{room}" for room in ROOMS]


def test_coverage_knows_every_room(pyproject: dict[str, Any]) -> None:
    """A file that no test imports counts as uncovered, in every room."""
    assert pyproject["tool"]["coverage"]["run"]["source_pkgs"] == [f"quiesce.{room}" for room in ROOMS]


def test_what_is_installed_is_pinned() -> None:
    """Every distribution of this environment stands in ``constraints.txt`` with the release that is installed."""
    pins = _pins()
    assert "pydantic" in pins
    installed = {_canonical(item.name): item.version for item in importlib.metadata.distributions()}
    assert {name: version for name, version in installed.items() if name not in UNPINNED} == {
        name: version for name, version in pins.items() if name in installed
    }


def test_every_dependency_says_why() -> None:
    """Each dependency of the base and of the server extra has a comment with its reason on its line."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r'\s+"[A-Za-z-]+>=', line)]
    assert len(lines) > 10
    obvious = ("coverage", "mypy", "pytest-cov", "ruff")
    assert [
        line for line in lines if "#" not in line and not line.strip().startswith(tuple(f'"{o}' for o in obvious))
    ] == []


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {_canonical(name): version for name, version in pairs}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
