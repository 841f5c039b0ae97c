"""Whatever was done to it, and however the run ends, the participant is open afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.virtual_loop import run_virtual, virtual_time

from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options, examine
from quiesce.fuzz.dangers import dangers_of
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.line import Line
from quiesce.fuzz.plans import Planner, abilities_of
from quiesce.fuzz.run import Run
from quiesce.fuzz.steps import Step, parse_step
from quiesce.fuzz.traffic import kit_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.virtual_time import VirtualClock
from quiesce.fuzz.wording import Durations
from quiesce.participants.server import MountedServer
from quiesce.participants.server.answers import Answer
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

DURATIONS = Durations(short_s=2.0, work_s=20.0, grace_s=40.0)
SERVERS = [
    (role, variant)
    for role in (Role.POLICY, Role.AGENT, Role.RESOURCES)
    for variant in (FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE)
]
EACH = pytest.mark.parametrize(("role", "variant"), SERVERS, ids=lambda value: value.value)


def is_open(app: MountedServer) -> bool:
    """Idle, held by nobody, admission open, and nothing runs any more."""
    state = app.fence.state
    return (state.phase, state.active, state.closed, state.running) == (FencePhase.IDLE, None, False, frozenset())


class Ground:
    """One server that is not renewed, and the line to it."""

    def __init__(self, role: Role, variant: FenceVariant, root: Path | None = None) -> None:
        self.clock = VirtualClock()
        self.kit = build_kit_server(role, variant, clock=self.clock)
        self.transport = AsgiTransport({KIT_ORIGIN: self.kit.app}, FuzzedTokens(StaticTokenProvider(KIT_TOKEN)))
        self.line = Line(self.transport, self.clock)
        self.options = Options(
            nonce="open",
            traffic=kit_traffic,
            root=root,
            allow_restore=root is not None,
            durations=DURATIONS,
            rate=None,
        )

    async def run(self, steps: Sequence[Step]) -> None:
        """Run a sequence with nothing muted, as a campaign does."""
        _, place = await arrive(KIT_ORIGIN, self.line, self.options)
        assert place is not None
        await Run(place, steps).execute()


@EACH
def test_after_any_danger_the_server_is_open(role: Role, variant: FenceVariant, tmp_path: Path) -> None:
    """Every named danger, on a server that is used for one after the other, leaves it as it was."""

    async def lives() -> None:
        ground = Ground(role, variant, tmp_path)
        _, place = await arrive(KIT_ORIGIN, ground.line, ground.options)
        assert place is not None
        for danger in dangers_of(role):
            await Run(place, danger.steps).execute()
            assert is_open(ground.kit.app), danger.name
        await ground.transport.aclose()

    run_virtual(lives())


@virtual_time
async def test_a_prepare_that_fails_behind_its_refused_resume_leaves_nothing_closed() -> None:
    """A recorded resource server is idle then, held by nobody, and closed all the same: the id is resumed once more."""
    ground = Ground(Role.RESOURCES, FenceVariant.GYM_A_SINGLE)
    steps = ("work seed p", "work begin p", "prepare a deadline=short send=leave", "resume a")
    await ground.run([parse_step(step) for step in steps])
    assert is_open(ground.kit.app)
    await ground.transport.aclose()


@EACH
def test_after_any_walk_the_server_is_open(role: Role, variant: FenceVariant) -> None:
    """Random walks as well, clients that leave and prepares that are left waiting included."""

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10_000), st.integers(0, 20))
    def walk(seed: int, skip: int) -> None:
        async def lives() -> None:
            ground = Ground(role, variant)
            _, place = await arrive(KIT_ORIGIN, ground.line, ground.options)
            assert place is not None
            walks = Planner(place.subject, abilities_of(place), seed).walks()
            for _ in range(skip):
                next(walks)
            await Run(place, next(walks)).execute()
            assert is_open(ground.kit.app)
            await ground.transport.aclose()

        run_virtual(lives())

    walk()


@pytest.mark.parametrize("after_s", [0.0, 1.0, 5.0, 30.0, 100.0])
@virtual_time
async def test_a_cancelled_campaign_leaves_the_server_open(after_s: float) -> None:
    """Ctrl-C at any moment: the participant is resumed before the cancellation goes on."""
    ground = Ground(Role.AGENT, FenceVariant.STRICT)
    testing = asyncio.create_task(examine(KIT_ORIGIN, ground.transport, ground.clock, ground.options))
    await asyncio.sleep(after_s)
    testing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await testing
    assert is_open(ground.kit.app)
    await ground.transport.aclose()


@virtual_time
async def test_a_cancelled_run_that_cannot_open_the_server_says_so() -> None:
    """Instead of a cancellation that looks harmless there is an error that names the participant."""
    ground = Ground(Role.POLICY, FenceVariant.STRICT)
    running = asyncio.create_task(ground.run([parse_step("prepare a"), parse_step("prepare b send=start")] * 40))
    while not str(ground.kit.app.fence.state.active).endswith("-a"):  # noqa: ASYNC110 - the fence tells nobody
        await asyncio.sleep(0)
    ground.transport.unmount(KIT_ORIGIN)
    running.cancel()
    with pytest.raises(StillClosed, match="policy_model"):
        await running
    await ground.transport.aclose()


@virtual_time
async def test_a_server_that_cannot_be_opened_is_a_verdict() -> None:
    """A resume that never works ends the campaign with what is left, after a bounded number of tries."""
    ground = Ground(Role.POLICY, FenceVariant.STRICT)
    endpoints = dict(ground.kit.app._endpoints)
    resume, resumes = endpoints["model_resume"], []

    async def once_only(asked: BaseModel) -> Answer:
        resumes.append(asked)
        return await resume(asked) if len(resumes) <= 2 else refused_by_phase

    endpoints["model_resume"] = once_only
    ground.kit.app._endpoints = endpoints
    report = await examine(KIT_ORIGIN, ground.transport, ground.clock, ground.options)
    assert report.verdict is Verdict.LEFT_CLOSED
    assert "could not be opened: phase" in report.reason
    assert report.in_doubt
    assert len(resumes) < 40
    await ground.transport.aclose()


refused_by_phase = Answer(409, {"error": {"code": "invalid_phase", "detail": "never"}})
