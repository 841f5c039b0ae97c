"""A resource server that waits for a restore: nothing is ever published from it, and it is named (F20)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import RestoreOwed
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.transport.faults import CallSite, Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply

TOOLS = ParticipantKey("main", "tools")
ASKED = "resources-checkpoint/resume"
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
