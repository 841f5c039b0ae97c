"""Live progress of a transaction on a terminal, participant by participant; nothing anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.excerpts import printable
from quiesce.participants.replies import DrainProgress

__all__ = ["DrainView", "Progress", "Steps", "shown"]

Progress = Callable[[], Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]]

REFRESH_S: Final = 0.1
NAMED_MAX: Final = 3

_STYLES: Final = {
    ParticipantState.IDLE: "dim",
    ParticipantState.UNKNOWN: "yellow",
    ParticipantState.DRAINING: "yellow",
    ParticipantState.PAUSED: "cyan",
    ParticipantState.COMMITTED: "blue",
    ParticipantState.RESTORED: "blue",
    ParticipantState.RESUMED: "green",
    ParticipantState.ABORTED: "red",
}

_WORDS: Final = {ParticipantState.UNKNOWN: "asked"}
"""What it means to whoever watches that the outcome of a call is not known yet."""
_ITS_ANSWER: Final = "its answer"


@contextlib.asynccontextmanager
async def shown(console: Console, title: str, progress: Progress) -> AsyncIterator[None]:
    """Show how far everybody is while the body runs, where ``console`` is a terminal."""
    if not console.is_terminal:
        yield
        return
    view = DrainView(title, progress, asyncio.get_running_loop().time)
    with Live(view.drawn(), console=console, auto_refresh=False, transient=True) as live:

        async def refresh() -> None:
            while True:
                await asyncio.sleep(REFRESH_S)
                live.update(view.drawn(), refresh=True)

        refreshing = asyncio.ensure_future(refresh())
        try:
            yield
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)


class Steps:
    """An observer of a controller's steps that keeps where everybody stands: for what has no transaction of its own."""

    def __init__(self) -> None:
        self._states: dict[ParticipantKey, tuple[ParticipantState, DrainProgress | None]] = {}

    def __call__(self, trace: TraceRecord) -> None:
        """Take a step."""
        if trace.machine == PARTICIPANT.name:
            key = ParticipantKey(*trace.subject.split("/", maxsplit=1))
            self._states[key] = (ParticipantState(trace.target), None)

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """Whoever has taken a step, and where it stands."""
        return self._states


class DrainView:
    """Everybody's state, since when, and what keeps each from the cut. ``clock`` counts seconds."""

    def __init__(self, title: str, progress: Progress, clock: Callable[[], float]) -> None:
        self._title = title
        self._progress = progress
        self._clock = clock
        self._began_s = clock()
        self._since_s: dict[ParticipantKey, tuple[ParticipantState, float]] = {}

    def drawn(self) -> Table:
        """The table as things stand now."""
        now_s = self._clock()
        table = Table(
            title=f"{self._title}  {now_s - self._began_s:.1f} s", title_justify="left", box=None, padding=(0, 2, 0, 0)
        )
        for column in ("participant", "state", "for", "waits for"):
            table.add_column(column, header_style="dim")
        for key, (state, drain) in self._progress().items():
            since_s = self._seen(key, state, now_s)
            waits = _open_work(state, drain)
            word = Text(_WORDS.get(state, state.value), _STYLES[state])
            table.add_row(Text(str(key)), word, f"{now_s - since_s:.1f} s", Text(printable(waits)))
        return table

    def _seen(self, key: ParticipantKey, state: ParticipantState, now_s: float) -> float:
        before, since_s = self._since_s.get(key, (state, self._began_s))
        if before is not state:
            since_s = now_s
        self._since_s[key] = (state, since_s)
        return since_s


def _open_work(state: ParticipantState, drain: DrainProgress | None) -> str:
    if state not in (ParticipantState.DRAINING, ParticipantState.UNKNOWN):
        return ""
    if drain is None:
        return _ITS_ANSWER
    calls = [f"{call.rollout_id or 'a call'} {call.age_s:.1f} s" for call in drain.inflight]
    blocked = [f"{blocker.attempt.rollout_id} {blocker.age_s:.1f} s" for blocker in drain.blockers]
    named = [*calls, *blocked]
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return drain.sentence() + (f" ({', '.join(named[:NAMED_MAX])}{more})" if named else "")
