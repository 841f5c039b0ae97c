"""Restores: into fresh servers, into the wrong ones, failing at each role, retried, aborted, left by an exception."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, HalfRestored, PhasedRestore, RestoreFailed
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError, ControlRequestError, SnapshotInvalid, TopologyError
from quiesce.participants.identity import AttemptId
from quiesce.transport.faults import Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply

ROUTES = {
    "policy": "model-checkpoint/restore",
    "agent": "agent-checkpoint/restore",
    "tools": "resources-checkpoint/restore",
}
ORDER = ("policy", "agent", "tools")
DISCARD = "agent-checkpoint/discard-restored-continuation"
REFUSED = ControlReply(
    409, {"content-type": "application/json"}, b'{"error":{"code":"ledger_mismatch","detail":"not fresh"}}'
)
on_both_fences = pytest.mark.parametrize("fence", FENCES)


def keys(*names: str) -> set[ParticipantKey]:
    """Participants of the one deployment."""
    return {ParticipantKey("main", name) for name in names}


async def saved(root: Path, fence: FenceVariant = FenceVariant.STRICT) -> str:
    """A snapshot of a rollout with a session; its wire id."""
    fleet = Fleet(fence)
    rollout = fleet.rollout("r0", 40)
    await fleet.seed_session("r0")
    await fleet.clock.sleep(3.5)
    async with fleet.controller(root) as controller, controller.cut("step-1") as cut:
        (cut.directory / "trainer" / "weights").write_text("w")
    rollout.cancel()
    await asyncio.gather(rollout, return_exceptions=True)
    return cut.wire_id


async def goes_on(fleet: Fleet) -> None:
    """Everybody accepts work, and what was live at the cut waits as the next attempt."""
    assert await fleet.everybody_accepts()
    assert [record.attempt for record in fleet.runs.restored()] == [AttemptId("r0", 1)]
    assert list(fleet.states) == [AttemptId("r0", 1)]
    assert fleet.ledger.is_fenced(AttemptId("r0", 0))


async def failed_restore(controller: Controller) -> RestoreFailed:
    """A restore that fails and is held closed; who stands where."""
    with pytest.raises(ExceptionGroup) as caught:
        await controller.restore("step-1").__aenter__()
    return next(error for error in caught.value.exceptions if isinstance(error, RestoreFailed))


def held_by(controller: Controller) -> PhasedRestore:
    """The restore that is held closed."""
    held = controller.unsettled
    assert isinstance(held, PhasedRestore)
    return held


@pytest.mark.parametrize("broken", ["changed", "missing", "extra", "trainer"])
@virtual_time
async def test_a_snapshot_that_was_tampered_with_is_found_before_anybody_is_called(tmp_path: Path, broken: str) -> None:
    """Every file is read again first; the error names it."""
    wire_id = await saved(tmp_path)
    snapshot = tmp_path / "snapshots" / wire_id
    session = next(snapshot.glob("deployments/main/resources/tools/r0*.json"))
    match broken:
        case "changed":
            session.write_bytes(session.read_bytes().replace(b'"turns": 0', b'"turns": 9'))
        case "missing":
            session.unlink()
        case "extra":
            session.with_name("more.json").write_text("{}")
        case "trainer":
            (snapshot / "trainer" / "weights").write_text("longer than it was")
    fresh = Fleet(restore_expected=True)
    tap = Wiretap(fresh.transport())
    async with fresh.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(SnapshotInvalid, match=r"resources/tools|trainer/weights"):
            await controller.restore("step-1").__aenter__()
        assert controller.unsettled is None
    assert tap.mutating() == []


@on_both_fences
@pytest.mark.parametrize("failing", ORDER)
@virtual_time
async def test_a_refused_restore_is_held_closed_and_can_be_retried(
    tmp_path: Path, fence: FenceVariant, failing: str
) -> None:
    """The error says who is restored, untouched and failed; nobody is resumed; the same id goes on after the repair."""
    wire_id = await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    is_broken = True

    tap = Wiretap(
        fresh.transport(), instead=lambda call: REFUSED if is_broken and call.route == ROUTES[failing] else None
    )
    async with fresh.controller(tmp_path, transport=tap) as controller:
        failed = await failed_restore(controller)
        place = ORDER.index(failing)
        assert set(failed.restored) == keys(*ORDER[:place])
        assert set(failed.failed) == keys(failing)
        assert set(failed.untouched) == keys(*ORDER[place + 1 :])
        assert "ledger_mismatch" in str(failed)
        assert not [call for call in tap.mutating() if call.route.endswith("resume")]
        with pytest.raises(RestoreFailed):
            await controller.cut("step-2").__aenter__()
        with pytest.raises(RestoreFailed, match="ledger_mismatch"):
            await held_by(controller).retry()
        is_broken = False
        await held_by(controller).retry()
        assert held_by(controller).state is TransactionState.RESTORED
        with pytest.raises(ConfigurationError, match="is restored"):
            await controller.cut("step-2").__aenter__()
        result = await held_by(controller).resume()
        assert result.source_wire_id == wire_id
        await goes_on(fresh)
        async with controller.cut("step-2"):
            pass
    ids = {call.body["checkpoint_id"] for call in tap.mutating() if call.route.endswith("restore")}
    assert len(ids) == 1


@on_both_fences
@pytest.mark.parametrize("failing", ORDER)
@virtual_time
async def test_a_failed_restore_that_is_aborted_reopens_everybody(
    tmp_path: Path, fence: FenceVariant, failing: str
) -> None:
    """It says whose process must be restarted: whoever was restored or failed. No cut goes over it before."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence)
    network = fresh.transport()
    tap = Wiretap(network, instead=lambda call: REFUSED if call.route == ROUTES[failing] else None)
    async with fresh.controller(tmp_path, transport=tap) as controller:
        await failed_restore(controller)
        held = held_by(controller)
        await held.abort()
        assert isinstance(held.held(), HalfRestored)
        assert await fresh.everybody_accepts()
        reached = ORDER[: ORDER.index(failing) + 1]
        assert set(held.to_restart()) == set(held.half_restored()) == keys(*reached)
        before = len(tap.mutating())
        with pytest.raises(HalfRestored):
            await controller.cut("step-2").__aenter__()
        assert len(tap.mutating()) == before
        for name in reached:
            fresh.restart(name, network)
    # who was restarted is discovered anew
    async with fresh.controller(tmp_path, transport=tap) as controller, controller.cut("step-2"):
        pass


