"""Holding a whole journal against the tables: what was recorded is what the protocol allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from quiesce.controller.files import FileSystem
from quiesce.controller.journal import read_journal
from quiesce.controller.journal_lines import SavedRecord
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.transaction import TRANSACTION
from quiesce.fsm.trace_check import check_trace
from quiesce.fsm.vocabulary import Role
from quiesce.participants.manifest_models import SnapshotManifest

__all__ = ["check_journal", "roles_in"]


def roles_in(manifest: SnapshotManifest) -> dict[str, Role]:
    """The roles of a snapshot's participants, by the name that records give them (``deployment/name``)."""
    return {
        f"{deployment}/{contract.server_name}": contract.role
        for deployment, entry in manifest.deployments.items()
        for contract in entry.topology.topology().contracts
    }


def check_journal(
    path: Path,
    *,
    roles: Mapping[str, Role] | None = None,
    drain: DrainMode = DrainMode.OVERLAPPED,
    files: FileSystem | None = None,
) -> tuple[str, ...]:
    """Every fault of one transaction's journal, each a sentence; empty for a whole one that the tables allow.

    Records are named by the number of their line. A journal that was taken over has several runs, each of which begins
    where the transaction does.

    Raises:
        StorageFailed: it cannot be read.
    """
    reading = read_journal(path, files=files)
    faults = [fault for run in _runs(reading.records) for fault in _faults(run, roles, drain)]
    if reading.damage:
        faults.append(f"{path.name}: {reading.damage}")
    if not any(saved.machine == TRANSACTION.name for saved in reading.records):
        faults.append(f"{path.name}: it has no step of the transaction")
    return tuple(faults)


def _runs(records: Sequence[SavedRecord]) -> Iterator[Sequence[SavedRecord]]:
    begins = [
        place
        for place, saved in enumerate(records)
        if place == 0 or (saved.machine == TRANSACTION.name and saved.source == TRANSACTION.initial.value)
    ]
    for begin, end in pairwise([*begins, len(records)]):
        yield records[begin:end]


def _faults(run: Sequence[SavedRecord], roles: Mapping[str, Role] | None, drain: DrainMode) -> Iterator[str]:
    for fault in check_trace((saved.trace() for saved in run), roles=roles, drain=drain):
        yield str(replace(fault, number=run[fault.number - 1].sequence))
