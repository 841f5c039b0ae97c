"""A resource server that waits for a restore: nothing is ever published from it, and it is named (F20)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import PhasedRestore, RestoreFailed, RestoreOwed
from quiesce.controller.journal import read_journal
from quiesce.controller.recovery import account_of
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.identity import AttemptId
from quiesce.transport.faults import CallSite, Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.port import ControlReply

TOOLS = ParticipantKey("main", "tools")
ASKED = "resources-checkpoint/resume"
ORDER = ("policy", "agent", "tools")
RESTORES = {
    "policy": "model-checkpoint/restore",
    "agent": "agent-checkpoint/restore",
    "tools": "resources-checkpoint/restore",
}
JSON = {"content-type": "application/json"}
on_both_fences = pytest.mark.parametrize("fence", FENCES)


async def saved(root: Path, fence: FenceVariant) -> str:
    """A snapshot with a session in it; its wire id."""
    fleet = Fleet(fence)
    await fleet.seed_session("r0")
    async with fleet.controller(root) as controller, controller.cut("step-1") as cut:
        pass
    return cut.wire_id


@on_both_fences
@virtual_time
async def test_no_cut_goes_over_who_waits_for_a_restore(tmp_path: Path, fence: FenceVariant) -> None:
    """It is named before anybody is paused, with what to do; nothing is published; restored, it can be cut."""
    wire_id = await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    tap = Wiretap(fresh.transport())
    async with fresh.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(RestoreOwed, match=r"main/tools waits for a restore.*quiesce restore") as caught:
            await controller.cut("step-2").__aenter__()
        assert caught.value.participant == TOOLS
        assert tap.mutating() == []
        assert controller.unsettled is None
        assert [entry.wire_id for entry in controller.store.list()] == [wire_id]
        assert fresh.apps["tools"].fence.state.closed
        async with controller.restore("step-1"):
            pass
        assert await fresh.everybody_accepts()
        async with controller.cut("step-2"):
            pass
        assert len(controller.store.load("step-2").files) > 0


@on_both_fences
@virtual_time
async def test_who_waits_for_no_restore_is_asked_once_a_cut_and_stays_as_it_is(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """Under an id of its own, before anybody is paused; a restore does not ask at all."""
    fleet = Fleet(fence)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller:
        for label in ("step-1", "step-2"):
            async with controller.cut(label):
                pass
    questions = [call for call in tap.calls if call.is_question]
    assert [(call.site.participant, call.route) for call in questions] == [("main/tools", ASKED)] * 2
    assert questions[0].answered_s is not None
    assert questions[0].answered_s <= tap.mutating()[0].sent_s
    fresh = Fleet(fence, restore_expected=True)
    tap = Wiretap(fresh.transport())
    async with fresh.controller(tmp_path, transport=tap) as controller, controller.restore("step-2"):
        assert not [call for call in tap.calls if call.is_question]


@on_both_fences
@pytest.mark.parametrize("kind", [FaultKind.REQUEST_LOST, FaultKind.REPLY_LOST, FaultKind.RESENT])
@virtual_time
async def test_a_question_that_is_lost_is_asked_again(tmp_path: Path, fence: FenceVariant, kind: FaultKind) -> None:
    """The same id may be used twice: it only says again that somebody is open."""
    fleet = Fleet(fence)
    # the first of its kind is the probe of discovery
    site = CallSite("main/tools", f"POST /ng-control/v1/{ASKED}", 2)
    network = FaultyTransport(fleet.transport(), ScriptedFaults({site: Fault(kind)}))
    async with fleet.controller(tmp_path, transport=network) as controller:
        async with controller.cut("step-1"):
            pass
        assert len(controller.store.list()) == 1
    assert await fleet.everybody_accepts()


@on_both_fences
@pytest.mark.parametrize(
    "reply",
    [
        ControlReply(500, {"content-type": "text/html"}, b"<p>oh"),
        ControlReply(409, JSON, b'{"error":{"code":"invalid_phase","detail":"busy"}}'),
        ControlReply(401, JSON, b'{"detail":"no"}'),
        ControlReply(200, JSON, b'{"state":"paused"}'),
    ],
)
@virtual_time
async def test_an_answer_that_proves_nothing_pauses_nobody(
    tmp_path: Path, fence: FenceVariant, reply: ControlReply
) -> None:
    """The cut ends before it began, and the participant is named with what it said."""
    fleet = Fleet(fence)

    def instead(call: TappedCall) -> ControlReply | None:
        return reply if call.is_question else None

    tap = Wiretap(fleet.transport(), instead=instead)
    async with fleet.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(QuiesceError, match="main/tools"):
            await controller.cut("step-1").__aenter__()
        assert tap.mutating() == []
        assert controller.unsettled is None
        assert await fleet.everybody_accepts()


async def broken_off(root: Path, fresh: Fleet, network: AsgiTransport, at: str) -> str:
    """A restore whose controller goes away when the import of one participant was answered, and not written down."""
    tap = Wiretap(network)
    controller = fresh.controller(root, transport=tap)
    await controller.open()
    restore = await controller.begin_restore("step-1")
    left = asyncio.Event()
    tap.instead = lambda call: left.set() if call.route == RESTORES[at] else None
    restoring = asyncio.create_task(restore.restore())
    await left.wait()
    await restore.close()
    controller._turns.running = None
    await controller.close()
    restoring.cancel()
    await asyncio.gather(restoring, return_exceptions=True)
    return restore.wire_id


@on_both_fences
@pytest.mark.parametrize("at", ["policy", "agent", "tools"])
@virtual_time
async def test_a_restore_that_is_held_says_who_stands_where(tmp_path: Path, fence: FenceVariant, at: str) -> None:
    """By what everybody says now and, of whoever does not answer, by the journal; a retry helps, and is advised."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    network = fresh.transport()
    await broken_off(tmp_path, fresh, network, at)
    controller = fresh.controller(tmp_path, transport=network)
    (recovered,) = await controller.recover()
    await controller.close()
    held = recovered.phased.held() if recovered.phased is not None else None
    assert isinstance(held, RestoreFailed)
    reached = [ParticipantKey("main", name) for name in ORDER[: ORDER.index(at) + 1]]
    assert (set(held.restored), held.failed) == (set(reached), {})
    assert "recover --retry" in str(held)
    network.unmount("http://policy")
    controller = fresh.controller(tmp_path, transport=network)
    (recovered,) = await controller.recover()
    await controller.close()
    remembers = "no answer to it is recorded" if at == "policy" else "it was restored"
    assert f"by the journal {'its restore was asked for, and ' if at == 'policy' else ''}{remembers}" in recovered.what


