"""What commands over a real deployment share: the configuration, and a controller over it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from quiesce.cli.left_open import naming_unsettled
from quiesce.cli.running import Patience
from quiesce.controller.api import Controller
from quiesce.controller.config import Config, load_config
from quiesce.controller.last_cut import time_for_a_cut_s
from quiesce.controller.ports import OnCompleted

__all__ = ["CONFIG_FILE", "AsJson", "ConfigFile", "Root", "opened", "patience_with_a_cut", "root_of"]

CONFIG_FILE = Path("quiesce.toml")

ConfigFile: TypeAlias = Annotated[Path, typer.Option("--config", help="What is to be cut, as TOML.", dir_okay=False)]
Root: TypeAlias = Annotated[
    Path | None, typer.Option(help="The checkpoint root, instead of the configuration's.", file_okay=False)
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object on the last line.")]


def root_of(config: Path, root: Path | None) -> Path:
    """The checkpoint root that a command is about: the one that was given, else the configuration's.

    Raises:
        ConfigurationError: the configuration cannot be used.
    """
    return load_config(config).root if root is None else root.absolute()


def patience_with_a_cut(config: Config) -> Patience:
    """How long a cut may go on after a signal by which the configuration announces the end."""
    numbers = tuple(signal.Signals[name] for name in config.last_cut_signals)
    return Patience(numbers, time_for_a_cut_s(config)) if numbers else Patience()


@contextlib.asynccontextmanager
async def opened(config: Config, *, on_completed: OnCompleted | None = None) -> AsyncIterator[Controller]:
    """A controller that has found and validated everybody.

    Raises:
        Unsettled: it ended by an error, and besides, what an earlier one left is not settled.
        QuiesceError: it could not be opened. InDoubt, RestoreFailed: the body was cancelled, and somebody could not
            be reopened.
    """
    # a command is about one transaction, and has nothing to take a last cut of besides
    config = config.model_copy(update={"last_cut_signals": ()})
    controller = Controller(config, on_completed=on_completed)
    with naming_unsettled(controller):
        async with controller:
            try:
                yield controller
            except asyncio.CancelledError:
                held = controller.unsettled.held() if controller.unsettled is not None else None
                if held is not None:
                    held.add_note("it was interrupted")
                    raise held from None
                raise
