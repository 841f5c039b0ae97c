"""Loggers of a library: quiet until whoever embeds it says where entries go.

Where structlog was configured, that configuration decides; it is asked at every entry, so it may come later than the
import. Where nobody has configured it, entries go to the standard library's logger of the same name, which shows
warnings and errors on standard error and nothing else unless it is told otherwise: structlog's own default would print
every transition on the embedding program's standard output.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog

__all__ = ["Log", "log_named"]

_RENDERED: Final = structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True)


class Log:
    """A logger with fields that stand in each of its entries. ``event`` is a stable name, the fields are its facts."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, fields: dict[str, object]) -> None:
        self._name = name
        self._fields = fields

    def bind(self, **fields: object) -> Log:
        """The same logger with more fields."""
        return Log(self._name, {**self._fields, **fields})

    def info(self, event: str, **fields: object) -> None:
        """Say what went on."""
        self._tell(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Say what may need looking at."""
        self._tell(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Say what went wrong."""
        self._tell(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Say what went wrong, with the exception that is being handled."""
        self._tell(logging.ERROR, event, {**fields, "exc_info": True})

    def _tell(self, level: int, event: str, fields: dict[str, object]) -> None:
        if structlog.is_configured():
            configured: Any = structlog.get_logger(self._name)  # Any: its class is the embedder's choice
            getattr(configured, logging.getLevelName(level).lower())(event, **self._fields, **fields)
            return
        standard = logging.getLogger(self._name)
        if standard.isEnabledFor(level):
            trace = bool(fields.pop("exc_info", False))
            entry = {"event": event, **self._fields, **fields}
            standard.log(level, "%s", _RENDERED(standard, event, entry), exc_info=trace)


def log_named(name: str) -> Log:
    """The logger of a part of Quiesce, for example ``quiesce.controller``."""
    return Log(name, {})
