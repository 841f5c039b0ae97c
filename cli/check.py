"""``quiesce check``: search every state of the protocol against every fence variant, and say what holds."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from quiesce.cli.output import ExitCode, fail
from quiesce.cli.promela import SecondOpinions
from quiesce.cli.searches import CutShort, Search, tell_json, tell_search, tell_total
from quiesce.cli.spin import SpinFailed, missing_programs
from quiesce.cli.stopping import Stopped, Stopping, stoppable
from quiesce.diagrams import replace_file
from quiesce.fsm.explore import STATES_MAX, Kind, Progress, explore
from quiesce.fsm.explore_model import TIMES_MAX, Setup, System
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
_UNDECIDED: Final = "what it has not found is undecided, and so is what was not begun"


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
    2 when nothing was searched: no search has the words, or Spin is not installed. Ctrl-C and SIGTERM end it with what
    was found so far, and exit with 130 and 143.
    """
    _check_place(counterexample_dir, witnesses=witnesses, as_json=as_json)
    found_setups = _setups(variant, times, participants=participants, pairs=pairs)
    setups = [setup for setup in found_setups if only is None or only in setup.name]
    _refuse_nothing(setups, only, spin=spin, as_json=as_json)
    making = _Making(states_max, SecondOpinions(promela, with_spin=spin), counterexample_dir, witnesses)
    systems = ((setup, System(setup, reduced=not (full or spin or promela))) for setup in setups)
    searches, cut_short = making.all_of(systems, told=not as_json)
    (tell_json if as_json else tell_total)(searches, len(setups), cut_short)
    if cut_short is not None:
        raise typer.Exit(cut_short.exit_code)
    if not all(search.is_proven for search in searches):
        raise typer.Exit(ExitCode.FAILED)


def _setups(variant: Variant | None, times: int, *, participants: int, pairs: bool) -> Iterator[Setup]:
    for chosen in Variant if variant is None else (variant,):
        yield from suite(chosen, times, participants=participants, pairs=pairs)


def _refuse_nothing(setups: Sequence[Setup], only: str | None, *, spin: bool, as_json: bool) -> None:
    if only is not None and not only.strip():
        fail("--only is given no words; without --only all is searched", ExitCode.USAGE, as_json=as_json)
    if not setups:
        fail(f"no search has '{only}' in its name; without --only all are named", ExitCode.USAGE, as_json=as_json)
    if spin and (missing := missing_programs()):
        needs = f"--spin needs {' and '.join(missing)} (Debian: apt-get install {' '.join(missing)})"
        fail(f"{needs}; without --spin the explorer proves the protocol alone", ExitCode.USAGE, as_json=as_json)


def _check_place(folder: Path | None, *, witnesses: bool, as_json: bool) -> None:
    """Write there now what would be lost at the end of a long search."""
    if folder is None:
        if witnesses:
            fail("--witnesses needs --counterexample-dir, where they are written", ExitCode.USAGE, as_json=as_json)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fail(f"cannot write into {folder}: {error.strerror or error}", ExitCode.USAGE, as_json=as_json)


class _Ended(Exception):
    """No further search is made."""

    def __init__(self, cut_short: CutShort) -> None:
        super().__init__(cut_short.reason)
        self.cut_short = cut_short


