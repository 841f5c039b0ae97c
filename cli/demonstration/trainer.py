"""The trainer of the demonstration: dispatches rollouts, keeps their results, and takes part in the cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import httpx

from quiesce.cli.demonstration.job import Rollout
from quiesce.cli.demonstration.results_file import ResultsFile
from quiesce.cli.workload.bodies import RunRequest
from quiesce.cli.workload.upstream import identity_headers
from quiesce.controller.ports import CompletedResult
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.artefact_writing import result_digest, result_identity
from quiesce.participants.excerpts import printable
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt

__all__ = ["RolloutFailed", "Trainer"]

CLOSED_PAUSE_S: Final = 0.05
"""How long to wait before a run that a closed agent refused is sent again."""
FIRST_GENERATION: Final = 1
_PATIENT: Final = httpx.Timeout(30.0, read=None)
"""A reply comes when the rollout is over; whoever runs the trainer bounds all of it."""


class RolloutFailed(QuiesceError):
    """A rollout ended without a result."""


class Trainer:
    """One life of the trainer, from its start to its death."""

    def __init__(self, agent_url: str, results: ResultsFile, http: httpx.AsyncClient) -> None:
        self.results = results
        self._agent_url = agent_url
        self._http = http
        self._runs: dict[AttemptId, asyncio.Task[dict[str, object]]] = {}

    # ---- dispatching

    def dispatch(self, rollout: Rollout, attempt_index: int = 0) -> None:
        """Start an attempt at a rollout. Its result is kept as soon as it comes."""
        attempt = AttemptId(rollout.rollout_id, attempt_index)
        self._runs[attempt] = asyncio.ensure_future(self._run(attempt, rollout))

    def has_dispatched(self, rollout: Rollout) -> bool:
        """Whether an attempt at a rollout was started in this life."""
        return any(attempt.rollout_id == rollout.rollout_id for attempt in self._runs)

    async def finished(self, rollouts: Iterable[Rollout] | None = None) -> None:
        """Wait for the results of these rollouts, of all that were dispatched by default.

        Raises:
            RolloutFailed: one of them has none.
        """
        wanted = None if rollouts is None else {rollout.rollout_id for rollout in rollouts}
        await asyncio.gather(
            *(run for attempt, run in self._runs.items() if wanted is None or attempt.rollout_id in wanted)
        )

    def live(self) -> int:
        """How many attempts are under way."""
        return sum(not run.done() for run in self._runs.values())

    async def die(self) -> None:
        """Forget everything that is not in the file; what was under way is lost."""
        for run in self._runs.values():
            run.cancel()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)
        self._runs.clear()

    # ---- the part in the cut

    async def keep(self, completed: tuple[CompletedResult, ...]) -> tuple[CompletionReceipt, ...]:
        """Make sure that these results are in the file, and say so with their receipts (``on_completed``)."""
        return tuple([await self._kept(result) for result in completed])

    async def save(self, directory: Path) -> None:
        """Put the trainer's state into a snapshot."""
        await self.results.copy_into(directory)

    async def _kept(self, completed: CompletedResult) -> CompletionReceipt:
        run = self._runs.get(completed.attempt)
        if run is None:
            raise RolloutFailed(f"{completed.agent} reports {completed.attempt}, which was never dispatched")
        result = await asyncio.shield(run)  # the agent may be done before its reply is here
        own = CompletionReceipt(*completed.attempt, FIRST_GENERATION, result_identity(result), result_digest(result))
        if completed.receipt is not None and completed.receipt != own:
            raise RolloutFailed(f"{completed.agent} reports another result of {completed.attempt} than it replied")
        return own

    # ---- one run

    async def _run(self, attempt: AttemptId, rollout: Rollout) -> dict[str, object]:
        body = RunRequest(task=rollout.task, turns=rollout.turns).model_dump_json()
        while True:
            reply = await self._post(attempt, body)
            if reply.status_code == httpx.codes.OK:
                break
            if not _is_closed(reply):
                raise RolloutFailed(f"{attempt} ended with status {reply.status_code}: {printable(reply.text, 300)}")
            await asyncio.sleep(CLOSED_PAUSE_S)
        result: dict[str, object] = reply.json()
        await self.results.append(result)
        return result

    async def _post(self, attempt: AttemptId, body: str) -> httpx.Response:
        headers = {"content-type": "application/json", **identity_headers(attempt, plane="trainer")}
        try:
            return await self._http.post(f"{self._agent_url}/run", content=body, headers=headers, timeout=_PATIENT)
        except httpx.HTTPError as error:
            raise RolloutFailed(f"{attempt} got no answer: {type(error).__name__} {error}") from error


def _is_closed(reply: httpx.Response) -> bool:
    if reply.status_code != httpx.codes.CONFLICT:
        return False
    error = reply.json().get("error", {})
    return isinstance(error, dict) and error.get("code") == "agent_admission_closed"
