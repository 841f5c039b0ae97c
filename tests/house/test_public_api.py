"""The public names: what ``__all__`` promises exists, is documented, and nothing is found by accident."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest
from support.house import modules

MODULES = modules()


def test_the_walk_found_the_modules() -> None:
    """A walk over nothing would pass silently; these modules are known to exist."""
    names = {module.__name__ for module in MODULES}
    assert {
        "quiesce.fsm.rows",
        "quiesce.fsm.tables",
        "quiesce.diagrams.mermaid",
        "quiesce.participants.server",
    } <= names


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_module_says_what_is_public(module: ModuleType) -> None:
    """A module has a docstring and an ``__all__`` whose names exist, once each, in the order that ruff keeps."""
    assert module.__doc__
    names = getattr(module, "__all__", None)
    assert names is not None, f"{module.__name__} has no __all__"
    assert [name for name in names if not hasattr(module, name)] == []
    assert list(names) == sorted(set(names), key=_rank)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module: ModuleType) -> None:
    """A public class or function of ours has a docstring of its own."""
    ours = [(name, getattr(module, name)) for name in module.__all__]
    written = [(name, item) for name, item in ours if inspect.isfunction(item) or inspect.isclass(item)]
    assert [name for name, item in written if not _own_docstring(item)] == []


def _own_docstring(item: object) -> bool:
    text = item.__doc__
    name = getattr(item, "__name__", "")
    # a dataclass without a docstring is given its own signature as one
    return text is not None and not text.startswith(f"{name}(")


def _rank(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    parts = re.findall(r"\d+|\D+", name)
    return kind, [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
