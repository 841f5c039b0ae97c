"""What the searches of ``quiesce check`` have come to: one by one, by property, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import typer

from quiesce.cli.output import ExitCode, counted, emit_json, say
from quiesce.cli.promela import Opinion
from quiesce.fsm.explore import Exploration, Kind, Verdict
from quiesce.fsm.explore_model import Setup
from quiesce.fsm.explore_properties import ALWAYS, SOMETIMES

__all__ = ["CutShort", "Search", "tell_json", "tell_search", "tell_total"]

_MEANINGS: Final = {claim.name: claim.meaning for claim in (*ALWAYS, *SOMETIMES)}
_WORDS: Final = {True: "holds", False: "VIOLATED", None: "undecided"}
_SO_FAR: Final = {**_WORDS, True: "so far"}
"""The words where not every search was made: what holds in some is no proof."""
_COLUMNS: Final = 24
"""Where the name of a property begins."""
_ORDER: Final = (Kind.ALWAYS, Kind.NO_DEADLOCK, Kind.RECOVERABLE, Kind.SOMETIMES)


@dataclass(slots=True)
class Search:
    """One search, how long it took, what was written of it, and what Spin says of it."""

    setup: Setup
    found: Exploration
    took_s: float
    files: tuple[Path, ...] = ()
    opinion: Opinion = field(default_factory=Opinion)

    @property
    def is_proven(self) -> bool:
        """Whether every property holds, and whoever was asked agrees."""
        return self.found.holds and not self.opinion.disagreements and not self.opinion.not_asked

    @property
    def speed(self) -> float:
        """States a second."""
        return self.found.states / max(self.took_s, 1e-9)

    def to_json(self) -> dict[str, object]:
        """A plain mapping."""
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


@dataclass(frozen=True, slots=True)
class CutShort:
    """Why not every search was made.

    Attributes:
        reason: what happened, in which search, and what to do.
        exit_code: of the command.
        kind: the type of it, for a program.
        signal: the name of the signal that interrupted it, where one did.
        lacks_spin: whether the explorer has come to the end of that search, and Spin has not.
    """

    reason: str
    exit_code: int = ExitCode.FAILED
    kind: str = "Interrupted"
    signal: str | None = None
    lacks_spin: bool = False


def tell_search(search: Search) -> None:
    """One line of a search, then what is violated, what was written, and what Spin says."""
    found = search.found
    say(
        f"{found.name}: {counted(found.states, 'state')}, {counted(found.transitions, 'transition')}, "
        f"depth {found.depth}, {search.speed:,.0f} states/s: {_outcome([search])}"
    )
    for verdict in found.violations():
        say(f"  {_violation(verdict, found)}")
        for number, action in enumerate(verdict.trace or (), start=1):
            say(f"    {number:3}. {action}", indent=9)
    for line in (*(f"written: {file}" for file in search.files), *search.opinion.lines()):
        say(f"  {line}")


def tell_total(searches: Sequence[Search], wanted: int, cut_short: CutShort | None = None) -> None:
    """Each property over all searches, what is not claimed, the totals, and whether ``wanted`` searches were made."""
    typer.echo("")
    words = _WORDS if len(searches) == wanted else _SO_FAR
    for (kind, name), verdicts in _by_property(searches).items():
        held = sum(verdict.holds is True for verdict in verdicts)
        worst = False if any(verdict.holds is False for verdict in verdicts) else None if held < len(verdicts) else True
        counts = f"({held} of {_searches(len(verdicts))})"
        say(f"{words[worst]:9}  {kind.value:11}  {name} {counts}{_meaning(name)}", indent=_COLUMNS)
    for name, reason, count in _not_claimed(searches):
        counts = f"({count} of {_searches(len(searches))})"
        say(f"{'not claimed':{_COLUMNS}}{name} {counts}: {reason}", indent=_COLUMNS)
    totals = _totals(searches)
    typer.echo("")
    say(
        f"{counted(totals['states'], 'state')} and {counted(totals['transitions'], 'transition')} in "
        f"{_searches(len(searches))}, depth {totals['depth']}, {totals['states_per_s']:,} states/s, "
        f"{totals['seconds']} s"
    )
    _tell_spin(searches, cut_short)
    if any(verdict.trace and not search.files for search in searches for verdict in search.found.violations()):
        say("to keep what is violated, and to replay, draw and test it: --counterexample-dir DIR")
    if len(searches) < wanted:
        say(f"interrupted after {len(searches)} of {_searches(wanted)}: these are bounds, not proofs")
    else:
        bounded = sum(not search.found.complete for search in searches)
        was = "was" if bounded == 1 else "were"
        end = f"; {_searches(bounded)} {was} bounded before everything was seen" if bounded else ""
        doubted = "; Spin does not agree" if any(search.opinion.disagreements for search in searches) else ""
        unasked = "; what else was asked for of the last search is missing" if cut_short else ""
        say(f"{_outcome(searches)}{end}{doubted}{unasked}")


def tell_json(searches: Sequence[Search], wanted: int, cut_short: CutShort | None = None) -> None:
    """The same as one object."""
    proven = cut_short is None and all(search.is_proven for search in searches)
    totals: dict[str, object] = {"ok": proven, **_totals(searches)}
    if cut_short is not None:
        totals |= {"error": cut_short.reason, "type": cut_short.kind}
    if len(searches) < wanted:
        totals["complete"] = False
    totals |= {"interrupted": cut_short.signal if cut_short else None, "searches_wanted": wanted}
    emit_json({**totals, "searches": [search.to_json() for search in searches]})


def _tell_spin(searches: Sequence[Search], cut_short: CutShort | None) -> None:
    answered = [search for search in searches if search.opinion.run is not None]
    missing = int(cut_short is not None and cut_short.lacks_spin)
    if answered or missing:
        agreed = sum(not search.opinion.disagreements for search in answered)
        end = "; on the last one it has not answered" if missing else ""
        say(f"Spin agrees on {agreed} of {_searches(len(answered) + missing)}: states, transitions and verdicts{end}")
    reasons = [search.opinion.not_asked for search in searches if search.opinion.not_asked]
    for reason in dict.fromkeys(reasons):
        say(f"Spin was not asked about {_searches(reasons.count(reason))}, so nothing is compared: {reason}")


def _outcome(searches: Sequence[Search]) -> str:
    """The verdict on all of it, in a word or two."""
    if violated := sum(len(search.found.violations()) for search in searches):
        return "VIOLATED" if len(searches) == 1 else f"VIOLATED: {counted(violated, 'verdict')}"
    if all(search.found.holds for search in searches):
        return "holds" if len(searches) == 1 else "every property that is claimed holds in every search"
    return "bound hit: undecided" if len(searches) == 1 else "undecided"


def _violation(verdict: Verdict, found: Exploration) -> str:
    told = f"{verdict}{_meaning(verdict.name)}"
    if verdict.kind is not Kind.SOMETIMES:
        return told
    never = f"never reached in {counted(found.states, 'state')}, though the search is made to reach it"
    return f"{told}; {never} (what never happens has no trace and no file)"


def _meaning(name: str) -> str:
    """What a property means, behind its name; nothing where the name says it."""
    return f": {_MEANINGS[name]}" if name in _MEANINGS else ""


def _searches(count: int) -> str:
    return counted(count, "search", "searches")


def _by_property(searches: Sequence[Search]) -> Mapping[tuple[Kind, str], list[Verdict]]:
    """Verdicts by property: what always holds first, what is reached last."""
    collected: dict[tuple[Kind, str], list[Verdict]] = {}
    for verdict in (verdict for search in searches for verdict in search.found.verdicts):
        collected.setdefault((verdict.kind, verdict.name), []).append(verdict)
    return dict(sorted(collected.items(), key=lambda item: _ORDER.index(item[0][0])))


def _not_claimed(searches: Sequence[Search]) -> list[tuple[str, str, int]]:
    waived = [pair for search in searches for pair in search.setup.waives.items()]
    return [(name, reason, waived.count((name, reason))) for name, reason in sorted(set(waived))]


def _totals(searches: Sequence[Search]) -> dict[str, Any]:  # Any: counts, seconds and a verdict
    states = sum(search.found.states for search in searches)
    seconds = sum(search.took_s for search in searches)
    return {
        "states": states,
        "transitions": sum(search.found.transitions for search in searches),
        "depth": max((search.found.depth for search in searches), default=0),
        "complete": all(search.found.complete for search in searches),
        "seconds": round(seconds, 3),
        "states_per_s": round(states / max(seconds, 1e-9)),
    }


def _verdict_json(verdict: Verdict) -> dict[str, object]:
    shown = verdict.holds is False and verdict.trace is not None
    trace = {"trace": list(verdict.trace or ())} if shown else {}
    return {"name": verdict.name, "kind": verdict.kind.value, "holds": verdict.holds, **trace}
