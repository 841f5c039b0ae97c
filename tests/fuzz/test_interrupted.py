"""Ctrl-C at any turn of the loop, once and twice: nobody is left closed, and what is said of it was read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

import pytest
from support.virtual_loop import VirtualClock, VirtualLoop

from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.bearers import FuzzedTokens
from quiesce.fuzz.campaign import Options, examine
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.kit import KIT_ORIGIN, KIT_TOKEN, build_kit_server
from quiesce.fuzz.report import ParticipantReport
from quiesce.fuzz.traffic import kit_traffic
from quiesce.fuzz.verdicts import Verdict
from quiesce.participants.server import MountedServer
from quiesce.participants.server.answers import Answer, Receive, Scope, Send, send_answer
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

RATE = 2.0
CALLS = 60
STRIDE = int(os.environ.get("QUIESCE_INTERRUPT_STRIDE", "97"))
"""Every how many turns; 1 is the whole proof, in some minutes a case."""
# a mark wins over --timeout: the whole proof takes as long as it takes, the tried turns as long as any test
pytestmark = [pytest.mark.timeout(0)] if STRIDE == 1 else []
SERVERS = [
    (role, variant)
    for role in (Role.POLICY, Role.AGENT, Role.RESOURCES)
    for variant in (FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE)
]
EACH = pytest.mark.parametrize(("role", "variant"), SERVERS, ids=lambda value: value.value)


class InterruptingLoop(VirtualLoop):
    """Cancels what it runs after so many turns, and, where one is named, a second time after so many more."""

    def __init__(self, *at: int) -> None:
        super().__init__()
        self.at = set(at)
        self.turns = 0
        self.victim: asyncio.Task[Any] | None = None

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]  # of the base loop; the type stubs do not know it
        self.turns += 1
        if self.turns in self.at and self.victim is not None:
            self.victim.cancel()

    def run_victim(self, work: Coroutine[Any, Any, Any]) -> BaseException | None:
        """Run it to its end; what it was ended by."""
        self.victim = self.create_task(work)
        try:
            self.run_until_complete(asyncio.wait([self.victim]))
            cancelled = self.victim.cancelled()
            return asyncio.CancelledError() if cancelled else self.victim.exception()
        finally:
            self.run_until_complete(self.shutdown_asyncgens())
            self.close()


class Ground:
    """A server, which may refuse every resume, and a short campaign on it at a low rate."""

    def __init__(self, role: Role, variant: FenceVariant, *, resumes: bool = True) -> None:
        self.clock = VirtualClock()
        self.server: MountedServer = build_kit_server(role, variant, clock=self.clock).app
        self.told: list[ParticipantReport] = []
        self._resumes = resumes

    async def campaign(self) -> None:
        """Run the campaign."""
        tokens = FuzzedTokens(StaticTokenProvider(KIT_TOKEN))
        transport = AsgiTransport({KIT_ORIGIN: self._app}, tokens)
        options = Options(nonce="cut", traffic=kit_traffic, calls_max=CALLS, rate=RATE)
        try:
            told = self.told.append
            told(await examine(KIT_ORIGIN, transport, self.clock, options, interrupted=told))
        finally:
            await transport.aclose()

    @property
    def is_open(self) -> bool:
        """Idle, held by nobody, admission open."""
        state = self.server.fence.state
        return (state.phase, state.active, state.closed) == (FencePhase.IDLE, None, False)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._resumes and str(scope.get("path", "")).endswith("/resume"):
            await send_answer(send, Answer(409, {"error": {"code": "invalid_phase", "detail": "never"}}))
        else:
            await self.server(scope, receive, send)


def turns_of(role: Role, variant: FenceVariant) -> int:
    """How many turns of the loop the whole campaign takes."""
    loop = InterruptingLoop()
    assert loop.run_victim(Ground(role, variant).campaign()) is None
    return loop.turns


@EACH
@pytest.mark.parametrize("again_after", [0, 4])
def test_whatever_turn_it_is_interrupted_in_nobody_is_left_closed(
    role: Role, variant: FenceVariant, again_after: int
) -> None:
    """A survey, the measuring, a step, the opening at a sequence's end: none of them is cut in two."""
    for turn in range(1 + again_after, turns_of(role, variant), STRIDE):
        ground = Ground(role, variant)
        ended = InterruptingLoop(turn, turn + again_after).run_victim(ground.campaign())
        assert ground.is_open, (turn, ground.server.fence.state)
        verdicts = [report.verdict for report in ground.told]
        if verdicts == [Verdict.TESTED]:
            continue  # it was over before it heard of it
        assert isinstance(ended, asyncio.CancelledError), (turn, ended)
        assert verdicts == [Verdict.INTERRUPTED], turn
        assert ground.told[0].reason.endswith(("it accepts work", "nothing was closed by it")), turn


@pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT, Role.RESOURCES])
def test_who_cannot_be_opened_is_never_said_to_accept_work(role: Role) -> None:
    """With a server that answers no resume, whoever is closed is told as such, with the id and what to do."""
    doubtful = 0
    for turn in range(1, turns_of(role, FenceVariant.STRICT), STRIDE):
        ground = Ground(role, FenceVariant.STRICT, resumes=False)
        ended = InterruptingLoop(turn).run_victim(ground.campaign())
        told = ground.told[0]
        if ground.is_open:
            continue
        doubtful += 1
        assert ended is None or isinstance(ended, StillClosed | asyncio.CancelledError), (turn, ended)
        assert told.verdict is Verdict.LEFT_CLOSED, turn
        assert told.in_doubt, turn
        assert str(ground.server.fence.state.active) in told.reason, (turn, told.reason)
        assert "restart the server" in told.reason, turn
    assert doubtful