@on_both_fences
@pytest.mark.parametrize("dead", ORDER)
@virtual_time
async def test_a_server_that_dies_during_the_restore_is_named(tmp_path: Path, fence: FenceVariant, dead: str) -> None:
    """It is retried a few times, then the restore is held closed; back again, the retry succeeds."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    network = fresh.transport()
    tap = Wiretap(network)
    async with fresh.controller(tmp_path, transport=tap) as controller:
        restore = await controller.begin_restore("step-1")

        def die(call: TappedCall) -> None:
            if call.route == ROUTES[dead]:
                network.unmount(f"http://{dead}")

        tap.instead = die
        with pytest.raises(ExceptionGroup) as caught:
            await restore.restore()
        await controller.end(restore)
        failed = next(error for error in caught.value.exceptions if isinstance(error, RestoreFailed))
        # whoever certainly never got the call is untouched
        assert keys(dead) <= {*failed.failed, *failed.untouched}
        tap.instead = lambda _call: None
        network.mount(f"http://{dead}", fresh.apps[dead])
        await held_by(controller).retry()
        await held_by(controller).resume()
    await goes_on(fresh)


@on_both_fences
@virtual_time
async def test_an_exception_inside_the_restored_body_holds_it_closed(tmp_path: Path, fence: FenceVariant) -> None:
    """The trainer could not load its part: nobody goes on without it. The exception and who is held come together."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    async with fresh.controller(tmp_path) as controller:
        with pytest.raises(ExceptionGroup) as caught:
            async with controller.restore("step-1"):
                raise ValueError("no such weights")
        assert caught.group_contains(ValueError, match="no such weights")
        assert caught.group_contains(RestoreFailed)
        assert not await fresh.everybody_accepts()
        await held_by(controller).retry()
        await held_by(controller).resume()
    await goes_on(fresh)


