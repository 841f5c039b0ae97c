"""What transactions leave behind under a root, and which of it nobody needs any more.

A folder that was staged and whose transaction has ended was never published. A journal is kept as long as its snapshot
is, and the newest of the others are kept to look at. Whatever belongs to a transaction that has not ended is left for
recovery, and so is a journal that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileKind, FileSystem, storage_errors
from quiesce.controller.journal import JOURNAL_SUFFIX, read_journal
from quiesce.controller.recovery import Account, account_of, has_ended
from quiesce.controller.root_layout import RootLayout

__all__ = ["JOURNALS_KEPT_MAX", "Needed", "left_overs", "needed_by_restores"]

JOURNALS_KEPT_MAX: Final = 256
"""Journals that are kept besides those of snapshots: what is known of ids that have ended (field cases F-01)."""

_HALF_WRITTEN: Final = re.compile(r"\.latest\.\d+\.tmp")


def left_overs(
    files: FileSystem, layout: RootLayout, *, kept: Collection[str], protected: Collection[str]
) -> Iterator[Path]:
    """What may go: staged folders and surplus journals of ended transactions, and half-written hints.

    ``kept`` are the snapshots that stay, ``protected`` the transactions that are not settled.

    Raises:
        StorageFailed: the root cannot be read.
    """
    for name in _names(files, layout.staging):
        if name not in protected and _is_over(files, layout.journals / f"{name}{JOURNAL_SUFFIX}"):
            yield layout.staging / name
    yield from _surplus_journals(files, layout, {*kept, *protected})
    for name in _names(files, layout.root):
        if _HALF_WRITTEN.fullmatch(name):
            yield layout.root / name


@dataclass(frozen=True, slots=True)
class Needed:
    """What restores that have not ended need.

    Attributes:
        restores: their ids, with what is known of each in words.
        snapshots: the snapshots that they restore.
        is_known: whether that is all; False where a journal does not say what it restores.
    """

    restores: dict[str, str]
    snapshots: frozenset[str]
    is_known: bool


def needed_by_restores(files: FileSystem, layout: RootLayout) -> Needed:
    """Look through the journals for restores that began and of which nothing says that they ended.

    Raises:
        StorageFailed: the folder of the journals cannot be read.
    """
    restores: dict[str, str] = {}
    snapshots: set[str] = set()
    is_known = True
    for name in _names(files, layout.journals):
        wire_id = name.removesuffix(JOURNAL_SUFFIX)
        if not name.endswith(JOURNAL_SUFFIX) or _is_over(files, layout.journals / name):
            continue
        account = _account(files, layout.journals / name, wire_id)
        if account is None or account.opened is None:
            restores[wire_id] = "its journal cannot be read, so no snapshot was removed: it may be a restore that waits"
            is_known = False
        elif account.opened.source_wire_id is not None:
            restores[wire_id] = f"this restore has not ended, so its snapshot {account.opened.source_wire_id} stays"
            snapshots.add(account.opened.source_wire_id)
    return Needed(restores, frozenset(snapshots), is_known)


def _account(files: FileSystem, path: Path, wire_id: str) -> Account | None:
    try:
        return account_of(wire_id, read_journal(path, files=files))
    except StorageFailed:
        return None


def _is_over(files: FileSystem, journal: Path) -> bool:
    """Whether what was staged belongs to nobody: nothing was recorded, so nobody was called, or all of it is over."""
    with storage_errors("look for the journal", journal):
        if files.status(journal) is None:
            return True
    try:
        if has_ended(files, journal):
            return True
    except StorageFailed:
        return False
    account = _account(files, journal, journal.name.removesuffix(JOURNAL_SUFFIX))
    return account is not None and account.is_over


def _surplus_journals(files: FileSystem, layout: RootLayout, needed: Collection[str]) -> Iterator[Path]:
    others = [
        layout.journals / name
        for name in _names(files, layout.journals)
        if name.endswith(JOURNAL_SUFFIX) and name.removesuffix(JOURNAL_SUFFIX) not in needed
    ]
    if len(others) <= JOURNALS_KEPT_MAX:
        return
    with storage_errors("look for old journals", layout.journals):
        aged = sorted((_modified_ts(files, path), path) for path in others)
    for _, path in aged[:-JOURNALS_KEPT_MAX]:
        if _is_over(files, path):
            yield path


def _modified_ts(files: FileSystem, path: Path) -> float:
    found = files.status(path)
    return found.modified_ts if found is not None and found.kind is FileKind.FILE else float("inf")


def _names(files: FileSystem, directory: Path) -> tuple[str, ...]:
    with storage_errors("look for left-overs", directory):
        found = files.status(directory)
        return files.names(directory) if found is not None and found.kind is FileKind.DIRECTORY else ()
