"""Where the source tree is, and what is in it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("fsm", "participants", "transport", "controller", "fuzz", "diagrams", "cli")


def source_files() -> list[Path]:
    """Every Python file of every room, sorted."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def source_packages() -> list[str]:
    """Every folder with an ``__init__.py``, as a path from the root (``participants/server``)."""
    return sorted(
        path.parent.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("__init__.py")
    )


def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def modules() -> list[ModuleType]:
    """Every installed module of every room, imported; a module that cannot be imported is an error, not a gap."""
    found = [importlib.import_module(f"quiesce.{room}") for room in ROOMS]
    for package in list(found):
        found += [importlib.import_module(name) for name in _names_below(package)]
    return sorted(found, key=lambda module: module.__name__)


def _names_below(package: ModuleType) -> Iterator[str]:
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=_raise):
        if not info.name.endswith(".__main__"):
            yield info.name


def _raise(name: str) -> NoReturn:
    message = f"{name} cannot be imported"
    raise ImportError(message)
