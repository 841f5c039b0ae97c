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

from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.replies import DrainProgress

__all__ = ["Progress", "drain_table", "shown"]

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


@contextlib.asynccontextmanager
async def shown(console: Console, title: str, progress: Progress) -> AsyncIterator[None]:
    """Show how far everybody is while the body runs, where ``console`` is a terminal."""
    if not console.is_terminal:
        yield
        return
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    def drawn() -> Table:
        return drain_table(title, progress(), loop.time() - began_s)

    with Live(drawn(), console=console, auto_refresh=False, transient=True) as live:

        async def refresh() -> None:
            while True:
                await asyncio.sleep(REFRESH_S)
                live.update(drawn(), refresh=True)

        refreshing = asyncio.ensure_future(refresh())
        try:
            yield
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)


def drain_table(
    title: str, progress: Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]], elapsed_s: float
) -> Table:
    """Everybody's state, and what keeps each from the cut."""
    table = Table(title=f"{title}  {elapsed_s:.1f} s", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("participant", "state", "waits for"):
        table.add_column(column, header_style="dim")
    for key, (state, drain) in progress.items():
        table.add_row(str(key), Text(state.value, _STYLES[state]), _open_work(state, drain))
    return table


def _open_work(state: ParticipantState, drain: DrainProgress | None) -> str:
    if drain is None or state not in (ParticipantState.DRAINING, ParticipantState.UNKNOWN):
        return ""
    calls = [f"{call.rollout_id or 'a call'} {call.age_s:.1f} s" for call in drain.inflight]
    blocked = [f"{blocker.attempt.rollout_id} {blocker.age_s:.1f} s" for blocker in drain.blockers]
    named = [*calls, *blocked]
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return drain.sentence() + (f" ({', '.join(named[:NAMED_MAX])}{more})" if named else "")
