"""The stage on which the kit replays a recorded scenario: its servers, its set-ups, and the comparison of its replies.

What happened off the wire stands in a recording as prose (``before``). ``SETUPS`` maps each text to what must be done;
a text that is not there is an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.asgi import Caller, Json, calling
from support.coordinated import CoordinatedKit
from support.kit import TOKEN, Kit
from support.recordings import DIRECTORIES, FOLDER, NOW, Exchange
from support.stores import A0, B0, B1, RECORDED_AT, finished_call, settle
from support.virtual_loop import VirtualClock

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.runs import Runs

SAVED_BEFORE: Final = ("restore_missing_dir", "restore_tampered")
"""Scenarios that begin with a save that an earlier deployment has left in the directory."""


@dataclass
class Stage:
    """One scenario being replayed.

    ``calls`` are the data-plane calls that were opened. ``last_but``: the slow reply comes before so many last ones.
    """

    scenario: str
    variant: FenceVariant
    directory: Path
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(epoch_ts=NOW))
    calls: list[Caller] = field(default_factory=list)
    rollouts: list[asyncio.Future[object]] = field(default_factory=list)
    last_but: int | None = None

    def __post_init__(self) -> None:
        restoring = self.scenario in SAVED_BEFORE
        if restoring:
            write_tree("restore_missing_dir", self.directory)
        self.kit = Kit(self.kit_variant, self.clock, restore_expected=restoring)
        self.coordinated = CoordinatedKit(self.clock)

    @property
    def kit_variant(self) -> FenceVariant:
        """How the single-worker servers behave; none of them answers in a coordinator's scenario."""
        recorded = self.variant is not FenceVariant.STRICT
        return FenceVariant.GYM_A_SINGLE if recorded else FenceVariant.STRICT

    def server(self, component: str) -> MountedServer:
        """The server by its name in the recordings."""
        kit = self.coordinated if component == "coordinator" else self.kit
        return kit.server(component)

    def prepare(self, text: str) -> Awaitable[None]:
        """Do what a ``before`` says."""
        return _EVERY_SETUP[text](self)

    def send(self, exchange: Exchange) -> Caller:
        """Send a recorded request as it was sent, to the server that answered it."""
        tokens = {"<token>": TOKEN, "<wrong-token>": "another-token"}
        headers = {}
        if exchange.authorization is not None:
            value = exchange.authorization
            for placeholder, token in tokens.items():
                value = value.replace(placeholder, token)
            headers["authorization"] = value
        return calling(
            self.server(exchange.component),
            exchange.method,
            exchange.path,
            json_body=self.placed(exchange.json),
            query={key: str(value) for key, value in (exchange.query or {}).items()},
            headers=headers,
        )

    def placed(self, value: Json) -> Json:
        """``value`` with the stage's own directory in it."""
        first, second = DIRECTORIES["<checkpoint_dir>"], DIRECTORIES["<checkpoint_dir_2>"]
        text = json.dumps(value).replace(first, str(self.directory)).replace(second, str(self.directory / "second"))
        return json.loads(text)

    def restart(self) -> None:
        """Fresh processes answer from here on."""
        self.kit = Kit(self.kit_variant, self.clock, restore_expected=True)

    async def open_call(self, attempt: AttemptId = A0) -> None:
        """Open a model call that does not end by itself."""
        self.calls.append(self.kit.work_call(self.kit.policy, "/v1/responses", attempt))
        await settle()

    async def end_call(self) -> Caller:
        """Let the open call end."""
        self.kit.work.go.set()
        return await self.calls[-1].done()

    async def close(self) -> None:
        """End everything that still runs."""
        tasks: list[asyncio.Future[Any]] = [*(call.task for call in self.calls), *self.rollouts]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def write_tree(scenario: str, directory: Path) -> None:
    """Lay out the recorded checkpoint directory of a scenario."""
    recorded = json.loads((FOLDER / f"{scenario}.tree.json").read_text(encoding="utf-8"))
    for name, file in recorded["<checkpoint_dir>"]["files"].items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file["text"].encode())


# ---- the set-ups, one for each text


async def _one_call_open(stage: Stage) -> None:
    await stage.open_call()


