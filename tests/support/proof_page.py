"""What the page on the proof counts, made of what is pinned: ``python -m support.proof_page`` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from support.pinned_states import PINNED
from support.sweeps import REDUCED, SWEPT, setups_of

from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_suites import SUITES, suite

__all__ = ["bounds_table", "reduced_table", "sweeps_table", "verdicts_table"]


def bounds_table() -> str:
    """Which searches there are, over how many participants, with which faults."""
    one, pairs, three, each = (
        len(PINNED),
        *(len(list(setups_of(kind))) for kind in ("two, pairs", "three", "three, pairs")),
    )
    return (
        "| searches | participants | faults that may strike in one search | searched |\n"
        "| --- | ---: | --- | --- |\n"
        f"| {one}, in `make test` | 2 | one class, once; any abort and retry | to the end |\n"
        f"| {pairs}, in `make test-all` | 2 | every two classes, once each | to the end |\n"
        f"| {three}, in `make test-all` | 3, every fleet | one class, once | to the end |\n"
        f"| {each}, in `make test-all` | 3, one of each role | every two classes, once each | to 50,000 states each |\n"
    )


def verdicts_table() -> str:
    """What the searches of two participants with one class of faults come to, by suite."""
    rows = {name: _of_suite(name) for name in SUITES}
    searches, states, transitions, _, _, waived = (sum(column) for column in zip(*rows.values(), strict=True))
    deepest = max(row[3] for row in rows.values())
    return "".join(
        (
            "| suite | searches | states | transitions | deepest | verdicts that hold | not claimed |\n",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
            *(
                f"| `{name}` | {row[0]} | {row[1]:,} | {row[2]:,} | {row[3]} | {row[4]:,} of {row[4]:,} | {row[5]} |\n"
                for name, row in rows.items()
            ),
            f"| together | {searches} | {states:,} | {transitions:,} | {deepest} | all | {waived} |\n",
        )
    )


def _of_suite(name: str) -> tuple[int, int, int, int, int, int]:
    setups = suite(name)
    counts = [PINNED[setup.name] for setup in setups]
    states, transitions, depths = zip(*counts, strict=True)
    # beside the named properties: no deadlock, and that everybody can accept work again
    verdicts = sum(len(System(setup).always) + 2 + len(setup.expects) for setup in setups)
    waived = sum(len(setup.waives) for setup in setups)
    return len(setups), sum(states), sum(transitions), max(depths), verdicts, waived


def sweeps_table() -> str:
    """What the other searches come to."""
    return "".join(_sweeps())


def _sweeps() -> Iterator[str]:
    yield "| participants, faults | searches | came to their end | states | transitions | largest | deepest |\n"
    yield "| --- | ---: | --- | ---: | ---: | ---: | ---: |\n"
    names = {"two, pairs": "2, two classes", "three": "3, one class", "three, pairs": "3, two classes"}
    for kind, what in names.items():
        found = SWEPT[kind]
        setups = list(setups_of(kind))
        cuts = sum(", cut, " in setup.name for setup in setups)
        ended = f"{found.cuts} of {cuts} cuts, {found.restores} of {len(setups) - cuts} restores"
        transitions = "" if found.transitions is None else f"{found.transitions:,}"
        counts = f"{found.states:,} | {transitions} | {found.largest:,} | {found.deepest}"
        yield f"| {what} | {found.searches} | {ended} | {counts} |\n"


def reduced_table() -> str:
    """How many states there are with and without the reduction."""
    rows = (f"| {what} | {full:,} | {reduced:,} |\n" for what, (_, _, full, reduced) in REDUCED.items())
    return "".join(("| search | full | reduced |\n| --- | ---: | ---: |\n", *rows))


if __name__ == "__main__":
    tables = (bounds_table(), verdicts_table(), sweeps_table(), reduced_table())
    print(*tables, sep="\n", end="")  # noqa: T201 - its one purpose
