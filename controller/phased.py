"""What a cut and a restore share: a runner, asking it for a step, and bringing the transaction to rest."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from quiesce.controller.budgets import Budgets
from quiesce.controller.cancellation import finish_first
from quiesce.controller.outcomes import error_of, in_doubt, restore_failed
from quiesce.controller.runner import TransactionRunner
from quiesce.fsm import messages as m
from quiesce.fsm.errors import IllegalTransition, QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.transaction import is_owed
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.replies import DrainProgress

__all__ = ["Phased"]

_S = TransactionState
_DOUBTS: Final = frozenset({_S.IN_DOUBT_PUBLISHED, _S.IN_DOUBT_UNPUBLISHED, _S.PUBLISH_UNKNOWN})
_NAMING_S: Final = 0.5
"""How long the readings of the others are waited for when one of them ends the preflight: all are named at once."""


class Phased:
    """One transaction, whose phases its subclasses name."""

    def __init__(self, runner: TransactionRunner, budgets: Budgets) -> None:
        self._runner = runner
        self._budgets = budgets

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

    def owed(self) -> tuple[ParticipantKey, ...]:
        """Participants that may be closed on this transaction's account."""
        state = self._runner.state
        return tuple(
            spec.key for spec, member in zip(state.plan.members, state.members, strict=True) if is_owed(member)
        )

    def error(self) -> Exception:
        """Why the transaction did not end as asked: one error, or a group of several, with what was noticed."""
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

    async def retry(self) -> None:
        """Try again: a failed restore under the same id, or whoever is in doubt; wait until it rests.

        A restore that succeeds now is restored and still closed.

        Raises:
            IllegalTransition: there is nothing to retry.
            RestoreFailed: it failed again and is still held closed.
            InDoubt: somebody is still owed a resume.
        """
        await self._runner.request(m.RetryRequested())
        await self._runner.reached(_S.RESTORED)
        held = self.held()
        if held is not None:
            raise held

    async def settle(self) -> None:
        """Retry whoever is owed a resume.

        Raises:
            InDoubt: somebody still is.
            RestoreFailed: a failed restore is not opened by this; retry it or abort it.
            ConfigurationError: it was never ended; publish or resume it, or abort it.
        """
        if self.state in _DOUBTS and self.owed():
            await self.retry()
        held = self.held()
        if held is not None:
            raise held
        if not self.is_settled():
            raise ConfigurationError(f"{self.wire_id} is {self.state.value}: end it, or abort it")

    def is_settled(self) -> bool:
        """Whether nothing of it is open: everybody accepts work, and what became of the snapshot is known."""
        return self.state in TRANSACTION.final or self.state is _S.IDLE

    def held(self) -> QuiesceError | None:
        """Why a transaction that rests is not settled.

        RestoreFailed for a restore that is held closed, InDoubt where somebody is owed a resume, else None.
        """
        if self.state is _S.RESTORE_FAILED:
            return restore_failed(self.wire_id, self._runner.state, self._runner.ledger)
        if self.state in _DOUBTS and self.owed():
            return in_doubt(self.wire_id, self._runner.state, self._runner.ledger)
        return None

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
