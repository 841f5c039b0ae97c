"""``quiesce replay``: run a saved sequence again, on a live server or on one of the kit in this process."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from quiesce.cli.fuzz import (
    AllowRestore,
    CheckpointDir,
    LiveWork,
    TokenVariable,
    TrafficName,
    export_root,
    left_at_once,
    transport_to,
)
from quiesce.cli.logs import without_logs
from quiesce.cli.opened import AsJson
from quiesce.cli.output import ExitCode, emit_json, fail, tell_line
from quiesce.cli.replay_counterexample import replay_counterexample
from quiesce.cli.replay_options import FITS, Way, unfit
from quiesce.cli.running import Interrupted, run
from quiesce.controller.clock import SystemClock
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fuzz.campaign import RATE, Options
from quiesce.fuzz.counterexample import KIND as COUNTEREXAMPLE
from quiesce.fuzz.errors import ReplayInvalid
from quiesce.fuzz.replaying import Replayed, replay_at
from quiesce.fuzz.replays import BYTES_MAX, KIND, ReplayFile, kind_of, parse_replay
from quiesce.fuzz.rulebook import RULE_BY_ID
from quiesce.fuzz.traffic import load_traffic
from quiesce.fuzz.wording import check_checkpoint_dir
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import printable
from quiesce.transport.token import EnvironmentTokenProvider, note_without_token

__all__ = ["register"]

_NOT_GIVEN = frozenset({"DEFAULT", "DEFAULT_MAP"})
"""Sources of a parameter's value that are not the user."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("replay")(_replay)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How a sequence of the fuzzer is to be replayed."""

    url: str
    fence: FenceVariant | None
    traffic: str
    checkpoint_dir: Path | None
    allow_restore: bool
    live_work: bool
    token_variable: str | None
    as_json: bool


