"""Errors of a running controller. What a participant did wrong has other types: quiesce.participants.errors.

QuiesceError
├── StorageFailed         the checkpoint root could not be read or written
│   └── PublishUncertain  it is not known whether the rename that publishes took effect
├── DeadlineExceeded      a budget was spent: who was how far, and what was in flight
├── UnexpectedFence       a participant is held, or no longer held, otherwise than it must be
├── RestoreOwed           a participant waits for a restore and refuses all work; nothing of it is published
├── Unacknowledged        finished results wait at an agent and nobody is there to own them
├── OnCompletedMisused    the callback returned what nobody can acknowledge
├── CutAborted            somebody asked for an abort, and everybody accepts work again
├── RestoreFailed         half a restore is held closed: retry or abort it
├── HalfRestored          an aborted restore left processes to be restarted: nothing of them is published
├── RootHeld              another controller is alive on this root
├── TransactionRunning    another cut or restore has its turn; a ConfigurationError, too
├── CutNotOffered         the program that holds the root takes no cut that others ask for; a ConfigurationError, too
├── Superseded            another controller took this root over
├── ControllerGone        the controller that was asked is gone before it answered
├── NothingOwed           somebody was to be given up who is owed nothing; a ConfigurationError, too
├── RequestConflict       under this request id something else was asked
└── InDoubt               somebody is owed a resume that could not be proven
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quiesce.controller.ports import CompletedResult
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import escaped, printable

__all__ = [
    "ControllerGone",
    "CutAborted",
    "CutNotOffered",
    "DeadlineExceeded",
    "HalfRestored",
    "InDoubt",
    "LeaseLapsed",
    "NothingOwed",
    "OnCompletedMisused",
    "PublishUncertain",
    "RequestConflict",
    "RestoreFailed",
    "RestoreOwed",
    "RootHeld",
    "RootNotGivenBack",
    "StorageFailed",
    "Superseded",
    "TransactionRunning",
    "Unacknowledged",
    "UnexpectedFence",
    "waits_for_a_restore",
]

_LISTED_MAX: Final = 20
_ADVICE: Final = {
    errno.ENXIO: "it may only be starting or ending: try again",
    errno.ENOSPC: "the file system is full; free space there (`quiesce prune --keep K`, or by hand) or change the root",
    errno.EDQUOT: "the quota there is used up; free space (`quiesce prune --keep K`, or by hand) or change the root",
    errno.ENOENT: "it was removed, moved away or unmounted; look what became of it",
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
        why: the system's words, and what helps.
    """

    def __init__(self, doing: str, path: Path, error: OSError) -> None:
        self.doing = doing
        self.path = path
        self.errno = error.errno
        text = error.strerror or type(error).__name__
        advice = _ADVICE.get(error.errno or 0, "check the file system")
        self.why = f"{text} ({advice})"
        super().__init__(f"cannot {doing} at {path}: {self.why}")


class PublishUncertain(StorageFailed):
    """The rename that publishes gave an error, and looking at the folder did not settle whether it took effect.

    The files are kept. Look again later (:meth:`quiesce.controller.snapshots.SnapshotStore.published`).
    """


class DeadlineExceeded(QuiesceError):
    """A budget was spent. Everybody accepts work again unless another error says otherwise.

    Attributes:
        budget: which one: ``reach`` or ``hold``.
        timeout_s: its length.
        phase: what was being done: the state of the transaction.
        stood: for each participant that had not come far enough, where it stood and what was in flight there. Empty
            where the caller's own code took the time.
    """

    def __init__(self, budget: str, timeout_s: float, stood: Mapping[ParticipantKey, str], phase: str = "") -> None:
        self.budget = budget
        self.timeout_s = timeout_s
        self.phase = phase
        self.stood = dict(stood)
        who = _sentences(self.stood) or "no participant was behind, the caller's own code took the time"
        during = f" in state {phase}" if phase else ""
        super().__init__(
            f"{budget}_timeout_s ({timeout_s:g} s) is spent{during}: {who}. Raise {budget}_timeout_s if that is how "
            "long it takes, or look at what is named here."
        )


class UnexpectedFence(QuiesceError):
    """A participant's fence is not where this transaction needs it. Whoever else holds it was left as it is.

    Attributes:
        participant: which.
        phase: the phase that it reads.
        holder: the checkpoint id that holds it, or None.
        is_left_closed: whether it is not ours to open, so that it accepts no work now.
    """

    def __init__(self, participant: str, *, phase: str, holder: str | None, advice: str, is_left_closed: bool) -> None:
        self.participant = participant
        self.phase = phase
        self.holder = holder
        self.is_left_closed = is_left_closed
        held = f"held by checkpoint {escaped(holder)}" if holder is not None else "held by no checkpoint"
        super().__init__(f"{participant} is {held} (phase {phase}): {advice}")


