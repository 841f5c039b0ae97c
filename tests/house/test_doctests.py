"""Examples in docstrings run and show what they say."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest
from support.house import modules

# one import of each module: pytest's own --doctest-modules would make second copies of the enums
MODULES = modules()


def test_the_walk_found_an_example() -> None:
    """At least one module is known to carry an example; a walk that finds none would pass silently."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    with_examples = {m.__name__ for m in MODULES if any(test.examples for test in finder.find(m))}
    assert "quiesce.diagrams.mermaid" in with_examples


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_hold(module: ModuleType) -> None:
    """Every example of the module gives the output that stands below it."""
    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0
