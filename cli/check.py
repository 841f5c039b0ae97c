"""``quiesce check``: search every state of the protocol against every fence variant, and say what holds."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from quiesce.cli.output import ExitCode, emit_json, fail
from quiesce.cli.promela import Opinion, SecondOpinions
from quiesce.cli.spin import SpinFailed, missing_programs
from quiesce.fsm.explore import STATES_MAX, Exploration, Kind, Progress, Verdict, explore
from quiesce.fsm.explore_model import TIMES_MAX, Setup, System
from quiesce.fsm.explore_properties import ALWAYS, SOMETIMES
from quiesce.fsm.explore_suites import PARTICIPANTS_MAX, suite
from quiesce.fuzz.counterexample import Counterexample, counterexample_text

__all__ = ["Variant", "register"]


class Variant(StrEnum):
    """Whose servers the controller is searched against."""

    STRICT = "strict"
    GYM_A_SINGLE = "gym_a_single"
    GYM_A_COORDINATOR = "gym_a_coordinator"
    MIXED = "mixed"


_Watch = Callable[[Progress], None]

_MEANINGS: Final = {claim.name: claim.meaning for claim in (*ALWAYS, *SOMETIMES)}
_WORDS: Final = {True: "holds", False: "VIOLATED", None: "undecided"}


@dataclass(slots=True)
class _Search:
    """One search, how long it took, what was written of it, and what Spin says of it."""

    setup: Setup
    found: Exploration
    took_s: float
    files: tuple[Path, ...] = ()
    opinion: Opinion = field(default_factory=Opinion)

    @property
    def is_proven(self) -> bool:
        """Whether every property holds, and nobody who was asked disagrees."""
        return self.found.holds and not self.opinion.disagreements

    @property
    def speed(self) -> float:
        """States a second."""
        return self.found.states / max(self.took_s, 1e-9)

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.found.name,
            "states": self.found.states,
            "transitions": self.found.transitions,
            "depth": self.found.depth,
            "complete": self.found.complete,
            "seconds": round(self.took_s, 3),
            "verdicts": [_verdict_json(verdict) for verdict in self.found.verdicts],
            "not_claimed": dict(self.setup.waives),
            "files": [str(file) for file in self.files],
            **self.opinion.to_json(),
        }


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("check")(_check)


def _check(  # noqa: PLR0913 - each is an option of the command
    *,
    variant: Annotated[
        Variant | None, typer.Option(help="Search against this kind of servers alone; without it, against all.")
    ] = None,
    times: Annotated[
        int, typer.Option(min=1, max=TIMES_MAX, help="How often each class of faults may strike in a search.")
    ] = 1,
    participants: Annotated[
        int, typer.Option(min=2, max=PARTICIPANTS_MAX, help="How many participants a cut or restore goes over.")
    ] = 2,
    pairs: Annotated[bool, typer.Option("--pairs", help="Let two classes of faults strike in each search.")] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Search every state, also those that differ only by who is who among equals."),
    ] = False,
    states_max: Annotated[
        int, typer.Option(min=1, help="Bound on the states of one search; each takes about half a kilobyte.")
    ] = STATES_MAX,
    counterexample_dir: Annotated[
        Path | None,
        typer.Option(help="Write each violation into this folder, as a file that 'quiesce replay' takes."),
    ] = None,
    witnesses: Annotated[
        bool, typer.Option("--witnesses", help="With --counterexample-dir: also a shortest way to all that is reached.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Search only what has these words in its name.")
    ] = None,
    promela: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write each search into this folder as a model for Spin.")
    ] = None,
    spin: Annotated[
        bool, typer.Option("--spin", help="Run Spin on each search's model, and compare states and verdicts.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on the last line.")] = False,
) -> None:
    """Prove the protocol: search every state of a cut and a restore over a few participants, with faults.

    Of states that differ only by who is who among participants that are alike, one is searched; Spin is given them all.
    Exits 0 when every property holds in every state, 1 when one is violated, a bound was hit or Spin does not agree,
    2 when nothing was searched: no search has the words, or Spin is not installed.
    """
    if witnesses and counterexample_dir is None:
        fail("--witnesses needs --counterexample-dir, where they are written", ExitCode.USAGE, as_json=as_json)
    if counterexample_dir is not None:
        _try(counterexample_dir, as_json=as_json)
    found_setups = _setups(variant, times, participants=participants, pairs=pairs)
    setups = [setup for setup in found_setups if only is None or only in setup.name]
    _refuse_nothing(setups, only, spin=spin, as_json=as_json)
    opinions = SecondOpinions(promela, with_spin=spin)
    searches = []
    for setup in setups:
        system = System(setup, reduced=not (full or spin or promela))
        searches.append(_searched(setup, system, states_max, as_json=as_json))
        searches[-1].opinion = _asked(opinions, system, searches[-1].found, as_json=as_json)
        if counterexample_dir is not None:
            searches[-1].files = _write(searches[-1], counterexample_dir, witnesses=witnesses, as_json=as_json)
        if not as_json:
            _tell_search(searches[-1])
    proven = all(search.is_proven for search in searches)
    if as_json:
        emit_json({"ok": proven, **_totals(searches), "searches": [search.to_json() for search in searches]})
    else:
        _tell_all(searches)
    if not proven:
        raise typer.Exit(ExitCode.FAILED)


def _setups(variant: Variant | None, times: int, *, participants: int, pairs: bool) -> Iterator[Setup]:
    for chosen in Variant if variant is None else (variant,):
        yield from suite(chosen, times, participants=participants, pairs=pairs)


def _refuse_nothing(setups: Sequence[Setup], only: str | None, *, spin: bool, as_json: bool) -> None:
    if not setups:
        fail(f"no search has '{only}' in its name; without --only all are named", ExitCode.USAGE, as_json=as_json)
    if spin and (missing := missing_programs()):
        needs = f"--spin needs {' and '.join(missing)} (Debian: apt-get install {' '.join(missing)})"
        fail(f"{needs}; without --spin the explorer proves the protocol alone", ExitCode.USAGE, as_json=as_json)


def _searched(setup: Setup, system: System, states_max: int, *, as_json: bool) -> _Search:
    with _shown(setup.name) as watch:
        began_s = time.perf_counter()
        try:
            found = explore(system, states_max=states_max, watch=watch)
        except MemoryError:
            found = None  # what the search holds is let go before anything is said
        took_s = time.perf_counter() - began_s
    if found is None:
        undecided = f"{setup.name}: undecided, the memory is full; bound the search with --states-max"
        fail(undecided, ExitCode.FAILED, as_json=as_json, type="MemoryError")
    return _Search(setup, found, took_s)


def _try(folder: Path, *, as_json: bool) -> None:
    """Write there now what would be lost at the end of a long search."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fail(f"cannot write into {folder}: {error.strerror or error}", ExitCode.USAGE, as_json=as_json)


