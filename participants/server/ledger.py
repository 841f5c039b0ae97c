"""The ledger of a policy server: who called, who may not call any more, and what every finished call left behind.

A server author appends a row for each finished call; everything else is done by the control plane. Implements
``quiesce.participants.server.ports.ModelStore``. Sources: wire-protocol 2.7, 2.8, 6.4, 6.7.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_writing import reference_entry
from quiesce.participants.identity import AttemptId, capture_key
from quiesce.participants.layout import check_participant_name
from quiesce.participants.server.continuations import rows_of
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.ledger_files import SavedLedger, Standing, load_ledger, write_ledger
from quiesce.participants.server.lineage import LineageStore, MemoryLineage
from quiesce.participants.server.storage import FilePort, OsFiles
from quiesce.participants.server.tombstones import Tombstones

__all__ = ["CallRef", "ModelLedger"]


@dataclass(frozen=True, slots=True)
class CallRef:
    """A finished call, wherever it was made: after a restore its capture key is the one of the earlier attempt."""

    capture_key: str
    model_call_id: str


class ModelLedger:
    """Lineage, attempts and fences of one policy server.

    ``name`` is the server's own name and becomes a folder. ``lineage`` is kept in memory unless a store is given.

    Raises:
        InvalidIdentity: the name cannot become a folder.
    """

    def __init__(self, name: str, *, lineage: LineageStore | None = None, files: FilePort | None = None) -> None:
        self._name = check_participant_name(Role.POLICY, name)
        self._lineage: LineageStore = MemoryLineage() if lineage is None else lineage
        self._files: FilePort = OsFiles() if files is None else files
        self._seen: set[AttemptId] = set()
        self._captured_by: dict[str, AttemptId] = {}
        self._tombstones = Tombstones()
        self._restored = False

    @property
    def name(self) -> str:
        """The server's own name, which also stands in the paths of its artefacts."""
        return self._name

    # ---- for the author of a model server

    def record_call(
        self,
        attempt: AttemptId,
        *,
        model_call_id: str,
        delta_len: int,
        staging_key: str | None,
        parent: CallRef | None = None,
        weight_version: int | None = None,
        failure_reason: str | None = None,
    ) -> CallRef:
        """Append the row of a finished call; lengths and staging chain go on from the parent's.

        ``delta_len`` counts the tokens that this call added. A failed call says why and can be no root.

        Raises:
            ControlRefusal: ``stale_attempt``: the attempt was fenced meanwhile; nothing is recorded.
                ``ledger_mismatch``: the parent did not finish here, or this call did already.
        """
        before = self._parent_row(parent)
        previous_len = _length(before)
        key = capture_key(*attempt)
        row: dict[str, object] = {
            "model_call_id": model_call_id,
            "parent_call_id": None if parent is None else parent.model_call_id,
            "prev_len": previous_len,
            "delta_len": delta_len,
            "cum_len": previous_len + delta_len,
            "staging_key": staging_key,
            "staging_chain": [*_chain(before), *([] if staging_key is None else [staging_key])],
            "weight_version": weight_version,
            "failure_reason": failure_reason,
        }
        if parent is not None and parent.capture_key != key:
            row["parent_capture_key"] = parent.capture_key
        self.append_row(attempt, row)
        return CallRef(key, model_call_id)

    def append_row(self, attempt: AttemptId, row: Mapping[str, object]) -> None:
        """Append a row as it is. It must have a ``model_call_id`` that no finished call of the attempt has.

        Raises:
            ControlRefusal: as ``record_call``.
            TypeError, ValueError: the row is not JSON or names no call.
        """
        call_id = row.get("model_call_id")
        if not isinstance(call_id, str) or not call_id:
            raise ValueError("a lineage row needs the text 'model_call_id'")
        if attempt in self._tombstones:
            raise ControlRefusal(
                RefusalCode.STALE_ATTEMPT, f"{attempt} is fenced; its call {call_id!r} is not recorded"
            )
        ref = CallRef(capture_key(*attempt), call_id)
        if row.get("failure_reason") is None and self.call(ref) is not None:
            raise ControlRefusal(RefusalCode.LEDGER_MISMATCH, f"call {call_id!r} of {attempt} is recorded already")
        self.note_call(attempt)
        line = json.dumps(row, sort_keys=True, allow_nan=False)
        self._lineage.append(ref.capture_key, line.encode() + b"\n")

    def call(self, ref: CallRef) -> Mapping[str, object] | None:
        """The row of a finished call, None where it is not known or failed."""
        rows = rows_of(ref.capture_key, self._lineage.read(ref.capture_key) or b"")
        found = (row for row in rows if row.get("model_call_id") == ref.model_call_id)
        return next((row for row in found if row.get("failure_reason") is None), None)

    # ---- for the control plane and the gate

    def note_call(self, attempt: AttemptId) -> None:
        """See ``ModelStore``.

        Raises:
            ControlRefusal: ``execution_identity_mismatch``: another attempt is captured under the same key
                (``x-a2`` attempt 0 and ``x`` attempt 2: wire-protocol 9, 31).
        """
        key = capture_key(*attempt)
        holder = self._captured_by.setdefault(key, attempt)
        if holder != attempt:
            raise ControlRefusal(
                RefusalCode.EXECUTION_IDENTITY_MISMATCH,
                f"{attempt} would be captured as {key!r}, as {holder} is; give the rollout another id",
            )
        self._seen.add(attempt)

    def is_fenced(self, attempt: AttemptId) -> bool:
        return attempt in self._tombstones

    def fence(self, attempt: AttemptId) -> None:
        self._tombstones.add(attempt)

    def tombstones(self) -> tuple[AttemptId, ...]:
        return self._tombstones.named()

    async def export(
        self, *, checkpoint_id: str, directory: Path, continuation_indexes: Sequence[Mapping[str, object]]
    ) -> dict[str, object]:
        """See ``ModelStore``. What is exported is the state at the call; the files are written off the loop."""
        standing = Standing(self._name, checkpoint_id, frozenset(self._seen), self._tombstones.named())
        written = await asyncio.to_thread(
            write_ledger, self._files, directory, standing, continuation_indexes, self._lineage.read
        )
        return {
            "rollouts": len(written.lineages),
            "rows": written.rows,
            "excluded_tombstoned": len(standing.tombstones),
            "excluded_inactive": written.excluded_inactive,
            "manifest_digest": written.manifest_digest,
            "storage_reference_index": reference_entry(written.index),
        }

    async def restore(self, *, directory: Path) -> dict[str, object]:
        """See ``ModelStore``. Everything is verified before anything is installed."""
        self._refuse_unless_fresh()
        saved = await asyncio.to_thread(load_ledger, self._files, directory, self._name, self._lineage.keys)
        self._refuse_unless_fresh()
        await self._install(saved)
        return {
            "rollouts": len(saved.lineages),
            "rows": saved.rows,
            "checkpoint_id": saved.checkpoint_id,
            "tombstones": [attempt._asdict() for attempt in saved.tombstones],
            "source_attempts": [attempt._asdict() for attempt in saved.source_attempts],
            "storage_reference_index": reference_entry(saved.index),
        }

    async def _install(self, saved: SavedLedger) -> None:
        try:
            await self._lineage.install(saved.lineages)
        except OSError as error:
            raise ControlRefusal(
                RefusalCode.LEDGER_MISMATCH, f"the saved lineage could not be installed: {error.strerror}"
            ) from error
        self._restored = True
        for attempt in (*saved.tombstones, *saved.source_attempts):
            self._tombstones.add(attempt)
            self._captured_by.setdefault(capture_key(*attempt), attempt)

    def _refuse_unless_fresh(self) -> None:
        if self._seen or self._restored:
            why = "has been restored before" if self._restored else f"has served {len(self._seen)} attempts"
            raise ControlRefusal(
                RefusalCode.LEDGER_MISMATCH, f"this process {why}; a save is restored into a fresh process only"
            )

    def _parent_row(self, parent: CallRef | None) -> Mapping[str, object] | None:
        if parent is None:
            return None
        row = self.call(parent)
        if row is None:
            raise ControlRefusal(
                RefusalCode.LEDGER_MISMATCH,
                f"the parent {parent.model_call_id!r} of lineage {parent.capture_key!r} did not finish here",
            )
        return row


def _length(row: Mapping[str, object] | None) -> int:
    length = 0 if row is None else row.get("cum_len")
    return length if isinstance(length, int) else 0


def _chain(row: Mapping[str, object] | None) -> list[object]:
    chain = [] if row is None else row.get("staging_chain")
    return chain if isinstance(chain, list) else []
