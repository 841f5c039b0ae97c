"""What the control plane asks of what stands behind it: the clock, and one store a role.

The control plane owns the fence, the order of checks, and which calls may pass the gate. A store owns the state that
is saved. Rules that hold for every store:

1. Everything runs on one event loop. Methods that are no coroutines do not wait; between two awaits nothing else runs.
2. ``deadline`` is an instant of ``Clock.monotonic``. A store waits no longer than that; cancelling a wait is safe at
   any moment and leaves the store as it was before the call, apart from what the next ``open`` undoes.
3. ``Fields`` are the members of the wire reply (wire-protocol 2), ready for JSON, without ``checkpoint_id`` where the
   control plane adds it.
4. Refusals are ``ControlRefusal`` with the code of wire-protocol 3.2; whatever else is raised is a crash (500).
5. Files are touched in ``export`` and ``restore`` alone, off the loop (``asyncio.to_thread``); a failed export or
   restore installs nothing. A repeated export into a directory follows rule P4 of wire-protocol 6.6.
6. State that belongs to the loop is installed on the loop, never in the thread (wire-protocol 9, 61).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from quiesce.participants.identity import AttemptId

__all__ = ["AgentRuns", "Clock", "Fields", "ModelStore", "ResourceSessions"]

Fields: TypeAlias = Mapping[str, object]


class Clock(Protocol):
    """Wall clock, monotonic clock and the only way to wait. Same shape as the controller's."""

    def now_ts(self) -> float:
        """Unix time in seconds: what a ``deadline_ts`` is compared with."""
        ...

    def monotonic(self) -> float:
        """Seconds on the running loop's own clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long; zero or less only gives way to other tasks."""
        ...


class ModelStore(Protocol):
    """The ledger of a policy server: which attempts were seen, which are fenced, and what each call recorded."""

    @property
    def name(self) -> str:
        """The server's own name, which also stands in the paths of its artefacts."""
        ...

    def note_call(self, attempt: AttemptId) -> None:
        """A call of this attempt was admitted: it is one of the ``source_attempts`` from now on."""
        ...

    def is_fenced(self, attempt: AttemptId) -> bool:
        """Whether the attempt may make no more calls (aborted, or saved under an earlier attempt)."""
        ...

    def fence(self, attempt: AttemptId) -> None:
        """Fence the attempt for good (a tombstone)."""
        ...

    def tombstones(self) -> tuple[AttemptId, ...]:
        """Fenced attempts, sorted, as they stand in the status reply."""
        ...

    async def export(
        self, *, checkpoint_id: str, directory: Path, continuation_indexes: Sequence[Mapping[str, object]]
    ) -> Fields:
        """Write the lineage that the agents' continuation roots name (wire-protocol 2.7, 6.4).

        Each index is an artefact reference as it came in the request, in the order of the request.
        Raises: ControlRefusal ``ledger_mismatch`` or ``ledger_not_checkpointable``.
        """
        ...

    async def restore(self, *, directory: Path) -> Fields:
        """Install a saved ledger into a fresh store and fence every attempt of the save (wire-protocol 2.8, 6.7).

        Raises: ControlRefusal ``ledger_mismatch``: no manifest, corrupt, another server's, or this store is not fresh.
        """
        ...


