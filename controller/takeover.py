"""Finishing what a controller that is gone left behind, one transaction at a time.

In this order, and from the start again whenever it is broken off:

1. What is staged is renamed away, so that a rename of the former controller that is still to come fails.
2. Only then the folder is looked at, which alone decides whether a cut is published.
3. Published: everybody is resumed. Not published: everybody is reopened. A restore is held closed unless a record says
   that it was being released or aborted. It is so, too, where nobody holds anything of it any more: whoever was
   restarted since is empty, and nothing but this restore remembers that it was to go on from a snapshot.

Everybody who may be paused is reopened under the transaction's own id, also whoever is open: that uses the id up there,
and a call of the former controller that is still on its way is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from quiesce.controller.budgets import PAUSE_S, SLICE_S
from quiesce.controller.config import Config
from quiesce.controller.cut_storage import RestoreStorage
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.errands import RestoreSource
from quiesce.controller.errors import StorageFailed, waits_for_a_restore
from quiesce.controller.files import FileSystem, make_directories, remove_tree, storage_errors
from quiesce.controller.journal_headings import Regained, regained, taken_over_fields
from quiesce.controller.opening import Opening, saved_receipts
from quiesce.controller.phased import Phased
from quiesce.controller.phases import PhasedRestore
from quiesce.controller.recovery import Account, read_journals
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.runner import TransactionRunner
from quiesce.controller.standing import advice_about, take_stock
from quiesce.controller.unread_journals import LookedAfter, look_after
from quiesce.fsm import messages as m
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import ParticipantKey, Role
from quiesce.participants.errors import ConfigurationError, InvalidIdentity, SnapshotInvalid
from quiesce.transport.logs import log_named

__all__ = ["Leftover", "LeftoverRestore", "Recovered", "recover_all", "recover_one", "set_aside"]

_log: Final = log_named("quiesce.controller")
_BEHIND_ITS_PREPARES: Final = frozenset(
    {ParticipantState.PAUSED.value, ParticipantState.COMMITTED.value, ParticipantState.RESTORED.value}
)


class Leftover(Phased):
    """What another controller left of a cut, or of a restore whose snapshot is no more: it can only be undone."""

    async def retry(self) -> None:
        """Try again whoever is owed a resume.

        Raises:
            SnapshotInvalid: it is a restore that is held, and what it restored is gone. An abort is what is left.
            QuiesceError: as for every transaction.
        """
        if self.state is TransactionState.RESTORE_FAILED:
            raise SnapshotInvalid(
                subject=self.wire_id, file="MANIFEST.json", reason="the snapshot that it restored is gone; abort it"
            )
        await super().retry()


class LeftoverRestore(PhasedRestore):
    """What another controller left of a restore: retry it under its own id and resume it, or abort it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of a transaction that another controller had left.

    Attributes:
        account: what its journal said.
        published: of a cut, whether its snapshot stands; None where that cannot be read, and for a restore.
        gone: participants that the configuration does not name any more; they were called where they had been.
        phased: the transaction, at rest; None where nothing could be done.
        problem: why nothing could be done, or what could not be, a sentence; empty for nothing.
    """

    account: Account
    published: bool | None = None
    gone: tuple[ParticipantKey, ...] = ()
    phased: Phased | None = None
    problem: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether nobody is owed anything, and nobody of it is known to refuse work."""
        return self.phased is not None and self.phased.is_settled() and not self.waiting

    @property
    def waiting(self) -> tuple[ParticipantKey, ...]:
        """Who holds nothing of it, and refuses all work before it is restored."""
        return self.phased.waiting() if self.phased is not None else ()

    @property
    def state(self) -> str:
        """Where it stands now."""
        return self.phased.state.value if self.phased is not None else self.account.stood

    @property
    def what(self) -> str:
        """Why it is not settled, or what could not be done, a sentence; empty for nothing."""
        held = self.phased.held() if self.phased is not None else None
        return self.problem or str(held or "") or waits_for_a_restore(self.waiting)

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            **self.account.to_json(),
            "state": self.state,
            "to_restart": sorted(map(str, self.phased.half_restored())) if self.phased is not None else [],
            "settled": self.is_settled,
            "published": self.published,
            "owed": sorted(map(str, self.phased.owed())) if self.phased is not None and not self.is_settled else [],
            "waiting": sorted(map(str, self.waiting)),
            "gone": sorted(map(str, self.gone)),
            "excused": {str(key): why for key, why in (self.phased.excused() if self.phased else {}).items()},
            "notes": list(self.phased.notes()) if self.phased is not None else [],
            "problem": self.what or None,
        }


