"""A second opinion on a search: its model in Promela, written for whoever wants it, and what Spin says of it."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quiesce.cli.spin import SpinRun, differences, run_spin
from quiesce.diagrams import replace_file
from quiesce.fsm.explore import Exploration
from quiesce.fsm.explore_model import System
from quiesce.fsm.explore_promela import ModelNotEmitted, emit_model

__all__ = ["Opinion", "SecondOpinions"]

_README: Final = """\
# Models for Spin

Written by `quiesce check --promela`; each is one search of `quiesce check`, as the tables and fences of this version
run it. The parts (controller, participants, the calls between them) are what Quiesce enumerated; how they are composed,
and what is a violation, stands in each model as guarded commands. Spin (https://spinroot.com; Debian: `apt-get install
spin gcc`) composes and judges them by itself:

    spin -DWITNESS -a MODEL.pml
    gcc -w -DSAFETY -DNOREDUCE -o pan pan.c
    ./pan -m1000000 -w20 -c0

- `states, stored` must be the states below. `transitions` must be one more than below: Spin counts the beginning.
- An assertion that is violated is a property that does not hold. `enumerated` says that Spin met what the explorer did
  not; `no_deadlock` that something waits for ever.
- With `-DWITNESS`, `never_...` deny what some state must have. Each must be violated; without it there are none.
- *Recoverable* (from every state a goal can be reached) cannot be said to Spin. It is the explorer's alone.

Without `-c0` the search ends at the first violation and leaves a trail; `-DREACH` for gcc and `-i` for pan find a
shortest one. `spin -t -B MODEL.pml` replays it: each step prints who steps, the number of the step, which the notes
beside `told_event` and `s0_to`, `s1_to`, ... in the model name, and 1 where the controller's record of it fails.

`quiesce check --spin` does all this and compares.

| model | search | states | transitions |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What became of one search's model: where it is, what Spin saw, where Spin does not agree.

    ``not_asked`` says why there is no model, and so nothing for Spin to be run on; empty where there is one, or none
    was asked for.
    """

    file: Path | None = None
    run: SpinRun | None = None
    disagreements: tuple[str, ...] = ()
    not_asked: str = ""

    def to_json(self) -> dict[str, object]:
        """A plain mapping, without what was not asked for."""
        spin = self.run and {
            "states": self.run.states,
            "transitions": self.run.transitions,
            "seconds": round(self.run.took_s, 3),
            "agrees": not self.disagreements,
            "disagreements": list(self.disagreements),
        }
        return {
            **({"model": str(self.file)} if self.file else {}),
            **({"spin": spin} if spin else {}),
            **({"no_model": self.not_asked} if self.not_asked else {}),
        }

    def lines(self) -> tuple[str, ...]:
        """What a person is told."""
        found = [f"model: {self.file}"] if self.file else []
        if self.run is not None:
            speed = self.run.states / max(self.run.took_s, 1e-9)
            word = "disagrees" if self.disagreements else "agrees"
            found.append(
                f"Spin {word}: {self.run.states:,} states, {self.run.transitions:,} transitions, {speed:,.0f} states/s"
            )
        if self.not_asked:
            found.append(f"no model was made, so Spin was not run and nothing is compared: {self.not_asked}")
        return (*found, *self.disagreements)


@dataclass
class SecondOpinions:
    """Models of several searches: written into ``folder`` if there is one, run by Spin if ``with_spin``."""

    folder: Path | None
    with_spin: bool
    _written: list[tuple[Path, Exploration]] = field(default_factory=list)

    def of(self, system: System, found: Exploration) -> Opinion:
        """What is asked for of one search; of one that gives no model, why.

        Raises:
            OSError: the model cannot be written.
            SpinMissing, SpinFailed: as :func:`quiesce.cli.spin.run_spin`.
        """
        if self.folder is None and not self.with_spin:
            return Opinion()
        try:
            model = emit_model(system, found)
        except ModelNotEmitted as error:
            return Opinion(not_asked=str(error).removeprefix(f"{found.name}: "))
        file = None if self.folder is None else self._write(self.folder, model, found)
        if not self.with_spin:
            return Opinion(file)
        with tempfile.TemporaryDirectory(prefix="quiesce-spin-") as scratch:
            run = run_spin(model, Path(scratch), flags=("-DWITNESS",))
        return Opinion(file, run, differences(found, run))

    def _write(self, folder: Path, model: str, found: Exploration) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{_slug(found.name)}.pml"
        replace_file(file, model.encode())
        self._written.append((file, found))
        # with every model, so that an interrupted run leaves a folder that says what is in it
        replace_file(folder / "README.md", f"{_README}{''.join(map(_row, self._written))}".encode())
        return file


def _row(written: tuple[Path, Exploration]) -> str:
    file, found = written
    return f"| [{file.name}]({file.name}) | {found.name} | {found.states} | {found.transitions} |\n"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
