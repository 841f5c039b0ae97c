"""Which snapshots stay, and how the others go: renamed away first, then removed, so that no half is ever seen.

The newest K valid snapshots stay. One that is torn, incomplete or unreadable never counts as one of them and is never
removed either: it is reported, and a person decides. Links are not followed, and nothing outside the root is touched.
What cannot be removed is named and does not keep the rest (field cases F-41, F-43).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from quiesce.controller.catalog import SnapshotEntry, SnapshotState, list_snapshots
from quiesce.controller.errors import StorageFailed
from quiesce.controller.files import FileKind, FileSystem, make_directories, reached, remove_tree, storage_errors
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.sweeping import left_overs
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import printable

__all__ = ["Guard", "Pruned", "prune", "sweep"]

Guard = Callable[[], None]
"""Raises where this controller may do nothing more on the root; called before each step that lasts."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning did, or with ``dry_run`` would do.

    Attributes:
        kept: wire ids of the valid snapshots that stay, the newest first.
        removed: wire ids of the snapshots that went.
        swept: other things that went, as paths relative to the root: left-overs of aborted cuts, old journals, what an
            earlier pruning could not remove.
        ignored: what stands among the snapshots and is none, with the reason; left as it is.
        failed: what could not be removed, with the reason; it is tried again by the next pruning.
        dry_run: whether nothing was touched.
    """

    kept: tuple[str, ...]
    removed: tuple[str, ...]
    swept: tuple[str, ...]
    ignored: dict[str, str]
    failed: dict[str, str]
    dry_run: bool = False

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {
            "kept": list(self.kept),
            "removed": list(self.removed),
            "swept": list(self.swept),
            "ignored": self.ignored,
            "failed": self.failed,
            "dry_run": self.dry_run,
        }


def prune(
    files: FileSystem,
    layout: RootLayout,
    *,
    keep: int | None,
    guard: Guard,
    protected: Collection[str] = (),
    dry_run: bool = False,
) -> Pruned:
    """Keep the newest ``keep`` valid snapshots (all of them with None), remove the older ones, and sweep left-overs.

    ``protected`` are wire ids of transactions that are not settled: neither their snapshot nor anything of theirs is
    touched. No other transaction may run on the root meanwhile.

    Raises:
        ConfigurationError: ``keep`` is no positive number; the newest valid snapshot is never removed.
        Superseded: by ``guard``: another controller took over. Nothing more was removed.
        StorageFailed: the root cannot be read.
    """
    if keep is not None and (isinstance(keep, bool) or keep < 1):
        raise ConfigurationError(f"{keep} snapshots cannot be kept; keep at least 1: the newest one is never removed")
    entries = list_snapshots(files, layout)
    valid = [entry.wire_id for entry in entries if entry.state is SnapshotState.VALID]
    surplus = [] if keep is None else [wire_id for wire_id in valid[keep:] if wire_id not in protected]
    removal = _Removal(files, layout, guard, dry_run=dry_run)
    removal.empty_trash()
    # the oldest first: what is broken off leaves the newer ones
    removed = [wire_id for wire_id in reversed(surplus) if removal.remove(layout.snapshot(wire_id))]
    kept = [wire_id for wire_id in valid if wire_id not in removed]
    removal.remove_left_overs(kept=kept, protected=protected)
    return Pruned(tuple(kept), tuple(removed), tuple(removal.swept), _ignored(entries), removal.failed, dry_run)


def sweep(files: FileSystem, layout: RootLayout, *, guard: Guard, protected: Collection[str] = ()) -> Pruned:
    """Remove what nobody needs and let every snapshot be; as :func:`prune`, and no manifest is read for it.

    Raises:
        Superseded, StorageFailed: as prune.
    """
    removal = _Removal(files, layout, guard, dry_run=False)
    removal.empty_trash()
    with storage_errors("list the snapshots", layout.snapshots):
        names = files.names(layout.snapshots) if files.status(layout.snapshots) is not None else ()
    removal.remove_left_overs(kept=names, protected=protected)
    return Pruned((), (), tuple(removal.swept), {}, removal.failed)


def _ignored(entries: Sequence[SnapshotEntry]) -> dict[str, str]:
    return {
        printable(entry.wire_id): f"{entry.state.value}: {entry.reason}"
        for entry in entries
        if entry.state is not SnapshotState.VALID
    }


class _Removal:
    """Removes things one by one; what cannot be removed is noted."""

    def __init__(self, files: FileSystem, layout: RootLayout, guard: Guard, *, dry_run: bool) -> None:
        self.swept: list[str] = []
        self.failed: dict[str, str] = {}
        self._files = files
        self._layout = layout
        self._guard = guard
        self._dry_run = dry_run

    def empty_trash(self) -> None:
        """Remove what an earlier pruning renamed away and could not remove, or was killed before it had."""
        trash = self._layout.trash
        with storage_errors("look for what is to be deleted", trash):
            names = self._files.names(trash) if self._is_directory(trash) else ()
        if names and not self._dry_run and not self._is_durable(self._layout.snapshots):
            return
        for name in names:
            if self._dry_run or self._removed(trash / name):
                self.swept.append((trash / name).relative_to(self._layout.root).as_posix())

    def remove_left_overs(self, *, kept: Collection[str], protected: Collection[str]) -> None:
        """Remove what transactions that ended have left (see sweeping.left_overs)."""
        for path in left_overs(self._files, self._layout, kept=kept, protected=protected):
            if self.remove(path):
                self.swept.append(path.relative_to(self._layout.root).as_posix())

    def remove(self, path: Path) -> bool:
        """Whether it went, or would go. One that was renamed away has gone, whatever becomes of its remains."""
        if self._dry_run:
            return True
        self._guard()
        aside = self._set_aside(path)
        if aside is not None and self._is_durable(path.parent):
            self._removed(aside)
        return aside is not None

    def _set_aside(self, path: Path) -> Path | None:
        """Rename a thing away; None where it still stands."""
        aside: Path | None = None
        try:
            aside = self._free_place(path.name)
            self._files.rename(path, aside)
        except OSError as error:
            self._note(path, error)
            # over a network the rename may have taken effect although its answer was an error
            return aside if self._is_gone(path) else None
        return aside

    def _free_place(self, name: str) -> Path:
        trash = self._layout.trash
        make_directories(self._files, trash)
        taken = {one.casefold() for one in self._files.names(trash)}
        return trash / next(one for n in count(1) if (one := f"{name}.{n}").casefold() not in taken)

    def _is_gone(self, path: Path) -> bool:
        try:
            return self._files.status(path) is None
        except OSError:
            return False

    def _is_durable(self, directory: Path) -> bool:
        """Whether a rename out of a directory outlives a crash: before that nothing of what went is removed."""
        try:
            self._files.sync_directory(reached(self._files, directory) if directory == self._layout.root else directory)
        except OSError as error:
            self._note(directory, error)
            return False
        return True

    def _removed(self, path: Path) -> bool:
        self._guard()
        try:
            if self._is_directory(path):
                remove_tree(self._files, path)
            else:
                self._files.remove_file(path)
        except OSError as error:
            self._note(path, error)
            return False
        return True

    def _is_directory(self, path: Path) -> bool:
        found = self._files.status(path)
        return found is not None and found.kind is FileKind.DIRECTORY

    def _note(self, path: Path, error: OSError) -> None:
        name = path.relative_to(self._layout.root).as_posix()
        self.failed[printable(name)] = str(StorageFailed("remove", Path(error.filename or path), error))