async def recover_all(
    opening: Opening, addresses: Callable[[], Awaitable[Config]], *, only: str | None = None
) -> tuple[tuple[Recovered, ...], tuple[LookedAfter, ...]]:
    """Finish everything that has not ended under the root; also what has the name of a journal and cannot be read.

    What is left open is in the results. ``addresses`` is asked for the configuration with everybody's address, if there
    is anything to finish. Whatever is staged is somebody else's, so all of it goes; what belongs to a transaction that
    has not ended first. With ``only`` nothing but the transaction of this id is touched.

    Raises:
        StorageFailed: the folder of the journals cannot be read.
        Superseded: another controller has the root.
    """
    journals = await asyncio.to_thread(read_journals, opening.files, opening.store.layout)
    found = [account for account in journals.unfinished if only in (None, account.wire_id)]
    unread = journals.unread if only is None else ()
    located = replace(opening, config=await addresses()) if found or unread else opening
    recovered = tuple([await recover_one(account, located) for account in found])
    await _give_way(recovered)
    looked_after = await look_after(unread, located)
    if only is None:
        await asyncio.to_thread(_clear, opening)
    return recovered, looked_after


async def _give_way(recovered: Sequence[Recovered]) -> None:
    """Let a restore of which nobody holds anything give way to one that was begun in its place, and is held itself."""
    held = [
        (one.account.opened.epoch or 0, one.account.opened.time_ts, one.phased)
        for one in recovered
        if one.account.opened is not None and one.phased is not None
        if one.phased.state is TransactionState.RESTORE_FAILED
    ]
    held.sort(key=lambda one: one[:2])
    undone = tuple(one.phased for one in recovered if one.phased is not None and one.phased.half_restored())
    if held and isinstance(held[-1][2], PhasedRestore):
        held[-1][2].replaces = undone
    for *_, phased in held[:-1]:
        if await phased.is_forsaken():
            with contextlib.suppress(StorageFailed):  # then both are held, and named
                await phased.give_way(held[-1][2].wire_id)


def _clear(opening: Opening) -> None:
    """Remove what was staged by others; what cannot be removed does no harm and is tried again by a pruning."""
    files, layout = opening.files, opening.store.layout
    with contextlib.suppress(OSError, StorageFailed):
        for name in files.names(layout.staging):
            _check(opening)
            with contextlib.suppress(InvalidIdentity):
                set_aside(files, layout, name)
        for name in files.names(layout.trash) if files.status(layout.trash) is not None else ():
            _check(opening)
            remove_tree(files, layout.trash / name)


def _check(opening: Opening) -> None:
    if opening.tenure is not None:
        opening.tenure.check()


async def recover_one(account: Account, opening: Opening) -> Recovered:
    """Finish one transaction, as far as that can be done now.

    Raises:
        Superseded: another controller has the root.
    """
    _log.warning(
        "recovering",
        wire_id=account.wire_id,
        stood=account.stood,
        touched=sorted(map(str, account.touched)),
        release_timeout_s=opening.config.release_timeout_s,
    )
    if account.opened is None:
        return Recovered(account, problem="its journal does not say what it was about")
    try:
        again = regained(account.opened, opening.config)
    except ConfigurationError as error:
        return Recovered(account, gone=(), problem=str(error))
    if account.is_restore:
        return await _recover_restore(account, opening, again)
    return await _recover_cut(account, opening, again)


async def _recover_cut(account: Account, opening: Opening, again: Regained) -> Recovered:
    problems = await _withdrawn(account, opening)
    publication = await asyncio.to_thread(opening.store.published, account.wire_id)
    runner = _runner(account, opening, again.fleet)
    published = publication is m.Publication.PUBLISHED
    leftover = Leftover(runner, opening.budgets())
    fresh_ids = frozenset((key, last) for key, last in account.fresh_ids.items() if key in account.touched)
    await _run(leftover, runner, m.Recover(published, account.touched, fresh_ids=fresh_ids))
    if publication is m.Publication.UNKNOWN:
        problems.append("whether its snapshot is published cannot be read; what was staged is kept")
    known = published if publication is not m.Publication.UNKNOWN else None
    return _told(Recovered(account, known, _touched_of(account, again.gone), leftover, "; ".join(problems)))


async def _recover_restore(account: Account, opening: Opening, again: Regained) -> Recovered:
    leftover, runner, problem = await _opened_restore(account, opening, again)
    fresh_ids = frozenset((key, last) for key, last in account.fresh_ids.items() if key in account.touched)
    how = m.Recover(
        published=False,
        touched=account.touched,
        released=account.released,
        aborted=account.aborted,
        fresh_ids=fresh_ids,
    )
    leftover.imported |= {key: one for key, one in account.imported.items() if key not in account.excused}
    await _run(leftover, runner, how)
    leftover.look_at_half()
    if leftover.state is TransactionState.RESTORE_FAILED:
        is_forsaken = await take_stock(runner, account)
        runner.ledger.advice = advice_about(account.wire_id, is_forsaken=is_forsaken, problem=problem)
    await leftover.look_who_waits()
    await leftover.excuse_restarted_since()
    is_held = leftover.state is TransactionState.RESTORE_FAILED  # then the advice says what the problem is
    return _told(Recovered(account, None, _touched_of(account, again.gone), leftover, "" if is_held else problem))


