"""Aborting what is open, whoever began it: by its transaction, by its journal, or by what the participants say.

A transaction that runs or rests here is aborted as its caller would. For an id of which nothing is known here but that
participants say that it holds them, whoever does is reopened under that id, by the same conversation as after any
cut; it is written down under that id first, so that it is finished also if this controller dies. Somebody who does
not answer keeps nobody else closed, and is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from quiesce.controller.discovery import Answered
from quiesce.controller.errors import HalfRestored
from quiesce.controller.journal import read_journal
from quiesce.controller.opening import Opening
from quiesce.controller.phased import Phased
from quiesce.controller.records import MemoryRecords
from quiesce.controller.recovery import Account, Unread, account_of, journal_says
from quiesce.controller.takeover import Leftover, recover_one
from quiesce.controller.trainer_only import TrainerOnlyCut, TrainerOnlyRestore
from quiesce.controller.unread_journals import move_aside, who_answers
from quiesce.fsm import messages as m
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Verb
from quiesce.participants.identity import check_identity

__all__ = ["Aborted", "abort_one", "release_held"]

_RESTORED: Final = frozenset({Outcome.HELD_RESTORED, Outcome.HELD_RESTORE_FAILED})


@dataclass(frozen=True, slots=True)
class Aborted:
    """What an abort came to.

    Attributes:
        wire_id: of the transaction; None where there was nothing to abort.
        state: where it stands now; one that was published already is ``resumed``, not undone.
        reopened: who was held by an id of which nothing was known here, and is open now.
        to_restart: whose process must be restarted: it holds restored state, or half of it.
        silent: who could not be asked whether that id holds it (``deployment/name``), and why.
        still_open: ids of other transactions that are open here, and were not touched.
        moved_to: where something was moved that had the name of its journal and could not be read.
        waiting: who waits for a restore, and refuses all work before it.
        notes: what was noticed, each a sentence.
    """

    wire_id: str | None = None
    state: str = ""
    reopened: tuple[ParticipantKey, ...] = ()
    to_restart: tuple[ParticipantKey, ...] = ()
    waiting: tuple[ParticipantKey, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    still_open: tuple[str, ...] = ()
    moved_to: Path | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "wire_id": self.wire_id,
            "state": self.state or None,
            "reopened": [str(key) for key in self.reopened],
            "to_restart": [str(key) for key in self.to_restart],
            "waiting": [str(key) for key in self.waiting],
            "silent": dict(self.silent),
            "still_open": list(self.still_open),
            "moved_to": str(self.moved_to) if self.moved_to is not None else None,
            "notes": list(self.notes),
        }


async def abort_one(transaction: Phased | TrainerOnlyCut | TrainerOnlyRestore) -> Aborted:
    """Abort a transaction that runs or rests, and wait until it rests again.

    Raises:
        InDoubt: somebody could not be proven open.
    """
    await transaction.abort()
    if isinstance(transaction, Phased):
        await transaction.excuse_restarted()
        await transaction.look_who_waits()
        await transaction.excuse_restarted_since()
    held = transaction.held()
    if held is not None and not isinstance(held, HalfRestored):
        raise held
    if not isinstance(transaction, Phased):
        return Aborted(transaction.wire_id, TransactionState.ABORTED.value, notes=transaction.notes())
    return Aborted(
        transaction.wire_id,
        transaction.state.value,
        to_restart=transaction.half_restored(),
        waiting=transaction.waiting(),
        notes=transaction.notes(),
    )


async def release_held(opening: Opening, wire_id: str) -> tuple[Aborted, Phased | None]:
    """Reopen whoever says that ``wire_id`` holds it; also the transaction that did so, where somebody was held.

    What has the name of its journal and cannot be read is moved aside once everybody says that this id does not hold
    it any more.

    Raises:
        InvalidIdentity: the id cannot be one.
        ConfigurationError: nobody can be called.
        QuiesceError: the journal of that id cannot be gone on with.
    """
    check_identity(wire_id, field="checkpoint id")
    answered = await who_answers(opening)
    written = await asyncio.to_thread(_written, opening, wire_id)
    held = frozenset(answered.holding.get(wire_id, ()))
    leftover, found = await _released(opening, wire_id, answered, held, written) if held else (None, {})
    reopened = tuple(key for key in found if leftover is not None and key not in leftover.owed())
    aborted = Aborted(
        wire_id=wire_id if leftover is not None else None,
        state=leftover.state.value if leftover is not None else "",
        reopened=reopened,
        to_restart=tuple(
            sorted(
                {key for key in reopened if found[key] in _RESTORED} | set(leftover.half_restored() if leftover else ())
            )
        ),
        silent=answered.silent,
        notes=leftover.notes() if leftover is not None else (),
    )
    if isinstance(written, Unread) and not answered.silent and (leftover is None or leftover.is_settled()):
        now_ts = opening.clock.now_ts()
        moved_to = await asyncio.to_thread(move_aside, opening.files, written.path, now_ts, opening.tenure)
        aborted = replace(aborted, moved_to=moved_to)
    return aborted, leftover


async def _released(
    opening: Opening,
    wire_id: str,
    answered: Answered,
    held: frozenset[ParticipantKey],
    written: Account | Unread | None,
) -> tuple[Phased, Mapping[ParticipantKey, Outcome]]:
    fleet = {participant.key: participant for participant in answered.participants}
    heading = opening.heading(wire_id, wire_id, fleet, None)
    # what cannot be read stays in its place until everybody is open, so that also an abort that dies is not forgotten
    records = MemoryRecords() if isinstance(written, Unread) else None
    plan = opening.plan(fleet, is_restore=False)
    runner = opening.runner(plan, fleet, wire_id, None, heading=heading, records=records)
    readings = await asyncio.gather(*(runner.ask(key, Verb.INSPECT) for key in sorted(held)))
    found = {key: reading.outcome for key, reading in zip(sorted(held), readings, strict=True)}
    if isinstance(written, Account):
        await runner.close()
        return await _gone_on_with(written, held, opening), found
    runner.start()
    await runner.request(m.Recover(published=False, touched=held))
    await runner.reached()
    return Leftover(runner, opening.budgets()), found


async def _gone_on_with(account: Account, touched: frozenset[ParticipantKey], opening: Opening) -> Phased:
    """Reopen under an id that has a journal already, which says something else than the participants do."""
    recovered = await recover_one(replace(account, touched=touched, aborted=True, released=False), opening)
    if recovered.phased is None:
        raise QuiesceError(f"{account.wire_id}: {recovered.problem}")
    return recovered.phased


def _written(opening: Opening, wire_id: str) -> Account | Unread | None:
    """What stands under the name of its journal; None for nothing."""
    path = opening.store.layout.journal(wire_id)
    said = journal_says(opening.files, path)
    if said is None and opening.files.status(path) is not None:
        said = account_of(wire_id, read_journal(path, files=opening.files))
        if said.opened is None:
            return Unread(path, wire_id, "does not say what it was about")
    return said
