"""``quiesce replay`` of a counterexample: on both engines, on the real stack, as a picture, as a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import typer

from quiesce.cli.logs import without_logs
from quiesce.cli.output import ExitCode, counted, emit_json, say
from quiesce.diagrams.sequence import sequence_mermaid
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fuzz.counterexample import Counterexample, parse_counterexample
from quiesce.fuzz.errors import MissingExtra, ReplayInvalid
from quiesce.fuzz.replay_tables import Replayed, replay_on
from quiesce.fuzz.telling import pytest_text, sequence_of_counterexample

__all__ = ["replay_counterexample"]

_PARTICIPANTS: Final = 2
"""Of a search, where no other number is asked for."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one way of replaying came to. ``shown`` is None where it could not tell."""

    where: str
    shown: bool | None
    word: str


def replay_counterexample(
    content: bytes, source: str, *, as_pytest: bool = False, as_mermaid: bool = False, as_json: bool = False
) -> None:
    """Replay the file on the tables as they are now and tell, or print it as what is asked for.

    Exits with 1 when a violation shows again, or a witness does not; with 0 otherwise.

    Raises:
        ReplayInvalid: the file cannot be used; the text names the line.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ReplayInvalid(source, f"it is no UTF-8 text: {error.reason} at byte {error.start}") from None
    found = parse_counterexample(text, source)
    if as_pytest:
        typer.echo(pytest_text(found), nl=False)
        return
    picture = sequence_mermaid(sequence_of_counterexample(found))
    if as_mermaid:
        typer.echo(picture, nl=False)
        return
    replayed = replay_on(found)
    outcomes = (
        _on_engine("table engine", found, replayed),
        _on_engine("transitions engine", found, replay_on(found, TransitionsEngine())),
        _on_stack(found, replayed),
    )
    reproduced = any(outcome.shown for outcome in outcomes)
    if as_json:
        emit_json(_object(found, outcomes, picture, ok=reproduced is found.is_witness))
    else:
        _tell(found, outcomes, picture)
    if reproduced is not found.is_witness:
        raise typer.Exit(ExitCode.FAILED)


def _on_engine(where: str, found: Counterexample, replayed: Replayed) -> _Outcome:
    word = _word(found, replayed.shown)
    if replayed.stopped:
        word += f"{' before' if replayed.shown else ''}: {replayed.stopped}"
    return _Outcome(where, replayed.shown, word)


def _on_stack(found: Counterexample, replayed: Replayed) -> _Outcome:
    where = "real stack in process, virtual time"
    try:
        from quiesce.fuzz.replay_stack import replay_on_stack  # noqa: PLC0415 - it needs an extra, which may be missing
    except MissingExtra as error:
        return _Outcome(where, None, f"not replayed: {error}")
    if replayed.stopped:
        return _Outcome(where, None, "not replayed: the tables do not come to the end of the actions")
    with without_logs():
        came = replay_on_stack(found, replayed)
    if came.no_counterpart is not None:
        word = f"agrees for {counted(came.taken, 'action')}; then there is no counterpart: {came.no_counterpart}"
        return _Outcome(where, None, word)
    if came.difference is not None:
        word = f"agrees for {counted(came.taken, 'action')}, then goes another way: {came.difference}"
        return _Outcome(where, shown=False, word=word)
    word = (
        f"stands where the tables stand after each of {counted(came.taken, 'action')}: {_word(found, replayed.shown)}"
    )
    return _Outcome(where, replayed.shown, word)


def _word(found: Counterexample, shown: bool | None) -> str:  # noqa: FBT001 - the one thing that it words
    if shown is None:
        return "the bound on states was hit before it could be told"
    if found.is_witness:
        return "seen again" if shown else "not seen any more"
    return "VIOLATED again" if shown else "no longer violated"


def _tell(found: Counterexample, outcomes: tuple[_Outcome, ...], picture: str) -> None:
    say(found.setup.name)
    say(str(found.claim))
    if not found.is_of_these_tables:
        say(f"found with other tables (Quiesce {found.quiesce_version}), replayed on those that are here now")
    for change in found.changes:
        say(f"changed: {change.table}: {change.row} goes to {change.target} {list(change.effects)}")
    for number, action in enumerate(found.actions, start=1):
        say(f"  {number:3}. {action}", indent=7)
    for outcome in outcomes:
        say(f"{outcome.where}: {outcome.word}")
    if any(outcome.shown for outcome in outcomes):
        typer.echo("")
    else:
        if not found.changes:
            typer.echo(f"whether it happens in another way: {_search_of(found)}")
        typer.echo("\nas it was found:\n")
    typer.echo(picture, nl=False)


def _search_of(found: Counterexample) -> str:
    """The command that makes the search again that the file comes from."""
    setup = found.setup
    struck = setup.name.rpartition(", ")[2]
    times = max(setup.faults.values(), default=1)
    options = (
        f"--only '{setup.name}'",
        *([f"--participants {len(setup.participants)}"] if len(setup.participants) != _PARTICIPANTS else []),
        *(["--pairs"] if " + " in struck else []),
        *([f"--times {times}"] if times > 1 else []),
    )
    return f"quiesce check {' '.join(options)}"


def _object(found: Counterexample, outcomes: tuple[_Outcome, ...], picture: str, *, ok: bool) -> dict[str, object]:
    return {
        "ok": ok,
        "kind": found.kind,
        "setup": found.setup.name,
        "claim": found.claim.model_dump(mode="json"),
        "same_tables": found.is_of_these_tables,
        "actions": list(found.actions),
        "replays": [{"where": one.where, "shown": one.shown, "outcome": one.word} for one in outcomes],
        "mermaid": picture,
    }
