"""The demonstration itself: a cut with work in flight, a kill of everything, a restore, and the account of it all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx

from quiesce.cli.demonstration.account import CutAccount
from quiesce.cli.demonstration.crash import LABEL as CRASHED
from quiesce.cli.demonstration.crash import Crash, environment_with, killed_in_its_cut
from quiesce.cli.demonstration.doors import still_closed
from quiesce.cli.demonstration.fleet import Fleet, log_tails
from quiesce.cli.demonstration.job import LIVE_MIN, SHORT_TURNS, job
from quiesce.cli.demonstration.narration import Narrator
from quiesce.cli.demonstration.outcome import Outcome
from quiesce.cli.demonstration.results_file import ResultsFile
from quiesce.cli.demonstration.trainer import Trainer
from quiesce.cli.progress import shown
from quiesce.cli.workload.servers import DEFAULT_NAMES
from quiesce.cli.workload.upstream import client
from quiesce.controller.api import Controller
from quiesce.controller.config import load_config
from quiesce.controller.ports import OnCompleted
from quiesce.controller.results import CutResult
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_records import BoundaryRecord
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import participant_folder, record_name
from quiesce.participants.manifest import deployment_folder
from quiesce.transport import StaticTokenProvider

__all__ = ["DemoFailed", "DemoSettings", "Demonstration"]

LABEL: Final = "demo"
DEPLOYMENT: Final = "main"
LIMIT_S: Final = 180.0
CRASH_TURNS_FACTOR: Final = 5
LIMIT_A_TURN_S: Final = 0.2
ErrorT = TypeVar("ErrorT", bound=Exception)
TRAINER: Final = "trainer"


class DemoFailed(QuiesceError):
    """The demonstration could not be carried through."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What is demonstrated: how many rollouts of how many turns, in which folder, with which fence.

    With ``crashes`` a controller is killed in the middle of a cut first, and another one recovers.
    """

    rollouts: int
    turns: int
    directory: Path
    fence: str
    crashes: bool = False


class Demonstration:
    """One run of it. ``directory`` is empty at first and holds configuration, snapshot, logs and results afterwards."""

    def __init__(self, settings: DemoSettings, narrator: Narrator) -> None:
        self._settings = settings
        self._narrator = narrator
        self._directory = settings.directory
        self._token = secrets.token_urlsafe(24)
        # whatever is under way must outlive a recovery, which takes some seconds
        self._job = job(settings.rollouts, settings.turns * (CRASH_TURNS_FACTOR if settings.crashes else 1))
        self._fleets: list[Fleet] = []
        self._trainers: list[Trainer] = []
        self._outcome = Outcome(self._job, self._directory)

    async def run(self) -> Outcome:
        """Carry it through.

        Raises:
            QuiesceError: something went wrong on the way; a note of it is what the servers' logs say last.
        """
        limit_s = LIMIT_S + LIMIT_A_TURN_S * sum(rollout.turns for rollout in self._job)
        try:
            async with asyncio.timeout(limit_s):
                await self._carry_through()
        except TimeoutError:
            raise self._with_logs(DemoFailed(f"it was not done after {limit_s:.0f} s")) from None
        except (QuiesceError, ExceptionGroup) as error:
            raise self._with_logs(error) from None
        finally:
            for trainer in self._trainers:
                await trainer.die()
            for fleet in self._fleets:
                await fleet.kill()
        return self._outcome

    async def _carry_through(self) -> None:
        async with client() as http:
            fleet = await self._start("first")
            trainer = self._trainer(fleet, ResultsFile(self._directory / "trainer-first"), http)
            if self._settings.crashes:
                await self._crash(fleet, trainer)
            await self._fill(trainer)
            await self._take_cut(fleet, trainer)
            await self._go_on(trainer)
            await self._kill(fleet, trainer)
            fleet = await self._start("second", expects_restore=True)
            trainer = await self._restore(fleet, http)
            await self._finish(trainer)
        await self._outcome.settle(trainer.results)

    # ---- the steps

    async def _start(self, name: str, *, expects_restore: bool = False) -> Fleet:
        fleet = Fleet(
            self._directory / f"servers-{name}",
            token=self._token,
            fence=self._settings.fence,
            expects_restore=expects_restore,
        )
        self._fleets.append(fleet)
        with self._outcome.timed(f"start_{name}"):
            await fleet.start()
        self._outcome.started.append({server.name: server.pid for server in fleet.servers.values()})
        pids = ", ".join(f"{server.name} {server.pid}" for server in fleet.servers.values())
        self._narrator.say(f"{name} servers, each in a process of its own: {pids}")
        return fleet

    async def _crash(self, fleet: Fleet, trainer: Trainer) -> None:
        """Kill a controller in the middle of its cut, and let another one recover what it left."""
        under_way = [rollout for rollout in self._job if rollout.turns > SHORT_TURNS]
        for rollout in under_way:
            trainer.dispatch(rollout)
        self._narrator.say(f"{len(under_way)} rollouts dispatched; another program takes the cut {CRASHED!r}")
        root, path, log = self._directory / "checkpoints", self._write_configuration(fleet), "killed-controller.log"
        with self._outcome.timed("crash"):
            killed = await killed_in_its_cut(path, root, self._directory / log, environment_with(self._token))
        self._narrator.say(f"killed that program by SIGKILL while everybody was paused; {trainer.live()} are under way")
        with self._outcome.timed("recover"):
            async with self._controller(fleet, trainer.keep) as controller:
                self._outcome.crash = Crash(killed, controller.recovered)
                await self._look_who_is_closed(controller)
        for one in self._outcome.crash.recovered:
            self._narrator.say(f"recovered {one.account.wire_id}: it stood at {one.account.stood}, now {one.state}")

    async def _fill(self, trainer: Trainer) -> None:
        """Dispatch, until some results wait to be acknowledged while enough rollouts are under way."""
        early = [rollout for rollout in self._job if not rollout.late]
        for rollout in early:
            if not trainer.has_dispatched(rollout):
                trainer.dispatch(rollout)
        self._narrator.say(f"{len(early)} rollouts dispatched, of {early[0].turns} to {early[-1].turns} turns")
        with self._outcome.timed("fill"):
            await trainer.finished(early[:1])
        if trainer.live() < LIVE_MIN:
            raise DemoFailed(f"only {trainer.live()} rollouts are under way; give them more --turns")

    async def _take_cut(self, fleet: Fleet, trainer: Trainer) -> None:
        done = len(list(trainer.results.lines()))
        self._narrator.say(f"{trainer.live()} under way, {done} finished and unacknowledged: taking the cut {LABEL!r}")
        async with self._controller(fleet, trainer.keep) as controller:
            cut = controller.cut(LABEL, metadata={"rollouts": len(self._job)})
            async with shown(self._narrator.console, f"cut {LABEL}", cut.progress), cut:
                await trainer.save(cut.directory / TRAINER)
            await self._look_who_is_closed(controller)
        result = cut.result
        self._outcome.cut = result
        self._outcome.at_cut = await asyncio.to_thread(self._cut_account, result)
        at_cut = self._outcome.at_cut
        self._narrator.say(
            f"published {result.wire_id}: {at_cut.live} rollouts at a boundary, {len(at_cut.kept)} results with the "
            f"trainer; paused for {result.timings.paused_s:.2f} s"
        )

    async def _go_on(self, trainer: Trainer) -> None:
        """Work after the cut, which the kill will throw away."""
        before = {str(line["rollout_id"]) for line in trainer.results.lines()}
        late = [rollout for rollout in self._job if rollout.late]
        for rollout in late:
            trainer.dispatch(rollout)
        with self._outcome.timed("go_on"):
            await trainer.finished(late)
        after = {str(line["rollout_id"]) for line in trainer.results.lines()} - before
        self._outcome.thrown_away = tuple(sorted(after))
        self._narrator.say(f"going on: {len(after)} more rollouts finished, which the snapshot knows nothing of")

    async def _kill(self, fleet: Fleet, trainer: Trainer) -> None:
        live = trainer.live()
        self._outcome.killed = await fleet.kill()
        await trainer.die()
        self._narrator.say(f"killed everything by SIGKILL, the trainer with it; {live} rollouts were under way")

    async def _restore(self, fleet: Fleet, http: httpx.AsyncClient) -> Trainer:
        async with self._controller(fleet, None) as controller:
            restored = controller.restore(LABEL)
            async with shown(self._narrator.console, f"restore {LABEL}", restored.progress), restored:
                results = await ResultsFile.loaded(restored.directory / TRAINER, self._directory / "trainer-second")
            await self._look_who_is_closed(controller)
        result = restored.result
        self._outcome.restore = result
        self._narrator.say(f"restored {result.source_wire_id}: {len(result.rollouts)} rollouts go on from the cut")
        trainer = self._trainer(fleet, results, http)
        self._dispatch_rest(trainer, {attempt.rollout_id: attempt for attempt in result.rollouts})
        return trainer

    def _dispatch_rest(self, trainer: Trainer, continuing: dict[str, AttemptId]) -> None:
        for rollout in self._job:
            attempt = continuing.get(rollout.rollout_id)
            if attempt is not None:
                trainer.dispatch(rollout, attempt.attempt_index + 1)
            elif rollout.rollout_id not in trainer.results:
                trainer.dispatch(rollout)

    async def _finish(self, trainer: Trainer) -> None:
        with self._outcome.timed("finish"):
            await trainer.finished()
        self._narrator.say("every rollout has finished")

    # ---- what the steps need

    def _trainer(self, fleet: Fleet, results: ResultsFile, http: httpx.AsyncClient) -> Trainer:
        trainer = Trainer(fleet.url(Role.AGENT), results, http)
        self._trainers.append(trainer)
        return trainer

    @contextlib.asynccontextmanager
    async def _controller(self, fleet: Fleet, on_completed: OnCompleted | None) -> AsyncIterator[Controller]:
        path = self._write_configuration(fleet)
        # variables of the environment are about the user's own deployment, not about this one
        config = load_config(path, environment={})
        tokens = StaticTokenProvider(self._token)
        async with Controller(config, on_completed=on_completed, tokens=tokens) as controller:
            yield controller

    def _write_configuration(self, fleet: Fleet) -> Path:
        path = self._directory / "quiesce.toml"
        path.write_text(_configuration(self._directory / "checkpoints", fleet), encoding="utf-8")
        return path

    async def _look_who_is_closed(self, controller: Controller) -> None:
        if controller.discovered is not None:
            self._outcome.closed += await still_closed(controller.discovered.participants)

    def _cut_account(self, result: CutResult) -> CutAccount:
        saved = ResultsFile(result.directory / TRAINER)
        folder = (
            result.directory / deployment_folder(DEPLOYMENT) / participant_folder(Role.AGENT, DEFAULT_NAMES[Role.AGENT])
        )
        return CutAccount(
            kept=frozenset(str(line["rollout_id"]) for line in saved.lines()),
            boundaries={attempt: _turns(folder / record_name(attempt)) for attempt in result.rollouts},
            restarting=frozenset(attempt.rollout_id for attempt in result.restarting),
            unstarted=frozenset(rollout.rollout_id for rollout in self._job if rollout.late),
        )

    def _with_logs(self, error: ErrorT) -> ErrorT:
        """The error with a note of what the servers' logs say last."""
        tails = log_tails([fleet.directory for fleet in self._fleets])
        if tails:
            error.add_note(tails)
        return error


def _turns(record: Path) -> int:
    return BoundaryRecord.model_validate_json(record.read_bytes()).turn


def _configuration(root: Path, fleet: Fleet) -> str:
    lines = [f"root = {json.dumps(str(root))}", "", f"[deployment.{DEPLOYMENT}]", "participants = ["]
    for role, server in fleet.servers.items():
        lines.append(f'  {{ name = "{server.name}", url = "{server.url}", role = "{role.value}" }},')
    return "\n".join([*lines, "]", ""])