class AgentRuns(Protocol):
    """The executions of an agent server (wire-protocol 2.9 to 2.16, 4.5)."""

    @property
    def name(self) -> str:
        """The server's own name, which also stands in the paths of its artefacts."""
        ...

    @property
    def closed(self) -> bool:
        """Whether new executions are refused."""
        ...

    def close(self) -> None:
        """Refuse new executions. Idempotent."""
        ...

    def open(self) -> int:
        """Accept new executions, let all parked ones go and withdraw every park request; their number.

        An execution that is parked and whose caller is gone is retired and fenced instead, and not counted.
        """
        ...

    def is_fenced(self, attempt: AttemptId) -> bool:
        """Whether the attempt may not run here (retired, acknowledged, or saved under an earlier attempt)."""
        ...

    def admit(self, attempt: AttemptId) -> object | None:
        """Let a ``/run`` in, or return the stored result of a finished attempt that nobody has acknowledged.

        An admitted attempt counts as running until its execution begins, finishes or is withdrawn, so that nothing
        slips between the gate and ``begin``. The stored result is the JSON value of the first reply's body.
        Raises: ControlRefusal ``stale_attempt``, ``duplicate_execution`` or ``agent_admission_closed``, in this order.
        """
        ...

    def withdraw(self, attempt: AttemptId) -> None:
        """The admitted call ended. Undoes ``admit`` where no execution had begun; otherwise does nothing."""
        ...

    def caller_gone(self, attempt: AttemptId) -> None:
        """The caller of ``/run`` disconnected. A parked execution stays exportable; ``open`` retires it."""
        ...

    def request_park(self) -> None:
        """Ask every running execution to park at its next boundary. Idempotent."""
        ...

    def cancel_park(self) -> None:
        """Executions that were asked to park and have not yet go on running; parked ones stay parked."""
        ...

    async def wait_ready(self, deadline: float) -> bool:
        """Wait until the agent is ready to commit: True. False at the deadline, or as soon as waiting cannot help.

        Waiting cannot help when nothing runs any more and something still blocks: a result that nobody has
        acknowledged, an execution parked without a boundary (F22).
        """
        ...

    def status(self) -> Fields:
        """The prepare reply as it stands now (wire-protocol 2.9), ``ready_to_commit`` included."""
        ...

    async def export(self, *, checkpoint_id: str, directory: Path) -> Fields:
        """Write the boundaries of the parked executions and the continuation index (wire-protocol 2.11, 6.3).

        Raises: ControlRefusal ``agent_checkpoint_error``, also when it is no longer ready.
        """
        ...

    async def restore(self, *, directory: Path) -> Fields:
        """Install saved boundaries for attempt n + 1 and fence attempt n (wire-protocol 2.12, 6.7).

        Raises: ControlRefusal ``agent_checkpoint_error``.
        """
        ...

    def retire(self, attempt: AttemptId) -> Fields:
        """Cancel and fence an attempt (wire-protocol 2.14)."""
        ...

    def discard(self, attempt: AttemptId) -> bool:
        """Drop the restored boundary of a replacement attempt; whether there was one (wire-protocol 2.16)."""
        ...

    def acknowledge(self, receipts: Sequence[Mapping[str, object]]) -> tuple[bool, ...]:
        """Let go of finished results that the trainer owns; for each receipt whether it was new (wire-protocol 2.15).

        All or nothing. Raises: ControlRefusal ``completed_execution_acknowledgement_error``.
        """
        ...


class ResourceSessions(Protocol):
    """The sessions of a resource server (wire-protocol 2.17 to 2.19, 4.6).

    For the gate: ``enter``, ``settle`` and ``leave`` stand around one POST of the data plane.
    """

    @property
    def name(self) -> str:
        """The server's own name, which also stands in the paths of its artefacts."""
        ...

    @property
    def owes_restore(self) -> bool:
        """Whether the process was started to be restored and has not been: it must not open before."""
        ...

    @property
    def closed(self) -> bool:
        """Whether data calls are refused."""
        ...

    def close(self) -> None:
        """Refuse data calls. Idempotent."""
        ...

    def open(self) -> None:
        """Accept data calls and drop the held snapshots. Idempotent."""
        ...

    async def enter(self, route: str, attempt: AttemptId | None) -> object:
        """Let a POST to ``route`` (its path) in and wait for its session's lock; a ticket for the two calls below.

        ``/seed_session`` starts a session, ``/verify`` ends it, any other route mutates it.
        Raises: ControlRefusal ``stale_attempt``, ``resources_admission_closed`` or ``resources_session_unbound``, in
        this order and before it waits.
        """
        ...

    def settle(self, ticket: object, status: int) -> int | None:
        """The reply's status is known: the session's new revision where the call succeeded (status < 400)."""
        ...

    def leave(self, ticket: object) -> None:
        """The reply has been sent or the call broke off: the lock is free. Idempotent."""
        ...

    async def freeze(self, deadline: float) -> Fields:
        """Wait for each session's lock and take its state; the members of the prepare reply.

        Raises: ControlRefusal ``resources_checkpoint_error``: the deadline passed with a session still busy, a
        stateful call came without identity, or the export hook failed. Not when there is no session.
        """
        ...

    def status(self) -> Fields:
        """The status reply as it stands now (wire-protocol 2.18)."""
        ...

    async def export(self, *, checkpoint_id: str, directory: Path) -> Fields:
        """Write what ``freeze`` took (wire-protocol 2.19, 6.5)."""
        ...

    async def restore(self, *, directory: Path) -> Fields:
        """Install saved sessions for attempt n + 1 and fence attempt n (wire-protocol 2.19, 6.7).

        Raises: ControlRefusal ``resources_checkpoint_error`` or ``unsafe_resources_restore``.
        """
        ...

    async def retire(self, attempt: AttemptId, *, deadline: float) -> Fields:
        """Fence an attempt, free its session and take it out of the held snapshots.

        Raises: ControlRefusal ``resources_checkpoint_error``: the session stayed busy until the deadline.
        """
        ...
