"""Where the ``quiesce`` script begins: nothing is loaded yet, so that Ctrl-C is understood from the first moment."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED: Final = 130
"""128 and the number of SIGINT, as shells count it: the command was ended before it had begun anything."""


def main() -> None:
    """Load the command and run it."""
    try:
        from quiesce.cli.main import main as run  # noqa: PLC0415 - what this module is for
    except KeyboardInterrupt:
        sys.stderr.write("quiesce: interrupted before anything was begun\n")
        sys.exit(INTERRUPTED)
    run()
