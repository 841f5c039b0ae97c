"""One controller a root: who is alive keeps it, who stood still loses it, and a zombie finds out before it acts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fleet import Fleet
from support.virtual_loop import VirtualClock, run_virtual, virtual_time
from support.wiretap import Wiretap

from quiesce.controller.epoch import BEAT_S, BEATS_MISSED_MAX, Tenure, highest_epoch, read_holder
from quiesce.controller.errors import RootHeld, Superseded
from quiesce.controller.files import LocalFiles
from quiesce.controller.root_layout import RootLayout

FILES = LocalFiles()


async def acquire(root: Path, skew_s: float = 0.0) -> Tenure:
    """One controller tries to take the root; its wall clock may be off."""
    return await Tenure.acquire(FILES, RootLayout(root), VirtualClock(skew_s=skew_s))


async def freeze(tenure: Tenure) -> None:
    """The process stands still: no more beats."""
    assert tenure._beating is not None
    tenure._beating.cancel()
    await asyncio.gather(tenure._beating, return_exceptions=True)


@virtual_time
async def test_a_fresh_root_is_taken_at_once(tmp_path: Path) -> None:
    """Nobody to wait for."""
    tenure = await acquire(tmp_path)
    assert VirtualClock().monotonic() == 0
    assert tenure.epoch == 1
    tenure.check()
    await tenure.release()


@virtual_time
async def test_a_released_root_is_taken_at_once(tmp_path: Path) -> None:
    """A controller that ended in good order leaves no wait behind."""
    await (await acquire(tmp_path)).release()
    began_s = VirtualClock().monotonic()
    second = await acquire(tmp_path)
    assert VirtualClock().monotonic() == began_s
    assert second.epoch == 2
    await second.release()


@pytest.mark.parametrize("skew_s", [0.0, -86400.0, 86400.0])
@virtual_time
async def test_a_live_holder_is_never_replaced_whatever_the_clocks_say(tmp_path: Path, skew_s: float) -> None:
    """Liveness is that its file changes, seen on the watcher's own clock."""
    first = await acquire(tmp_path)
    with pytest.raises(RootHeld, match="another controller that is alive"):
        await acquire(tmp_path, skew_s)
    first.check()
    await first.release()


@virtual_time
async def test_a_holder_that_stands_still_is_replaced_after_three_beats(tmp_path: Path) -> None:
    """Neither earlier nor much later."""
    first = await acquire(tmp_path)
    await freeze(first)
    began_s = VirtualClock().monotonic()
    second = await acquire(tmp_path)
    assert VirtualClock().monotonic() - began_s == pytest.approx(BEAT_S * BEATS_MISSED_MAX)
    with pytest.raises(Superseded, match="epoch 2, this one had 1"):
        first.check()
    second.check()
    await second.release()


@virtual_time
async def test_a_zombie_that_writes_once_more_changes_nothing_for_its_successor(tmp_path: Path) -> None:
    """The one beat that was under way at the take-over goes into the zombie's own folder."""
    first = await acquire(tmp_path)
    await freeze(first)
    second = await acquire(tmp_path)
    FILES.make_directory(RootLayout(tmp_path).holder(1).parent)
    first._write()
    second.check()
    assert highest_epoch(FILES, RootLayout(tmp_path)) == 2
    await first.release()
    second.check()
    await second.release()


@given(delays=st.lists(st.floats(0, 6), min_size=2, max_size=5))
def test_of_controllers_that_start_in_any_order_at_most_one_holds_the_root(
    tmp_path_factory: pytest.TempPathFactory, delays: list[float]
) -> None:
    """Started at once or one after the other onto a dead holder: one gets it, the others are told."""
    root = tmp_path_factory.mktemp("root")

    async def scenario() -> None:
        await freeze(await acquire(root))

        async def start(delay_s: float) -> Tenure | RootHeld:
            await asyncio.sleep(delay_s)
            try:
                return await acquire(root)
            except RootHeld as held:
                return held

        found = await asyncio.gather(*(start(delay_s) for delay_s in delays))
        holders = [tenure for tenure in found if isinstance(tenure, Tenure)]
        assert len(holders) == 1
        holders[0].check()
        await holders[0].release()

    run_virtual(scenario())


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 40, b'{"beat": 1}', b"[]", b"\xff"])
@virtual_time
async def test_a_damaged_holder_file_is_somebody_who_stands_still(tmp_path: Path, content: bytes) -> None:
    """It cannot be believed, so it is watched as long as anybody, and then taken over."""
    first = await acquire(tmp_path)
    await freeze(first)
    RootLayout(tmp_path).holder(1).write_bytes(content)
    assert read_holder(FILES, RootLayout(tmp_path), 1) is None
    second = await acquire(tmp_path)
    assert second.epoch == 2
    await second.release()


@virtual_time
async def test_a_second_controller_on_a_root_is_refused_before_it_calls_anybody(tmp_path: Path) -> None:
    """And takes over at once when the first one has ended in good order."""
    fleet = Fleet()
    async with fleet.controller(tmp_path):
        tap = Wiretap(fleet.transport())
        with pytest.raises(RootHeld, match="another controller that is alive"):
            await fleet.controller(tmp_path, transport=tap).open()
        assert tap.calls == []
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1"):
        pass
    assert await fleet.everybody_accepts()


@virtual_time
async def test_a_controller_that_was_taken_over_does_nothing_more(tmp_path: Path) -> None:
    """It stood still inside its cut; its successor finishes that, and what the first one still wants is not done."""
    fleet = Fleet()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as stopped:
        cut = await stopped.cut("step-1").__aenter__()
        assert stopped._tenure is not None
        await freeze(stopped._tenure)
        calls = len(tap.calls)
        async with fleet.controller(tmp_path) as successor:
            assert [(one.account.wire_id, one.state) for one in successor.recovered] == [(cut.wire_id, "aborted")]
            assert successor.unsettled is None
            assert await fleet.everybody_accepts()
            with pytest.raises(Superseded):
                await cut.__aexit__(None, None, None)
            with pytest.raises(Superseded):
                await stopped.cut("step-2").__aenter__()
            assert len(tap.calls) == calls
            assert successor.store.list() == ()
            async with successor.cut("step-2"):
                pass
    assert await fleet.everybody_accepts()
