"""Running the Spin model checker on an emitted model, and holding what it says against the explorer."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.explore import Exploration, Kind, Verdict
from quiesce.fsm.promela_composition import NO_DEADLOCK, WITNESS

__all__ = ["SpinFailed", "SpinMissing", "SpinRun", "differences", "missing_programs", "run_spin"]

_PROGRAMS: Final = ("spin", "gcc")
_TIMEOUT_S: Final = 600.0
_FAR: Final = 1 << 60
_TOLD_MAX: Final = 2_000
_STATES = re.compile(r"^ *([0-9.e+]+) states, stored", re.MULTILINE)
_TRANSITIONS = re.compile(r"^ *([0-9.e+]+) transitions \(=", re.MULTILINE)
_DEPTH = re.compile(r"depth reached (\d+)")
_MEMORY = re.compile(r"^ *([0-9.]+)\tactual memory usage for states", re.MULTILINE)
_VIOLATED = re.compile(r"^pan:\d+: (?:assertion violated )?(.+?) \(at depth (\d+)\)", re.MULTILINE)
_CUT_SHORT = ("max search depth too small", "Search not completed", "out of memory", "bound of")


class SpinMissing(QuiesceError):
    """A program that Spin needs is not installed. The text names it, and the Debian package."""


class SpinFailed(QuiesceError):
    """Spin, the compiler or the search ended otherwise than by itself. The text has what it said."""


@dataclass(frozen=True, slots=True)
class SpinRun:
    """What a complete search of Spin has seen.

    ``transitions`` are without the one that Spin counts for the beginning. ``violated`` has the steps of the shortest
    trail to each violated assertion that was told of. ``took_s`` are the CPU seconds of the search alone;
    ``memory_bytes`` is what the states took, where Spin says so.
    """

    states: int
    transitions: int
    depth: int
    violated: Mapping[str, int]
    took_s: float
    memory_bytes: float | None


def missing_programs() -> tuple[str, ...]:
    """Programs that are needed and not installed."""
    return tuple(name for name in _PROGRAMS if shutil.which(name) is None)


def run_spin(
    model: str,
    folder: Path,
    *,
    flags: Sequence[str] = (),
    all_violations: bool = True,
    optimize: str = "-O0",
    timeout_s: float = _TIMEOUT_S,
) -> SpinRun:
    """Generate, compile and run the verifier of a model, in a folder of its own.

    ``flags`` are for Spin (``-DWITNESS``). The search is exhaustive and exact: no reduction, no hash compaction.
    Without ``all_violations`` it ends at the first, and leaves its trail in
    the folder.

    Raises:
        SpinMissing: Spin or gcc is not installed.
        SpinFailed: a program failed or took longer than ``timeout_s``, or the search was cut short.
    """
    if missing := missing_programs():
        raise SpinMissing(f"{' and '.join(missing)} not found; on Debian: apt-get install {' '.join(missing)}")
    (folder / "model.pml").write_text(model, encoding="utf-8")
    _ran(["spin", *flags, "-a", "model.pml"], folder, timeout_s)
    _ran(["gcc", optimize, "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"], folder, timeout_s)
    began_s = _children_s()
    told = _ran(["./pan", "-m1000000", "-w20", *(["-c0"] if all_violations else [])], folder, timeout_s)
    return _read(told, _children_s() - began_s, complete=all_violations)


def _children_s() -> float:
    """CPU seconds of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ran(command: Sequence[str], folder: Path, timeout_s: float) -> str:
    """What the program said; errors of Spin go to the standard output, those of the compiler do not."""
    try:
        done = subprocess.run(  # noqa: S603 - programs and arguments are ours
            command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SpinFailed(f"{command[0]} took longer than {timeout_s:g} s") from error
    said = done.stdout + done.stderr
    if done.returncode != 0:
        raise SpinFailed(f"{command[0]} exited with {done.returncode}: {said[-_TOLD_MAX:]}")
    return said


def _read(told: str, took_s: float, *, complete: bool) -> SpinRun:
    cut_short = next((words for words in _CUT_SHORT if words in told), None)
    numbers = [pattern.search(told) for pattern in (_STATES, _TRANSITIONS, _DEPTH)]
    if (cut_short and complete) or not all(numbers):
        raise SpinFailed(f"Spin did not search to the end ({cut_short or 'no counts'}): {told[-_TOLD_MAX:]}")
    states, transitions, depth = (int(float(number[1])) for number in numbers if number)
    violated: dict[str, int] = {}
    for name, at in _VIOLATED.findall(told):
        # the step that violates comes after the depth that is told
        violated[name] = min(int(at) + 1, violated.get(name, _FAR))
    memory = _MEMORY.search(told)
    return SpinRun(states, transitions - 1, depth, violated, took_s, float(memory[1]) * 1e6 if memory else None)


def differences(found: Exploration, run: SpinRun) -> tuple[str, ...]:
    """Where Spin and a complete search of the explorer do not agree; empty where they do.

    The model must have been generated with ``-DWITNESS``. *Recoverable* has no word in Spin and is not compared.
    """
    return (*_counts_that_differ(found, run), *_verdicts_that_differ(found, run))


def _counts_that_differ(found: Exploration, run: SpinRun) -> Iterator[str]:
    if found.states != run.states:
        yield f"the explorer has {found.states:,} states, Spin {run.states:,}"
    # to say that nothing can step is a step of Spin's own
    if found.transitions != run.transitions and NO_DEADLOCK not in run.violated:
        yield f"the explorer has {found.transitions:,} transitions, Spin {run.transitions:,}"


def _verdicts_that_differ(found: Exploration, run: SpinRun) -> Iterator[str]:
    compared = [(verdict, _asserted(verdict)) for verdict in found.verdicts if verdict.kind is not Kind.RECOVERABLE]
    for verdict, name in compared:
        # what some state must have is denied by the assertion
        expected = verdict.holds is (verdict.kind is Kind.SOMETIMES)
        depth = run.violated.get(name)
        if expected != (depth is not None):
            yield f"{verdict} by the explorer; Spin {'violates' if depth is not None else 'keeps'} {name}"
        elif depth is not None and verdict.trace is not None and depth < len(verdict.trace):
            yield f"{verdict}: Spin's trail has {depth} steps, the explorer's shortest {len(verdict.trace)}"
    for name in run.violated.keys() - {name for _, name in compared}:
        yield f"Spin violates {name}, of which the explorer knows nothing"


def _asserted(verdict: Verdict) -> str:
    if verdict.kind is Kind.NO_DEADLOCK:
        return NO_DEADLOCK
    return WITNESS.format(verdict.name) if verdict.kind is Kind.SOMETIMES else verdict.name