@on_both_fences
@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5])
@virtual_time
async def test_a_cancelled_restore_is_held_closed_and_the_cancellation_goes_on(
    tmp_path: Path, fence: FenceVariant, after_s: float
) -> None:
    """A cancellation is no request to open half a restore; an abort is one."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence)
    async with fresh.controller(tmp_path) as controller:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(after_s), controller.restore("step-1"):
                await asyncio.Event().wait()
        if controller.unsettled is not None:
            assert not await fresh.everybody_accepts()
            await held_by(controller).abort()
        assert await fresh.everybody_accepts()


@virtual_time
async def test_a_restore_into_another_topology_is_refused_before_any_call(tmp_path: Path) -> None:
    """Every server that is missing, new or declares something else is named."""
    await saved(tmp_path)
    fresh = Fleet(restore_expected=True)
    del fresh.apps["agent"]
    extra = Fleet()
    fresh.apps["tools2"] = extra.apps["agent"]
    tap = Wiretap(fresh.transport())
    async with fresh.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(TopologyError) as caught:
            await controller.restore("step-1").__aenter__()
    assert len(caught.value.problems) == 2
    assert "agent is in the snapshot and was not discovered" in str(caught.value)
    assert "tools2 was discovered and is not in the snapshot" in str(caught.value)
    assert tap.mutating() == []


@on_both_fences
@virtual_time
async def test_one_snapshot_is_restored_as_often_as_there_are_fresh_servers(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """Into new processes each time; into the same ones it fails, held closed, and an abort reopens them."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    for _ in range(2):
        fresh = Fleet(fence, restore_expected=True)
        async with fresh.controller(tmp_path) as controller:
            async with controller.restore("latest"):
                pass
            await goes_on(fresh)
    async with fresh.controller(tmp_path) as controller:
        await failed_restore(controller)
        await held_by(controller).abort()
        assert await fresh.everybody_accepts()


@on_both_fences
@virtual_time
async def test_an_abort_cannot_open_who_still_owes_a_restore(tmp_path: Path, fence: FenceVariant) -> None:
    """A resource server that expects a restore is named in doubt: restore it or restart it (F20)."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    network = fresh.transport()
    tap = Wiretap(network, instead=lambda call: REFUSED if call.route == ROUTES["tools"] else None)
    async with fresh.controller(tmp_path, transport=tap) as controller:
        await failed_restore(controller)
        held = held_by(controller)
        await held.abort()
        doubt = held.held()
        assert doubt is not None
        assert "main/tools: it still owes a restore" in str(doubt)
        assert held.owed() == (ParticipantKey("main", "tools"),)
        fresh.restore_expected = False
        fresh.restart("tools", network)
        with pytest.raises(HalfRestored) as caught:
            await controller.settle()
        assert set(caught.value.participants) == keys("agent", "policy")
        for name in ("agent", "policy"):
            fresh.restart(name, network)
        await controller.settle()
        assert controller.unsettled is None
        assert await fresh.everybody_accepts()


@virtual_time
async def test_a_restore_of_nothing_and_of_what_may_not_be_named(tmp_path: Path) -> None:
    """Refused before anybody is called; the labels that there are are named."""
    await saved(tmp_path)
    fresh = Fleet()
    tap = Wiretap(fresh.transport())
    async with fresh.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(SnapshotInvalid, match="step-1"):
            await controller.restore("step-9").__aenter__()
        for name in ("../x", "", "a b", "a" * 129):
            with pytest.raises(ConfigurationError):
                await controller.restore(name).__aenter__()
        assert controller.unsettled is None
        async with controller.cut("step-2"):
            pass
    assert not [call for call in tap.mutating() if call.route.endswith("restore")]


@on_both_fences
@pytest.mark.parametrize("name", ORDER)
@virtual_time
async def test_who_is_restarted_after_it_was_restored_is_not_opened_empty(
    tmp_path: Path, fence: FenceVariant, name: str
) -> None:
    """Its rollouts would be lost in silence: everybody stays closed, it is named, and an abort is what is left."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence)
    network = fresh.transport()
    tap = Wiretap(network)
    async with fresh.controller(tmp_path, transport=tap) as controller:
        restore = controller.restore("step-1")
        await restore.__aenter__()
        fresh.restart(name, network)
        with pytest.raises(RestoreFailed, match="not restored any more") as caught:
            await restore.__aexit__(None, None, None)
        assert set(caught.value.failed) == keys(name)
        assert set(caught.value.restored) == keys(*ORDER) - keys(name)
        assert not [call for call in tap.mutating() if call.route.endswith("resume")]
        await held_by(controller).abort()
        assert await fresh.everybody_accepts()


