"""Every storage fault at every operation of a cut and of a restore, and a file system that is really full.

ENOSPC, EIO and EROFS; once, or from then on; without effect, or after it took effect. Whatever the operation: everybody
accepts work (a restore may be held closed and is then finished), what is published is whole, the error speaks of the
storage, and the next transaction works without anybody's help. ``make test`` fails every operation in one manner, each
manner in its turn; ``HYPOTHESIS_PROFILE=thorough`` (``make test-all``) fails each of them in every manner.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from support.faulty_files import FaultyFiles
from support.fleet import Fleet, keep
from support.virtual_loop import run_virtual

from quiesce.controller import Controller, PhasedRestore, PublishUncertain, RestoreFailed, StorageFailed
from quiesce.controller.catalog import SnapshotState
from quiesce.fsm.errors import QuiesceError
from quiesce.participants.identity import AttemptId

ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS]
Scenario = Callable[[Path, FaultyFiles], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Manner:
    """How a storage fails."""

    error: int
    lasting: bool
    takes_effect: bool

    def __str__(self) -> str:
        lasting = "from then on" if self.lasting else "once"
        return f"{errno.errorcode[self.error]} {lasting}{', in effect' if self.takes_effect else ''}"

    def files(self, number: int | None) -> FaultyFiles:
        """A storage that fails at this operation."""
        return FaultyFiles(fail_at=number, error=self.error, lasting=self.lasting, takes_effect=self.takes_effect)


MANNERS = [
    Manner(error, lasting, takes_effect)
    for error in ERRORS
    for lasting in (False, True)
    for takes_effect in (False, True)
]
IS_WHOLE: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
SHARDS: Final = range(4 if IS_WHOLE else 1)
in_shards = pytest.mark.parametrize("shard", SHARDS)
pytestmark = pytest.mark.timeout(900 if IS_WHOLE else 300)


def swept(root: Path, scenario: Scenario, shard: int, record: Callable[[str, object], None]) -> int:
    """Play a scenario once undisturbed and then with a fault at each of its operations; how many operations it has."""
    counted = FaultyFiles()
    run_virtual(scenario(root / "undisturbed", counted))
    count = len(counted.operations)
    chosen = [
        (number, manner)
        for number in range(1, count + 1)
        for place, manner in enumerate(MANNERS)
        if IS_WHOLE or place == number % len(MANNERS)
    ][shard :: len(SHARDS)]
    for number, manner in chosen:
        files = manner.files(number)
        try:
            run_virtual(scenario(root / f"{number}-{manner}", files))
        except BaseException as failure:
            name = files.operations[number - 1] if len(files.operations) >= number else "never reached"
            failure.add_note(f"{manner} at operation {number} of {count}: {name}")
            raise
    record("swept", f"storage faults of {scenario.__name__.replace('_', ' ')}: {len(chosen)}")
    return count


def check_speaks_of_the_storage(error: BaseException) -> None:
    """It names no participant as the one to blame."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            check_speaks_of_the_storage(one)
    elif not isinstance(error, StorageFailed | RestoreFailed):
        raise error


# a cut


async def a_cut(root: Path, files: FaultyFiles) -> None:
    """A cut with a rollout under way, whose storage fails; then another one whose storage works."""
    fleet = Fleet()
    rollout = fleet.rollout("r0", 400)
    await fleet.seed_session("r0")
    await fleet.clock.sleep(1.5)
    good = FaultyFiles()
    async with fleet.controller(root, files=good) as controller, controller.cut("before"):
        pass
    files.operations.clear()
    try:
        async with fleet.controller(root, files=files, keep_latest_k=5) as controller, controller.cut("first") as cut:
            (cut.directory / "trainer" / "weights").write_text("w")
        possible = [["first"]]
    except PublishUncertain:
        possible = [["first"], []]
    except (QuiesceError, ExceptionGroup) as error:
        check_speaks_of_the_storage(error)
        possible = [[]]
    assert await fleet.everybody_accepts()
    async with fleet.controller(root, files=good) as controller:
        entries = await controller.snapshots()
        assert [entry.label for entry in entries if entry.label != "before"] in possible
        assert {entry.state for entry in entries} == {SnapshotState.VALID}
        async with controller.cut("next"):
            pass
        for label in ("next", "latest", "before", *(entry.wire_id for entry in entries)):
            assert controller.store.verify(label).is_good
        assert controller.store.resolve("latest").manifest.label == "next"
        await controller.prune()
        assert list(controller.store.layout.staging.iterdir()) == []
    assert await fleet.everybody_accepts()
    assert not rollout.done()
    rollout.cancel()


@in_shards
def test_a_cut_survives_a_fault_at_every_operation(
    tmp_path: Path, record_property: Callable[[str, object], None], shard: int
) -> None:
    """Published whole or not at all; nobody stays paused; what was good before is good; the next cut is the latest."""
    assert swept(tmp_path, a_cut, shard, record_property) >= 45


