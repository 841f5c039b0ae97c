"""The search finds planted bugs: each is a row of a table that is changed, and a property that then breaks."""

from __future__ import annotations

import pytest
from support.planted import BUGS, named, searched


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_with_a_trace(name: str) -> None:
    """Each planted bug breaks the property that it is planted against, in a search that holds without it."""
    found = searched(BUGS[name])
    violated = {named(verdict): verdict for verdict in found.violations()}
    assert BUGS[name].breaks in violated, f"found only {sorted(violated)} in {found.states} states"
    assert violated[BUGS[name].breaks].trace


def test_a_trace_reads_as_a_scenario() -> None:
    """A counterexample is a list of what happens to whom, shortest first, that can be read without the source."""
    found = searched(BUGS["a participant is not marked before its first call"])
    trace = next(verdict.trace for verdict in found.violations() if verdict.name == "closed_is_known")
    assert trace == (
        "asked to Begin",
        "policy: inspect arrives",
        "policy: the answer to inspect arrives: open",
        "agent: inspect arrives",
        "agent: the answer to inspect arrives: open",
        "policy: close arrives, nothing in flight",
    )
