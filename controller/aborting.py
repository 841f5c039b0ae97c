"""Aborting what is open, whoever began it: by its transaction, by its journal, or by what the participants say.

A transaction that runs or rests here is aborted as its caller would. For an id of which nothing is known here but that
participants say that it holds them, whoever does is reopened under that id, by the same conversation as after any
cut; it is written down under that id first, so that it is finished also if this controller dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from quiesce.controller.journal import read_journal
from quiesce.controller.opening import Opening
from quiesce.controller.phased import Phased
from quiesce.controller.phases import PhasedRestore
from quiesce.controller.recovery import Account, account_of
from quiesce.controller.runner import TransactionRunner
from quiesce.controller.takeover import Leftover, recover_one
from quiesce.controller.trainer_only import TrainerOnlyCut, TrainerOnlyRestore
from quiesce.fsm import messages as m
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Verb
from quiesce.participants.dialects.base import Reading
from quiesce.participants.identity import check_identity
from quiesce.participants.replies import Inspection

__all__ = ["Aborted", "abort_one", "holders", "release_held"]

_HELD: Final = frozenset(
    {
        Outcome.HELD_PREPARING,
        Outcome.HELD_PREPARED,
        Outcome.HELD_BUSY,
        Outcome.HELD_COMMITTED,
        Outcome.HELD_RESTORED,
        Outcome.HELD_RESTORE_FAILED,
    }
)
"""Readings that say that the id that was asked for holds the participant."""
_NOBODYS: Final = "quiesce-looks"
_RESTORED: Final = frozenset({Outcome.HELD_RESTORED, Outcome.HELD_RESTORE_FAILED})


@dataclass(frozen=True, slots=True)
class Aborted:
    """What an abort came to.

    Attributes:
        wire_id: of the transaction; None where there was nothing to abort.
        state: where it stands now; one that was published already is ``resumed``, not undone.
        reopened: who was held by an id of which nothing was known here, and is open now.
        to_restart: whose process must be restarted: it holds restored state, or half of it.
        notes: what was noticed, each a sentence.
    """

    wire_id: str | None = None
    state: str = ""
    reopened: tuple[ParticipantKey, ...] = ()
    to_restart: tuple[ParticipantKey, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "wire_id": self.wire_id,
            "state": self.state or None,
            "reopened": [str(key) for key in self.reopened],
            "to_restart": [str(key) for key in self.to_restart],
            "notes": list(self.notes),
        }


async def abort_one(transaction: Phased | TrainerOnlyCut | TrainerOnlyRestore) -> Aborted:
    """Abort a transaction that runs or rests, and wait until it rests again.

    Raises:
        InDoubt: somebody could not be proven open.
    """
    await transaction.abort()
    held = transaction.held()
    if held is not None:
        raise held
    if not isinstance(transaction, Phased):
        return Aborted(transaction.wire_id, TransactionState.ABORTED.value, notes=transaction.notes())
    is_undone = isinstance(transaction, PhasedRestore) and transaction.state is TransactionState.ABORTED
    to_restart = transaction.to_restart() if isinstance(transaction, PhasedRestore) and is_undone else ()
    return Aborted(transaction.wire_id, transaction.state.value, to_restart=to_restart, notes=transaction.notes())


async def release_held(opening: Opening, wire_id: str) -> tuple[Aborted, Phased | None]:
    """Reopen whoever says that ``wire_id`` holds it; also the transaction that did so, where somebody was held.

    Raises:
        InvalidIdentity: the id cannot be one.
        ConfigurationError: nobody can be called.
        QuiesceError: the journal of that id cannot be gone on with.
    """
    check_identity(wire_id, field="checkpoint id")
    runner = _runner(opening, wire_id)
    found = {key: reading.outcome for key, reading in (await _inspected(opening, runner)).items()}
    touched = frozenset(key for key, outcome in found.items() if outcome in _HELD)
    account = await asyncio.to_thread(_account, opening, wire_id)
    if not touched or account is not None:
        await runner.close()
    if not touched:
        return Aborted(), None
    if account is not None:
        leftover = await _gone_on_with(account, touched, opening)
    else:
        runner.start()
        await runner.request(m.Recover(published=False, touched=touched))
        await runner.reached()
        leftover = Leftover(runner, opening.budgets())
    reopened = tuple(key for key in found if key in touched and key not in leftover.owed())
    to_restart = tuple(key for key in reopened if found[key] in _RESTORED)
    return Aborted(wire_id, leftover.state.value, reopened, to_restart, leftover.notes()), leftover


async def holders(opening: Opening) -> Mapping[str, tuple[ParticipantKey, ...]]:
    """Which checkpoint ids hold whom, as the participants say it. Only reads."""
    runner = _runner(opening, _NOBODYS)
    holding: dict[str, tuple[ParticipantKey, ...]] = {}
    for key, reading in (await _inspected(opening, runner)).items():
        live = reading.payload.capabilities if isinstance(reading.payload, Inspection) else None
        if live is not None and live.active_checkpoint_id is not None:
            holder = live.active_checkpoint_id
            holding[holder] = (*holding.get(holder, ()), key)
    await runner.close()
    return holding


def _runner(opening: Opening, wire_id: str) -> TransactionRunner:
    fleet = opening.fleet()
    heading = opening.heading(wire_id, wire_id, fleet, None)
    return opening.runner(opening.plan(fleet, is_restore=False), fleet, wire_id, None, heading=heading)


async def _inspected(opening: Opening, runner: TransactionRunner) -> Mapping[ParticipantKey, Reading]:
    fleet = opening.fleet()
    readings = await asyncio.gather(*(runner.ask(key, Verb.INSPECT) for key in fleet))
    return dict(zip(fleet, readings, strict=True))


async def _gone_on_with(account: Account, touched: frozenset[ParticipantKey], opening: Opening) -> Phased:
    """Reopen under an id that has a journal already, which says something else than the participants do."""
    recovered = await recover_one(replace(account, touched=touched, aborted=True, released=False), opening)
    if recovered.phased is None:
        raise QuiesceError(f"{account.wire_id}: {recovered.problem}")
    return recovered.phased


def _account(opening: Opening, wire_id: str) -> Account | None:
    path = opening.store.layout.journal(wire_id)
    if opening.files.status(path) is None:
        return None
    account = account_of(wire_id, read_journal(path, files=opening.files))
    return account if account.opened is not None else None