# a restore


async def saved(root: Path) -> None:
    """A snapshot of one rollout with a session."""
    fleet = Fleet()
    rollout = fleet.rollout("r0", 40)
    await fleet.seed_session("r0")
    await fleet.clock.sleep(3.5)
    async with fleet.controller(root, files=FaultyFiles()) as controller, controller.cut("step-1") as cut:
        (cut.directory / "trainer" / "weights").write_text("w")
    rollout.cancel()
    await asyncio.gather(rollout, return_exceptions=True)


async def finished(controller: Controller) -> bool:
    """Bring whatever restore is held closed to its end, as an operator would; whether there was one."""
    held = controller.unsettled
    if held is None:
        return False
    assert isinstance(held, PhasedRestore)
    await held.retry()
    await held.resume()
    await controller.settle()
    return True


def goes_on(fleet: Fleet) -> bool:
    """Whether what was live at the cut waits as the next attempt, exactly once, everywhere."""
    restored = [record.attempt for record in fleet.runs.restored()]
    return restored == list(fleet.states) == [AttemptId("r0", 1)] and fleet.ledger.is_fenced(AttemptId("r0", 0))


async def a_restore(root: Path, files: FaultyFiles) -> None:
    """A restore whose storage fails; then it is finished, by the same controller or by the next, or taken anew."""
    await saved(root)
    fleet = Fleet(restore_expected=True)
    files.operations.clear()
    is_done = False
    try:
        async with fleet.controller(root, files=files, on_completed=keep) as controller:
            try:
                async with controller.restore("step-1"):
                    pass
                is_done = True
            except (QuiesceError, ExceptionGroup) as error:
                check_speaks_of_the_storage(error)
                with contextlib.suppress(QuiesceError, ExceptionGroup):
                    is_done = await finished(controller)
    except (QuiesceError, ExceptionGroup) as error:
        check_speaks_of_the_storage(error)
    assert not (await fleet.everybody_accepts() and not goes_on(fleet))  # the tools owe a restore: nobody runs on half
    async with fleet.controller(root, files=FaultyFiles()) as controller:
        assert not (is_done and controller.unsettled)  # that it was released is known: it is written down before
        if not is_done and not await finished(controller) and not goes_on(fleet):
            async with controller.restore("step-1"):
                pass
        assert goes_on(fleet)
        assert await fleet.everybody_accepts()
        async with controller.cut("next"):
            pass
        assert controller.store.verify("step-1").is_good


@in_shards
def test_a_restore_survives_a_fault_at_every_operation(
    tmp_path: Path, record_property: Callable[[str, object], None], shard: int
) -> None:
    """Whatever fails, nobody ever runs on half a restore, and in the end every rollout goes on exactly once (F-23)."""
    assert swept(tmp_path, a_restore, shard, record_property) >= 20


# a file system that is really full

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no command that mounts a small file system")
    command = [mount, "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"this user may not mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run([umount, str(folder)], check=True)


def fill(path: Path, free_pages: int) -> None:
    """Use up a file system but for so many pages."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * PAGE)
    os.truncate(path, max(0, path.stat().st_size - free_pages * PAGE))


async def a_cut_on_what_is_left(root: Path, free_pages: int) -> bool:
    """A cut on a file system with so much room; whether it was published."""
    fleet = Fleet()
    rollout = fleet.rollout("r0", 400)
    await fleet.seed_session("r0")
    await fleet.clock.sleep(1.5)
    async with fleet.controller(root) as controller:
        async with controller.cut("before"):
            pass
        fill(root / "filler", free_pages)
        is_published = False
        with contextlib.suppress(QuiesceError, ExceptionGroup, OSError):  # also the trainer's own writing
            async with controller.cut("full") as cut:
                (cut.directory / "trainer" / "weights").write_bytes(b"w" * PAGE)
            is_published = True
        assert await fleet.everybody_accepts()
        labels = {entry.label for entry in await controller.snapshots()}
        assert labels == ({"before", "full"} if is_published else {"before"})
        (root / "filler").unlink()
        async with controller.cut("next"):
            pass
        assert all(controller.store.verify(str(label)).is_good for label in (*labels, "next"))
    rollout.cancel()
    return is_published


def test_a_full_disk_publishes_nothing_and_pauses_nobody(small: Path) -> None:
    """With no room at all, with a page more each time, until there is enough: published whole, or not at all."""
    outcomes = []
    for free_pages in range(60):
        root = small / str(free_pages)
        root.mkdir()
        outcomes.append(run_virtual(a_cut_on_what_is_left(root, free_pages)))
        shutil.rmtree(root)
        if outcomes[-3:] == [True] * 3:
            break
    assert not outcomes[0]
    assert outcomes[-1]
    assert outcomes == sorted(outcomes)