class RestoreOwed(QuiesceError):
    """A participant was started to be restored, and refuses all work before it is: what it exported would be empty.

    No cut goes over it (wire-protocol 4.6, F20). Nobody was paused.

    Attributes:
        participant: which.
    """

    def __init__(self, participant: ParticipantKey) -> None:
        self.participant = participant
        super().__init__(waits_for_a_restore([participant]))


def waits_for_a_restore(keys: Sequence[ParticipantKey | str]) -> str:
    """Who refuses all work before it is restored, and what to do: a sentence; empty for nobody."""
    if not keys:
        return ""
    waits, it = (
        ("waits for a restore and refuses", "it") if len(keys) == 1 else ("wait for a restore and refuse", "them")
    )
    return (
        f"{_names(keys)} {waits} all work until then: restore {it} (`quiesce restore LABEL`), or restart {it} without "
        "expecting one"
    )


class LeaseLapsed(QuiesceError):
    """A participant opened by itself before the snapshot was published, so the cut was aborted; nothing is published.

    Attributes:
        participant: which.
    """

    def __init__(self, participant: ParticipantKey, reason: object) -> None:
        self.participant = participant
        super().__init__(
            f"{participant} is not held any more, or may not be, so what the trainer saves may be of another moment: "
            f"{reason}. If its lease lapsed, give it a longer grace, or look why it could not be renewed in time."
        )


class Unacknowledged(QuiesceError):
    """Finished results wait at an agent and nobody is there to own them. They are listed in ``results``."""

    def __init__(self, results: Sequence[CompletedResult]) -> None:
        self.results = tuple(results)
        listed = _joined([f"{result.agent}: {result.attempt}" for result in self.results], "; ")
        super().__init__(
            f"{len(results)} finished results are unacknowledged: {listed}. Give the controller an on_completed "
            "callback that makes them durable (on the command line: --acknowledge-completed)."
        )


