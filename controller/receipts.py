"""What the trainer says it owns, held against what it was asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from quiesce.controller.errors import OnCompletedMisused
from quiesce.controller.ports import CompletedResult
from quiesce.participants.excerpts import escaped
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt

__all__ = ["checked_receipts"]


def checked_receipts(asked: Sequence[CompletedResult], returned: object) -> tuple[CompletionReceipt, ...]:
    """The receipts that ``on_completed`` returned, each once.

    Raises:
        OnCompletedMisused: they are no receipts, belong to results that it was not asked about, or differ from what
            the agent reported. Acknowledging such a one would give a result up that nobody owns.
    """
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | Mapping):
        raise OnCompletedMisused(f"it returned {escaped(returned)}; it must return the receipts that it owns")
    known = {result.attempt: result.receipt for result in asked}
    owned: dict[AttemptId, CompletionReceipt] = {}
    for receipt in returned:
        _check(receipt, known)
        if owned.setdefault(receipt.attempt, receipt) != receipt:
            raise OnCompletedMisused(f"it returned two different receipts of {receipt.attempt}")
    return tuple(owned.values())


def _check(receipt: object, known: dict[AttemptId, CompletionReceipt | None]) -> None:
    if not isinstance(receipt, CompletionReceipt):
        raise OnCompletedMisused(f"it returned {escaped(receipt)} among the receipts")
    if receipt.attempt not in known:
        raise OnCompletedMisused(f"it returned the receipt of {receipt.attempt}, which it was not asked about")
    reported = known[receipt.attempt]
    if reported is not None and reported != receipt:
        raise OnCompletedMisused(f"its receipt of {receipt.attempt} is not the one that the agent reported")
