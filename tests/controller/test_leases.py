"""Leases end to end: a controller that is there keeps them, one that is gone leaves nobody closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

import pytest
from support.fleet import Fleet, keep
from support.mortal import Doom, Kind, Moment, MortalFiles, MortalTransport, run_mortal
from support.snapshots import tree_of
from support.virtual_loop import run_virtual, virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller
from quiesce.controller.budgets import RENEW_FOR_S
from quiesce.controller.errors import LeaseLapsed
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.errors import NeverSent
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import Lease
from quiesce.transport.port import ControlReply, ControlRequest, Transport

GRACE_S: Final = 20.0
IS_WHOLE: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
pytestmark = pytest.mark.timeout(3600 if IS_WHOLE else 300)
LEASED = ("policy", "agent", "tools")
STALE = ControlReply(
    409, {"content-type": "application/json"}, b'{"error":{"code":"stale_checkpoint","detail":"it lapsed"}}'
)


def fleet_with_leases(grace_s: float = GRACE_S) -> Fleet:
    """Servers that open by themselves; the judge takes part in nothing."""
    return Fleet(lease=Lease(grace_s))


class Standstill:
    """A transport whose controller stands still after so many calls, as if it were dead, until it ``wakes``.

    The next call does not leave; with ``delivered`` it arrives, and its reply is not read before that.
    """

    def __init__(self, inner: Transport, after: int, *, delivered: bool) -> None:
        self.inner = inner
        self.left = after
        self.delivered = delivered
        self.stands = asyncio.Event()
        self.wakes = asyncio.Event()

    async def send(self, request: ControlRequest) -> ControlReply:
        if self.left > 0 or self.wakes.is_set():
            self.left -= 1
            return await self.inner.send(request)
        first = not self.stands.is_set()
        self.stands.set()
        reply = await self.inner.send(request) if self.delivered and first else None
        await self.wakes.wait()
        return reply or await self.inner.send(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


async def taken(controller: Controller) -> None:
    """A whole cut, in the middle of which the trainer takes its time."""
    async with controller.cut("step-1") as cut:
        (cut.directory / "trainer" / "weights").write_text("w")
        await asyncio.sleep(12.0)


async def calls_of_a_cut(root: Path) -> int:
    """How many calls an undisturbed cut makes."""
    fleet = fleet_with_leases()
    rollout = fleet.rollout("r0", 40)
    await asyncio.sleep(1.5)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(root, transport=tap, on_completed=keep) as controller:
        await taken(controller)
    rollout.cancel()
    return len(tap.calls)


async def dies_and_wakes(root: Path, after: int, *, delivered: bool) -> None:
    """A cut whose controller stands still at one of its calls for longer than any lease, and then goes on."""
    fleet = fleet_with_leases()
    rollout = fleet.rollout("r0", 400)
    await asyncio.sleep(1.5)
    transport = Standstill(fleet.transport(), after, delivered=delivered)
    controller = fleet.controller(root, transport=transport, on_completed=keep)

    async def run() -> None:
        async with controller:
            await taken(controller)

    running = asyncio.ensure_future(run())
    await transport.stands.wait()
    stood = list(controller.store.list())
    held = [app for app in fleet.apps.values() if app.fence.state.active is not None]
    wire_id = {app.fence.state.active for app in held}
    await asyncio.sleep(RENEW_FOR_S + GRACE_S + 1.0)
    assert await fleet.everybody_accepts()
    assert all(wire_id <= app.fence.state.finished for app in held)
    assert not rollout.done()
    first, fleet.traces = fleet.traces, []
    async with fleet.controller(root / "next", on_completed=keep) as other, other.cut("next"):
        pass
    transport.wakes.set()
    with contextlib.suppress(QuiesceError, ExceptionGroup):
        await running
    fleet.traces += first  # the steps of two controllers, one after the other
    assert await fleet.everybody_accepts()
    if held:
        assert list(controller.store.list()) == stood
    rollout.cancel()


@pytest.mark.parametrize("delivered", [False, True])
def test_a_controller_that_dies_at_any_call_leaves_nobody_closed(tmp_path: Path, *, delivered: bool) -> None:
    """Whichever call is its last: without any recovery everybody opens, refuses the id, and the next cut works.

    When it wakes up all the same it publishes nothing that it had not published, and closes nobody again. ``make test``
    takes every third call, ``HYPOTHESIS_PROFILE=thorough`` (``make test-all``) each.
    """
    count = run_virtual(calls_of_a_cut(tmp_path / "counted"))
    assert count > 25
    for after in range(0, count, 1 if IS_WHOLE else 3):
        try:
            run_virtual(dies_and_wakes(tmp_path / f"{after}", after, delivered=delivered))
        except BaseException as failure:
            failure.add_note(f"the controller stood still after {after} calls")
            raise


@pytest.mark.parametrize("after_s", [1.0, RENEW_FOR_S + GRACE_S + 5.0], ids=["before the lapse", "after it"])
def test_the_next_controller_finds_nothing_in_doubt(tmp_path: Path, after_s: float) -> None:
    """Whether those who were held have opened by themselves or not, recovery ends well and the next cut works."""

    async def scenario(root: Path, nth: int) -> bool:
        fleet = fleet_with_leases()
        rollout = fleet.rollout("r0", 400)
        await asyncio.sleep(1.5)
        doom = Doom(Kind.CALL, nth, Moment.DURING)

        async def life() -> None:
            mortal = MortalTransport(fleet.transport(), doom)
            async with fleet.controller(root, transport=mortal, files=MortalFiles(doom), on_completed=keep) as one:
                await taken(one)

        has_lived = await run_mortal(life, doom)
        await asyncio.sleep(after_s)
        fleet.traces.clear()  # what is under way when a controller dies is written down by the next one
        async with fleet.controller(root, on_completed=keep) as controller:
            assert controller.unsettled is None
            assert await fleet.everybody_accepts()
            async with controller.cut("next"):
                pass
            assert all(controller.store.verify(entry.wire_id).is_good for entry in controller.store.list())
        assert not rollout.done()
        rollout.cancel()
        return has_lived

    nth = 1
    while not run_virtual(scenario(tmp_path / str(nth), nth)):
        nth += 3
    assert nth > 25


@virtual_time
async def test_a_trainer_may_take_its_time(tmp_path: Path) -> None:
    """Renewals keep everybody closed for as long as the controller holds the cut, and then it is published."""
    fleet = fleet_with_leases(5.0)
    rollout = fleet.rollout("r0", 1000)
    await asyncio.sleep(1.5)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller:
        async with controller.cut("step-1"):
            await asyncio.sleep(500.0)
            assert {app.fence.state.active for name, app in fleet.apps.items() if name in LEASED} != {None}
        assert controller.store.verify("step-1").is_good
    for name in LEASED:
        renewals = tap.to("lease/renew", f"main/{name}")
        assert 95 <= len(renewals) <= 105
        assert {call.status for call in renewals} == {200}
    assert await fleet.everybody_accepts()
    rollout.cancel()


@virtual_time
async def test_a_long_drain_is_kept_too(tmp_path: Path) -> None:
    """Whoever is closed first waits for the last one, however long that drains."""
    fleet = fleet_with_leases(1.0)
    stuck = fleet.stuck("slow")
    asyncio.get_running_loop().call_later(90.0, fleet.let_calls_end.set)
    async with fleet.controller(tmp_path, on_completed=keep) as controller, controller.cut("step-1") as cut:
        pass
    assert cut.result.rollouts == (AttemptId("slow", 0),)
    await stuck


@pytest.mark.parametrize("name", LEASED)
@virtual_time
async def test_a_lease_that_lapses_while_the_trainer_saves_aborts_the_cut(tmp_path: Path, name: str) -> None:
    """Nobody hears of the controller: it goes on by itself, nothing is published, the error names it (F-20)."""
    fleet = fleet_with_leases()
    network = fleet.transport()

    def cut_off(call: TappedCall) -> None:
        if call.route == "lease/renew" and call.site.participant == f"main/{name}":
            raise_unreachable(call)

    tap = Wiretap(network, instead=cut_off)
    async with fleet.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(LeaseLapsed, match=f"main/{name}") as caught:
            async with controller.cut("step-1"):
                await asyncio.sleep(100.0)
        assert caught.value.participant.name == name
        assert controller.unsettled is None
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
        tap.instead = lambda _call: None
        async with controller.cut("step-2"):
            pass


def raise_unreachable(call: TappedCall) -> None:
    """No answer, and nothing arrived."""
    raise NeverSent(participant=call.site.participant, call=call.site.call, reason="the network is away")


@pytest.mark.parametrize("name", LEASED)
@virtual_time
async def test_a_lease_that_lapsed_is_found_right_before_the_decision(tmp_path: Path, name: str) -> None:
    """Also in a cut so short that no renewal was due yet: everybody is asked once more, and nothing is published."""
    fleet = fleet_with_leases()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(LeaseLapsed, match="it lapsed"):
            async with controller.cut("step-1"):
                tap.instead = lambda call: (
                    STALE if (call.route, call.site.participant) == ("lease/renew", f"main/{name}") else None
                )
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
    assert list((tmp_path / ".quiesce" / "staging").iterdir()) == []


@virtual_time
async def test_who_cannot_be_asked_before_the_decision_is_named_with_the_reason(tmp_path: Path) -> None:
    """No renewal ever came through, so nobody knows whether it is still held: nothing is published."""
    fleet = fleet_with_leases()

    def lose(call: TappedCall) -> None:
        if call.route == "lease/renew" and call.site.participant == "main/agent":
            raise_unreachable(call)

    async with fleet.controller(tmp_path, transport=Wiretap(fleet.transport(), instead=lose)) as controller:
        with pytest.raises(LeaseLapsed, match=r"main/agent is not held any more, or may not be.*the network is away"):
            async with controller.cut("step-1"):
                pass
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()


@virtual_time
async def test_a_fault_of_ours_in_a_renewal_publishes_nothing_unproven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken for a renewal that was lost, and everybody is reopened."""
    fleet = fleet_with_leases()
    monkeypatch.setattr("quiesce.controller.leases.Request", lambda **_given: None)
    async with fleet.controller(tmp_path) as controller:
        with pytest.raises(LeaseLapsed, match="please report it"):
            async with controller.cut("step-1"):
                await asyncio.sleep(6.0)
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()


