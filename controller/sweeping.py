"""What transactions leave behind under a root, and which of it nobody needs any more.

A folder that was staged and whose transaction has ended was never published. A journal is kept as long as its snapshot
is, and the newest of the others are kept to look at; so are the newest of those that were damaged and moved aside.
Whatever belongs to a transaction that has not ended is left for recovery, and so is a journal that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileKind, FileSystem, reached, storage_errors
from quiesce.controller.journal import DAMAGED_SUFFIX, JOURNAL_SUFFIX
from quiesce.controller.recovery import Unread, has_ended, journal_says, read_journals
from quiesce.controller.root_layout import RootLayout
from quiesce.participants.identity import is_restore_id

__all__ = ["DAMAGED_KEPT_MAX", "JOURNALS_KEPT_MAX", "Needed", "left_overs", "needed_by_restores"]

JOURNALS_KEPT_MAX: Final = 256
"""Journals that are kept besides those of snapshots: what is known of ids that have ended (field cases F-01)."""
DAMAGED_KEPT_MAX: Final = 16
"""Damaged journals that are kept under their other names, to be looked at."""

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
    yield from _surplus_damaged(files, layout)
    with storage_errors("look for left-overs", layout.root):
        root = reached(files, layout.root)
    yield from (layout.root / name for name in _names(files, root) if _HALF_WRITTEN.fullmatch(name))


@dataclass(frozen=True, slots=True)
class Needed:
    """What restores that have not ended need.

    Attributes:
        restores: their ids, with what is known of each in words.
        snapshots: the snapshots that they restore.
        is_known: whether that is all; False where a journal does not say what it restores.
        ignored: what has the name of a journal and is no file, with the reason.
    """

    restores: dict[str, str]
    snapshots: frozenset[str]
    is_known: bool
    ignored: dict[str, str]


def needed_by_restores(files: FileSystem, layout: RootLayout) -> Needed:
    """Look through the journals for restores that began and of which nothing says that they ended.

    Raises:
        StorageFailed: the folder of the journals cannot be read.
    """
    journals = read_journals(files, layout)
    restores: dict[str, str] = {}
    snapshots: set[str] = set()
    for account in journals.unfinished:
        if account.opened is not None and account.opened.source_wire_id is not None:
            source_id = account.opened.source_wire_id
            restores[account.wire_id] = f"restore {account.wire_id} has not ended, so its snapshot {source_id} stays"
            snapshots.add(source_id)
    unknown = [one for one in journals.unread if _may_need(one)]
    restores |= {one.wire_id: _may_be_a_restore(one) for one in unknown}
    ignored = {
        f"journal {one.wire_id}": f"none: {one.path} {one.reason}"
        for one in journals.unread
        if not one.is_file and not _may_need(one)
    }
    return Needed(restores, frozenset(snapshots), not unknown, ignored)


def _may_need(unread: Unread) -> bool:
    """Whether it may be what is left of a restore's journal.

    A journal that was emptied, or is a folder or a link now, may be one by its name alone: what never began called
    nobody, and what is no file never was a journal, unless the storage or somebody put it in the place of one.
    """
    return is_restore_id(unread.wire_id) or (unread.is_file and not unread.never_began)


def _may_be_a_restore(unread: Unread) -> str:
    return (
        f"the journal of {unread.wire_id} {unread.reason}; no snapshot was removed, since it may be a restore that "
        f"waits: `quiesce recover` says whether somebody is held by it, and `quiesce abort {unread.wire_id}` moves it "
        "aside"
    )


def _is_over(files: FileSystem, journal: Path) -> bool:
    """Whether what was staged belongs to nobody: nothing was recorded, so nobody was called, or all of it is over."""
    with storage_errors("look for the journal", journal):
        if files.status(journal) is None:
            return True
    try:
        return has_ended(files, journal)
    except StorageFailed:
        return False


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
        if journal_says(files, path) is None:
            yield path


def _surplus_damaged(files: FileSystem, layout: RootLayout) -> Iterator[Path]:
    names = [
        name for name in _names(files, layout.journals) if name.endswith(DAMAGED_SUFFIX) and JOURNAL_SUFFIX in name
    ]
    with storage_errors("look for old journals", layout.journals):
        found = [(files.status(layout.journals / name), layout.journals / name) for name in names]
    aged = sorted((status.modified_ts, path) for status, path in found if status is not None)
    yield from (path for _, path in aged[:-DAMAGED_KEPT_MAX])


def _modified_ts(files: FileSystem, path: Path) -> float:
    found = files.status(path)
    return found.modified_ts if found is not None and found.kind is FileKind.FILE else float("inf")


def _names(files: FileSystem, directory: Path) -> tuple[str, ...]:
    with storage_errors("look for left-overs", directory):
        found = files.status(directory)
        return files.names(directory) if found is not None and found.kind is FileKind.DIRECTORY else ()
