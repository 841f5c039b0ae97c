"""Errors of a running controller. What a participant did wrong has other types: quiesce.participants.errors.

QuiesceError
└── StorageFailed         the checkpoint root could not be read or written
    └── PublishUncertain  it is not known whether the rename that publishes took effect
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from quiesce.fsm.errors import QuiesceError

__all__ = ["PublishUncertain", "StorageFailed"]

_ADVICE: Final = {
    errno.ENOSPC: "the file system is full; free space there or choose another root",
    errno.EDQUOT: "the quota there is used up; free space or choose another root",
    errno.EROFS: "the file system is mounted read-only; choose another root",
    errno.EACCES: "this user may not do that; change the permissions or choose another root",
    errno.EPERM: "this user may not do that; change the permissions or choose another root",
    errno.ENOTDIR: "something that is no directory stands in the way; move it or choose another root",
    errno.EEXIST: "something stands there already; move it away",
    errno.ENOTEMPTY: "something stands there already; move it away",
    errno.ELOOP: "a link or too deep a tree stands there; remove it",
    errno.EIO: "the storage reported an I/O error; check it before the next checkpoint",
    errno.ESTALE: "the network file system lost that file; check the mount",
    errno.EMFILE: "this process has too many open files; raise its limit",
    errno.ENAMETOOLONG: "the path is too long for that file system; choose a shorter root or label",
}


class StorageFailed(QuiesceError):
    """A file operation under the checkpoint root failed. Nothing was published by it.

    Attributes:
        doing: what was being done, as a phrase (``"write the manifest"``).
        path: where.
        errno: the system's error number, or None.
    """

    def __init__(self, doing: str, path: Path, error: OSError) -> None:
        self.doing = doing
        self.path = path
        self.errno = error.errno
        text = error.strerror or type(error).__name__
        advice = _ADVICE.get(error.errno or 0, "check the file system")
        super().__init__(f"cannot {doing} at {path}: {text} ({advice})")


class PublishUncertain(StorageFailed):
    """The rename that publishes gave an error, and looking at the folder did not settle whether it took effect.

    The files are kept. Look again later (:meth:`quiesce.controller.snapshots.SnapshotStore.published`).
    """