async def _aborted_call_is_stale(stage: Stage) -> None:
    call = await stage.calls[-1].done()
    assert (call.status, call.code) == (409, "stale_attempt")


async def _later_call_is_stale(stage: Stage) -> None:
    call = await stage.kit.work_call(stage.kit.policy, "/v1/responses", A0).done()
    assert (call.status, call.code) == (409, "stale_attempt")


async def _recorded_rollouts(stage: Stage) -> None:
    stores = stage.kit.stores
    for attempt in (A0, B0):
        stores.ledger.note_call(attempt)
        finished_call(stores.ledger, attempt)
    revision = await stores.seed(A0, mutations=2)
    stage.rollouts.append(asyncio.ensure_future(_between_turns(stores.runs, revision)))
    await settle()


async def _between_turns(runs: Runs, revision: int) -> object:
    """A rollout that has taken its first turn, and can be caught at that turn's boundary at any time."""
    async with runs.begin(A0, agent_state={"step": 0}) as execution:
        execution.note_revision("resources", revision)
        await execution.commit_boundary(
            boundary_index=1,
            output_items=[{"type": "message", "role": "assistant", "content": "turn 1"}],
            last_committed_model_call_id="call-1",
            agent_state={"step": 1},
            created_at=RECORDED_AT,
        )
        while True:
            await asyncio.sleep(0.01)
            await execution.commit_boundary(boundary_index=1, turn_index=1, created_at=RECORDED_AT)


async def _open_call_ends(stage: Stage) -> None:
    assert (await stage.end_call()).status == 200


async def _rollout_completed(stage: Stage) -> None:
    async with stage.kit.stores.runs.begin(A0) as execution:
        await execution.commit_boundary(boundary_index=1)
        execution.finish({"response": {"id": "response-rollout-a"}, "reward": 1.0})


async def _three_fresh_servers(stage: Stage) -> None:
    stage.restart()


async def _old_attempt_is_stale_and_new_one_is_served(stage: Stage) -> None:
    stage.kit.work.go.set()
    old = await stage.kit.work_call(stage.kit.policy, "/v1/responses", A0).done()
    new = await stage.kit.work_call(stage.kit.policy, "/v1/responses", A0._replace(attempt_index=1)).done()
    assert (old.status, old.code, new.status) == (409, "stale_attempt", 200)


async def _runs_without_boundary(stage: Stage) -> None:
    stage.rollouts.append(asyncio.ensure_future(_one_long_turn(stage.kit.stores.runs)))
    await settle()


async def _one_long_turn(runs: Runs) -> object:
    async with runs.begin(A0):
        return await asyncio.get_running_loop().create_future()


async def _run_is_refused(stage: Stage) -> None:
    call = await stage.kit.work_call(stage.kit.agent, "/run", B0).done()
    assert (call.status, call.code) == (409, "agent_admission_closed")


async def _parks_when_asked(stage: Stage) -> None:
    turn = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, turn.set)  # the prepare has asked by then
    stage.rollouts.append(asyncio.ensure_future(_first_turn(stage.kit.stores.runs, turn)))
    await settle()


async def _first_turn(runs: Runs, turn: asyncio.Event) -> object:
    async with runs.begin(A0) as execution:
        await turn.wait()
        await execution.commit_boundary(boundary_index=1, agent_state={"step": 1}, created_at=RECORDED_AT)
        return await asyncio.get_running_loop().create_future()


async def _two_sessions(stage: Stage) -> None:
    await stage.kit.stores.seed(A0, mutations=2)
    await stage.kit.stores.seed(B1, mutations=1)


async def _mutation_is_refused(stage: Stage) -> None:
    call = await stage.kit.work_call(stage.kit.resources, "/mutate", A0).done()
    assert (call.status, call.code) == (409, "resources_admission_closed")
    assert call.json["error"]["message"]


async def _retired_session_is_stale(stage: Stage) -> None:
    call = await stage.kit.work_call(stage.kit.resources, "/mutate", B1).done()
    assert (call.status, call.code) == (409, "stale_attempt")


async def _mutation_hangs(stage: Stage) -> None:
    await stage.kit.stores.seed(A0, mutations=2)
    stage.calls.append(stage.kit.work_call(stage.kit.resources, "/hang", A0))
    await settle()
    stage.last_but = 2


