"""``quiesce fuzz``: find out in a minute what a participant server gets wrong, and prove it with a few calls."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBars

from quiesce.cli.opened import AsJson
from quiesce.cli.output import ExitCode, emit_json, fail, tell, tell_line
from quiesce.cli.running import run
from quiesce.controller.clock import SystemClock
from quiesce.fsm.errors import QuiesceError
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import CALLS_MAX, IDS_MAX, RATE, Options, Progress, examine
from quiesce.fuzz.conforming import check_replay_folder, save_replays
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.junit import junit_text
from quiesce.fuzz.line import Waiting
from quiesce.fuzz.report import ParticipantReport, Violation, text_of
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.traffic import load_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.wording import ANSWER_S, check_checkpoint_dir
from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.errors import ConfigurationError
from quiesce.transport.http import HttpTransport
from quiesce.transport.port import ControlRequest
from quiesce.transport.token import EnvironmentTokenProvider, note_without_token

__all__ = [
    "AllowRestore",
    "CheckpointDir",
    "LiveWork",
    "TokenVariable",
    "TrafficName",
    "exit_code",
    "export_root",
    "left_at_once",
    "register",
    "transport_to",
]

URLS_MAX: Final = 100
RATE_MAX: Final = 100_000.0
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

TrafficName = Annotated[
    str, typer.Option("--traffic", help="What drives the data plane: none, kit, or module:function.")
]
CheckpointDir = Annotated[
    Path | None,
    typer.Option(help="A directory that the server sees as well; its commits go there.", file_okay=False, exists=True),
]
AllowRestore = Annotated[
    bool, typer.Option("--allow-restore", help="Send restores as well: they install state (needs --checkpoint-dir).")
]
LiveWork = Annotated[bool, typer.Option("--live-work", help="Go on although the server has live work.")]
TokenVariable = Annotated[
    str | None, typer.Option(help=f"The variable that holds the control token (by default {TOKEN_VARIABLES[0]}).")
]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("fuzz")(_fuzz)


def _fuzz(  # noqa: PLR0913 - one parameter an option
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Base URLs of participants, tested in turn.")],
    *,
    profile: Annotated[
        Profile, typer.Option(help="strict, or gym-a: what recorded servers are known for is reported by name.")
    ] = Profile.STRICT,
    seed: Annotated[int, typer.Option(help="Decides the random sequences.")] = 0,
    calls: Annotated[int, typer.Option(help="Calls at most for each URL, in round numbers.", min=100)] = CALLS_MAX,
    ids: Annotated[int, typer.Option(help="Checkpoint ids at most that are used up.", min=20)] = IDS_MAX,
    stop_after: Annotated[
        int | None, typer.Option(help="Stop when so many rules of severity error are broken.", min=1)
    ] = None,
    rate: Annotated[float, typer.Option(help="Calls a second at most.", min=0.1, max=RATE_MAX)] = RATE,
    traffic: TrafficName = "none",
    checkpoint_dir: CheckpointDir = None,
    allow_restore: AllowRestore = False,
    live_work: LiveWork = False,
    answer_s: Annotated[
        float,
        typer.Option(help="How long a call may take to be answered (a waiting one: after its deadline).", min=0.1),
    ] = ANSWER_S,
    wait_grace_s: Annotated[
        float | None, typer.Option(help="Wait so long for an agent to give up an incomplete prepare.", min=0.1)
    ] = None,
    token_variable: TokenVariable = None,
    junit: Annotated[Path | None, typer.Option(help="Write the outcome as JUnit XML.", dir_okay=False)] = None,
    replays: Annotated[
        Path | None, typer.Option(help="Write a replay file for each violation.", file_okay=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test live participants against the rules of the protocol. Each is left open, whatever it does."""
    try:
        driving = load_traffic(traffic)
        tested = _checked(urls)
        _check_places(junit, replays)
        if checkpoint_dir is not None:
            check_checkpoint_dir(checkpoint_dir)
    except ConfigurationError as error:
        fail(str(error), ExitCode.USAGE, as_json=as_json, type=type(error).__name__)
    if allow_restore and checkpoint_dir is None:
        message = (
            "--allow-restore needs --checkpoint-dir: restores load what was exported there. "
            "Name a folder that the server sees as well: --checkpoint-dir DIR"
        )
        fail(message, ExitCode.USAGE, as_json=as_json, type="ConfigurationError")
    with export_root(tested, checkpoint_dir) as root:
        options = Options(
            nonce=secrets.token_hex(4),
            profile=profile,
            seed=seed,
            traffic=driving,
            root=root,
            root_is_shared=checkpoint_dir is not None,
            allow_restore=allow_restore,
            allow_live_work=live_work,
            stop_after=stop_after,
            calls_max=calls,
            ids_max=ids,
            rate=rate,
            grace_s=wait_grace_s,
            answer_s=answer_s,
        )
        reports = run(
            lambda: _tested(tested, options, token_variable), as_json=as_json, when_left=left_at_once(options.nonce)
        )
    written = [] if replays is None else _saved(reports, replays, as_json=as_json)
    if junit is not None:
        _write(junit, junit_text(reports), as_json=as_json)
    _tell(reports, written, as_json=as_json)