def _asked(opinions: SecondOpinions, system: System, found: Exploration, *, as_json: bool) -> Opinion:
    try:
        return opinions.of(system, found)
    except OSError as error:
        fail(f"cannot write a model: {error.filename}: {error.strerror or error}", ExitCode.USAGE, as_json=as_json)
    except SpinFailed as error:
        fail(f"{found.name}: {error}", ExitCode.FAILED, as_json=as_json)


def _write(search: _Search, folder: Path, *, witnesses: bool, as_json: bool) -> tuple[Path, ...]:
    """A file for each violation, named after the search and the property, and for each witness if asked for."""
    shown = [
        verdict
        for verdict in search.found.verdicts
        if verdict.trace is not None and (verdict.holds is False or (witnesses and verdict.kind is Kind.SOMETIMES))
    ]
    files = []
    for verdict in shown:
        file = folder / f"{_slug(search.setup.name)}--{_slug(verdict.name)}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(counterexample_text(Counterexample.of(search.setup, verdict)), encoding="utf-8")
        except OSError as error:
            fail(f"cannot write {file}: {error.strerror or error}", ExitCode.USAGE, as_json=as_json)
        files.append(file)
    return tuple(files)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@contextmanager
def _shown(name: str) -> Iterator[_Watch | None]:
    """How far a search has come, where standard error is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status(name) as status:

        def watch(progress: Progress) -> None:
            status.update(
                f"{name}: {progress.states:,} states, {progress.waiting:,} to look at, depth {progress.depth}"
            )

        yield watch


def _tell_search(search: _Search) -> None:
    found = search.found
    word = "holds" if found.holds else "VIOLATED" if found.violations() else "bound hit: undecided"
    typer.echo(
        f"{found.name}: {found.states:,} states, {found.transitions:,} transitions, depth {found.depth}, "
        f"{search.speed:,.0f} states/s: {word}"
    )
    for verdict in found.violations():
        typer.echo(f"  {verdict}: {_MEANINGS.get(verdict.name, verdict.kind.value)}")
        for number, action in enumerate(verdict.trace or (), start=1):
            typer.echo(f"    {number:3}. {action}")
    for line in (*(f"written: {file}" for file in search.files), *search.opinion.lines()):
        typer.echo(f"  {line}")


def _tell_all(searches: Sequence[_Search]) -> None:
    typer.echo("")
    for (kind, name), verdicts in _by_property(searches).items():
        held = sum(verdict.holds is True for verdict in verdicts)
        worst = False if any(verdict.holds is False for verdict in verdicts) else None if held < len(verdicts) else True
        meaning = f": {_MEANINGS[name]}" if name in _MEANINGS else ""
        typer.echo(f"{_WORDS[worst]:9}  {kind.value:11}  {name} ({held} of {len(verdicts)} searches){meaning}")
    for name, reason, count in _not_claimed(searches):
        typer.echo(f"not claimed  {name} ({count} of {len(searches)} searches): {reason}")
    totals = _totals(searches)
    bounded = sum(not search.found.complete for search in searches)
    end = f"; {bounded} searches were bounded before they saw everything" if bounded else ""
    typer.echo(
        f"\n{totals['states']:,} states and {totals['transitions']:,} transitions in {len(searches)} searches, depth "
        f"{totals['depth']}, {totals['states_per_s']:,} states/s, {totals['seconds']} s{end}"
    )
    asked = [search for search in searches if search.opinion.run is not None]
    if asked:
        agreed = sum(not search.opinion.disagreements for search in asked)
        typer.echo(f"Spin agrees on {agreed} of {len(asked)} searches: states, transitions and verdicts")


def _by_property(searches: Sequence[_Search]) -> Mapping[tuple[Kind, str], list[Verdict]]:
    """Verdicts by property: what always holds first, what is reached last."""
    collected: dict[tuple[Kind, str], list[Verdict]] = {}
    for verdict in (verdict for search in searches for verdict in search.found.verdicts):
        collected.setdefault((verdict.kind, verdict.name), []).append(verdict)
    order = (Kind.ALWAYS, Kind.NO_DEADLOCK, Kind.RECOVERABLE, Kind.SOMETIMES)
    return dict(sorted(collected.items(), key=lambda item: order.index(item[0][0])))


def _not_claimed(searches: Sequence[_Search]) -> list[tuple[str, str, int]]:
    waived = [pair for search in searches for pair in search.setup.waives.items()]
    return [(name, reason, waived.count((name, reason))) for name, reason in sorted(set(waived))]


def _totals(searches: Sequence[_Search]) -> dict[str, int | float | bool]:
    states = sum(search.found.states for search in searches)
    seconds = sum(search.took_s for search in searches)
    return {
        "states": states,
        "transitions": sum(search.found.transitions for search in searches),
        "depth": max(search.found.depth for search in searches),
        "complete": all(search.found.complete for search in searches),
        "seconds": round(seconds, 3),
        "states_per_s": round(states / max(seconds, 1e-9)),
    }


def _verdict_json(verdict: Verdict) -> dict[str, object]:
    shown = verdict.holds is False and verdict.trace is not None
    trace = {"trace": list(verdict.trace or ())} if shown else {}
    return {"name": verdict.name, "kind": verdict.kind.value, "holds": verdict.holds, **trace}
