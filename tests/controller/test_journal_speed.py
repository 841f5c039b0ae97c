"""A slow journal: the pause grows by its barriers' syncs and by nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from support.fleet import FENCES, Fleet
from support.virtual_loop import virtual_time

from quiesce.controller import CutResult
from quiesce.controller.journal import JournalFile
from quiesce.controller.records import JournalRecord
from quiesce.fsm.tables.fence import FenceVariant

SYNC_S: Final = 0.02


class SlowJournal:
    """Each barrier takes 20 ms longer; what is no barrier is as fast as ever, since nobody waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, delay_s: float) -> None:
        self.barriers = 0
        self.records = 0
        real = JournalFile.append

        async def append(journal: JournalFile, record: JournalRecord, *, barrier: bool) -> None:
            self.records += 1
            if barrier:
                self.barriers += 1
                await asyncio.sleep(delay_s)
            await real(journal, record, barrier=barrier)

        monkeypatch.setattr(JournalFile, "append", append)


async def one_cut(root: Path, fence: FenceVariant) -> CutResult:
    """A cut over idle servers, whose calls take no time at all."""
    fleet = Fleet(fence)
    async with fleet.controller(root) as controller, controller.cut("first") as cut:
        pass
    return cut.result


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_the_pause_grows_by_the_barriers_alone(
    tmp_path: Path, fence: FenceVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each wave of prepares and one for the decision, however many participants and records there are."""
    quick = await one_cut(tmp_path / "quick", fence)
    slow = SlowJournal(monkeypatch, SYNC_S)
    paused = await one_cut(tmp_path / "slow", fence)
    assert slow.records > 40
    assert slow.barriers == 4
    # the first one ends before anybody is paused
    grown_s = paused.timings.paused_s - quick.timings.paused_s
    assert grown_s == pytest.approx(slow.barriers * SYNC_S, abs=SYNC_S)
    assert paused.timings.total_s - quick.timings.total_s == pytest.approx(slow.barriers * SYNC_S)


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_restore_waits_as_often(tmp_path: Path, fence: FenceVariant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each wave of imports, and once before it is released."""
    await one_cut(tmp_path, fence)
    slow = SlowJournal(monkeypatch, SYNC_S)
    async with Fleet(fence, restore_expected=True).controller(tmp_path) as controller, controller.restore("first"):
        pass
    assert slow.barriers == 4
