"""Holding a whole journal against the tables: what was recorded is what the protocol allows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quiesce.controller.files import FileSystem
from quiesce.controller.journal import read_journal
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

    Raises:
        StorageFailed: it cannot be read.
    """
    reading = read_journal(path, files=files)
    faults = [
        str(fault) for fault in check_trace((saved.trace() for saved in reading.records), roles=roles, drain=drain)
    ]
    if reading.damage:
        faults.append(f"{path.name}: {reading.damage}")
    if not any(saved.machine == TRANSACTION.name for saved in reading.records):
        faults.append(f"{path.name}: it has no step of the transaction")
    return tuple(faults)