async def _files_tampered(stage: Stage) -> None:
    for name in ("rollout-a.lineage.jsonl", "rollout-a.a0.json"):
        found = list(stage.directory.rglob(name))
        assert found
        for path in found:
            path.write_bytes(path.read_bytes() + b" ")


async def _fresh_policy(stage: Stage) -> None:
    stage.restart()


def _ends_after(seconds: float) -> Callable[[Stage], Awaitable[None]]:
    async def setup(stage: Stage) -> None:
        asyncio.get_running_loop().call_later(seconds, stage.kit.work.go.set)

    return setup


async def _nothing(_stage: Stage) -> None:
    """The text explains the reply; nothing is to be done."""


SETUPS: Final[dict[str, Callable[[Stage], Awaitable[None]]]] = {
    "no checkpoint is active yet; one model call is open": _one_call_open,
    "the aborted call answered 409 stale_attempt": _aborted_call_is_stale,
    "a later call of the same attempt answered 409 stale_attempt": _later_call_is_stale,
    "rollout-a and rollout-b each made one finished model call; rollout-a runs on the agent and has a resources "
    "session at revision 3": _recorded_rollouts,
    "one model call is open": _one_call_open,
    "one model call of rollout-a attempt 0 is open": _one_call_open,
    "the open call ended with 200": _open_call_ends,
    "the model call has ended": _open_call_ends,
    "the call has ended, but no status call has been made since": _open_call_ends,
    "the call ends 0.3 s after this request is sent": _ends_after(0.3),
    "same id again: the first (draining) result is replayed although the server is paused": _nothing,
    "rollout-a has completed and nobody has acknowledged it": _rollout_completed,
    "rollout-a is running and never commits a boundary": _runs_without_boundary,
    "rollout-a is running and commits its turn-1 boundary when asked to park": _parks_when_asked,
    "a /run for rollout-b just now answered 409 agent_admission_closed": _run_is_refused,
    "sessions: rollout-a attempt 0 at revision 3, rollout-b attempt 1 at revision 2": _two_sessions,
    "a mutation answered 409 {'error': {'code': 'resources_admission_closed', 'message': 'resources mutation "
    "admission is closed for checkpoint preparation'}}": _mutation_is_refused,
    "a mutation of the retired session answered 409 stale_attempt": _retired_session_is_stale,
    "a mutation of rollout-a is in progress and does not end; this reply comes last but two": _mutation_hangs,
    "from here on three fresh server processes answer": _three_fresh_servers,
    "a fresh policy server answers from here": _fresh_policy,
    "a model call of rollout-a attempt 0 answered 409 stale_attempt; one of attempt 1 answered 200": (
        _old_attempt_is_stale_and_new_one_is_served
    ),
    "one byte was appended to the lineage, agent record and resources state files": _files_tampered,
}
"""Every text of an exchange that a single-worker server answered."""


# ---- the set-ups of a coordinator's scenarios


async def _second_worker_is_away(stage: Stage) -> None:
    stage.coordinated.workers["w1"].leave()


async def _second_worker_connects(stage: Stage) -> None:
    stage.coordinated.workers.register("w1")


async def _second_worker_has_a_call(stage: Stage) -> None:
    stage.calls.append(stage.coordinated.work_call("w1", A0))
    await settle()


async def _second_worker_is_silent(stage: Stage) -> None:
    stage.coordinated.workers["w1"].fall_silent()


async def _its_call_ends_soon(stage: Stage) -> None:
    asyncio.get_running_loop().call_later(0.2, stage.coordinated.work.go.set)


COORDINATOR_SETUPS: Final[dict[str, Callable[[Stage], Awaitable[None]]]] = {
    "two workers are expected, one is connected": _second_worker_is_away,
    "the second worker has connected": _second_worker_connects,
    "worker w1 has one open model call, w0 none": _second_worker_has_a_call,
    "the call ends 0.2 s after this request is sent": _its_call_ends_soon,
    "worker w1 registered but never acknowledges anything; the acknowledgement timeout is 0.4 s here (10 s by "
    "default)": _second_worker_is_silent,
}
"""Every text of an exchange that a coordinator answered."""

_EVERY_SETUP: Final = {**SETUPS, **COORDINATOR_SETUPS}