@on_both_fences
@virtual_time
async def test_who_failed_may_be_restarted_before_the_retry(tmp_path: Path, fence: FenceVariant) -> None:
    """A new incarnation is what the retry needs; whoever was restored already is not called again."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    network = fresh.transport()
    tap = Wiretap(network, instead=lambda call: REFUSED if call.route == ROUTES["tools"] else None)
    async with fresh.controller(tmp_path, transport=tap) as controller:
        await failed_restore(controller)
        fresh.restart("tools", network)
        tap.instead = lambda _call: None
        await held_by(controller).retry()
        await held_by(controller).resume()
        await goes_on(fresh)
    assert len(tap.to(ROUTES["policy"])) == 1


@on_both_fences
@virtual_time
async def test_continuations_that_are_not_wanted_are_discarded(tmp_path: Path, fence: FenceVariant) -> None:
    """Between restore and resume, named as they stood at the cut; the result says which go on and which do not."""
    await saved(tmp_path, fence)
    unwanted = AttemptId("r0", 0)
    fresh = Fleet(fence, restore_expected=True)
    tap = Wiretap(fresh.transport())
    async with fresh.controller(tmp_path, transport=tap) as controller:
        async with controller.restore("step-1") as restored:
            assert list(restored.rollouts) == [unwanted]
            with pytest.raises(ConfigurationError, match="other attempt 3 is not in snapshot"):
                await restored.discard([unwanted, AttemptId("other", 3)])
            assert tap.to(DISCARD) == []
            assert await restored.discard([unwanted, unwanted]) == (unwanted,)
            assert await restored.discard([unwanted]) == ()
            assert list(restored.rollouts) == []
        assert restored.result.discarded == (unwanted,)
        assert restored.result.rollouts == ()
        with pytest.raises(ConfigurationError, match="between restore and resume"):
            await restored.discard([unwanted])
    assert fresh.runs.restored() == ()
    assert tap.to(DISCARD)[0].body["attempt_index"] == 1
    assert await fresh.everybody_accepts()


@virtual_time
async def test_a_discard_that_fails_leaves_the_restore_as_it_is(tmp_path: Path) -> None:
    """A lost reply is asked for again; a refusal is raised and may be tried again."""
    await saved(tmp_path)
    fresh = Fleet(restore_expected=True)
    lost = ScriptedFaults({("main/agent", f"POST /ng-control/v1/{DISCARD}", 1): Fault(FaultKind.REPLY_LOST)})
    tap = Wiretap(FaultyTransport(fresh.transport(), lost))
    async with fresh.controller(tmp_path, transport=tap) as controller:
        async with controller.restore("step-1") as restored:
            tap.instead = lambda call: REFUSED if call.route == DISCARD else None
            with pytest.raises(ControlRequestError, match="ledger_mismatch"):
                await restored.discard(restored.rollouts)
            tap.instead = lambda _call: None
            await restored.discard(restored.rollouts)
        assert restored.result.discarded == (AttemptId("r0", 0),)
    assert await fresh.everybody_accepts()
