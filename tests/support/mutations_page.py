"""The page about planted bugs, made of what the searches find: ``python -m support.mutations_page > FILE``."""

from __future__ import annotations

from support.planted_bugs import BUGS, searched, verdict_of

__all__ = ["page"]

_HEAD = """# Planted bugs

Each line is a bug that was planted into the declarations: a row that goes elsewhere, a guard that is dropped, a wave
that is out of order. Each alone, or where it says so with a second change, since another part of the protocol would
catch one alone. The search (`quiesce check` runs the same ones without the bug) must break the property that is named,
and gives the shortest way there; `tests/fsm/test_explore_mutations.py` holds it to that. What the properties mean is
printed by `quiesce check`. Tests that only walk at random are no substitute: most of these need more than a dozen
actions in one order.

| planted | what is changed | searched in | violated | actions | states seen |
| --- | --- | --- | --- | ---: | ---: |
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(f"| {' | '.join(_cells(name))} |\n" for name in BUGS)


def _cells(name: str) -> tuple[str, ...]:
    bug, verdict = BUGS[name], verdict_of(name)
    actions = "not found" if verdict is None else str(len(verdict.trace or ()))
    budgets = bug.budgets or {}
    faults = " + ".join(fault.name.lower() for fault in budgets)
    where = bug.where if not faults else f"{bug.where.rpartition(', ')[0]}, {faults}"
    return name, bug.said(), where, bug.breaks, actions, f"{searched(name).states:,}"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - its one purpose
