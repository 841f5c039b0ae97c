"""Logs go to standard error: text on a terminal, JSON elsewhere, and only what is severe enough."""

from __future__ import annotations

import io
import json
import sys

import pytest
import structlog
from support.command import Command

from quiesce.cli.logs import LogFormat, LogLevel, configure_logs


class Terminal(io.StringIO):
    """Standard error of somebody who looks."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [
        (LogFormat.AUTO, io.StringIO, True),
        (LogFormat.AUTO, Terminal, False),
        (LogFormat.JSON, Terminal, True),
        (LogFormat.CONSOLE, io.StringIO, False),
    ],
)
def test_the_form_follows_the_reader(
    monkeypatch: pytest.MonkeyPatch, form: LogFormat, stream: type[io.StringIO], *, is_json: bool
) -> None:
    """On a terminal an entry is for people, elsewhere it is one JSON object a line, unless told otherwise."""
    monkeypatch.setattr(sys, "stderr", stream())
    configure_logs(LogLevel.WARNING, form)
    stream_now = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream_now)  # as a live display does: the entry goes where stderr is now
    structlog.get_logger("quiesce.test").warning("something", participant="main/agent")
    structlog.get_logger("quiesce.test").info("nothing")
    (line,) = stream_now.getvalue().splitlines()
    if is_json:
        entry = json.loads(line)
        assert (entry["event"], entry["participant"], entry["level"]) == ("something", "main/agent", "warning")
    else:
        assert "something" in line
        assert "participant" in line


def test_an_exception_is_part_of_its_entry(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON a traceback is a member, so that an entry stays on one line."""
    configure_logs(LogLevel.DEBUG, LogFormat.JSON)
    structlog.get_logger("quiesce.test").error("failed", exc_info=ValueError("a reason"))
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: a reason" in json.loads(line)["exception"]


def test_the_level_is_an_option(quiesce: Command) -> None:
    """A level that does not exist is wrong usage."""
    assert quiesce("--log-level", "loud", "diagram").exit_code == 2
    assert quiesce("--log-level", "debug", "--log-format", "json", "diagram").exit_code == 0