def _replay(  # noqa: PLR0913 - one parameter an option
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What 'quiesce fuzz' or 'quiesce check' has written.", dir_okay=False)
    ],
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="Of fuzz: the server; without one, a fresh server of the kit in process."),
    ] = "",
    *,
    fence: Annotated[
        FenceVariant | None,
        typer.Option(help="Of fuzz, in process: how the server's fence behaves (by default as in the file)."),
    ] = None,
    traffic: TrafficName = "kit",
    checkpoint_dir: CheckpointDir = None,
    allow_restore: AllowRestore = False,
    live_work: LiveWork = False,
    token_variable: TokenVariable = None,
    as_pytest: Annotated[
        bool, typer.Option("--pytest", help="Of check: print a test that fails as long as it happens.")
    ] = False,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Of check: print nothing but the sequence diagram.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Does it still happen? Replay FILE, a broken rule of 'quiesce fuzz' or a counterexample of 'quiesce check'.

    A counterexample is replayed on the present tables, by both engines and on real servers in this process, also where
    the tables were changed since. Exits 0 when it happens no more, 1 when it does (a witness: the other way round), 2
    when nothing was replayed.
    """
    given = {
        name
        for name in FITS
        if (source := context.get_parameter_source(name)) is not None and source.name not in _NOT_GIVEN
    }
    wanted = _Wanted(url, fence, traffic, checkpoint_dir, allow_restore, live_work, token_variable, as_json)
    try:
        content = _read(file)
        kind = kind_of(content, source=str(file))
        if kind not in (KIND, COUNTEREXAMPLE):
            raise ReplayInvalid(str(file), f"its kind is {kind!r}; this command replays {KIND} and {COUNTEREXAMPLE}")
        way = Way.COUNTEREXAMPLE if kind == COUNTEREXAMPLE else Way.AT_URL if url else Way.IN_PROCESS
        if reason := unfit(given, way):
            fail(f"{file}: {reason}", ExitCode.USAGE, as_json=as_json, type="UsageError")
        if way is Way.COUNTEREXAMPLE:
            replay_counterexample(content, str(file), as_pytest=as_pytest, as_mermaid=as_mermaid, as_json=as_json)
        else:
            _replay_fuzz(parse_replay(content, source=str(file)), wanted)
    except QuiesceError as error:
        usage = isinstance(error, ReplayInvalid | ConfigurationError)
        fail(str(error), ExitCode.USAGE if usage else ExitCode.FAILED, as_json=as_json, type=type(error).__name__)


def _replay_fuzz(replay: ReplayFile, wanted: _Wanted) -> None:
    """Replay a sequence that the fuzzer has saved, and tell what came of it."""
    if wanted.url:
        found = _on_live_server(replay, wanted)
    else:
        from quiesce.fuzz.in_kit import replay_in_kit  # noqa: PLC0415 - it needs an extra, which may be missing

        with without_logs():
            found = replay_in_kit(replay, fence=wanted.fence, traffic=load_traffic(wanted.traffic))
    _tell(replay, found, as_json=wanted.as_json)


def _on_live_server(replay: ReplayFile, wanted: _Wanted) -> Replayed:
    if wanted.checkpoint_dir is not None:
        check_checkpoint_dir(wanted.checkpoint_dir)
    with export_root([wanted.url], wanted.checkpoint_dir) as root:
        options = Options(
            nonce=secrets.token_hex(4),
            profile=replay.tested.profile,
            traffic=load_traffic(wanted.traffic),
            root=root,
            root_is_shared=wanted.checkpoint_dir is not None,
            allow_restore=wanted.allow_restore,
            allow_live_work=wanted.live_work,
            rate=RATE,
        )

        def waiting(text: str) -> None:
            tell_line(f"quiesce: {wanted.url}: {text}", err=True)

        seen_last: list[str] = []

        async def replayed() -> Replayed:
            without_token = await note_without_token(EnvironmentTokenProvider(wanted.token_variable))
            transport = transport_to(wanted.token_variable)
            try:
                return await replay_at(
                    wanted.url.rstrip("/"),
                    transport,
                    SystemClock(),
                    options,
                    replay,
                    waiting=waiting,
                    interrupted=seen_last.append,
                )
            except asyncio.CancelledError:
                if seen_last:
                    raise Interrupted(f"interrupted; {printable(seen_last[0])}") from None
                raise
            except QuiesceError as error:
                if without_token:
                    error.add_note(f"note: {without_token}")
                raise
            finally:
                await transport.aclose()

        return run(replayed, as_json=wanted.as_json, when_left=left_at_once(options.nonce))


def _read(file: Path) -> bytes:
    """The content of the file.

    Raises:
        ReplayInvalid: it cannot be read, or is far too large.
    """
    try:
        if file.stat().st_size > BYTES_MAX:
            raise ReplayInvalid(str(file), f"has more than {BYTES_MAX} bytes; it is no replay file")
        return file.read_bytes()
    except OSError as error:
        raise ReplayInvalid(str(file), f"cannot be read: {error.strerror or error}") from error


def _tell(replay: ReplayFile, found: Replayed, *, as_json: bool) -> None:
    lines = [] if found.episode is None else [str(line) for line in found.episode.trace]
    for number, line in enumerate(lines, start=1):
        tell_line(f"{number}. {line}", err=as_json)
    rule = RULE_BY_ID[replay.violation.rule]
    code = ExitCode.WORKED
    if found.finding is not None:
        outcome, code = (
            f"{rule.id} is broken: expected {found.finding.expected}; got {found.finding.got}",
            ExitCode.FAILED,
        )
    elif found.unchecked:
        outcome, code = f"{rule.id} was not put to the test: {found.unchecked}", ExitCode.USAGE
    else:
        outcome = f"{rule.id} holds this time: {rule.sentence}"
    tell_line(outcome, err=as_json)
    if found.closed:
        code = ExitCode.IN_DOUBT
        tell_line(f"it could not be proven open: {found.closed}", err=as_json)
    if as_json:
        emit_json({"ok": code is ExitCode.WORKED, "rule": rule.id, "trace": lines, "outcome": outcome})
    raise typer.Exit(code)
