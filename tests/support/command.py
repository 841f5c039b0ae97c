"""The command as a user meets it: calling it in this thread, and reading its last line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from typer.testing import CliRunner, Result

from quiesce.cli.main import app

Command: TypeAlias = Callable[..., Result]


def call(*arguments: str) -> Result:
    """Run ``quiesce`` with these arguments."""
    return CliRunner().invoke(app, list(arguments))


def last_object(result: Result) -> dict[str, Any]:  # Any: a JSON object
    """The JSON object on the last line of standard output."""
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found
