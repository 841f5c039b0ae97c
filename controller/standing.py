"""Who stands where of a restore that another controller left: by what everybody says now, and by its journal.

A recovery knows of nobody more than that it was touched. Before it says that a restore is held, everybody of whom that
is so is asked once more; only reads. Whoever does not answer is told of as the journal remembers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from quiesce.controller.errors import ABORT_IT, HalfRestored
from quiesce.controller.journal_lines import SavedRecord
from quiesce.controller.ledger import Standing
from quiesce.controller.recovery import Account
from quiesce.controller.runner import TransactionRunner
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantState
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Verb
from quiesce.participants.dialects.base import Reading
from quiesce.participants.replies import Inspection

__all__ = ["advice_about", "half_restored", "holds_nothing", "take_stock"]

_HOLDS: Final[Mapping[Outcome, str]] = {
    Outcome.HELD_RESTORE_FAILED: "its restore failed, and the id holds it closed",
    Outcome.HELD_BUSY: "an import runs there",
}
_CALLS: Final[Mapping[str | None, str]] = {Verb.IMPORT.value: "its restore"}


async def take_stock(runner: TransactionRunner, account: Account) -> bool:
    """Ask everybody who was touched where it stands, and put that into the ledger; whether nobody holds anything."""
    touched = tuple(account.touched)
    readings = await asyncio.gather(*(runner.ask(key, Verb.INSPECT) for key in touched))
    for key, reading in zip(touched, readings, strict=True):
        runner.ledger.entries[key].standing = _standing(key, reading, account)
    # what another server has restored for a coordinator, its own fence does not tell of
    is_told = not any(runner.fleet[key].is_elsewhere(Verb.IMPORT) for key in touched)
    return is_told and all(holds_nothing(reading, account.wire_id) for reading in readings)


def advice_about(wire_id: str, *, is_forsaken: bool, problem: str) -> str:
    """What to do about a restore that is held; empty for what is usual."""
    if problem:
        return f"It cannot be retried: {problem}. {ABORT_IT}"
    if not is_forsaken:
        return ""
    return (
        "Nobody holds anything of it any more: they were restarted since, and would go on from nothing. Retry it under "
        "its own id (`quiesce recover --retry`), restore anew (`quiesce restore LABEL`), which takes its place, or "
        f"give it up (`quiesce abort {wire_id}`); no cut begins before"
    )


def half_restored(
    account: Account, instances: Mapping[ParticipantKey, str | None] | None = None
) -> HalfRestored | None:
    """Whose process must be restarted by the journal of a restore that was aborted; None for nobody.

    With ``instances``, the incarnations of now, without those that show that they were restarted.
    """
    now = instances or {}
    keys = [
        key for key, before in account.half_restored.items() if None in (before, now.get(key)) or before == now.get(key)
    ]
    return HalfRestored(account.wire_id, sorted(keys)) if keys else None


def holds_nothing(reading: Reading, wire_id: str) -> bool:
    """Whether somebody answers, and the id does not hold it; it may be another process by now."""
    if reading.outcome is Outcome.CHANGED and isinstance(reading.payload, Inspection):
        return reading.payload.capabilities.active_checkpoint_id != wire_id
    return reading.outcome in (Outcome.OPEN, Outcome.HELD_BY_OTHER)


def _standing(key: ParticipantKey, reading: Reading, account: Account) -> Standing:
    if reading.outcome is Outcome.HELD_RESTORED:
        return Standing(is_restored=True)
    remembered = _remembered(key, account)
    if holds_nothing(reading, account.wire_id):
        return Standing(
            is_restored=False,
            sentence=f"it holds nothing of it, so it was restarted since or never got the call ({remembered})",
        )
    if reading.outcome in _HOLDS:
        return Standing(is_restored=False, sentence=f"{_HOLDS[reading.outcome]} ({remembered})")
    said = str(reading.error or reading.outcome.value).removeprefix(f"{key}: ").removeprefix(f"{key} ")
    return Standing(is_restored=False, sentence=f"{said} ({remembered})")


def _remembered(key: ParticipantKey, account: Account) -> str:
    """What the journal says of it: a phrase."""
    steps = [
        line
        for line in account.reading.lines
        if isinstance(line, SavedRecord) and line.machine == PARTICIPANT.name and line.subject == str(key)
    ]
    if account.damage or not steps:
        return "the journal does not say how far it was"
    last = steps[-1]
    if last.target == ParticipantState.RESTORED:
        return "by the journal it was restored"
    if last.call not in _CALLS:
        return "by the journal its restore was asked for, and no answer to it is recorded"
    return f"by the journal {_CALLS[last.call]} came to {last.reply}: {last.reason}"
