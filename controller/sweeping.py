"""What transactions leave behind under a root, and which of it nobody needs any more.

A folder that was staged and whose transaction has ended was never published. A journal is kept as long as its snapshot
is, and the newest of the others are kept to look at. Whatever belongs to a transaction that has not ended is left for
recovery, and so is a journal that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileKind, FileSystem, storage_errors
from quiesce.controller.journal import read_journal
from quiesce.controller.root_layout import RootLayout
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState

__all__ = ["JOURNALS_KEPT_MAX", "has_ended", "left_overs", "unfinished_restores"]

JOURNALS_KEPT_MAX: Final = 256
"""Journals that are kept besides those of snapshots: what is known of ids that have ended (field cases F-01)."""

_S = TransactionState
_SUFFIX: Final = ".ndjson"
_HALF_WRITTEN: Final = re.compile(r"\.latest\.\d+\.tmp")
_RESTORES: Final = frozenset({_S.RESTORING.value, _S.RESTORED.value, _S.RESTORE_FAILED.value})
_FINAL: Final = frozenset(state.value for state in TRANSACTION.final)


def left_overs(
    files: FileSystem, layout: RootLayout, *, kept: Collection[str], protected: Collection[str]
) -> Iterator[Path]:
    """What may go: staged folders and surplus journals of ended transactions, and half-written hints.

    ``kept`` are the snapshots that stay, ``protected`` the transactions that are not settled.

    Raises:
        StorageFailed: the root cannot be read.
    """
    for name in _names(files, layout.staging):
        if name not in protected and _is_over(files, layout.journals / f"{name}{_SUFFIX}"):
            yield layout.staging / name
    yield from _surplus_journals(files, layout, {*kept, *protected})
    for name in _names(files, layout.root):
        if _HALF_WRITTEN.fullmatch(name):
            yield layout.root / name


def has_ended(files: FileSystem, path: Path) -> bool:
    """Whether a journal says that its transaction owes nobody anything. One that cannot be believed does not say so."""
    try:
        reading = read_journal(path, files=files)
    except StorageFailed:
        return False
    steps = [saved.target for saved in reading.records if saved.machine == TRANSACTION.name]
    return not reading.damage and bool(steps) and steps[-1] in _FINAL


def unfinished_restores(files: FileSystem, layout: RootLayout) -> tuple[str, ...]:
    """Ids of restores that have begun and of which no journal says that they ended.

    Raises:
        StorageFailed: the root cannot be read.
    """
    journals = [name for name in _names(files, layout.journals) if name.endswith(_SUFFIX)]
    return tuple(
        name.removesuffix(_SUFFIX)
        for name in journals
        if not has_ended(files, layout.journals / name) and _is_restore(files, layout.journals / name)
    )


def _is_restore(files: FileSystem, path: Path) -> bool:
    """Whether a journal is a restore's. One that cannot be read may be."""
    try:
        reading = read_journal(path, files=files)
    except StorageFailed:
        return True
    return any(saved.machine == TRANSACTION.name and saved.target in _RESTORES for saved in reading.records)


def _is_over(files: FileSystem, journal: Path) -> bool:
    """Whether what was staged belongs to nobody: nothing was recorded, so nobody was called, or all of it is over."""
    with storage_errors("look for the journal", journal):
        if files.status(journal) is None:
            return True
    return has_ended(files, journal)


def _surplus_journals(files: FileSystem, layout: RootLayout, needed: Collection[str]) -> Iterator[Path]:
    others = [
        layout.journals / name
        for name in _names(files, layout.journals)
        if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX) not in needed
    ]
    if len(others) <= JOURNALS_KEPT_MAX:
        return
    with storage_errors("look for old journals", layout.journals):
        aged = sorted((_modified_ts(files, path), path) for path in others)
    for _, path in aged[:-JOURNALS_KEPT_MAX]:
        if has_ended(files, path):
            yield path


def _modified_ts(files: FileSystem, path: Path) -> float:
    found = files.status(path)
    return found.modified_ts if found is not None and found.kind is FileKind.FILE else float("inf")


def _names(files: FileSystem, directory: Path) -> tuple[str, ...]:
    with storage_errors("look for left-overs", directory):
        found = files.status(directory)
        return files.names(directory) if found is not None and found.kind is FileKind.DIRECTORY else ()
