"""Where logs go: standard error, as text on a terminal and as JSON elsewhere. Configured here and nowhere else."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, NoReturn

import structlog

__all__ = ["LogFormat", "LogLevel", "configure_logs", "without_logs"]


class LogLevel(StrEnum):
    """The least severe log entry that is shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log entry is written. ``auto``: for people on a terminal, as JSON elsewhere."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


_NUMBERS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


class _StandardError:
    """Standard error as it is at the moment, since a live display puts itself in its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure_logs(level: LogLevel, form: LogFormat = LogFormat.AUTO) -> None:
    """Send every log entry of at least ``level`` to standard error."""
    as_text = form is LogFormat.CONSOLE or (form is LogFormat.AUTO and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if as_text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if as_text else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=_StandardError()),  # type: ignore[arg-type]  # all it needs
        cache_logger_on_first_use=False,
    )


@contextmanager
def without_logs() -> Iterator[None]:
    """Drop every log entry of the body: it runs what is not there, servers and a controller of a replay."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(_logger: object, _method: str, _entry: MutableMapping[str, Any]) -> NoReturn:
    raise structlog.DropEvent
