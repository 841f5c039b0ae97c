"""After the abort of a broken restore: whoever holds a part of the snapshot is remembered, and not cut over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from support.fleet import FENCES, Fleet
from support.virtual_loop import virtual_time
from support.wiretap import Wiretap

from quiesce.controller import Controller, HalfRestored
from quiesce.controller.housekeeping import applied_retention, prune_root
from quiesce.controller.recovery import find_unfinished
from quiesce.controller.standing import half_restored
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.dialects.gym_a import INSTANCE_HEADER
from quiesce.participants.identity import AttemptId
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.port import ControlReply, ControlRequest, Transport

AGENT, POLICY = ParticipantKey("main", "agent"), ParticipantKey("main", "policy")
REFUSED: Final = ControlReply(
    409, {"content-type": "application/json"}, b'{"error":{"code":"agent_checkpoint_error","detail":"no"}}'
)
on_both_fences = pytest.mark.parametrize("fence", FENCES)


async def saved(root: Path, fence: FenceVariant) -> str:
    """A snapshot with a rollout and a session in it; its wire id."""
    fleet = Fleet(fence)
    rollout = fleet.rollout("r0", 40)
    await fleet.seed_session("r0")
    await fleet.clock.sleep(3.5)
    async with fleet.controller(root) as controller, controller.cut("step-1") as cut:
        pass
    rollout.cancel()
    await asyncio.gather(rollout, return_exceptions=True)
    return cut.wire_id


async def aborted_half_way(
    root: Path, fence: FenceVariant, *, is_nameless: bool = False
) -> tuple[Fleet, AsgiTransport, str]:
    """Servers of which the policy was restored when the agent refused; aborted by the next controller."""
    fresh = Fleet(fence)
    network = fresh.transport()
    seen: Transport = Nameless(network) if is_nameless else network
    tap = Wiretap(seen, instead=lambda call: REFUSED if call.route == "agent-checkpoint/restore" else None)
    async with fresh.controller(root, transport=tap) as controller:
        with pytest.raises(ExceptionGroup):
            await controller.restore("step-1").__aenter__()
    controller = fresh.controller(root, transport=seen)
    await controller.recover()
    aborted = await controller.abort()
    await controller.close()
    assert aborted.to_restart == (AGENT, POLICY)
    assert aborted.wire_id is not None
    assert await fresh.everybody_accepts()
    return fresh, network, aborted.wire_id


async def refuses(controller: Controller, tap: Wiretap, *who: ParticipantKey) -> None:
    """No cut begins: these are named, and nobody is paused."""
    with pytest.raises(HalfRestored, match="restart them") as caught:
        await controller.cut("step-2").__aenter__()
    assert set(caught.value.participants) == set(who)
    # but for the question whether it waits for a restore, which a recovery asks under an id that is over
    assert {call.route for call in tap.mutating()} <= {"resources-checkpoint/resume"}


@on_both_fences
@virtual_time
async def test_every_later_controller_refuses_a_cut_until_all_were_restarted(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """By its journal, also where one of them was restarted; what it was to be restored from stays."""
    source = await saved(tmp_path, fence)
    fresh, network, wire_id = await aborted_half_way(tmp_path, fence)
    for _ in range(2):
        tap = Wiretap(network)
        async with fresh.controller(tmp_path, transport=tap) as controller:
            (recovered,) = controller.recovered
            assert not recovered.is_settled
            assert "main/agent, main/policy" in recovered.what
            await refuses(controller, tap, AGENT, POLICY)
    pruned = await prune_root(tmp_path, keep=1)
    assert source in pruned.failed[wire_id]
    fresh.restart("agent", network)
    tap = Wiretap(network)
    async with fresh.controller(tmp_path, transport=tap) as controller:
        await refuses(controller, tap, POLICY)
    (account,) = find_unfinished(controller._files, controller.store.layout)
    assert account.to_json()["to_restart"] == ["main/policy"]
    instances = {POLICY: fresh.apps["policy"].instance}
    assert half_restored(account, instances) is not None
    fresh.restart("policy", network)
    assert half_restored(account, {POLICY: fresh.apps["policy"].instance}) is None
    async with fresh.controller(tmp_path, transport=network) as controller:
        assert controller.unsettled is None
        async with controller.cut("step-2"):
            pass
    assert find_unfinished(controller._files, controller.store.layout) == ()


@on_both_fences
@virtual_time
async def test_they_can_be_given_up_by_name_which_is_written_down(tmp_path: Path, fence: FenceVariant) -> None:
    """One by one; the next controller knows."""
    await saved(tmp_path, fence)
    fresh, network, _ = await aborted_half_way(tmp_path, fence)
    tap = Wiretap(network)
    async with fresh.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(HalfRestored):
            await controller.settle(give_up=[AGENT])
        await refuses(controller, tap, POLICY)
    async with fresh.controller(tmp_path, transport=network) as controller:
        await controller.settle(give_up=[POLICY])
        async with controller.cut("step-2"):
            pass
    async with fresh.controller(tmp_path, transport=network) as controller:
        assert controller.recovered == ()


@dataclass
class Nameless:
    """A network behind which nobody names its incarnation, as with servers that are not of the kit."""

    inner: Transport

    async def send(self, request: ControlRequest) -> ControlReply:
        reply = await self.inner.send(request)
        return replace(reply, headers={name: text for name, text in reply.headers.items() if name != INSTANCE_HEADER})

    async def aclose(self) -> None:
        await self.inner.aclose()


@on_both_fences
@virtual_time
async def test_another_restore_takes_its_place_also_where_nobody_shows_a_restart(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """They are named although they were restarted, and told why; restored anew they are whole."""
    await saved(tmp_path, fence)
    fresh, network, first = await aborted_half_way(tmp_path, fence, is_nameless=True)
    for name in ("policy", "agent", "tools"):
        fresh.restart(name, network)
    tap = Wiretap(Nameless(network))
    async with fresh.controller(tmp_path, transport=tap) as controller:
        await refuses(controller, tap, AGENT, POLICY)
        async with controller.restore("step-1") as restored:
            pass
        assert restored.wire_id != first
        assert list(fresh.states) == [AttemptId("r0", 1)]
        async with controller.cut("step-2"):
            pass
    assert find_unfinished(controller._files, controller.store.layout) == ()


@pytest.mark.parametrize("left", ["emptied", "folder", "link"])
@virtual_time
async def test_what_is_left_of_a_restores_journal_keeps_its_snapshot(tmp_path: Path, left: str) -> None:
    """Whatever prunes: it names the journal, and removes no snapshot; of a cut's journal that is only named."""
    source = await saved(tmp_path, FenceVariant.STRICT)
    fleet = Fleet(FenceVariant.STRICT)
    async with fleet.controller(tmp_path) as controller, controller.cut("step-2"):
        pass
    store = controller.store
    for wire_id in ("restore-step-1-00000001", "cut-00000001"):
        path = store.layout.journal(wire_id)
        if left == "emptied":
            path.write_bytes(b"")
        elif left == "folder":
            path.mkdir()
        else:
            path.symlink_to(tmp_path)
    pruned = await prune_root(tmp_path, keep=1)
    assert set(pruned.failed) == {"restore-step-1-00000001"}
    assert "quiesce abort restore-step-1-00000001" in pruned.failed["restore-step-1-00000001"]
    notes = await applied_retention(store, "step-2", 1, None)
    assert any("restore-step-1-00000001" in note for note in notes)
    assert source in [entry.wire_id for entry in store.list()]
    path = store.layout.journal("restore-step-1-00000001")
    path.rmdir() if left == "folder" else path.unlink()
    assert (await prune_root(tmp_path, keep=1)).removed == (source,)