@virtual_time
async def test_several_leases_that_lapse_at_once_abort_one_cut_in_time(tmp_path: Path) -> None:
    """Each asks for the abort; none of them came too late, and nothing says so. The error says how it was left."""
    fleet = fleet_with_leases()

    def refuse(call: TappedCall) -> ControlReply | None:
        return STALE if call.route == "lease/renew" else None

    async with fleet.controller(tmp_path, transport=Wiretap(fleet.transport(), instead=refuse)) as controller:
        with pytest.raises(LeaseLapsed) as caught:
            async with controller.cut("step-1"):
                await asyncio.sleep(60.0)
        assert caught.value.__notes__ == ["nothing was published, and everybody accepts work again"]
        assert await fleet.everybody_accepts()


@pytest.mark.parametrize("answers", ["nothing", "that it is stale"])
@virtual_time
async def test_a_fence_that_expires_before_the_others_are_there_ends_the_cut(tmp_path: Path, answers: str) -> None:
    """The policy waits for a slow agent and hears nothing; when it has opened, nothing of it is published (F-20).

    Whether its renewals are lost or refused: the cut is aborted, the policy is named, and its resume counts as done.
    """
    fleet = fleet_with_leases(5.0)
    stuck = fleet.stuck("slow")
    asyncio.get_running_loop().call_later(60.0, fleet.let_calls_end.set)

    def lose(call: TappedCall) -> ControlReply | None:
        if call.route != "lease/renew" or call.site.participant != "main/policy":
            return None
        if answers == "nothing":
            raise_unreachable(call)
        return STALE

    tap = Wiretap(fleet.transport(), instead=lose)
    async with fleet.controller(tmp_path, transport=tap, on_completed=keep) as controller:
        with pytest.raises(QuiesceError, match="main/policy"):
            await controller.cut("step-1").__aenter__()
        assert controller.unsettled is None
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
        assert not tap.to("agent-checkpoint/commit") or answers == "nothing"
        await stuck
        tap.instead = lambda _call: None
        async with controller.cut("step-2"):
            pass


