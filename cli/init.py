"""``quiesce init``: a commented configuration to begin with."""

from __future__ import annotations

import errno
from pathlib import Path

import typer

from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile
from quiesce.cli.output import emit_json
from quiesce.cli.running import fail_with
from quiesce.cli.sample_configuration import sample_configuration
from quiesce.participants.errors import ConfigurationError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("init")(_init)


def _init(*, config: ConfigFile = CONFIG_FILE, as_json: AsJson = False) -> None:
    """Write a sample configuration with every setting explained. What stands there already is never overwritten."""
    try:
        _write(config, sample_configuration())
    except ConfigurationError as error:
        fail_with(error, as_json=as_json)
    if as_json:
        emit_json({"ok": True, "config": str(config.absolute())})
    else:
        typer.echo(f"wrote {config}; name your servers in it, then try `quiesce discover --config {config}`")


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:  # also refused where a link stands there, wherever it leads
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(f"{path}: stands there already and was left as it is; name another --config") from None
    except OSError as error:
        advice = "make its folder first" if error.errno == errno.ENOENT else "name another --config"
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}; {advice}") from error
