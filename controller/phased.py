"""What a cut and a restore share: a runner, asking it for a step, and bringing the transaction to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from quiesce.controller.budgets import Budgets
from quiesce.controller.cancellation import finish_first
from quiesce.controller.errors import HalfRestored, InDoubt
from quiesce.controller.outcomes import error_of, in_doubt, restore_failed
from quiesce.controller.runner import TransactionRunner
from quiesce.controller.standing import holds_nothing
from quiesce.fsm import messages as m
from quiesce.fsm.errors import IllegalTransition, QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.release import ReleaseState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.transaction import is_owed
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Role, Verb
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.replies import DrainProgress, Inspection

__all__ = ["Phased"]

_S = TransactionState
_DOUBTS: Final = frozenset({_S.IN_DOUBT_PUBLISHED, _S.IN_DOUBT_UNPUBLISHED, _S.PUBLISH_UNKNOWN})
_NO_ANSWER: Final = frozenset({Outcome.NEVER_SENT, Outcome.LOST})
_NAMING_S: Final = 0.5
"""How long the readings of the others are waited for when one of them ends the preflight: all are named at once."""


class Phased:
    """One transaction, whose phases its subclasses name."""

    def __init__(self, runner: TransactionRunner, budgets: Budgets) -> None:
        self._runner = runner
        self._budgets = budgets
        self._excused: dict[ParticipantKey, str] = {}
        self._waiting: set[ParticipantKey] = set()
        self.imported: dict[ParticipantKey, str | None] = {}
        """Who may hold a part of what a restore restores, by an earlier controller, with the incarnation."""
        self._half: dict[ParticipantKey, str | None] = {}
        self._was_retried = False

    @property
    def wire_id(self) -> str:
        """The id that the participants see."""
        return self._runner.wire_id

    @property
    def state(self) -> TransactionState:
        """Where the transaction stands."""
        return self._runner.state.transaction

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """For each participant its state and the last that was heard of its drain."""
        return {key: (entry.state, entry.progress) for key, entry in self._runner.ledger.entries.items()}

    def to_give_up(self) -> tuple[ParticipantKey, ...]:
        """Who may be given up by name: whoever is owed a resume, or must be restarted."""
        return tuple(dict.fromkeys([*self.owed(), *self.half_restored()]))

    def half_restored(self) -> tuple[ParticipantKey, ...]:
        """Of a restore that was aborted: whose process must be restarted, since it may hold a part of the snapshot."""
        return tuple(sorted(key for key in self._half if key not in self._excused and key not in self._waiting))

    def owed(self) -> tuple[ParticipantKey, ...]:
        """Participants that may be closed on this transaction's account."""
        state = self._runner.state
        return tuple(
            spec.key
            for spec, member in zip(state.plan.members, state.members, strict=True)
            if is_owed(member) and spec.key not in self._excused
        )

    def excused(self) -> Mapping[ParticipantKey, str]:
        """Who is owed nothing any more although nothing proved it open, and why."""
        return dict(self._excused)

    def waiting(self) -> tuple[ParticipantKey, ...]:
        """Who was found to wait for a restore, and refuses all work before it. Nothing of this transaction holds it."""
        return tuple(sorted(self._waiting))

    def error(self) -> Exception:
        """Why the transaction did not end as asked: one error, or a group of several, with what was noticed."""
        if self._runner.superseded is not None:
            return self._runner.superseded
        error = error_of(self.wire_id, self._runner.state, self._runner.ledger, self._budgets, self._runner.stood)
        for note in self.notes():
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        return error

    async def _advance(self, request: m.Event, *states: TransactionState) -> None:
        """Ask for a step and wait for the state that it leads to.

        Raises:
            IllegalTransition: the step is not possible now; nothing changed.
            QuiesceError: the transaction ended otherwise; everybody was reopened or is named in doubt.
        """
        try:
            await self._runner.request(request)
        except IllegalTransition:
            if not self._runner.ledger.failures:
                raise
        if await self._runner.reached(*states) not in states:
            if self._runner.ledger.left == _S.PREFLIGHT:
                await self._runner.calls_ended(_NAMING_S)
            raise self.error()

    async def abort(self, *, cancelled: bool = False) -> None:
        """Undo the transaction, or finish it where that is too late, and wait until it rests.

        ``cancelled`` says that the caller went away rather than asked; the difference matters to a restore, which a
        cancellation holds closed. Returns also when somebody is left in doubt: see :meth:`held`.
        """
        await finish_first(self._abort(m.Cancelled() if cancelled else m.AbortRequested()))

    async def _abort(self, event: m.Event) -> None:
        with suppress(QuiesceError):  # it rests already, or broke off, and what can be undone is
            await self._runner.request(event)
        await self._runner.reached()
        self.look_at_half()

    def look_at_half(self) -> None:
        """Keep whose process must be restarted, where a restore was undone that had begun to restore somebody."""
        state = self._runner.state
        if not state.plan.is_restore or self.state not in (_S.ABORTED, _S.IN_DOUBT_UNPUBLISHED):
            return
        for spec, member in zip(state.plan.members, state.members, strict=True):
            if Phase.RESTORE in spec.phases and member.state is not ParticipantState.IDLE:
                self._half.setdefault(spec.key, self._incarnation(spec.key))
        self._half |= {key: instance for key, instance in self.imported.items() if key not in self._half}

    def _incarnation(self, key: ParticipantKey) -> str | None:
        """The process that the last import went to, as far as that is known."""
        seen = self._runner.ledger.entries[key].inspection
        if seen is not None:
            return seen.instance
        if self._was_retried:
            return None
        return self.imported.get(key, self._runner.fleet[key].instance)

    async def excuse_restarted_since(self) -> None:
        """Excuse whoever was to be restarted and is another process now. Who names no incarnation does not show it.

        Raises:
            StorageFailed: that could not be written down.
        """
        keys = self.half_restored()
        readings = await asyncio.gather(*(self._runner.ask(key, Verb.INSPECT) for key in keys))
        for key, reading in zip(keys, readings, strict=True):
            now = reading.payload.instance if isinstance(reading.payload, Inspection) else None
            if None not in (now, self._half[key]) and now != self._half[key]:
                await self.excuse(key, "it was restarted since")

    async def retry(self) -> None:
        """Try again: a failed restore under the same id, or whoever is in doubt; wait until it rests.

        A restore that succeeds now is restored and still closed.

        Raises:
            IllegalTransition: there is nothing to retry.
            RestoreFailed: it failed again and is still held closed.
            InDoubt: somebody is still owed a resume.
        """
        is_failed = self.state is _S.RESTORE_FAILED
        await self._runner.request(m.RetryRequested())
        self._was_retried = self._was_retried or is_failed
        await self._runner.reached(_S.RESTORED)
        held = self.held()
        if held is not None:
            raise held

    async def settle(self) -> None:
        """Retry whoever is owed a resume.

        Whoever turns out to have been restarted into one that waits for a restore holds nothing of this transaction,
        and is excused.

        Raises:
            InDoubt: somebody still is.
            RestoreFailed: a failed restore is not opened by this; retry it or abort it.
            HalfRestored: it was aborted, and somebody must still be restarted.
            ConfigurationError: it was never ended; publish or resume it, or abort it.
        """
        if self.is_in_doubt():
            with suppress(InDoubt, HalfRestored):
                await self.retry()
            await self.excuse_restarted()
            self.look_at_half()
        await self.excuse_restarted_since()
        held = self.held()
        if held is not None:
            raise held
        if not self.is_settled():
            raise ConfigurationError(f"{self.wire_id} is {self.state.value}: end it, or abort it")

    def is_in_doubt(self) -> bool:
        """Whether it rests, and somebody is owed a resume."""
        return self.state in _DOUBTS and bool(self.owed())

    async def anybody_answers(self) -> bool:
        """Whether somebody who is owed a resume can be reached. Only reads."""
        readings = await asyncio.gather(*(self._runner.ask(key, Verb.INSPECT) for key in self.owed()))
        return any(reading.outcome not in _NO_ANSWER for reading in readings)

    async def excuse_restarted(self) -> None:
        """Excuse whoever owes a restore and holds no id: it was started to wait for one, and nothing of ours is there.

        Only a restore opens it; as long as it counted as owed, none could begin.

        Raises:
            StorageFailed: that could not be written down.
        """
        waiting = [key for key in self.owed() if self._release_of(key) is ReleaseState.OWES_RESTORE]
        readings = await asyncio.gather(*(self._runner.ask(key, Verb.INSPECT) for key in waiting))
        for key, reading in zip(waiting, readings, strict=True):
            if reading.outcome is Outcome.OPEN:
                self._waiting.add(key)
                await self.excuse(key, "it holds no id: it was restarted, and waits for a restore")

    async def look_who_waits(self) -> None:
        """Once a restore was undone: find out who still waits for one, though it was never called.

        Asked by a resume under the transaction's own id, which uses it up where it succeeds (see
        :class:`~quiesce.controller.errors.RestoreOwed`).
        """
        state = self._runner.state
        if self.state is not _S.ABORTED or not state.plan.is_restore:
            return
        keys = [spec.key for spec in state.plan.members if spec.role is Role.RESOURCES and Phase.RESTORE in spec.phases]
        readings = await asyncio.gather(*(self._runner.ask(key, Verb.RELEASE) for key in keys))
        self._waiting |= {key for key, one in zip(keys, readings, strict=True) if one.outcome is Outcome.OWES_RESTORE}

    async def is_forsaken(self) -> bool:
        """Whether another restore may take its place. Only reads.

        It is held, and nobody holds anything of it any more, since all were restarted; or it was aborted, and nothing
        is left of it but processes to be restarted.
        """
        owed = self.owed()
        if self.half_restored() and not owed:
            return True
        # what another server has restored for a coordinator, its own fence does not tell of
        if self.state is not _S.RESTORE_FAILED or any(
            self._runner.fleet[key].is_elsewhere(Verb.IMPORT) for key in owed
        ):
            return False
        readings = await asyncio.gather(*(self._runner.ask(key, Verb.INSPECT) for key in owed))
        return all(holds_nothing(reading, self.wire_id) for reading in readings)

    async def give_way(self, to: str) -> None:
        """Let another restore take the place of this one, which nobody holds anything of.

        Raises:
            StorageFailed: that could not be written down.
        """
        for key in self.to_give_up():
            await self.excuse(key, f"{to} took its place")

    async def excuse(self, key: ParticipantKey, reason: str) -> None:
        """Write down that a participant is owed nothing any more, whatever it would answer.

        Raises:
            StorageFailed: that could not be written down; it stays owed.
        """
        await self._runner.excuse(key, reason)
        self._excused[key] = reason
        self._runner.ledger.note(f"{key} is owed nothing any more: {reason}")

    def _release_of(self, key: ParticipantKey) -> ReleaseState:
        state = self._runner.state
        return state.members[state.plan.index[key]].release

    def is_settled(self) -> bool:
        """Whether nothing of it is open: everybody accepts work, and what became of the snapshot is known.

        A transaction that another controller took over is settled there.
        """
        if self._runner.superseded is not None:
            return True
        if self.half_restored():
            return False
        if self.state in TRANSACTION.final or self.state is _S.IDLE:
            return True
        return (self.state in _DOUBTS and self.state is not _S.PUBLISH_UNKNOWN and not self.owed()) or self._gave_way()

    def _gave_way(self) -> bool:
        """Whether a restore that is held has been given up at everybody whom it may have touched."""
        return self.state is _S.RESTORE_FAILED and bool(self._excused) and not self.owed()

    def held(self) -> QuiesceError | None:
        """Why a transaction that rests is not settled.

        RestoreFailed for a restore that is held closed, InDoubt where somebody is owed a resume, HalfRestored where
        somebody must be restarted after an abort, Superseded where another controller has taken over, else None.
        """
        if self._runner.superseded is not None:
            return self._runner.superseded
        if self.state is _S.RESTORE_FAILED and not self._gave_way():
            return restore_failed(self.wire_id, self._runner.state, self._runner.ledger)
        if self.state in _DOUBTS and self.owed():
            doubt = in_doubt(self.wire_id, self._runner.state, self._runner.ledger)
            owed = {key: why for key, why in doubt.owed.items() if key not in self._excused}
            return InDoubt(self.wire_id, published=doubt.published, owed=owed)
        half = self.half_restored()
        return HalfRestored(self.wire_id, half) if half else None

    def notes(self) -> tuple[str, ...]:
        """What was noticed and changed nothing, each a sentence."""
        return tuple(self._runner.ledger.notes)

    def needs(self) -> tuple[str, ...]:
        """Ids whose files this transaction still needs while it is not settled."""
        return (self.wire_id,)

    def note(self, sentence: str) -> None:
        """Add a sentence to :meth:`notes`."""
        self._runner.ledger.note(sentence)

    async def close(self) -> None:
        """Stop the transaction's tasks. Whoever is owed a resume stays so: abort or publish first.

        A journal that could not be completed is noted: what was decided is decided.
        """
        await self._runner.close()
