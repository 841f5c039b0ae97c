"""The executions of an agent server: admission, parking for a cut, finished results, and going on after a restore.

Implements ``quiesce.participants.server.ports.AgentRuns``; for authors, ``begin`` is the way in (see
``quiesce.participants.server.execution``). Sources: wire-protocol 2.9 to 2.16, 2.20, 4.5, 6.3, 6.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_records import BoundaryRecord
from quiesce.participants.artefact_writing import reference_entry
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import check_participant_name
from quiesce.participants.replies import CompletionReceipt
from quiesce.participants.server.boundaries import Boundary, continued
from quiesce.participants.server.clock import SystemClock
from quiesce.participants.server.completions import Completions
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.execution import Execution, ExecutionState
from quiesce.participants.server.ports import Clock
from quiesce.participants.server.runs_files import SavedRuns, load_runs, write_runs
from quiesce.participants.server.runs_status import RunCounts, status_fields
from quiesce.participants.server.storage import FilePort, OsFiles
from quiesce.participants.server.tombstones import Tombstones

__all__ = ["Runs"]

EXECUTIONS_MAX: Final = 100_000


class Runs:
    """Every execution of one agent server.

    ``name`` is the agent's own name. With ``boundary_at_begin`` (the default) an execution has a boundary from its
    first moment and can always be caught by a cut; without it, one that has committed nothing yet blocks every cut
    (wire-protocol F22), as on the recorded servers. At most ``executions_max`` are live or unacknowledged at once.

    Raises:
        InvalidIdentity: the name cannot name an agent.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        files: FilePort | None = None,
        boundary_at_begin: bool = True,
        executions_max: int = EXECUTIONS_MAX,
    ) -> None:
        self._name = check_participant_name(Role.AGENT, name)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._files: FilePort = OsFiles() if files is None else files
        self._boundary_at_begin = boundary_at_begin
        self._executions_max = executions_max
        self._executions: dict[AttemptId, Execution] = {}
        self._waiting: dict[AttemptId, Boundary] = {}
        self._completions = Completions()
        self._tombstones = Tombstones()
        self._closed = False
        self._used = False
        self._change = asyncio.Event()

    @property
    def name(self) -> str:
        """The server's own name, which also stands in the paths of its artefacts."""
        return self._name

    # ---- for the author of an agent server

    def begin(self, attempt: AttemptId, *, agent_state: Mapping[str, object] | None = None) -> Execution:
        """Begin the execution of an attempt that was admitted (it is admitted here where no gate did it before).

        ``agent_state`` is what starting over needs, the request's body for instance; it becomes boundary 0. A
        restored boundary that waits for this attempt is taken instead: ``Execution.restored`` has it.
        An earlier attempt of the rollout that still runs is retired: this one replaces it.

        Use the execution as an async context manager: leaving without ``finish`` retires it.

        Raises:
            ControlRefusal: ``stale_attempt``, ``duplicate_execution`` or ``agent_admission_closed``;
                ``agent_checkpoint_error``: the state is not JSON.
        """
        execution = self._executions.get(attempt)
        if execution is None or execution.begun:
            if self.admit(attempt) is not None:
                raise _refuse(RefusalCode.DUPLICATE_EXECUTION, f"{attempt} has finished; its result is stored")
            execution = self._executions[attempt]
        self._supersede_earlier(attempt)
        restored = self._waiting.pop(attempt, None)
        first_state = agent_state or {} if self._boundary_at_begin else None
        try:
            execution.start(restored=restored, first_state=first_state)
        except ControlRefusal:
            del self._executions[attempt]
            self.changed()
            raise
        return execution

    def restored(self) -> tuple[BoundaryRecord, ...]:
        """The restored boundaries that wait for ``/run`` of their attempt, or for the server to ``begin`` it itself."""
        return tuple(self._waiting[attempt].record for attempt in sorted(self._waiting))

    async def wait_open(self) -> None:
        """Wait until new executions are accepted."""
        while self._closed:
            await self._change.wait()

    # ---- for the gate

    def is_fenced(self, attempt: AttemptId) -> bool:
        return attempt in self._tombstones or self._completions.was_acknowledged(attempt)

    def admit(self, attempt: AttemptId) -> object | None:
        """See ``AgentRuns``. A stored result is given out also while the agent is closed."""
        if self.is_fenced(attempt):
            raise _refuse(RefusalCode.STALE_ATTEMPT, f"{attempt} was retired, acknowledged or replaced")
        stored = self._completions.stored(attempt)
        if stored is not None:
            return stored[1]
        if attempt in self._executions:
            raise _refuse(RefusalCode.DUPLICATE_EXECUTION, f"{attempt} is running")
        if self._closed:
            raise _refuse(RefusalCode.AGENT_ADMISSION_CLOSED, "agent admission is closed for a checkpoint")
        if len(self._executions) >= self._executions_max:
            raise _refuse(RefusalCode.AGENT_ADMISSION_CLOSED, f"{len(self._executions)} executions are live; try later")
        self._executions[attempt] = Execution(attempt, self, self._clock)
        self._used = True
        return None

    def withdraw(self, attempt: AttemptId) -> None:
        execution = self._executions.get(attempt)
        if execution is not None and not execution.begun:
            del self._executions[attempt]
            self.changed()

    def caller_gone(self, attempt: AttemptId) -> None:
        execution = self._executions.get(attempt)
        if execution is not None:
            execution.caller_gone = True

    # ---- for the control plane

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def open(self) -> int:
        self._closed = False
        released = 0
        for execution in tuple(self._executions.values()):
            if execution.state is ExecutionState.PARKED and execution.caller_gone:
                self._retire(execution)
            elif execution.state is ExecutionState.PARKED:
                execution.release()
                released += 1
            else:
                execution.cancel_park()
        self.changed()
        return released

    def request_park(self) -> None:
        for execution in self._executions.values():
            execution.request_park()
        self.changed()

    def cancel_park(self) -> None:
        for execution in self._executions.values():
            execution.cancel_park()
        self.changed()

    async def wait_ready(self, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline):
                while not self._counts().ready and self._counts().running:
                    await self._change.wait()
        except TimeoutError:
            pass  # where it stands at the deadline is the answer
        return self._counts().ready

    def status(self) -> dict[str, object]:
        return status_fields(self._counts(), closed=self._closed, acknowledged=self._completions.acknowledged)

    async def export(self, *, checkpoint_id: str, directory: Path) -> dict[str, object]:
        """See ``AgentRuns``. Restored boundaries that still wait for their ``/run`` are exported as well."""
        counts = self._counts()
        if not counts.ready:
            raise _refuse(RefusalCode.AGENT_CHECKPOINT_ERROR, f"the agent is not ready to commit: {counts.sentence()}")
        boundaries = [execution.committed for execution in counts.parked_with_boundary]
        selected = [boundary for boundary in boundaries if boundary is not None] + list(self._waiting.values())
        written = await asyncio.to_thread(write_runs, self._files, directory, self._name, checkpoint_id, selected)
        return {
            "records": len(selected),
            "manifest_digest": written.manifest_digest,
            "continuation_index": reference_entry(written.index),
        }

    async def restore(self, *, directory: Path) -> dict[str, object]:
        """See ``AgentRuns``. Everything is verified before anything is installed."""
        self._refuse_unless_fresh()
        saved = await asyncio.to_thread(load_runs, self._files, directory, self._name)
        self._refuse_unless_fresh()
        self._install(saved)
        return {
            "records": len(saved.boundaries),
            "source_checkpoint_id": saved.checkpoint_id,
            "continuation_index": reference_entry(saved.index),
        }

    def retire(self, attempt: AttemptId) -> dict[str, object]:
        if self._completions.stored(attempt) is not None:
            return {"retired": False, "tombstoned": False, "completed_unacknowledged": True}
        waiting = self._waiting.pop(attempt, None)
        execution = self._executions.get(attempt)
        if execution is not None:
            self._retire(execution)
        self._tombstones.add(attempt)
        self.changed()
        return {"retired": execution is not None or waiting is not None, "tombstoned": True}

    def discard(self, attempt: AttemptId) -> bool:
        return self._waiting.pop(attempt, None) is not None

    def acknowledge(self, receipts: Sequence[Mapping[str, object]]) -> tuple[bool, ...]:
        fresh = self._completions.acknowledge(receipts)
        for receipt in receipts:
            self._executions.pop(AttemptId(str(receipt["rollout_id"]), int(str(receipt["attempt_index"]))), None)
        self.changed()
        return fresh

    # ---- what an execution tells us (``execution.Registry``)

    def changed(self) -> None:
        """Wake whoever waits for the executions to get somewhere."""
        self._change.set()
        self._change = asyncio.Event()

    def completed(self, execution: Execution, receipt: CompletionReceipt, result: object) -> None:
        """Keep the result until it is acknowledged."""
        del execution
        self._completions.store(receipt, result)
        self.changed()

    def retired(self, execution: Execution) -> None:
        """Forget an execution that ended without a result, and fence its attempt."""
        self._executions.pop(execution.attempt, None)
        self._tombstones.add(execution.attempt)
        self.changed()

    # ---- inside

    def _counts(self) -> RunCounts:
        return RunCounts.of([self._executions[attempt] for attempt in sorted(self._executions)], self._completions)

    def _retire(self, execution: Execution) -> None:
        execution.retire()
        self.retired(execution)

    def _supersede_earlier(self, attempt: AttemptId) -> None:
        self._tombstones.add_before(attempt)
        for other in [other for other in self._waiting if _is_earlier(other, attempt)]:
            del self._waiting[other]
        for execution in [found for found in self._executions.values() if _is_earlier(found.attempt, attempt)]:
            if execution.live:
                self._retire(execution)

    def _refuse_unless_fresh(self) -> None:
        if self._used:
            raise _refuse(
                RefusalCode.AGENT_CHECKPOINT_ERROR,
                "this process has had executions or was restored before; a save is restored into a fresh one only",
            )

    def _install(self, saved: SavedRuns) -> None:
        self._used = True
        for boundary in saved.boundaries:
            replacement = continued(boundary)
            self._waiting[replacement.record.attempt] = replacement
            self._tombstones.add_through(boundary.record.attempt)


def _is_earlier(attempt: AttemptId, than: AttemptId) -> bool:
    return attempt.rollout_id == than.rollout_id and attempt.attempt_index < than.attempt_index


def _refuse(code: RefusalCode, reason: str) -> ControlRefusal:
    return ControlRefusal(code, reason)
