"""The storage fails during a cut: at any operation, at the decision, at the rename, in the journal."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from support.faulty_files import FaultyFiles
from support.fleet import FENCES, Fleet
from support.virtual_loop import run_virtual, virtual_time
from support.wiretap import Wiretap

from quiesce.controller import Controller, PhasedRestore, PublishUncertain, RestoreFailed, StorageFailed
from quiesce.controller.catalog import SnapshotState
from quiesce.controller.journal import read_journal
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.trace import TraceRecord

on_both_fences = pytest.mark.parametrize("fence", FENCES)


async def one_cut(controller: Controller) -> None:
    """A cut with a trainer's part."""
    async with controller.cut("first") as cut:
        (cut.directory / "trainer" / "weights").write_text("w")


async def run(root: Path, files: FaultyFiles) -> None:
    """A cut over a storage that fails once or from then on; whatever becomes of it, nobody stays closed."""
    fleet = Fleet()
    await fleet.seed_session("r0")
    told: list[TraceRecord] = []
    try:
        async with fleet.controller(root, files=files, observers=(told.append,)) as controller:
            await one_cut(controller)
        outcomes = [[SnapshotState.VALID]]
    except PublishUncertain:
        outcomes = [[SnapshotState.VALID], []]
    except (QuiesceError, ExceptionGroup) as error:
        outcomes = [[]] if only_storage(error) else []
    assert await fleet.everybody_accepts()
    async with fleet.controller(root) as controller:
        found = [entry.state for entry in controller.store.list() if entry.label == "first"]
        assert found in outcomes
        async with controller.cut("second"):
            pass
        assert controller.store.verify("second").is_good
    staged = list((root / ".quiesce" / "staging").iterdir())
    assert staged == [] or files.lasting


def only_storage(error: BaseException) -> bool:
    """Whether an error speaks of the storage alone: no participant is to blame."""
    if isinstance(error, BaseExceptionGroup):
        return all(only_storage(one) for one in error.exceptions)
    return isinstance(error, StorageFailed)


def operations(root: Path) -> int:
    """How many changing operations an undisturbed cut asks for."""
    files = FaultyFiles()
    run_virtual(run(root, files))
    return len(files.operations)


@pytest.mark.parametrize(("error", "lasting"), [(errno.EIO, False), (errno.ENOSPC, True)], ids=["once", "from then on"])
def test_a_fault_at_any_operation_leaves_everybody_open_and_nothing_half_published(
    tmp_path: Path, error: int, *, lasting: bool
) -> None:
    """Published whole or not at all; the error is the storage's, raised to the caller; the next cut works (F-36)."""
    count = operations(tmp_path / "clean")
    assert count > 40
    for number in range(1, count + 1):
        files = FaultyFiles(fail_at=number, error=error, lasting=lasting)
        try:
            run_virtual(run(tmp_path / str(number), files))
        except BaseException as failure:
            failure.add_note(f"at operation {number}: {files.operations[number - 1]}")
            raise


class BlindAtRename(FaultyFiles):
    """The rename that publishes raises, with or without effect, and then nothing can be read until it ``heals``."""

    def rename(self, source: Path, target: Path) -> None:
        if not target.name.startswith("first-") or self.blind:
            super().rename(source, target)
            return
        if self.takes_effect:
            super().rename(source, target)
        self.blind = True
        raise OSError(errno.EIO, "the mount is gone", str(target))


def _is_open(controller: Controller) -> bool:
    return controller.unsettled is not None


@on_both_fences
@pytest.mark.parametrize("takes_effect", [False, True], ids=["not published", "published"])
@virtual_time
async def test_a_rename_whose_outcome_cannot_be_read_is_settled_later(
    tmp_path: Path, fence: FenceVariant, *, takes_effect: bool
) -> None:
    """Everybody goes on at once, every file is kept; once it can be read it is what it is (F-45)."""
    fleet = Fleet(fence)
    files = BlindAtRename(takes_effect=takes_effect)
    async with fleet.controller(tmp_path, files=files) as controller:
        with pytest.raises(PublishUncertain):
            await one_cut(controller)
        assert await fleet.everybody_accepts()
        assert _is_open(controller)
        assert len(list(tmp_path.rglob("weights"))) == 1  # noqa: ASYNC240 - a test of one task
        with pytest.raises(PublishUncertain):
            await controller.cut("second").__aenter__()
        with pytest.raises(PublishUncertain):
            await controller.settle()
        files.blind = False
        if takes_effect:
            await controller.settle()
        else:
            await fleet.clock.sleep(10.0)  # it looks again by itself
        assert not _is_open(controller)
        async with controller.cut("second"):
            pass
        labels = {entry.label for entry in controller.store.list()}
        assert labels == ({"first", "second"} if takes_effect else {"second"})
        assert all(controller.store.verify(str(label)).is_good for label in labels)
    assert list((tmp_path / ".quiesce" / "staging").iterdir()) == []