@dataclass
class _Making:
    """The making of searches, one after the other. ``stands`` says where it is, for whoever interrupts it."""

    states_max: int
    opinions: SecondOpinions
    folder: Path | None
    witnesses: bool
    stopping: Stopping = field(default_factory=Stopping)
    stands: str = "nothing yet"
    is_explored: bool = False
    """Whether the search that it is at has its verdicts, and something besides is still made of it."""

    def all_of(self, systems: Iterable[tuple[Setup, System]], *, told: bool) -> tuple[list[Search], CutShort | None]:
        """Search one after the other, ``told`` as soon as it is done. Why not all of them, where that is so."""
        searches: list[Search] = []
        cut_short = None
        try:
            with stoppable() as self.stopping:
                for setup, system in systems:
                    searches.append(self._explored(setup, system))
                    try:
                        self._follow_up(searches[-1], system)
                    finally:
                        if told:
                            tell_search(searches[-1])
        except _Ended as ended:
            cut_short = ended.cut_short
        except Stopped as stopped:
            left = "what was not begun is undecided" if self.is_explored else _UNDECIDED
            reason = f"interrupted: {stopped.number.name} in {self.stands}; {left}"
            lacks_spin = self.is_explored and self._lacks_spin(searches[-1])
            cut_short = CutShort(reason, stopped.exit_code, signal=stopped.number.name, lacks_spin=lacks_spin)
        if cut_short is not None:
            typer.echo(f"quiesce: {cut_short.reason}", err=True)
        return searches, cut_short

    def _follow_up(self, search: Search, system: System) -> None:
        """What is asked for of a search besides its verdicts.

        Raises:
            _Ended: Spin failed, or something cannot be written.
        """
        self.is_explored = True
        self.stands = f"what Spin and files are given of '{search.setup.name}', whose search is complete"
        try:
            with _writing("a model"):
                search.opinion = self.opinions.of(system, search.found)
        except SpinFailed as error:
            reason = f"{search.setup.name}: {error}"
            raise _Ended(CutShort(reason, kind=type(error).__name__, lacks_spin=True)) from error
        if self.folder is not None:
            with _writing("a counterexample"):
                search.files = _write(search, self.folder, witnesses=self.witnesses)

    def _lacks_spin(self, search: Search) -> bool:
        opinion = search.opinion
        return self.opinions.with_spin and opinion.run is None and not opinion.not_asked

    def _explored(self, setup: Setup, system: System) -> Search:
        self.is_explored = False
        self.stands = f"'{setup.name}', at its beginning"
        with _shown(setup.name, self.stopping) as display:

            def watch(progress: Progress) -> None:
                self.stands = _standing(setup.name, progress)
                if display is not None:
                    display(progress)

            began_s = time.perf_counter()
            try:
                found = explore(system, states_max=self.states_max, watch=watch)
            except MemoryError:
                found = None  # what the search holds is let go before anything is said
            took_s = time.perf_counter() - began_s
        if found is None:
            undecided = f"{setup.name}: undecided, the memory is full; bound the search with --states-max"
            raise _Ended(CutShort(undecided, kind="MemoryError"))
        return Search(setup, found, took_s)


def _standing(name: str, progress: Progress) -> str:
    """Where a search is, with what it has found so far."""
    found = f" ({', '.join(progress.violated)}: violated already)" if progress.violated else ""
    return f"'{name}', at {progress.states:,} states and depth {progress.depth}{found}"


@contextmanager
def _writing(what: str) -> Iterator[None]:
    """End the searches with a word where ``what`` cannot be written."""
    try:
        yield
    except OSError as error:
        reason = f"cannot write {what}: {error.filename or ''}: {error.strerror or error}"
        raise _Ended(CutShort(reason, ExitCode.USAGE, kind=type(error).__name__)) from error


def _write(search: Search, folder: Path, *, witnesses: bool) -> tuple[Path, ...]:
    """A file for each violation, named after the search and the property, and for each witness if asked for."""
    shown = [
        verdict
        for verdict in search.found.verdicts
        if verdict.trace is not None and (verdict.holds is False or (witnesses and verdict.kind is Kind.SOMETIMES))
    ]
    files = []
    for verdict in shown:
        file = folder / f"{_slug(search.setup.name)}--{_slug(verdict.name)}.json"
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, counterexample_text(Counterexample.of(search.setup, verdict)).encode())
        files.append(file)
    return tuple(files)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@contextmanager
def _shown(name: str, stopping: Stopping) -> Iterator[_Watch | None]:
    """How far a search has come, where standard error is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    status = console.status(name)

    def watch(progress: Progress) -> None:
        with stopping.whole():
            words = f"{name}: {progress.states:,} states, {progress.waiting:,} to look at, depth {progress.depth}"
            status.update(words)

    try:
        with stopping.whole():
            status.start()
        yield watch
    finally:
        with stopping.whole():
            status.stop()