async def _tested(urls: list[str], options: Options, token_variable: str | None) -> list[ParticipantReport]:
    """The reports, one a URL; where it is interrupted, those until then and one that says so of each of the others.

    Raises:
        ConfigurationError: what is set cannot be a token, or the variable that was named is not set.
    """
    without_token = await note_without_token(EnvironmentTokenProvider(token_variable))
    transport = transport_to(token_variable)
    found: list[ParticipantReport] = []
    try:
        for url in urls:
            try:
                with _progress(url) as shown:
                    report = await examine(
                        url,
                        transport,
                        SystemClock(),
                        options,
                        progress=shown.progress,
                        interrupted=found.append,
                        waiting=shown.waiting,
                    )
            except ConfigurationError as error:
                if not found:
                    raise
                report = _not_begun(url, options, str(error))  # what was found of the others is told
            refused = bool(without_token) and report.verdict is Verdict.TOKEN_REFUSED
            found.append(replace(report, notes=(*report.notes, without_token)) if refused else report)
    except asyncio.CancelledError:
        tell(f"quiesce: interrupted; {_state_of(found)}", err=True)
    except StillClosed as error:
        tell_line(f"quiesce: {error}", err=True)
    finally:
        await transport.aclose()
    ended = "the test was ended before; nothing was asked of it"
    return [*found, *(_not_begun(url, options, ended) for url in urls[len(found) :])]


def _state_of(found: list[ParticipantReport]) -> str:
    """How those are who were called until a test was interrupted, as far as that was read."""
    if any(report.in_doubt for report in found):
        return "who could not be proven open is named in the report"
    if found and all(report.accepts_work for report in found):
        return "everybody that it called accepts work"
    return "nobody is held by this test; the report says how each was seen last"


def _not_begun(url: str, options: Options, reason: str) -> ParticipantReport:
    return ParticipantReport(url, options.profile, options.seed, Verdict.NOT_BEGUN, reason)


def left_at_once(nonce: str) -> str:
    """What is to be done where a test was left without its end."""
    return (
        f"left at once; a server under test may still be held by an id that begins with fuzz-{nonce}-: "
        "read its capabilities, resume the id that they name, or restart it"
    )


def transport_to(token_variable: str | None) -> HttpTransport:
    """A transport whose bearer the fuzzer can spoil, with the token of the environment."""
    return HttpTransport(FuzzedTokens(EnvironmentTokenProvider(token_variable)))


@contextmanager
def export_root(urls: list[str], given: Path | None) -> Iterator[Path | None]:
    """Where commits may write: what was given; else, for servers of this machine, a folder that goes afterwards."""
    if given is not None:
        yield given.absolute()
    elif all(urlsplit(url).hostname in LOOPBACK for url in urls):
        with tempfile.TemporaryDirectory(prefix="quiesce-fuzz-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    else:
        yield None


def _checked(urls: list[str]) -> list[str]:
    """Base URLs without a final slash.

    Raises:
        ConfigurationError: one of them can be no base URL, or there are too many.
    """
    if len(urls) > URLS_MAX:
        raise ConfigurationError(f"{len(urls)} URLs are given; at most {URLS_MAX} are tested in one run")
    for url in urls:
        ControlRequest(participant=url, method="GET", url=url, timeout_s=1.0)
    return list(dict.fromkeys(url.rstrip("/") for url in urls))


def _check_places(junit: Path | None, replays: Path | None) -> None:
    """What a test of minutes is to be written to can be written.

    Raises:
        ConfigurationError: a folder is missing or cannot be made.
    """
    try:
        if junit is not None:
            with junit.open("a", encoding="utf-8"):
                pass
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be written: {error.strerror}") from error
    if replays is not None:
        check_replay_folder(replays)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a person is shown while a participant is tested."""

    progress: Progress | None
    waiting: Waiting


@contextmanager
def _progress(url: str) -> Iterator[_Shown]:
    """How far the test is, whom it waits for, and each broken rule as soon as it is found."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Shown(None, lambda text: tell_line(f"quiesce: {url}: {text}", err=True))
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("calls"),
    )
    with ProgressBars(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(url, total=None)
        shown = 0

        def told(done: int, total: int, violations: Sequence[Violation]) -> None:
            nonlocal shown
            for violation in violations[shown:]:
                known = f", known as {violation.known}" if violation.known else ""
                line = f"{violation.severity} {violation.rule.id}{known}: {violation.rule.sentence}"
                bars.console.print(line, markup=False, highlight=False)
            shown = len(violations)
            bars.update(bar, completed=done, total=total, description=f"{url}  {shown} rules broken")

        yield _Shown(told, lambda text: bars.update(bar, description=f"{url}  {text}"))


def _saved(reports: list[ParticipantReport], folder: Path, *, as_json: bool) -> list[Path]:
    try:
        return save_replays(reports, folder)
    except QuiesceError as error:
        fail(str(error), ExitCode.FAILED, as_json=as_json, type=type(error).__name__)


def _write(path: Path, text: str, *, as_json: bool) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{path}: cannot be written: {error.strerror or error}"
        fail(message, ExitCode.FAILED, as_json=as_json, type="OSError")


def _tell(reports: list[ParticipantReport], written: list[Path], *, as_json: bool) -> None:
    code = exit_code(reports)
    tell(text_of(reports), err=as_json)
    for path in written:
        tell(f"replay: {path}", err=as_json)
    if as_json:
        described = [report.described() for report in reports]
        emit_json(
            {"ok": code is ExitCode.WORKED, "participants": described, "replays": [str(path) for path in written]}
        )
    raise typer.Exit(code)


def exit_code(reports: list[ParticipantReport]) -> ExitCode:
    """The exit code of a command with these reports: the gravest that one of them gives."""
    if any(report.in_doubt for report in reports):
        return ExitCode.IN_DOUBT
    if any(report.errors or report.verdict.is_failure for report in reports):
        return ExitCode.FAILED
    if any(report.seen_once for report in reports):
        return ExitCode.SEEN_ONCE
    return ExitCode.WORKED if all(report.conforms for report in reports) else ExitCode.USAGE
