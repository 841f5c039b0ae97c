"""Finished results that nobody owns yet, and the receipts that say who took them (wire-protocol 2.15).

A result stays here until the trainer, having made it durable, sends its receipt back. Until then it blocks a cut,
and a repeated ``/run`` is answered with it instead of being computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from quiesce.participants.artefact_writing import result_digest, result_identity
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt
from quiesce.participants.server.errors import ControlRefusal, RefusalCode

__all__ = ["Completions", "receipt_for"]


def receipt_for(attempt: AttemptId, generation: int, result: object) -> CompletionReceipt:
    """The receipt of a result: its identity is the result's ``id``, else its ``response.id``, else its digest.

    Raises:
        TypeError, ValueError: the result is not JSON.
    """
    return CompletionReceipt(*attempt, generation, result_identity(result), result_digest(result))


class Completions:
    """The results of one agent server that are finished, and the receipts that were acknowledged.

    Receipts are kept for the life of the process: they are what tells a repeated acknowledgement, and a repeated
    ``/run`` of an attempt that is over, from new ones.
    """

    def __init__(self) -> None:
        self._results: dict[AttemptId, tuple[CompletionReceipt, object]] = {}
        self._acknowledged: dict[AttemptId, CompletionReceipt] = {}

    @property
    def acknowledged(self) -> int:
        """How many results have been acknowledged."""
        return len(self._acknowledged)

    def was_acknowledged(self, attempt: AttemptId) -> bool:
        return attempt in self._acknowledged

    def store(self, receipt: CompletionReceipt, result: object) -> None:
        """Keep a result until its receipt comes back."""
        self._results[receipt.attempt] = (receipt, result)

    def stored(self, attempt: AttemptId) -> tuple[CompletionReceipt, object] | None:
        """Receipt and result of a finished attempt that nobody has acknowledged."""
        return self._results.get(attempt)

    def acknowledge(self, receipts: Sequence[Mapping[str, object]]) -> tuple[bool, ...]:
        """Let go of the results that the receipts name; for each receipt whether it was the first time.

        All or nothing: every receipt is checked before any result is let go.

        Raises:
            ControlRefusal: ``completed_execution_acknowledgement_error``: an attempt has no finished result, or the
                receipt is not its own.
        """
        checked = [self._checked(fields) for fields in receipts]
        fresh = [self._results.pop(receipt.attempt, None) is not None for receipt in checked]
        self._acknowledged.update((receipt.attempt, receipt) for receipt in checked)
        return tuple(fresh)

    def _checked(self, fields: Mapping[str, object]) -> CompletionReceipt:
        attempt = AttemptId(str(fields.get("rollout_id")), _whole(fields.get("attempt_index")))
        standing = self._results.get(attempt)
        known = standing[0] if standing is not None else self._acknowledged.get(attempt)
        whose = f"rollout {attempt.rollout_id!r} attempt {attempt.attempt_index}"
        if known is None:
            raise ControlRefusal(RefusalCode.ACKNOWLEDGEMENT_ERROR, f"{whose} has no completed result to acknowledge")
        if any(fields.get(name) != value for name, value in asdict(known).items()):
            raise ControlRefusal(
                RefusalCode.ACKNOWLEDGEMENT_ERROR, f"acknowledgement does not match {whose}'s completed receipt"
            )
        return known


def _whole(value: object) -> int:
    return value if isinstance(value, int) else -1
