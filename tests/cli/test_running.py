"""Running a command: signals ask it to end well, errors become messages, and nothing shows a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest
import typer

from quiesce.cli.left_at_once import left_at_once
from quiesce.cli.running import Patience, run
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.errors import ConfigurationError


def exit_code(raised: pytest.ExceptionInfo[typer.Exit]) -> int:
    """The code with which a command would end."""
    return raised.value.exit_code


def test_the_result_is_given() -> None:
    """What the work returns is returned, and the signals are as before."""
    before = signal.getsignal(signal.SIGTERM)

    async def work() -> int:
        return 7

    assert run(work, as_json=False) == 7
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_lets_the_work_end_well(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    """The work is cancelled once, may clean up as long as it needs, and the command exits 1."""
    steps: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    with pytest.raises(typer.Exit) as raised:
        run(work, as_json=True, when_ended="all is well")
    assert exit_code(raised) == 1
    assert steps == ["cleaned up"]
    captured = capsys.readouterr()
    assert number.name in captured.err
    assert json.loads(captured.out) == {
        "ok": False,
        "error": "interrupted; all is well",
        "type": "Interrupted",
        "notes": [],
    }


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM]], ids=str)
def test_a_signal_that_announces_the_end_lets_the_work_go_on(numbers: list[signal.Signals]) -> None:
    """However often it comes; afterwards the handlers are as before."""

    async def work() -> int:
        for number in numbers:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return 7

    patience = Patience((signal.SIGTERM, signal.SIGUSR1), 60.0)
    assert run(work, as_json=False, patience=patience) == 7
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_work_that_does_not_end_in_the_time_it_has_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    """The announced end comes: it ends well, with exit code 1."""

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    with pytest.raises(typer.Exit) as raised:
        run(work, as_json=False, patience=Patience((signal.SIGTERM,), 0.01))
    assert exit_code(raised) == 1
    assert "SIGTERM: going on for 0.01 s at most" in capsys.readouterr().err


async def leave_at_once() -> None:
    """Work that is interrupted, and once more while it ends."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)


def test_the_second_interrupt_leaves_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Who does not want to wait may leave, and is told with exit 3 that somebody may still be closed."""
    with pytest.raises(typer.Exit) as raised:
        run(leave_at_once, as_json=False)
    assert exit_code(raised) == 3
    assert "somebody may still be closed" in capsys.readouterr().err


def test_what_is_left_at_once_is_read_off_the_journals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody is held by them the exit code is 1; where they cannot be read it is 3, and nothing is claimed."""
    unreadable = tmp_path / "unreadable"
    (unreadable / ".quiesce").mkdir(parents=True)
    (unreadable / ".quiesce" / "journal").write_text("")
    for root, code, sentence in (
        (tmp_path / "new", 1, "nobody is held"),
        (unreadable, 3, "who is closed is not known"),
    ):
        with pytest.raises(typer.Exit) as raised:
            run(leave_at_once, as_json=False, when_left=partial(left_at_once, root))
        assert exit_code(raised) == code
        assert sentence in capsys.readouterr().err


def test_an_error_after_a_signal_is_the_one_that_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Where ending well failed, the failure decides, not the interrupt."""

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConfigurationError("no way out") from None

    with pytest.raises(typer.Exit) as raised:
        run(work, as_json=False)
    assert exit_code(raised) == 2
    assert "no way out" in capsys.readouterr().err


def test_our_errors_become_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """A group of ours is one message, with what was noticed on the way after it."""

    async def work() -> None:
        error = ExceptionGroup("two", [QuiesceError("first"), QuiesceError("second")])
        error.add_note("what the logs say")
        raise error

    with pytest.raises(typer.Exit) as raised:
        run(work, as_json=True)
    assert exit_code(raised) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["quiesce: two:", "  1. first", "  2. second", "what the logs say"]
    found = json.loads(captured.out)
    assert [entry["error"] for entry in found["errors"]] == ["first", "second"]
    assert found["notes"] == ["what the logs say"]


@pytest.mark.parametrize("error", [ValueError("a bug"), ExceptionGroup("x", [QuiesceError("y"), ValueError("a bug")])])
def test_a_fault_of_ours_is_not_hidden(error: Exception) -> None:
    """What is no error of ours keeps its traceback."""

    async def work() -> None:
        raise error

    with pytest.raises(type(error)):
        run(work, as_json=False)
