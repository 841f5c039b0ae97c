"""Retention where it is asked for: after a cut, by a controller's owner, or by somebody who has no controller."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Final

from quiesce.controller.cancellation import finish_first
from quiesce.controller.clock import Clock, SystemClock
from quiesce.controller.epoch import OUT_OF_SPACE, Tenure, begun_epoch, read_holder
from quiesce.controller.errors import RootNotGivenBack, StorageFailed
from quiesce.controller.files import FileSystem, LocalFiles, storage_errors
from quiesce.controller.retention import Pruned
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.errors import QuiesceError
from quiesce.transport.logs import log_named

__all__ = ["applied_retention", "prune_root"]

_log: Final = log_named("quiesce.controller")
_NAMED_MAX: Final = 3


async def prune_root(
    root: Path,
    *,
    keep: int | None,
    dry_run: bool = False,
    clock: Clock | None = None,
    files: FileSystem | None = None,
) -> Pruned:
    """Prune a root without a controller on it. Calls no participant. The root is taken for as long as that lasts.

    Where ``keep`` is None every snapshot stays and only left-overs go. With ``dry_run`` the root is only read, also
    while a controller is at work on it.

    The snapshot of a restore that has not ended stays, and it is named among what could not be removed.

    A root is never taken over by this: a controller that stands still would do nothing more once it wakes, and whoever
    it holds would stay closed. On a full file system it is taken without a word about who has it, and a controller that
    comes before there is room takes it over; then pruning stops.

    Raises:
        RootNotGivenBack: a controller is alive on the root, or was killed there. Let it prune, or recover first.
        ConfigurationError: ``keep`` is no positive number.
        StorageFailed: the root cannot be read or taken.
        Superseded: a controller has taken it over.
    """
    files = files or LocalFiles()
    store = SnapshotStore(root, files=files)
    if dry_run or not await asyncio.to_thread(_is_root, store, files):
        return replace(await asyncio.to_thread(_prune, store, keep, None), dry_run=dry_run)
    try:
        await asyncio.to_thread(_check_given_back, files, store.layout)
        tenure = await Tenure.acquire(files, store.layout, clock or SystemClock(), to_make_room=True)
    except RootNotGivenBack as error:
        await asyncio.to_thread(_note_what_may_go, store, keep, error, "where `quiesce recover` finds no space")
        raise
    except StorageFailed as error:
        if error.errno in OUT_OF_SPACE:
            await asyncio.to_thread(_note_what_may_go, store, keep, error, "since not even this finds space to begin")
        raise
    try:
        return await finish_first(asyncio.to_thread(_prune, store, keep, tenure))
    finally:
        await tenure.release()


async def applied_retention(
    store: SnapshotStore, published: str, keep: int | None, tenure: Tenure | None
) -> tuple[str, ...]:
    """After the cut ``published`` keep the newest ``keep`` snapshots and that one, and sweep what nobody needs.

    With None every snapshot stays. Returns notes: a cut that stands is never failed by this.
    """
    guard = tenure.check if tenure is not None else _nobody_else
    try:
        if keep is None:
            pruned = await finish_first(asyncio.to_thread(store.sweep, guard=guard))
        else:
            pruned = await finish_first(asyncio.to_thread(store.prune, keep=keep, guard=guard, protected=(published,)))
    except QuiesceError as error:
        _log.warning("retention_failed", error=str(error))
        return (f"old snapshots were not removed: {error}",)
    if not pruned.failed:
        return ()
    _log.warning("retention_incomplete", failed=pruned.failed)
    named = "; ".join(list(pruned.failed.values())[:_NAMED_MAX])
    return (f"{len(pruned.failed)} things could not be removed and are tried again after the next cut: {named}",)


def _prune(store: SnapshotStore, keep: int | None, tenure: Tenure | None) -> Pruned:
    guard = tenure.check if tenure is not None else _nobody_else
    return store.prune(keep=keep, guard=guard, dry_run=tenure is None)


def _note_what_may_go(store: SnapshotStore, keep: int | None, error: QuiesceError, when: str) -> None:
    """Where pruning cannot make room: what it would have removed first, so that a person can."""
    planned = _prune(store, keep, None)
    paths = [
        *(store.layout.root / name for name in planned.swept),
        *(store.layout.snapshot(wire_id) for wire_id in planned.removed),
    ]
    if paths:
        error.add_note(
            f"{when}, remove by hand, while no controller runs there, what this would have removed first: "
            f"`rm -r {shlex.quote(str(paths[0]))}`; then try again"
        )


def _check_given_back(files: FileSystem, layout: RootLayout) -> None:
    epoch = begun_epoch(files, layout)
    if epoch == 0:
        return
    holder = read_holder(files, layout, epoch)
    if holder is None:
        raise RootNotGivenBack(layout.root, f"the holder of epoch {epoch}", None)
    if not holder.released:
        raise RootNotGivenBack(layout.root, holder.host, holder.pid)


def _is_root(store: SnapshotStore, files: FileSystem) -> bool:
    """Whether anything of ours ever stood there: a root that was misspelt is not made by asking for it."""
    layout = store.layout
    with storage_errors("look at the checkpoint root", layout.root):
        return any(files.status(path) is not None for path in (layout.snapshots, layout.epochs, layout.journals))


def _nobody_else() -> None:
    """The guard where nobody took the root, since nothing is removed or nobody else can."""
