"""The root is removed or moved away under a live controller: no take-over, so it reopens whomever it holds.

It is lost at each call that changes something, as a whole or in part, with and without somebody who begins anew in its
place, whose epochs begin at 1 again.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, MutableMapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pytest
import structlog
from structlog.testing import capture_logs
from support.fleet import FENCES, Fleet
from support.virtual_loop import VirtualClock, run_virtual, virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, RestoreFailed, StorageFailed, Superseded
from quiesce.controller.epoch import BEAT_S, Tenure, read_holder
from quiesce.controller.files import LocalFiles
from quiesce.controller.request_watch import LOOK_S
from quiesce.controller.root_layout import RootLayout
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import ControlRequestError
from quiesce.transport.port import ControlReply

FILES: Final = LocalFiles()
Logged = list[MutableMapping[str, Any]]
on_both_fences = pytest.mark.parametrize("fence", FENCES)


@pytest.fixture
def logged(quick_and_quiet: None) -> Iterator[Logged]:
    """Every warning and error that is logged."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with capture_logs() as entries:
        yield entries


class Lost(StrEnum):
    """What is gone."""

    EPOCH = "the folder of the epochs"
    CLAIMS = "all that is in the folder of the epochs"
    STATE = "all but the snapshots"
    ROOT = "the root"
    FIRST_AGAIN = "the root, and another controller begins anew there"
    SECOND_AGAIN = "the root, and the second controller is alive in a new one"


def lose(root: Path, lost: Lost) -> None:
    """Remove it, or move it away."""
    layout = RootLayout(root)
    match lost:
        case Lost.EPOCH:
            shutil.rmtree(layout.epochs)
        case Lost.CLAIMS:
            for path in layout.epochs.iterdir():
                shutil.rmtree(path)
        case Lost.STATE:
            shutil.rmtree(root / ".quiesce")
        case Lost.ROOT | Lost.FIRST_AGAIN | Lost.SECOND_AGAIN:
            root.rename(root.with_name("gone"))
    for number in range(1, {Lost.FIRST_AGAIN: 1, Lost.SECOND_AGAIN: 2}.get(lost, 0) + 1):
        assert Tenure(FILES, layout, VirtualClock(), number)._claim()


async def cut_over(controller: Controller) -> None:
    """A cut with a trainer's part."""
    async with controller.cut("first") as cut:
        (cut.directory / "trainer" / "weights").write_text("w")


async def lost_at(root: Path, fence: FenceVariant, lost: Lost, nth: int) -> int:
    """A cut whose root is lost when its nth call that changes something leaves; how many of those there were."""
    fleet = Fleet(fence)
    await fleet.seed_session("r0")
    calls = 0

    def count(call: TappedCall) -> ControlReply | None:
        nonlocal calls
        if call.request.method == "POST" and not call.is_question:
            calls += 1
            if calls == nth:
                lose(root, lost)
        return None

    controller = fleet.controller(root, transport=Wiretap(fleet.transport(), instead=count))
    told: BaseException | None = None
    try:
        async with controller:
            await cut_over(controller)
    except (QuiesceError, ExceptionGroup, FileNotFoundError) as error:  # the last of the trainer's own, in the body
        told = error
    assert not isinstance(told, Superseded)
    assert await fleet.everybody_accepts()
    assert nth == 0 or "taken over" not in str(told)
    published = list(root.parent.glob("*/snapshots/*/MANIFEST.json"))
    assert (told is None) == bool(published)
    return calls


@pytest.mark.parametrize("lost", Lost)
@on_both_fences
def test_whoever_is_held_when_the_root_is_lost_is_reopened(tmp_path: Path, fence: FenceVariant, lost: Lost) -> None:
    """Before the snapshot is published nothing is; afterwards it stands. Either way everybody accepts work."""
    calls = run_virtual(lost_at(tmp_path / "clean" / "root", fence, lost, 0))
    assert calls >= 9
    for nth in range(1, calls + 1):
        try:
            run_virtual(lost_at(tmp_path / str(nth) / "root", fence, lost, nth))
        except BaseException as error:
            error.add_note(f"lost at call {nth}: {lost}")
            raise