@virtual_time
async def test_a_participant_that_was_restarted_while_the_trainer_saved_is_found(tmp_path: Path) -> None:
    """It accepts work, so the trainer's part is of another moment than the cut."""
    fleet = fleet_with_leases()
    network = fleet.transport()
    async with fleet.controller(tmp_path, transport=network) as controller:
        with pytest.raises(LeaseLapsed, match="main/tools"):
            async with controller.cut("step-1"):
                fleet.restart("tools", network)
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()


@virtual_time
async def test_a_network_that_is_away_for_a_moment_harms_nothing(tmp_path: Path) -> None:
    """A lost renewal is made up for by the next one; shortly before the decision the last one is believed."""
    fleet = fleet_with_leases()
    lost = 0

    def lose(call: TappedCall) -> None:
        nonlocal lost
        if call.route == "lease/renew" and 20.0 < fleet.clock.monotonic() < 40.0:
            lost += 1
            raise_unreachable(call)

    async with fleet.controller(tmp_path, transport=Wiretap(fleet.transport(), instead=lose)) as controller:
        for label, length_s in (("over it", 60.0), ("into it", 0.0)):
            async with controller.cut(label.replace(" ", "-")):
                await asyncio.sleep(length_s)
    assert lost > 3
    assert await fleet.everybody_accepts()


