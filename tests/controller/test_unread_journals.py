"""What has the name of a journal and cannot be read: it keeps nobody else, it is named, and an abort finishes it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from support.faulty_files import FaultyFiles
from support.fleet import Fleet
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, InDoubt
from quiesce.controller.files import LocalFiles
from quiesce.controller.housekeeping import prune_root
from quiesce.controller.recovery import find_unfinished
from quiesce.controller.sweeping import DAMAGED_KEPT_MAX
from quiesce.controller.unread_journals import LookedAfter
from quiesce.fsm.vocabulary import ParticipantKey

EVERYBODY: Final = {ParticipantKey("main", name) for name in ("policy", "agent", "tools")}
UNREADABLE: Final = "unreadable"


class Locked(FaultyFiles):
    """Does not let one journal be read."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def read(self, path: Path, limit: int) -> bytes:
        if path.name.startswith(self._name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return super().read(path, limit)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _moved(path: Path) -> None:
    elsewhere = path.rename(path.parent.parent / path.name)
    path.symlink_to(elsewhere)


def _spoilt(path: Path) -> None:
    path.write_bytes(b"?" + path.read_bytes())


def _beheaded(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


SPOIL: Final[dict[str, Callable[[Path], object]]] = {
    "folder": _folder,
    "dangling": _dangling,
    "moved": _moved,
    UNREADABLE: lambda _path: None,
    "spoilt": _spoilt,
    "beheaded": _beheaded,
}
EMPTY: Final[dict[str, Callable[[Path], object]]] = {
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "zeros": lambda path: path.write_bytes(bytes(512)),
}
every_kind = pytest.mark.parametrize("kind", [*SPOIL, *EMPTY])


async def left(controller: Controller, label: str) -> Path:
    """A cut whose controller goes away inside it; its journal."""
    await controller.open()
    cut = await controller.begin_cut(label)
    await cut.prepare()
    await cut.close()
    controller._turns.running = None
    await controller.close()
    return controller.store.layout.journal(cut.wire_id)


def spoil(kind: str, path: Path) -> FaultyFiles:
    """Make of a journal what is none; the files on which it is so."""
    (SPOIL | EMPTY)[kind](path)
    return Locked(path.name) if kind == UNREADABLE else FaultyFiles()


def stands(path: Path) -> bool:
    """Whether anything stands there, also a link to nowhere."""
    return os.path.lexists(path)


def only(controller: Controller) -> LookedAfter:
    """The one that could not be read."""
    (one,) = controller.unread
    assert one.unread.path.name in one.sentence
    return one


@every_kind
@virtual_time
async def test_it_keeps_nobody_else_and_says_whom_it_may_hold(tmp_path: Path, kind: str) -> None:
    """The other transaction is recovered; whoever that id holds is named, and is touched by an abort of it alone."""
    fleet, other = Fleet(), Fleet()
    journal = await left(fleet.controller(tmp_path), "mine")
    files = spoil(kind, journal)
    other_journal = await left(other.controller(tmp_path / "other"), "other")
    other_journal.rename(journal.parent / other_journal.name)
    fleet.apps |= {name: other.apps[name] for name in ("policy", "agent")}  # held by another transaction of the root
    controller = fleet.controller(tmp_path, files=files)
    (recovered,) = await controller.recover()
    assert recovered.account.wire_id == other_journal.stem
    looked = only(controller)
    assert looked.held == (ParticipantKey("main", "tools"),)
    assert not looked.is_settled
    assert f"quiesce abort {journal.stem}" in looked.sentence
    assert fleet.apps["tools"].fence.state.closed
    assert not other.apps["agent"].fence.state.closed
    aborted = await controller.abort(journal.stem)
    assert (aborted.reopened, aborted.silent) == ((ParticipantKey("main", "tools"),), {})
    assert await fleet.everybody_accepts()
    await controller.close()
    assert not stands(journal)
    assert aborted.moved_to is not None
    assert aborted.moved_to.name.startswith(f"{journal.name}.")
    assert aborted.moved_to.name.endswith("Z.damaged")
    assert stands(aborted.moved_to)
    async with fleet.controller(tmp_path) as controller:
        assert (controller.unread, controller.recovered) == ((), ())
        async with controller.cut("next"):
            pass


@every_kind
@virtual_time
async def test_what_holds_nobody_keeps_nobody(tmp_path: Path, kind: str) -> None:
    """What never began is moved aside by itself; the others stay and are named by whoever comes, until an abort."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path), "mine")
    async with fleet.controller(tmp_path):
        pass  # recovered, while it can be read
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:6]))
    files = spoil(kind, journal)
    for _ in range(2):
        async with fleet.controller(tmp_path, files=files) as controller:
            if kind in EMPTY and controller.unread == ():
                break
            looked = only(controller)
            assert looked.is_settled
            assert (looked.moved_to is not None) == (kind in EMPTY)
            async with controller.cut("next"):
                pass
    else:
        assert kind in SPOIL
        async with fleet.controller(tmp_path, files=files) as controller:
            aborted = await controller.abort(journal.stem)
            assert (aborted.wire_id, aborted.moved_to is None) == (None, False)
    async with fleet.controller(tmp_path, files=files) as controller:
        assert controller.unread == ()
    assert len(list(journal.parent.glob("*.damaged"))) == 1


@pytest.mark.parametrize("kind", ["empty", "spoilt"])
@virtual_time
async def test_who_does_not_answer_may_be_held(tmp_path: Path, kind: str) -> None:
    """It keeps nobody closed whom the id holds, and the file stays until it answers."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path), "mine")
    files = spoil(kind, journal)
    network = fleet.transport()
    network.unmount("http://agent")
    controller = fleet.controller(tmp_path, files=files, transport=network)
    await controller.recover()
    looked = only(controller)
    assert set(looked.held) == EVERYBODY - {ParticipantKey("main", "agent")}
    assert list(looked.silent) == ["main/agent"]
    aborted = await controller.abort(journal.stem)
    assert set(aborted.reopened) == EVERYBODY - {ParticipantKey("main", "agent")}
    assert (list(aborted.silent), aborted.moved_to) == (["main/agent"], None)
    still = await controller.abort(journal.stem)
    assert (still.wire_id, list(still.silent)) == (None, ["main/agent"])
    await controller.close()
    second = fleet.controller(tmp_path, files=files, transport=network)
    await second.recover()
    assert "main/agent is not known" in only(second).sentence
    network.mount("http://agent", fleet.apps["agent"])
    assert (await second.abort(journal.stem)).moved_to is not None
    await second.close()
    assert await fleet.everybody_accepts()


@pytest.mark.parametrize("kind", ["empty", "spoilt", "folder"])
@virtual_time
async def test_an_abort_that_comes_to_no_end_is_not_forgotten(tmp_path: Path, kind: str) -> None:
    """Somebody is in doubt: the file stays in its place, so that the next controller names the id again."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path), "mine")
    files = spoil(kind, journal)
    tap = Wiretap(fleet.transport())

    def deaf(call: TappedCall) -> None:
        if call.route == "agent-checkpoint/resume":
            raise ConnectionError

    tap.instead = deaf
    controller = fleet.controller(tmp_path, files=files, transport=tap)
    await controller.recover()
    with pytest.raises(InDoubt, match="main/agent"):
        await controller.abort(journal.stem)
    await controller.close()
    assert journal.exists()
    tap.instead = lambda _call: None
    again = fleet.controller(tmp_path, files=files, transport=tap)
    await again.recover()
    assert only(again).held == (ParticipantKey("main", "agent"),)
    await again.abort(journal.stem)
    await again.close()
    assert await fleet.everybody_accepts()
    assert not journal.exists()
    assert find_unfinished(LocalFiles(), again.store.layout) == ()


@pytest.mark.parametrize("kind", [*SPOIL, *EMPTY])
@virtual_time
async def test_pruning_removes_no_snapshot_beside_what_may_be_a_restore(tmp_path: Path, kind: str) -> None:
    """It is named with what to do, and blocks nothing once that is done; what was no file never does."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        for number in range(2):
            async with controller.cut(f"c{number}"):
                pass
    journal = await left(fleet.controller(tmp_path), "mine")
    files = spoil(kind, journal)
    blocks = kind in (UNREADABLE, "spoilt", "beheaded")
    planned = await prune_root(tmp_path, keep=1, dry_run=True, files=files)
    assert len(planned.removed) == (0 if blocks else 1)
    assert [f"`quiesce abort {journal.stem}`" in why for why in planned.failed.values()] == [True] * blocks
    assert (f"journal {journal.stem}" in planned.ignored) == (kind in ("folder", "dangling", "moved"))
    async with fleet.controller(tmp_path, files=files) as controller:
        await controller.abort(journal.stem)
    pruned = await prune_root(tmp_path, keep=1, clock=fleet.clock, files=files)
    assert (len(pruned.removed), pruned.failed) == (1, {})
    assert await fleet.everybody_accepts()


@virtual_time
async def test_what_was_moved_aside_does_not_pile_up(tmp_path: Path) -> None:
    """The newest stay to be looked at, the older ones go with a pruning."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        journals = controller.store.layout.journals
        for number in range(DAMAGED_KEPT_MAX + 3):
            path = journals / f"x-{number:08x}.ndjson.20260101T0000{number:02}Z.damaged"
            path.write_text("?")
            os.utime(path, (number, number))
        pruned = await controller.prune()
        assert len(pruned.swept) == 3
        assert {path.name[:10] for path in journals.iterdir()} == {
            f"x-{number:08x}" for number in range(3, DAMAGED_KEPT_MAX + 3)
        }


@virtual_time
async def test_what_has_no_name_of_ours_is_left_alone(tmp_path: Path) -> None:
    """A file whose name is no id, and what was moved aside before."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        journals = controller.store.layout.journals
    (journals / "not an id.ndjson").write_text("?")
    (journals / "mine-00000000.ndjson.20260101T000000Z.damaged").write_text("?")
    async with fleet.controller(tmp_path) as controller:
        assert (controller.unread, controller.recovered) == ((), ())