@pytest.mark.parametrize("lost", Lost)
@virtual_time
async def test_the_error_says_that_the_root_is_lost(tmp_path: Path, lost: Lost) -> None:
    """In the middle of the body: nobody is to blame but the storage, and nothing is published."""
    fleet = Fleet()
    root = tmp_path / "root"
    async with fleet.controller(root) as controller:
        cut = controller.cut("first")
        await cut.__aenter__()
        lose(root, lost)
        with pytest.raises(StorageFailed, match=r"not there any more|removed, moved away") as caught:
            await cut.__aexit__(None, None, None)
        assert "main/" not in str(caught.value)
        assert await fleet.everybody_accepts()
        assert controller.unsettled is None
        with pytest.raises(StorageFailed):
            await controller.cut("second").__aenter__()
    assert not list(tmp_path.glob("*/snapshots/*/MANIFEST.json"))  # noqa: ASYNC240 - a test of one task


@pytest.mark.parametrize("lost", Lost)
@virtual_time
async def test_a_restore_whose_root_is_lost_stays_closed_and_is_named(tmp_path: Path, lost: Lost) -> None:
    """Nobody works on half a restore; whoever holds it is told, and no other controller is said to have it."""
    root = tmp_path / "root"
    fleet = Fleet()
    async with fleet.controller(root) as controller:
        await cut_over(controller)
    for name in ("policy", "agent", "tools"):
        fleet.restart(name)

    def count(call: TappedCall) -> ControlReply | None:
        if call.route.endswith("agent-checkpoint/restore") and not (root.with_name("gone")).exists():
            lose(root, lost)
        return None

    controller = fleet.controller(root, transport=Wiretap(fleet.transport(), instead=count))
    async with controller:
        with pytest.raises((RestoreFailed, ExceptionGroup)) as caught:
            async with controller.restore("first"):
                pass
        errors = getattr(caught.value, "exceptions", (caught.value,))
        assert {type(error) for error in errors} <= {RestoreFailed, StorageFailed, ControlRequestError}
        assert controller.unsettled is not None
        assert isinstance(controller.unsettled.held(), RestoreFailed)
        assert not await fleet.everybody_accepts()
        await controller.abort()
        assert await fleet.everybody_accepts()


@virtual_time
async def test_a_controller_that_lost_its_root_leaves_the_one_that_began_anew_alone(tmp_path: Path) -> None:
    """Its beats and its end are not written into the file of whoever has the same number in another root."""
    root = tmp_path / "root"
    layout = RootLayout(root)
    old = await Tenure.acquire(FILES, layout, VirtualClock())
    lose(root, Lost.FIRST_AGAIN)
    before = read_holder(FILES, layout, 1)
    await VirtualClock().sleep(BEAT_S * 2)
    await old.release()
    assert read_holder(FILES, layout, 1) == before
    with pytest.raises(StorageFailed):
        old.check()


@virtual_time
async def test_a_root_of_before_there_was_a_mark_gets_one(tmp_path: Path) -> None:
    """And keeps it from then on."""
    layout = RootLayout(tmp_path)

    def marks() -> list[str]:
        return [path.name for path in layout.epochs.iterdir() if not path.name.isdecimal()]

    layout.holder(1).parent.mkdir(parents=True)
    made: list[Callable[[], None]] = []
    for _ in range(2):
        tenure = await Tenure.acquire(FILES, layout, VirtualClock())
        tenure.check()
        made.append(tenure.check)
        await tenure.release()
    assert len(marks()) == 1
    with pytest.raises(Superseded):
        made[0]()


@virtual_time
async def test_a_controller_that_was_taken_over_blames_no_file_system(tmp_path: Path, logged: Logged) -> None:
    """Its request spool is gone with its tenure, which is nothing that anybody could mend."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as zombie:
        assert Tenure(FILES, RootLayout(tmp_path), VirtualClock(), 2)._claim()
        shutil.rmtree(RootLayout(tmp_path).requests / "1")
        await fleet.clock.sleep(LOOK_S * 4)
        with pytest.raises(Superseded):
            await zombie.cut("first").__aenter__()
    assert "request_ignored" not in [entry["event"] for entry in logged]


@virtual_time
async def test_a_controller_that_lost_its_root_while_it_was_idle_says_so_once(tmp_path: Path, logged: Logged) -> None:
    """It names the root that is gone, not the spool in it."""
    fleet = Fleet()
    root = tmp_path / "root"
    async with fleet.controller(root):
        lose(root, Lost.ROOT)
        await fleet.clock.sleep(LOOK_S * 4)
    (told,) = [entry["why"] for entry in logged if entry["event"] == "request_ignored"]
    assert "root that this controller took" in told