@virtual_time
async def test_a_rename_that_raises_after_it_took_effect_is_recognised(tmp_path: Path) -> None:
    """The folder says that it is published, so it is (F-45)."""
    fleet = Fleet()
    counted = FaultyFiles()
    async with fleet.controller(tmp_path / "clean", files=counted) as controller:
        await one_cut(controller)
    number = next(n for n, name in enumerate(counted.operations, start=1) if name.startswith("rename first-"))
    files = FaultyFiles(fail_at=number, takes_effect=True)
    async with fleet.controller(tmp_path / "root", files=files) as controller:
        await one_cut(controller)
        assert controller.store.verify("first").is_good
    assert await fleet.everybody_accepts()


class FullJournal(FaultyFiles):
    """No record can be made durable while it is ``full``; everything else works."""

    full = False

    def _change(
        self, name: str, path: Path, effect: Callable[[], None], half: Callable[[], None] | None = None
    ) -> None:
        if self.full and path.suffix == ".ndjson":
            if half is not None:
                half()
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        super()._change(name, path, effect, half)


@on_both_fences
@virtual_time
async def test_a_journal_that_is_full_from_the_beginning_pauses_nobody(tmp_path: Path, fence: FenceVariant) -> None:
    """A participant is written down before its first call leaves; what cannot be written down is not done (F-05)."""
    fleet = Fleet(fence)
    files = FullJournal()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, files=files) as controller:
        files.full = True
        with pytest.raises(StorageFailed, match="journal"):
            await controller.cut("step-1").__aenter__()
        assert tap.mutating() == []
        assert controller.unsettled is None
        files.full = False
        async with controller.cut("step-2"):
            pass


@on_both_fences
@virtual_time
async def test_a_decision_that_cannot_be_written_down_is_not_taken(tmp_path: Path, fence: FenceVariant) -> None:
    """Nothing is published, everybody is reopened, the error names the journal and no participant (F-05)."""
    fleet = Fleet(fence)
    files = FullJournal()
    async with fleet.controller(tmp_path, files=files) as controller:
        cut = controller.cut("step-1")
        await cut.__aenter__()
        files.full = True
        with pytest.raises(StorageFailed, match="journal") as caught:
            await cut.__aexit__(None, None, None)
        assert "main/" not in str(caught.value)
        assert controller.unsettled is None
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
        files.full = False
        async with controller.cut("step-2"):
            pass


@on_both_fences
@virtual_time
async def test_a_release_of_a_restore_that_cannot_be_written_down_is_not_begun(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """It is held closed, no resume leaves, nothing of the release stays in the journal; with room it is finished."""
    async with Fleet(fence).controller(tmp_path) as controller, controller.cut("step-1"):
        pass
    fleet = Fleet(fence, restore_expected=True)
    files = FullJournal()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, files=files) as controller:
        restore = controller.restore("step-1")
        await restore.__aenter__()
        before = tap.mutating()
        files.full = True
        with pytest.raises(ExceptionGroup) as caught:
            await restore.__aexit__(None, None, None)
        failed, full = caught.value.exceptions
        assert isinstance(failed, RestoreFailed)
        assert not failed.failed
        assert isinstance(full, StorageFailed)
        held = controller.unsettled
        assert isinstance(held, PhasedRestore)
        assert tap.mutating() == before
        files.full = False
        await held.retry()
        await held.resume()
        await controller.settle()
        assert controller.unsettled is None
        assert await fleet.everybody_accepts()
    reading = read_journal(tmp_path / ".quiesce" / "journal" / f"{held.wire_id}.ndjson")
    steps = [(one.source, one.target) for one in reading.records if one.machine == TRANSACTION.name]
    assert reading.damage == ""
    assert all(earlier[1] == later[0] for earlier, later in pairwise(steps))
    assert [target for source, target in steps if source != target][-6:] == [
        *("restored", "restore_failed"),
        *("restoring", "restored", "resuming", "resumed"),
    ]


@virtual_time
async def test_a_journal_that_is_full_after_the_decision_is_noted(tmp_path: Path) -> None:
    """The cut stands, everybody goes on, and the result says that the journal is not complete."""
    fleet = Fleet()
    files = FullJournal()

    def fill(trace: TraceRecord) -> None:
        files.full = files.full or trace.target == TransactionState.PUBLISHED

    async with fleet.controller(tmp_path, files=files, observers=(fill,)) as controller:
        async with controller.cut("step-1") as cut:
            pass
        assert [note for note in cut.result.notes if "journal is not complete" in note]
        assert controller.store.verify("step-1").is_good
    assert await fleet.everybody_accepts()


@on_both_fences
@virtual_time
async def test_the_journal_holds_every_step_in_order(tmp_path: Path, fence: FenceVariant) -> None:
    """One file a transaction, without a gap, with the same steps that the observers were told."""
    fleet = Fleet(fence)
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1") as cut:
        pass
    reading = read_journal(tmp_path / ".quiesce" / "journal" / f"{cut.wire_id}.ndjson")
    assert reading.damage == ""
    assert [(record.machine, record.subject, record.source, record.target) for record in reading.records] == [
        (trace.machine, trace.subject, trace.source, trace.target) for trace in fleet.traces
    ]
