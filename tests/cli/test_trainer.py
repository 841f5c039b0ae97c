"""The demonstration's trainer: its file, its part in the cut, and what it does not accept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from quiesce.cli.demonstration.job import Rollout
from quiesce.cli.demonstration.results_file import ResultsFile
from quiesce.cli.demonstration.trainer import RolloutFailed, Trainer
from quiesce.controller.ports import CompletedResult
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.artefact_writing import result_digest
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt

ROLLOUT = Rollout("r1", "add", 2)
RESULT: dict[str, object] = {"id": "result-r1", "rollout_id": "r1", "reward": 1.0}
ATTEMPT = AttemptId("r1", 0)
AGENT = ParticipantKey("main", "agent")
RECEIPT = CompletionReceipt("r1", 0, 1, "result-r1", result_digest(RESULT))
CLOSED = httpx.Response(409, json={"error": {"code": "agent_admission_closed"}})

Answer = Callable[[httpx.Request], httpx.Response]


def trainer(directory: Path, answer: Answer = lambda _: httpx.Response(200, json=RESULT)) -> Trainer:
    """A trainer whose agent gives these answers."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return Trainer("http://agent", ResultsFile(directory), http)


def reported(receipt: CompletionReceipt | None = RECEIPT, attempt: AttemptId = ATTEMPT) -> tuple[CompletedResult]:
    """What a controller reports during the drain."""
    return (CompletedResult(AGENT, attempt, receipt),)


@pytest.mark.parametrize("receipt", [RECEIPT, None])
async def test_a_result_is_kept_before_its_receipt_is_given(tmp_path: Path, receipt: CompletionReceipt | None) -> None:
    """``keep`` waits for the reply, and gives a receipt only for what stands in the file."""
    one = trainer(tmp_path)
    one.dispatch(ROLLOUT)
    assert await one.keep(reported(receipt)) == (RECEIPT,)
    assert [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()] == [RESULT]
    await one.keep(reported(receipt))
    assert len(list(one.results.lines())) == 1


async def test_another_result_than_the_replied_one_is_not_acknowledged(tmp_path: Path) -> None:
    """A receipt that does not fit the reply ends the cut."""
    one = trainer(tmp_path)
    one.dispatch(ROLLOUT)
    with pytest.raises(RolloutFailed, match="another result"):
        await one.keep(reported(CompletionReceipt("r1", 0, 1, "result-r1", "0" * 64)))


async def test_a_result_of_nobody_is_not_acknowledged(tmp_path: Path) -> None:
    """An attempt that was never dispatched is no result of this trainer."""
    with pytest.raises(RolloutFailed, match="never dispatched"):
        await trainer(tmp_path).keep(reported(attempt=AttemptId("r2", 0)))


async def test_a_closed_agent_is_asked_again(tmp_path: Path) -> None:
    """A run that is refused for a checkpoint is sent again until it is taken."""
    answers = [CLOSED, CLOSED, httpx.Response(200, json=RESULT)]
    one = trainer(tmp_path, lambda _: answers.pop(0))
    one.dispatch(ROLLOUT)
    await one.finished()
    assert answers == []
    assert "r1" in one.results


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(500, text="crash"), httpx.Response(409, json={"error": {"code": "stale_attempt"}})],
)
async def test_a_failed_rollout_is_told(tmp_path: Path, answer: httpx.Response) -> None:
    """Whatever else an agent answers is a failure that names the attempt."""
    one = trainer(tmp_path, lambda _: answer)
    one.dispatch(ROLLOUT)
    with pytest.raises(RolloutFailed, match=f"r1 attempt 0 ended with status {answer.status_code}"):
        await one.finished([ROLLOUT])


async def test_an_agent_that_is_not_there_is_told(tmp_path: Path) -> None:
    """No answer is a failure as well."""

    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    one = trainer(tmp_path, refuse)
    one.dispatch(ROLLOUT)
    with pytest.raises(RolloutFailed, match="got no answer: ConnectError"):
        await one.finished()


async def test_a_dead_trainer_forgets(tmp_path: Path) -> None:
    """What was under way is gone; what is in the file stays."""
    sent = asyncio.Event()

    async def never(_: httpx.Request) -> httpx.Response:
        sent.set()
        await asyncio.Event().wait()
        raise AssertionError

    one = Trainer("http://agent", ResultsFile(tmp_path), httpx.AsyncClient(transport=httpx.MockTransport(never)))
    await one.results.append({"rollout_id": "r0"})
    one.dispatch(ROLLOUT)
    await sent.wait()
    assert one.live() == 1
    await one.die()
    assert one.live() == 0
    assert list(ResultsFile(tmp_path).lines()) == [{"rollout_id": "r0"}]


async def test_a_saved_file_is_another_beginning(tmp_path: Path) -> None:
    """What is appended after the save is not in the save, and a file loaded from it goes on by itself."""
    first = ResultsFile(tmp_path / "first")
    await first.append({"rollout_id": "r1"})
    await first.copy_into(tmp_path / "saved")
    await first.append({"rollout_id": "r2"})
    second = await ResultsFile.loaded(tmp_path / "saved", tmp_path / "second")
    assert "r1" in second
    assert "r2" not in second
    await second.append({"rollout_id": "r3"})
    assert [line["rollout_id"] for line in second.lines()] == ["r1", "r3"]
    assert [line["rollout_id"] for line in first.lines()] == ["r1", "r2"]