@virtual_time
async def test_a_restore_is_not_renewed_and_never_opens_by_itself(tmp_path: Path) -> None:
    """Half a restore stays closed, whatever becomes of its controller (F-23)."""
    fleet = fleet_with_leases()
    rollout = fleet.rollout("r0", 40)
    await asyncio.sleep(1.5)
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1"):
        pass
    rollout.cancel()
    fresh = fleet_with_leases()
    tap = Wiretap(fresh.transport())
    controller = fresh.controller(tmp_path, transport=tap)
    await controller.open()
    restore = await controller.begin_restore("step-1")
    await restore.restore()
    await asyncio.sleep(500.0)
    assert not await fresh.everybody_accepts()
    assert tap.to("lease/renew") == []
    await restore.resume()
    await controller.end(restore)
    await controller.close()
    assert [record.attempt for record in fresh.runs.restored()] == [AttemptId("r0", 1)]


@virtual_time
async def test_servers_without_leases_are_never_asked_to_renew(tmp_path: Path) -> None:
    """The feature decides; a snapshot of one kind fits the other, since features are no part of the fingerprint."""
    fleet = Fleet()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller:
        async with controller.cut("plain"):
            await asyncio.sleep(60.0)
        assert controller.discovered is not None
        assert {key.name for key in controller.discovered.without_lease()} == set(LEASED)
        plain = controller.discovered.fingerprints()
    assert tap.to("lease/renew") == []
    leased = fleet_with_leases()
    async with leased.controller(tmp_path) as controller:
        assert controller.discovered is not None
        assert controller.discovered.fingerprints() == plain
        assert controller.discovered.without_lease() == ()
        async with controller.restore("plain"):
            pass
    assert tree_of(tmp_path / "snapshots")
