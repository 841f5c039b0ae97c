"""At no moment of a restore does anybody work on half of it, whatever goes wrong at which call (F-23).

Twelve servers, a network that fails at one call, and a look at all of them whenever a call leaves or is answered, and
in between. ``make test`` tries each call with one fault, each fault in its turn; ``HYPOTHESIS_PROFILE=thorough``
(``make test-all``) each with all of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from support.asgi import calling
from support.fleet import FENCES, TOKEN
from support.kit import CONTROL
from support.sweep import saved_snapshot, successors
from support.sweep_fleet import SweepFleet
from support.virtual_loop import run_virtual, virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import PhasedRestore, RestoreFailed
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FencePhase, FenceVariant
from quiesce.participants.identity import AttemptId
from quiesce.transport.faults import CallSite, Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply, ControlRequest, Transport

SIZE: Final = 12
IS_WHOLE: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
JSON: Final = {"content-type": "application/json"}
REFUSAL: Final = b'{"error":{"code":"ledger_mismatch","detail":"not fresh"}}'
FAULTS: Final[Mapping[str, Fault]] = {
    "refused": Fault(FaultKind.ANSWERED_FOR, reply=ControlReply(409, JSON, REFUSAL)),
    "crashed": Fault(FaultKind.ANSWERED_FOR, reply=ControlReply(500, {"content-type": "text/plain"}, b"oh")),
    "lost before": Fault(FaultKind.REQUEST_LOST),
    "lost after": Fault(FaultKind.REPLY_LOST),
    "late": Fault(FaultKind.DELAYED, 20.0),
    "garbled": Fault(FaultKind.GARBLED),
}
LATER_S: Final = 60.0
pytestmark = pytest.mark.timeout(3600 if IS_WHOLE else 300)
on_both_fences = pytest.mark.parametrize("fence", FENCES)


@dataclass
class Watched:
    """A network that looks at everybody whenever something arrives or leaves; ``seen`` is what must not be."""

    inner: Transport
    fleet: SweepFleet
    live: frozenset[AttemptId]
    seen: list[str] = field(default_factory=list)

    async def send(self, request: ControlRequest) -> ControlReply:
        self.look()
        if (
            request.call.endswith(("agent-checkpoint/restore", "resources-checkpoint/restore"))
            and request.body != b"{}"
        ):
            self.look_at_policies(request.call)
        reply = await self.inner.send(request)
        self.look()
        return reply

    async def aclose(self) -> None:
        await self.inner.aclose()

    def look(self) -> None:
        """Whoever accepts work and holds something of the save: then everybody holds it."""
        holders = self.holders()
        working = holders - {name.removeprefix("main/") for name in self.fleet.closed()}
        if working and holders != self.everybody():
            self.seen.append(f"{sorted(working)} work on half a restore")

    def look_at_policies(self, call: str) -> None:
        """Nothing is installed behind a policy that would serve it."""
        phases = {self.fleet.apps[name].fence.state.phase for name in self.fleet.ledgers}
        if phases != {FencePhase.RESTORED_PAUSED}:
            self.seen.append(f"{call} while the policies are {phases}")

    def holders(self) -> set[str]:
        """Who holds something of the save."""
        attempts = {attempt for attempt in self.live if not attempt.rollout_id.endswith("-done")}
        return {
            *(name for name, ledger in self.fleet.ledgers.items() if any(map(ledger.is_fenced, attempts))),
            *(name for name, runs in self.fleet.runs.items() if runs.restored()),
            *(name for name, states in self.fleet.sessions.items() if states),
        }

    def everybody(self) -> set[str]:
        """Who has something to restore."""
        return {*self.fleet.ledgers, *self.fleet.runs, *self.fleet.sessions}


async def restored_under(
    root: Path, fence: FenceVariant, live: frozenset[AttemptId], site: CallSite | None, fault: Fault
) -> list[TappedCall]:
    """A restore in which one call goes wrong, looked at all the time, and mended where it fails; the calls it made."""
    fleet = SweepFleet(SIZE, fence)
    tap = Wiretap(fleet.transport())
    watched = Watched(tap, fleet, live)
    network = FaultyTransport(watched, ScriptedFaults({} if site is None else {site: fault}))

    async def look_on() -> None:
        while True:
            watched.look()
            await asyncio.sleep(0.05)

    looking = asyncio.ensure_future(look_on())
    controller = fleet.controller(root, network)
    await controller.open()
    try:
        async with controller.restore("first"):
            assert watched.holders() == watched.everybody()
    except (QuiesceError, ExceptionGroup):
        await asyncio.sleep(LATER_S)
        held = controller.unsettled
        if isinstance(held, PhasedRestore):
            await mended(held)
    calls = list(tap.calls)
    assert fleet.restored() == successors(live)
    assert not fleet.closed()
    assert watched.seen == []
    await controller.close()
    await network.settled()
    looking.cancel()
    return calls


async def mended(held: PhasedRestore) -> None:
    """Retry until everybody is restored, then resume."""
    for _ in range(5):
        try:
            await held.retry()
        except RestoreFailed:
            await asyncio.sleep(5.0)
        else:
            await held.resume()
            return
    raise AssertionError(f"{held.wire_id} cannot be mended: {held.held()}")


@on_both_fences
def test_nobody_works_on_half_a_restore(tmp_path: Path, fence: FenceVariant) -> None:
    """Each restore and each resume with each fault: policies first, all or nobody, and in the end everybody once."""
    saved = run_virtual(saved_snapshot(tmp_path, SIZE, fence))
    live = frozenset(saved.rollouts)
    clean = run_virtual(restored_under(tmp_path, fence, live, None, Fault(FaultKind.REQUEST_LOST)))
    sites = [
        call.site
        for call in clean
        if call.request.method == "POST" and not call.is_probe and call.route.endswith(("restore", "resume"))
    ]
    assert len(sites) == 22
    chosen = [
        (site, name)
        for number, site in enumerate(sites)
        for place, name in enumerate(FAULTS)
        if IS_WHOLE or place == number % len(FAULTS)
    ]
    for site, name in chosen:
        try:
            run_virtual(restored_under(tmp_path, fence, live, site, FAULTS[name]))
        except BaseException as failure:
            failure.add_note(f"{name} at {site}")
            raise


@on_both_fences
@virtual_time
async def test_the_look_finds_half_a_restore(tmp_path: Path, fence: FenceVariant) -> None:
    """Whoever is resumed before the others are restored would be seen: the test can fail."""
    saved = await saved_snapshot(tmp_path, SIZE, fence)
    fleet = SweepFleet(SIZE, fence)
    watched = Watched(fleet.transport(), fleet, frozenset(saved.rollouts))
    controller = fleet.controller(tmp_path, watched)
    await controller.open()
    watched.look()
    assert watched.seen == []
    directory = str(saved.directory / "deployments" / "main")
    for call, more in (("restore", {"checkpoint_dir": directory}), ("resume", {})):
        prefix = "model-admission" if call == "resume" else "model-checkpoint"
        await _post(fleet, "policy0", f"/{prefix}/{call}", more)
    watched.look()
    watched.look_at_policies("a restore of an agent")
    assert [sentence.split(" ")[0] for sentence in watched.seen] == ["['policy0']", "a"]
    await controller.close()


async def _post(fleet: SweepFleet, name: str, path: str, more: Mapping[str, str]) -> None:
    body = {"checkpoint_id": "by-hand", "deadline_ts": fleet.clock.now_ts() + 10.0, **more}
    headers = {"authorization": f"Bearer {TOKEN}"}
    reply = await calling(fleet.apps[name], "POST", f"{CONTROL}{path}", json_body=body, headers=headers).done()
    assert reply.status == 200
