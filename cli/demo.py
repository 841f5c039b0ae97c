"""``quiesce demo``: the main job on servers of its own, from the first rollout to the account of every one."""

from __future__ import annotations

import shutil
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from quiesce.cli.opened import AsJson
from quiesce.cli.output import ExitCode, emit_json, fail
from quiesce.cli.running import fail_with, run
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import ConfigurationError

if TYPE_CHECKING:
    from quiesce.cli.demonstration import Outcome

__all__ = ["register"]

ROLLOUTS: Final = 16
ROLLOUTS_MIN: Final = 12
ROLLOUTS_MAX: Final = 200
TURNS: Final = 12
TURNS_MIN: Final = 6
TURNS_MAX: Final = 100


class DemoFence(StrEnum):
    """How the fences of the demo's servers behave; none of them is behind a coordinator."""

    STRICT = FenceVariant.STRICT.value
    GYM_A_SINGLE = FenceVariant.GYM_A_SINGLE.value


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("demo")(_demo)


def _demo(
    *,
    rollouts: Annotated[int, typer.Option(help="How many rollouts.", min=ROLLOUTS_MIN, max=ROLLOUTS_MAX)] = ROLLOUTS,
    turns: Annotated[int, typer.Option(help="How many turns the long ones take.", min=TURNS_MIN, max=TURNS_MAX)] = (
        TURNS
    ),
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="An empty folder for all files (by default a new one).", file_okay=False),
    ] = None,
    fence: Annotated[DemoFence, typer.Option(help="How the servers' fences behave.")] = DemoFence.STRICT,
    crash: Annotated[
        bool, typer.Option("--crash", help="Kill a controller in the middle of a cut first, and recover what it left.")
    ] = False,
    keep: Annotated[bool, typer.Option(help="Keep the folder: snapshot, configuration, logs, results.")] = True,
    as_json: AsJson = False,
) -> None:
    """Take a cut over real servers with rollouts in flight, kill everything, restore, and account for every rollout.

    Exits with 0 only if nobody was left paused and no rollout was lost, doubled or restarted.
    """
    try:
        from quiesce.cli.demonstration import Demonstration, DemoSettings, Narrator  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        fail(f"`quiesce demo` needs {error.name}: pip install 'quiesce[server]'", ExitCode.USAGE, as_json=as_json)
    try:
        place = _place(directory)
    except ConfigurationError as error:
        fail_with(error, as_json=as_json)
    console = Console(stderr=as_json)
    settings = DemoSettings(rollouts=rollouts, turns=turns, directory=place, fence=fence.value, crashes=crash)
    try:
        ended = f"all servers are ended; what they left is in {place}" if keep else "all servers are ended"
        outcome = run(Demonstration(settings, Narrator(console)).run, as_json=as_json, when_ended=ended)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    if as_json:
        emit_json(outcome.to_json())
    else:
        _show(console, outcome, kept=keep)
    raise typer.Exit(_exit_code(outcome))


def _place(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="quiesce-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        occupied = any(directory.iterdir())
    except OSError as error:
        raise ConfigurationError(f"--dir {directory} cannot be used: {error.strerror or error}") from error
    if occupied:
        raise ConfigurationError(f"--dir {directory} is not empty; name an empty or a new folder")
    return directory.absolute()


def _exit_code(outcome: Outcome) -> ExitCode:
    if outcome.closed:
        return ExitCode.IN_DOUBT
    return ExitCode.WORKED if outcome.is_good else ExitCode.FAILED


def _show(console: Console, outcome: Outcome, *, kept: bool) -> None:
    console.print()
    for name, holds in outcome.checks().items():
        mark = "[green]yes[/]" if holds else "[bold red]NO[/]"
        console.print(f"  {mark:<4} {name.replace('_', ' ')}", highlight=False)
    if kept and outcome.cut is not None:
        console.print(
            f"\nquiesce verify --config {outcome.directory / 'quiesce.toml'} {outcome.cut.label}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
