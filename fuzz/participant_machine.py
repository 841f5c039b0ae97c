"""Hypothesis state machines over participants: servers of the kit in process, and live servers by their URL.

    TestPolicy = kit_machine(Role.POLICY).TestCase
    TestMine = live_machine("http://127.0.0.1:8000", token_variable="MY_TOKEN", traffic=my_traffic).TestCase

A life begins behind a shortest path of the strict fence to one of its states, goes on with any calls, work and waits,
and ends with the participant open. The oracle is the one of ``quiesce fuzz``: the first broken rule fails the test, and
Hypothesis shrinks the life that led to it.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from quiesce.controller.clock import SystemClock
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.arriving import arrive
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import RATE, Options
from quiesce.fuzz.errors import Nonconforming
from quiesce.fuzz.line import Line
from quiesce.fuzz.place import Place
from quiesce.fuzz.plans import Planner, abilities_of
from quiesce.fuzz.rulebook import RULES
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.run import Run
from quiesce.fuzz.steps import Step
from quiesce.fuzz.traffic import Traffic, kit_traffic, no_traffic
from quiesce.fuzz.virtual_time import VirtualLoop
from quiesce.fuzz.wording import Durations
from quiesce.transport.http import HttpTransport
from quiesce.transport.token import EnvironmentTokenProvider

if TYPE_CHECKING:
    from quiesce.fuzz.in_kit import KitSource

__all__ = ["ParticipantMachine", "kit_machine", "live_machine", "machine_over"]

Connect = Callable[[], AbstractAsyncContextManager[Place]]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
KIT_DURATIONS: Final = Durations(short_s=2.0, work_s=20.0, grace_s=40.0)
"""How long things take with ``quiesce.fuzz.kit``."""


class ParticipantMachine(RuleBasedStateMachine):
    """Random lives of one participant. Made by :func:`kit_machine` and :func:`live_machine`."""

    connect: ClassVar[Connect]
    loop_factory: ClassVar[LoopFactory | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=type(self).loop_factory)
        self._stack = AsyncExitStack()
        try:
            place = self._runner.run(self._stack.enter_async_context(type(self).connect()))
        except BaseException:
            self._runner.close()
            raise
        planner = Planner(place.subject, abilities_of(place), 0)
        self._paths = planner.paths()
        usual = st.sampled_from(planner.choices())
        self._choices = st.one_of(usual, usual, usual, st.sampled_from(planner.malformed()))
        # a life goes on behind what its profile knows
        self._run = Run(place, muted=[rule_.id for rule_ in RULES if place.profile in rule_.known])
        self._goes_on = True

    @initialize(data=st.data())
    def begin_somewhere(self, data: st.DataObject) -> None:
        """Go a shortest way to one of the states of the strict fence."""
        for step in data.draw(st.sampled_from(self._paths), label="path"):
            self._perform(step)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Any call, any work, any wait; one in four is malformed or has a wrong bearer."""
        self._perform(data.draw(self._choices, label="step"))

    def teardown(self) -> None:
        """What was started is answered and judged, and the participant is left open."""
        try:
            if self._goes_on:
                self._runner.run(self._run.finish())
                self._judge()
        finally:
            self._runner.run(self._run.leave_open())
            self._runner.run(self._stack.aclose())
            self._runner.close()
        if self._goes_on:
            self._judge()

    def _perform(self, step: Step) -> None:
        if self._goes_on:
            self._runner.run(self._run.perform(step))
            self._judge()

    def _judge(self) -> None:
        episode = self._run.episode()
        unknown = [found for found in episode.muted if not found.known]
        finding = episode.finding or next(iter(unknown), None)
        if finding is not None:
            self._goes_on = False
            rule_ = finding.rule
            where = f"{rule_.id}: {rule_.sentence} ({rule_.source})"
            lines = "\n".join(f"  {line}" for line in episode.trace)
            raise Nonconforming(f"{where}\n{lines}\n  expected {finding.expected}; got {finding.got}")
        if episode.verdict is not None:
            self._goes_on = False
            raise Nonconforming(f"{episode.verdict.value}: {episode.gone}")


def kit_machine(
    role: Role,
    fence: FenceVariant = FenceVariant.STRICT,
    *,
    profile: Profile = Profile.STRICT,
    allow_restore: bool = True,
) -> type[ParticipantMachine]:
    """A state machine over fresh servers of the kit, in process and in virtual time.

    Raises:
        MissingExtra: the server kit is not installed.
    """
    from quiesce.fuzz.in_kit import kit_source  # noqa: PLC0415 - it needs an extra, which may be missing

    return machine_over(kit_source(role, fence), profile=profile, allow_restore=allow_restore)


def machine_over(
    source: KitSource, *, profile: Profile = Profile.STRICT, allow_restore: bool = True
) -> type[ParticipantMachine]:
    """A state machine over fresh applications of ``source``, in process and in virtual time.

    They take the token ``quiesce.fuzz.kit.KIT_TOKEN`` and the calls of ``kit_traffic``.
    """
    from quiesce.fuzz.in_kit import kit_options, serving  # noqa: PLC0415 - as above
    from quiesce.fuzz.kit import KIT_ORIGIN  # noqa: PLC0415 - as above

    @asynccontextmanager
    async def connect() -> AsyncIterator[Place]:
        with tempfile.TemporaryDirectory(prefix="quiesce-fuzz-") as folder:
            options = kit_options(profile, Path(folder), kit_traffic, allow_restore=allow_restore)
            options = replace(options, durations=KIT_DURATIONS)
            async with serving(source) as (transport, clock, _):
                yield await _arrived(KIT_ORIGIN, Line(transport, clock), options)

    members: dict[str, object] = {"connect": staticmethod(connect), "loop_factory": VirtualLoop}
    return type("MachineOverKit", (ParticipantMachine,), members)


def live_machine(
    url: str,
    *,
    token_variable: str | None = None,
    traffic: Traffic = no_traffic,
    profile: Profile = Profile.STRICT,
    checkpoint_dir: Path | None = None,
    allow_restore: bool = False,
    allow_live_work: bool = False,
    rate: float | None = RATE,
) -> type[ParticipantMachine]:
    """A state machine over a live server. Each life uses up a few ids, which the server remembers for ever."""
    options = Options(
        nonce="",
        profile=profile,
        traffic=traffic,
        root=checkpoint_dir,
        allow_restore=allow_restore,
        allow_live_work=allow_live_work,
        rate=rate,
    )

    @asynccontextmanager
    async def connect() -> AsyncIterator[Place]:
        transport = HttpTransport(FuzzedTokens(EnvironmentTokenProvider(token_variable)))
        place: Place | None = None
        try:
            fresh = replace(options, nonce=secrets.token_hex(4))
            place = await _arrived(url, Line(transport, SystemClock(), rate), fresh)
            yield place
        finally:
            if place is not None:
                place.clear_away()
            await transport.aclose()

    members: dict[str, object] = {"connect": staticmethod(connect)}
    return type("MachineOverLiveServer", (ParticipantMachine,), members)


async def _arrived(url: str, line: Line, options: Options) -> Place:
    found, place = await arrive(url, line, options)
    if place is None:
        raise QuiesceError(f"{url}: {found.verdict.value}: {found.reason}")
    return place
