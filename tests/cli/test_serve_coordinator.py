"""``quiesce serve policy --fence gym_a_coordinator``: what it serves, and workers that are told to go wrong."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.servers import served as served_here

from quiesce.cli.workload import ServerSettings, build_server
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role

TOKEN = "secret-of-the-test"
CONTROL = "/ng-control/v1"


@pytest.fixture
async def policy() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a policy with two workers."""
    settings = ServerSettings(Role.POLICY, token=TOKEN, fence=FenceVariant.GYM_A_COORDINATOR, workers=2, latency_s=0)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        served_here(build_server(settings)) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client,
    ):
        yield client


async def control(
    client: httpx.AsyncClient, path: str, id_: str = "x", *, within_s: float = 60.0, **more: object
) -> tuple[int, Any]:
    """A control POST: its status, and its code where it has one."""
    body = {"checkpoint_id": id_, "deadline_ts": time.time() + within_s, **more}
    reply = await client.post(path, json=body)
    return reply.status_code, reply.json().get("error", {}).get("code")


async def tell(client: httpx.AsyncClient, name: str, be: str, **more: object) -> tuple[int, Any]:
    """Tell a worker how to be."""
    reply = await client.post(f"/workload/workers/{name}", json={"be": be, **more})
    return reply.status_code, reply.json()


PAUSE, RESUME = f"{CONTROL}/model-admission/pause", f"{CONTROL}/model-admission/resume"


async def test_the_announcement_names_the_server_that_commits_and_restores() -> None:
    """Only a coordinator has one; it is below the same origin."""
    coordinated = ServerSettings(Role.POLICY, fence=FenceVariant.GYM_A_COORDINATOR)
    assert coordinated.announced("http://h:1")["checkpoint_url"] == "http://h:1/model-server"
    assert "checkpoint_url" not in ServerSettings(Role.POLICY).announced("http://h:1")


async def test_it_answers_for_its_workers_and_commits_beside_them(policy: httpx.AsyncClient, tmp_path: Path) -> None:
    """The coordinator declares two workers and has no commit; the server below its path has, once they stand still."""
    declared = (await policy.get(f"{CONTROL}/capabilities")).json()
    assert declared["multi_process"] == {"mode": "coordinator", "num_workers": 2}
    commit = f"{CONTROL}/model-checkpoint/commit"
    where: dict[str, Any] = {"checkpoint_dir": str(tmp_path), "continuation_indexes": []}
    assert await control(policy, commit, **where) == (404, None)
    assert await control(policy, f"/model-server{commit}", **where) == (409, "ledger_not_quiescent")
    assert await control(policy, PAUSE) == (200, None)
    assert await control(policy, f"/model-server{commit}", **where) == (200, None)
    assert (tmp_path / "model-ledger" / "policy_model" / "manifest.json").is_file()
    assert await control(policy, RESUME) == (200, None)


async def test_its_workers_serve_in_turn(policy: httpx.AsyncClient) -> None:
    """The model answers through either worker, and through the server beside the coordinator."""
    asked = {"task": "a", "observation": "0" * 64, "parent": None}
    for path in ("/v1/responses", "/v1/responses", "/model-server/v1/responses"):
        assert (await policy.post(path, json=asked)).status_code == 200


async def test_workers_can_be_told_to_go_wrong(policy: httpx.AsyncClient) -> None:
    """Away, back, silent, awake and slow are seen by the pause as they are at the recorded coordinator."""
    assert (await tell(policy, "w1", "away"))[1]["connected"] is False
    assert await control(policy, PAUSE) == (409, "missing_workers")
    assert (await tell(policy, "w1", "back"))[1]["connected"] is True
    await tell(policy, "w1", "silent")
    assert await control(policy, PAUSE, within_s=0.2) == (409, "missing_workers")
    await tell(policy, "w1", "awake")
    await tell(policy, "w0", "slow", lag_s=60)
    assert await control(policy, PAUSE, within_s=0.2) == (409, "missing_workers")
    await tell(policy, "w0", "slow")
    assert await control(policy, PAUSE) == (200, None)
    await tell(policy, "w1", "away")
    status, refusal = await tell(policy, "w1", "back")
    assert (status, refusal["error"]["code"]) == (409, "worker_registration_rejected")
    shown = (await policy.get("/workload/workers")).json()["workers"]
    assert [(worker["name"], worker["connected"], worker["closed"]) for worker in shown] == [
        ("w0", True, True),
        ("w1", False, True),
    ]


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("w9", {"be": "away"}, 404),
        ("w0", {"be": "gone"}, 422),
        ("w0", {"be": "slow", "lag_s": -1}, 422),
        ("w0", {"be": "slow", "for": 3}, 422),
        ("w0", [], 422),
    ],
)
async def test_what_cannot_be_told_changes_nothing(
    policy: httpx.AsyncClient, name: str, body: object, status: int
) -> None:
    """An unknown worker, word or member is refused, and every worker is as it was."""
    before = (await policy.get("/workload/workers")).json()
    assert (await policy.post(f"/workload/workers/{name}", json=body)).status_code == status
    assert (await policy.get("/workload/workers")).json() == before