async def _opened_restore(account: Account, opening: Opening, again: Regained) -> tuple[Phased, TransactionRunner, str]:
    """The restore, with its snapshot where that still stands; and the reason where it does not."""
    source_id = account.opened.source_wire_id if account.opened is not None else None
    try:
        snapshot = await asyncio.to_thread(opening.store.resolve, source_id or "")
    except QuiesceError as error:
        runner = _runner(account, opening, again.fleet)
        return Leftover(runner, opening.budgets()), runner, str(error)
    storage = RestoreStorage(snapshot.directory, snapshot.manifest)
    source = RestoreSource(snapshot.manifest.checkpoint_id, saved_receipts(snapshot.manifest))
    runner = _runner(account, opening, again.fleet, storage, source)
    return LeftoverRestore(runner, opening.budgets(), storage, again.fleet), runner, ""


def _runner(
    account: Account,
    opening: Opening,
    fleet: Mapping[ParticipantKey, DiscoveredParticipant],
    storage: RestoreStorage | None = None,
    source: RestoreSource | None = None,
) -> TransactionRunner:
    heading = taken_over_fields(
        account.wire_id,
        epoch=opening.tenure.epoch if opening.tenure is not None else 0,
        damage=account.damage,
        now_ts=opening.clock.now_ts(),
    )
    plan = opening.plan(fleet, is_restore=account.is_restore)
    runner = opening.runner(plan, fleet, account.wire_id, storage, source, heading=heading, before=account.reading)
    now_s = runner.now_s()
    for key in account.touched:
        runner.ledger.entries[key].outstanding_until_s = now_s + _longest_s(account, fleet[key])
    return runner


def _longest_s(account: Account, target: DiscoveredParticipant) -> float:
    """For how long a prepare of the controller before us may still run there: for as long as it could have been given.

    None runs at one that is recorded as paused, or as further: its prepares had all been answered. What a coordinator
    is healed by is a prepare as well.
    """
    if account.states.get(target.key) in _BEHIND_ITS_PREPARES and not target.coordinator:
        return 0.0
    return PAUSE_S if target.role is Role.POLICY else SLICE_S


async def _run(leftover: Phased, runner: TransactionRunner, how: m.Recover) -> None:
    runner.start()
    await runner.request(how)
    await runner.reached()
    if runner.superseded is not None:
        await leftover.close()
        raise runner.superseded
    await leftover.excuse_restarted()


def _touched_of(account: Account, keys: tuple[ParticipantKey, ...]) -> tuple[ParticipantKey, ...]:
    return tuple(key for key in keys if key in account.touched)


def _told(recovered: Recovered) -> Recovered:
    phased = recovered.phased
    if phased is not None:
        for key in recovered.gone:
            phased.note(f"{key} is not in the configuration any more; it was called where it had been")
        if recovered.account.damage:
            phased.note(f"its journal was damaged, and everybody was taken for paused: {recovered.account.damage}")
    (_log.warning if recovered.is_settled else _log.error)(
        "recovered", wire_id=recovered.account.wire_id, state=recovered.state, problem=recovered.what or None
    )
    return recovered


async def _withdrawn(account: Account, opening: Opening) -> list[str]:
    """Rename what is staged away; where that fails the reason, since reopening everybody does not wait for it."""
    try:
        if opening.tenure is not None:
            await opening.tenure.confirm()
        await asyncio.to_thread(set_aside, opening.files, opening.store.layout, account.wire_id)
    except StorageFailed as error:
        return [str(error)]
    return []


def set_aside(files: FileSystem, layout: RootLayout, wire_id: str) -> Path | None:
    """Rename what is staged for an id to where things are deleted from; None where nothing is staged.

    Raises:
        StorageFailed: it still stands.
    """
    staged = layout.staged(wire_id)
    with storage_errors("withdraw what was staged", staged):
        if files.status(staged) is None:
            return None
        make_directories(files, layout.trash)
        taken = {name.casefold() for name in files.names(layout.trash)}
        free = next(name for number in count(1) if (name := f"{wire_id}.{number}").casefold() not in taken)
        files.rename(staged, layout.trash / free)
        files.sync_directory(layout.staging)
    return layout.trash / free
