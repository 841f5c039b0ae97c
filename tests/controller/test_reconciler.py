"""Who is in doubt is looked for in the background, resumed once it answers, and remembered over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from support.fleet import FENCES, Fleet
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, InDoubt
from quiesce.controller.discovery import DiscoveryFailed
from quiesce.controller.files import LocalFiles
from quiesce.controller.recovery import find_unfinished
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError
from quiesce.transport.inprocess import AsgiTransport

TOOLS: Final = ParticipantKey("main", "tools")
STEP_S: Final = 12.0
"""One back-off step, and what a resume and its proof take."""
on_both_fences = pytest.mark.parametrize("fence", FENCES)


async def in_doubt(controller: Controller, network: AsgiTransport, tap: Wiretap) -> None:
    """A cut of which the resource server has not heard that it is over."""

    def die(call: TappedCall) -> None:
        if call.route == "resources-checkpoint/resume" and not call.is_question:
            network.unmount("http://tools")

    tap.instead = die
    with pytest.raises(InDoubt, match="main/tools"):
        async with controller.cut("first"):
            pass
    tap.instead = lambda _call: None


@on_both_fences
@virtual_time
async def test_whoever_comes_back_is_resumed_within_one_step(tmp_path: Path, fence: FenceVariant) -> None:
    """Nobody asks for it; before that no cut begins, and the journal does not grow while nobody answers (F-22)."""
    fleet = Fleet(fence)
    network = fleet.transport()
    tap = Wiretap(network)
    async with fleet.controller(tmp_path, transport=tap, release_timeout_s=20.0) as controller:
        await in_doubt(controller, network, tap)
        held = controller.unsettled
        assert held is not None
        journal = controller.store.layout.journal(held.wire_id)
        size = journal.stat().st_size
        await fleet.clock.sleep(600.0)
        assert journal.stat().st_size == size
        with pytest.raises(InDoubt, match="main/tools"):
            await controller.cut("second").__aenter__()
        network.mount("http://tools", fleet.apps["tools"])
        await fleet.clock.sleep(STEP_S)
        assert controller.unsettled is None
        assert await fleet.everybody_accepts()
        async with controller.cut("third"):
            pass


@on_both_fences
@virtual_time
async def test_a_controller_that_is_opened_again_looks_after_it_as_well(tmp_path: Path, fence: FenceVariant) -> None:
    """Closed and opened once more it is as new; opened while it is open it is refused, and nothing is lost."""
    fleet = Fleet(fence)
    network = fleet.transport()
    tap = Wiretap(network)
    controller = fleet.controller(tmp_path, transport=tap, release_timeout_s=20.0)
    async with controller:
        pass
    async with controller:
        await in_doubt(controller, network, tap)
        with pytest.raises(ConfigurationError, match="open already"):
            await controller.open()
        network.mount("http://tools", fleet.apps["tools"])
        await fleet.clock.sleep(STEP_S)
        assert controller.unsettled is None
        assert await fleet.everybody_accepts()


@on_both_fences
@virtual_time
async def test_the_next_controller_goes_on_looking(tmp_path: Path, fence: FenceVariant) -> None:
    """It was closed in between, and so was the one after it: what is owed stands in the journal."""
    fleet = Fleet(fence)
    network = fleet.transport()
    tap = Wiretap(network)
    async with fleet.controller(tmp_path, transport=tap, release_timeout_s=20.0) as first:
        await in_doubt(first, network, tap)
    with pytest.raises(DiscoveryFailed) as failed:
        await fleet.controller(tmp_path, transport=tap, release_timeout_s=20.0).open()
    assert any("main/tools" in note and "in doubt" in note for note in failed.value.__notes__)
    # its control routes answer, and its resume does not: it can be opened, and stays owed
    network.mount("http://tools", fleet.apps["tools"])
    is_deaf = True

    def refuse(call: TappedCall) -> None:
        if is_deaf and call.route == "resources-checkpoint/resume" and not call.is_question:
            raise ConnectionError

    tap.instead = refuse
    async with fleet.controller(tmp_path, transport=tap, release_timeout_s=20.0) as controller:
        assert [one.state for one in controller.recovered] == ["in_doubt_published"]
        with pytest.raises(InDoubt, match="main/tools"):
            await controller.cut("second").__aenter__()
        is_deaf = False
        await fleet.clock.sleep(400.0)
        assert controller.unsettled is None
    assert await fleet.everybody_accepts()
    assert find_unfinished(LocalFiles(), controller.store.layout) == ()


@virtual_time
async def test_who_is_gone_for_good_is_given_up_by_name(tmp_path: Path) -> None:
    """Only whoever is owed something; then cuts begin again, over those who are left, also after a restart."""
    fleet = Fleet()
    network = fleet.transport()
    tap = Wiretap(network)
    async with fleet.controller(tmp_path, transport=tap, release_timeout_s=20.0) as controller:
        await in_doubt(controller, network, tap)
        with pytest.raises(ConfigurationError, match="main/agent: nothing is owed"):
            await controller.settle(give_up=[ParticipantKey("main", "agent")])
        await controller.settle(give_up=[TOOLS])
        assert controller.unsettled is None
    del fleet.apps["tools"]
    async with fleet.controller(tmp_path, transport=tap) as controller:
        assert controller.recovered == ()
        async with controller.cut("second"):
            pass


@virtual_time
async def test_who_was_restarted_to_wait_for_a_restore_is_owed_nothing(tmp_path: Path) -> None:
    """Everything was killed in the middle of a cut, and fresh servers wait for a restore: it can begin."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("base"):
        pass
    network = fleet.transport()
    async with fleet.controller(tmp_path, transport=network) as dead:
        cut = await dead.begin_cut("first")
        await cut.prepare()
        await cut.close()
        dead._turns.running = None
    fresh = Fleet(restore_expected=True)
    async with fresh.controller(tmp_path) as controller:
        (recovered,) = controller.recovered
        assert controller.unsettled is None
        assert recovered.waiting == (TOOLS,)
        assert list(recovered.to_json()["excused"]) == ["main/tools"]  # type: ignore[call-overload]  # a JSON object
        async with controller.restore("base"):
            pass
    assert await fresh.everybody_accepts()