@on_both_fences
@pytest.mark.parametrize("expects", [True, False])
@pytest.mark.parametrize("at", ["policy", "agent", "tools"])
@virtual_time
async def test_a_restore_of_which_nobody_holds_anything_is_remembered(
    tmp_path: Path, fence: FenceVariant, at: str, *, expects: bool
) -> None:
    """All were restarted, also such as expect no restore: no cut begins, over restarts, before it is restored anew."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    network = fresh.transport()
    wire_id = await broken_off(tmp_path, fresh, network, at)
    fresh.restore_expected = expects
    for name in ORDER:
        fresh.restart(name, network)
    for _ in range(2):
        async with fresh.controller(tmp_path, transport=network) as controller:
            (recovered,) = controller.recovered
            assert not recovered.is_settled
            assert "Nobody holds anything of it any more" in recovered.what
            with pytest.raises(RestoreFailed, match=rf"quiesce abort {wire_id}"):
                await controller.cut("step-2").__aenter__()
            assert len(controller.store.list()) == 1
    async with fresh.controller(tmp_path, transport=network) as controller:
        async with controller.restore("step-1") as restored:
            pass
        assert controller.unsettled is None
        assert list(fresh.states) == [AttemptId("r0", 1)]
        async with controller.cut("step-2"):
            pass
    async with fresh.controller(tmp_path, transport=network) as controller:
        assert controller.recovered == ()
    account = account_of(wire_id, read_journal(controller.store.layout.journal(wire_id)))
    assert account.is_over
    assert set(account.excused.values()) == {f"{restored.wire_id} took its place"}


@on_both_fences
@virtual_time
async def test_it_can_be_retried_or_given_up_by_name(tmp_path: Path, fence: FenceVariant) -> None:
    """A retry restores fresh servers under the old id. Given up, a cut is refused only for who waits for a restore."""
    for gives_up in (False, True):
        root = tmp_path / str(gives_up)
        root.mkdir()
        await saved(root, fence)
        fresh = Fleet(fence, restore_expected=True)
        network = fresh.transport()
        wire_id = await broken_off(root, fresh, network, "tools")
        for name in ORDER:
            fresh.restart(name, network)
        async with fresh.controller(root, transport=network) as controller:
            held = controller.unsettled
            assert isinstance(held, PhasedRestore)
            if gives_up:
                aborted = await controller.abort(wire_id)
                assert aborted.waiting == (TOOLS,)
                assert TOOLS not in aborted.to_restart
                assert controller.unsettled is None
                with pytest.raises(RestoreOwed):
                    await controller.cut("step-2").__aenter__()
            else:
                await held.retry()
                await held.resume()
                await controller.settle()
                assert list(fresh.states) == [AttemptId("r0", 1)]
                assert await fresh.everybody_accepts()


@on_both_fences
@virtual_time
async def test_a_second_restore_that_is_broken_off_takes_the_place_of_the_first(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """One is held in the end, and it is retried alone."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    network = fresh.transport()
    await broken_off(tmp_path, fresh, network, "agent")
    for name in ORDER:
        fresh.restart(name, network)
    second = await broken_off(tmp_path, fresh, network, "policy")
    async with fresh.controller(tmp_path, transport=network) as controller:
        held = controller.unsettled
        assert isinstance(held, PhasedRestore)
        assert held.wire_id == second
        await held.retry()
        await held.resume()
        await controller.settle()
        async with controller.cut("step-2"):
            pass


@on_both_fences
@virtual_time
async def test_a_recovery_names_who_waits_though_nobody_was_touched(tmp_path: Path, fence: FenceVariant) -> None:
    """The restore was broken off before its first call: it is over, and the server still refuses all work."""
    await saved(tmp_path, fence)
    fresh = Fleet(fence, restore_expected=True)
    network = fresh.transport()
    tap = Wiretap(network)
    controller = fresh.controller(tmp_path, transport=tap)
    await controller.open()
    restore = await controller.begin_restore("step-1")
    left = asyncio.Event()
    tap.instead = lambda call: left.set() if call.route == "capabilities" else None
    restoring = asyncio.create_task(restore.restore())
    await left.wait()
    await restore.close()
    controller._turns.running = None
    await controller.close()
    restoring.cancel()
    await asyncio.gather(restoring, return_exceptions=True)
    controller = fresh.controller(tmp_path, transport=network)
    (recovered,) = await controller.recover()
    await controller.close()
    assert recovered.state == "aborted"
    assert not recovered.is_settled
    assert recovered.to_json()["waiting"] == ["main/tools"]
    assert "main/tools waits for a restore" in recovered.what
