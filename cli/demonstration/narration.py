"""How the demonstration tells what it does: a line a step, with the seconds since it began."""

from __future__ import annotations

import time

from rich.console import Console

__all__ = ["Narrator"]


class Narrator:
    """Tells the story on ``console``."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def say(self, text: str, *, style: str | None = None) -> None:
        """Tell one step."""
        self.console.print(
            f"{self.elapsed_s:6.2f} s  {text}", style=style, markup=False, highlight=False, soft_wrap=True
        )