class OnCompletedMisused(QuiesceError):
    """``on_completed`` returned what cannot be acknowledged. The cut was aborted, and no receipt was sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"on_completed cannot be used: {reason}")


class CutAborted(QuiesceError):
    """The transaction was aborted on request. Everybody accepts work again and nothing was published."""


ABORT_IT: Final = (
    "Abort it (`quiesce abort`): that reopens everybody, and whoever was restored or failed must then be restarted."
)
_RETRY: Final = (
    "Once what failed is mended or restarted, retry it under its own id (`quiesce recover --retry`), or abort it "
    "(`quiesce abort`): that reopens everybody, and whoever was restored or failed must then be restarted."
)


class RestoreFailed(QuiesceError):
    """A restore failed and is held closed: nobody works on half a restore.

    Retry with the same id, or abort, which reopens everybody and leaves processes to be restarted.

    Attributes:
        wire_id: the restore's id.
        restored, untouched, failed: the participants by what became of them.
    """

    def __init__(
        self,
        wire_id: str,
        *,
        restored: Sequence[ParticipantKey],
        untouched: Sequence[ParticipantKey],
        failed: Mapping[ParticipantKey, str],
        advice: str = "",
    ) -> None:
        self.wire_id = wire_id
        self.restored = tuple(restored)
        self.untouched = tuple(untouched)
        self.failed = dict(failed)
        named = _sentences(self.failed) or "no participant"
        super().__init__(
            f"restore {wire_id} failed and is held closed. Failed: {named}. Restored and closed: {_names(restored)}. "
            f"Untouched: {_names(untouched)}. {advice or _RETRY}"
        )


class HalfRestored(QuiesceError):
    """A restore was aborted, and processes that it had begun to restore are open and were not restarted.

    What they hold is a part of a snapshot, so nobody may use it and no cut goes over it. Nobody was paused for one.

    Attributes:
        wire_id: the restore's id.
        participants: whose process must be restarted.
    """

    def __init__(self, wire_id: str, participants: Sequence[ParticipantKey], why: str = "") -> None:
        self.wire_id = wire_id
        self.participants = tuple(participants)
        failed = f"failed ({why}) and was aborted" if why else "was aborted"
        super().__init__(
            f"restore {wire_id} {failed}, and may have left a part of its snapshot at {_names(self.participants)}: "
            "restart them, or restore anew (`quiesce restore LABEL`), or give them up by name "
            "(`quiesce settle --give-up NAME`); no cut begins before. A server that does not name its incarnation does "
            "not show that it was restarted: restore it, or give it up"
        )


class InDoubt(QuiesceError):
    """Somebody is owed a resume that could not be proven in time. It may still be paused.

    Attributes:
        wire_id: the transaction's id, under which a resume is owed.
        published: whether the snapshot stands; None when that is not known either.
        owed: the participants, each with the last that was heard of it.
    """

    def __init__(self, wire_id: str, *, published: bool | None, owed: Mapping[ParticipantKey, str]) -> None:
        self.wire_id = wire_id
        self.published = published
        self.owed = dict(owed)
        snapshot = {
            True: "The snapshot is published.",
            False: "Nothing was published.",
            None: "Whether the snapshot is published could not be read; its files are kept.",
        }[published]
        who = _sentences(self.owed) or "nobody"
        super().__init__(
            f"in doubt after {wire_id}: {who}. {snapshot} `quiesce settle` tries them again, and a controller that "
            "stays open does so by itself, until they answer or are restarted; no new cut begins before that."
        )


def _names(keys: Sequence[ParticipantKey | str]) -> str:
    return _joined([str(key) for key in keys], ", ") or "nobody"


def _sentences(about: Mapping[ParticipantKey, str]) -> str:
    return _joined([f"{key}: {sentence}" for key, sentence in about.items()], "; ")


def _joined(parts: Sequence[str], separator: str) -> str:
    """At most so many of them; the attributes of an error have them all."""
    more = f"{separator}and {len(parts) - _LISTED_MAX} more" if len(parts) > _LISTED_MAX else ""
    return separator.join(parts[:_LISTED_MAX]) + more


class RootHeld(QuiesceError):
    """Another controller is alive on this root, so this one may not work there.

    Attributes:
        host, pid: who it says it is; for people.
    """

    def __init__(self, root: Path, host: str, pid: int | None) -> None:
        self.root = root
        self.host = host
        self.pid = pid
        who = f"{host}, process {pid}" if pid is not None else host
        super().__init__(
            f"{root} is held by another controller that is alive ({who}); stop it, or let it do what you want done"
        )


class RootNotGivenBack(RootHeld):
    """Whoever had this root last has not given it back. Only a controller may take it over: it finishes what is open.

    Attributes: as of RootHeld.
    """

    def __init__(self, root: Path, host: str, pid: int | None) -> None:
        super().__init__(root, host, pid)
        who = f"{host}, process {pid}" if pid is not None else host
        text = (
            f"{root} was not given back by the controller that had it last ({who}): it is alive, stands still or was "
            "killed. Let it do what you want done, or finish what it left by `quiesce recover` and try again"
        )
        self.args = (text,)


class TransactionRunning(ConfigurationError):
    """Another cut or restore of the same controller has its turn. Nothing was done; ask again once that has ended.

    Attributes:
        wire_id: its id; None where it is only being opened, or something is being settled.
    """

    def __init__(self, wire_id: str | None) -> None:
        self.wire_id = wire_id
        named = f": {wire_id}" if wire_id is not None else ""
        super().__init__(f"another cut or restore of this controller is running{named}; wait for it to end")


class CutNotOffered(ConfigurationError):
    """A controller was asked for a cut whose program has not said how its own part of a snapshot is saved."""

    def __init__(self) -> None:
        super().__init__(
            "it takes no cut that others ask for: let it end, and try again. A program that takes them says how its "
            "own part of a snapshot is saved (Controller(on_asked_cut=...))"
        )


class NothingOwed(ConfigurationError):
    """A participant was to be given up who is owed no resume. Nobody was given up.

    Attributes:
        name: who was named.
        owed: who is owed one (``deployment/name``).
    """

    def __init__(self, name: str, owed: Sequence[ParticipantKey], *, several: bool = False) -> None:
        self.name = name
        self.owed = tuple(map(str, owed))
        who = _names(owed)
        what = "several who are owed a resume have that name" if several else "nothing is owed there"
        do = (
            f"Owed a resume: {who}. Give up one of these by name (deployment/name) if it is gone for good; else bring "
            "it back and run `quiesce settle`."
            if owed
            else "Nobody is owed a resume."
        )
        super().__init__(f"{printable(name)}: {what}, so that nobody was given up. {do}")


class Superseded(QuiesceError):
    """Another controller took this root over while this one stood still. This one must do nothing more there.

    Attributes:
        epoch: the number of this controller's tenure.
        successor: the number of the present one.
    """

    def __init__(self, root: Path, epoch: int, successor: int) -> None:
        self.root = root
        self.epoch = epoch
        self.successor = successor
        super().__init__(
            f"{root} was taken over by another controller (epoch {successor}, this one had {epoch}); it finishes what "
            "this one began"
        )


class ControllerGone(QuiesceError):
    """The controller that was asked for something is gone, and its answer is not there. It may have begun it.

    Attributes:
        request_id: the id of the request.
    """

    def __init__(self, root: Path, request_id: str) -> None:
        self.root = root
        self.request_id = request_id
        super().__init__(
            f"the controller that held {root} is gone before it answered the request {escaped(request_id)}; the next "
            "controller there finishes what it had begun, and does not begin it again: ask anew"
        )


class RequestConflict(QuiesceError):
    """Under this request id something else was asked before. Nothing was done.

    Attributes:
        request_id: the id.
    """

    def __init__(self, request_id: str, asked: str) -> None:
        self.request_id = request_id
        super().__init__(
            f"the request id {escaped(request_id)} was used before, to ask for another {asked}; use a new id"
        )
