"""What a journal says of a transaction that did not end: torn, damaged, taken over, of nobody, of somebody gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from support.crashes import VARIANTS, build, scene
from support.fleet import Fleet
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller
from quiesce.controller.files import LocalFiles
from quiesce.controller.journal import read_journal
from quiesce.controller.journal_check import check_journal
from quiesce.controller.journal_lines import TakenOverLine
from quiesce.controller.recovery import Account, account_of, find_unfinished, has_ended
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.transport.port import ControlReply

FILES: Final = LocalFiles()
EVERYBODY: Final = {ParticipantKey("main", name) for name in ("policy", "agent", "tools")}


async def left(controller: Controller, *, committed: bool = False) -> Path:
    """A cut whose controller goes away inside it; its journal."""
    await controller.open()
    cut = await controller.begin_cut("first")
    await cut.prepare()
    if committed:
        await cut.commit()
    await cut.close()
    controller._turns.running = None
    await controller.close()
    return controller.store.layout.journal(cut.wire_id)


def account(journal: Path) -> Account:
    """What it says."""
    return account_of(journal.stem, read_journal(journal))


@virtual_time
async def test_a_journal_says_who_is_owed_what(tmp_path: Path) -> None:
    """Who takes part and where they were, how far it came, and who may be paused; nobody is called to know it."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path), committed=True)
    said = account(journal)
    assert said.opened is not None
    assert (said.opened.label, said.opened.source_wire_id) == ("first", None)
    assert {str(one.key): one.url for one in said.opened.participants} == {
        f"main/{name}": f"http://{name}" for name in fleet.apps
    }
    assert said.stood == "committed"
    assert said.touched == EVERYBODY
    assert not has_ended(FILES, journal)
    tap = Wiretap(fleet.transport())
    assert [one.wire_id for one in find_unfinished(FILES, fleet.controller(tmp_path).store.layout)] == [said.wire_id]
    assert tap.calls == []


@pytest.mark.parametrize("cut_off", [1, 20, 200])
@virtual_time
async def test_a_torn_tail_is_cut(tmp_path: Path, cut_off: int) -> None:
    """What was being written when the controller died is no damage; the next one goes on behind what is whole."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path))
    journal.write_bytes(journal.read_bytes()[:-cut_off])
    assert account(journal).damage == ""
    async with fleet.controller(tmp_path) as controller:
        assert [one.state for one in controller.recovered] == ["aborted"]
    assert read_journal(journal).damage == ""
    assert check_journal(journal) == ()
    assert await fleet.everybody_accepts()


@virtual_time
async def test_damage_in_the_middle_is_reported_kept_and_never_read_past(tmp_path: Path) -> None:
    """Everybody is then taken for paused; the damaged file stays beside the one that goes on."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path))
    lines = journal.read_bytes().splitlines(keepends=True)
    # before anybody is recorded as touched
    lines[4] = lines[4].replace(b"PARTICIPANT", b"PARTICIPENT")
    journal.write_bytes(b"".join(lines))
    damaged = journal.read_bytes()
    said = account(journal)
    assert said.damage.startswith("line 5: ")
    assert said.touched == EVERYBODY
    async with fleet.controller(tmp_path) as controller:
        (recovered,) = controller.recovered
        assert recovered.is_settled
        assert any("journal was damaged" in note for note in recovered.to_json()["notes"])  # type: ignore[attr-defined]  # a list
    assert journal.with_name(f"{journal.name}.damaged").read_bytes() == damaged
    assert check_journal(journal) == ()
    assert await fleet.everybody_accepts()


@virtual_time
async def test_a_journal_of_nobody_is_reported_and_left_alone(tmp_path: Path) -> None:
    """Its first line cannot be read, so that nobody knows whom to call; cuts begin all the same."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        journal = controller.store.layout.journal("old-00000000")
    content = b"this is not\na journal\n"
    journal.write_bytes(content)
    async with fleet.controller(tmp_path) as controller:
        assert controller.recovered == ()
        (unread,) = controller.unread
        assert "does not say what it was about: line 1: it is not a whole record" in unread.sentence
        async with controller.cut("first"):
            pass
    assert journal.read_bytes() == content


@virtual_time
async def test_a_former_controller_writes_where_nobody_reads(tmp_path: Path) -> None:
    """A journal that is taken over is replaced: the file that the former one has open is no more there."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path))
    with journal.open("ab") as still_open:
        async with fleet.controller(tmp_path):
            pass
        still_open.write(b"late\n")
        still_open.flush()
    reading = read_journal(journal)
    assert reading.damage == ""
    assert [line.epoch for line in reading.lines if isinstance(line, TakenOverLine)] == [2]
    assert [line.sequence for line in reading.lines] == list(range(1, len(reading.lines) + 1))


@virtual_time
async def test_who_is_gone_from_the_configuration_is_called_where_it_was(tmp_path: Path) -> None:
    """And named; whoever moved is called where it is now."""
    fleet = Fleet()
    await left(fleet.controller(tmp_path))
    tools, policy = fleet.apps.pop("tools"), fleet.apps["policy"]
    network = fleet.transport()
    network.mount("http://tools", tools)
    network.unmount("http://policy")
    network.mount("http://elsewhere", policy)
    controller = fleet.controller(tmp_path, transport=network)
    moved = controller.config.deployment["main"].participants
    there = [one.model_copy(update={"url": "http://elsewhere"}) if one.name == "policy" else one for one in moved]
    deployment = controller.config.deployment["main"].model_copy(update={"participants": tuple(there)})
    controller.config = controller.config.model_copy(update={"deployment": {"main": deployment}})
    (recovered,) = await controller.recover()
    await controller.close()
    assert recovered.is_settled
    assert [str(key) for key in recovered.gone] == ["main/tools"]
    assert any("main/tools is not in the configuration" in note for note in recovered.to_json()["notes"])  # type: ignore[attr-defined]  # a list
    assert not policy.fence.state.closed
    assert not tools.fence.state.closed


@pytest.mark.parametrize("release_timeout_s", [0.01, 1.0, 11.0])
@pytest.mark.parametrize("variant", VARIANTS)
@virtual_time
async def test_a_recovery_comes_to_its_end_however_short_its_time_is(
    tmp_path: Path, variant: FenceVariant, release_timeout_s: float
) -> None:
    """Nobody is proven open while a prepare of the former controller may run: giving up before that is for ever."""
    async with scene(tmp_path, build(variant)) as here:
        async with here.controller() as controller:
            cut = await controller.begin_cut("first")
            preparing = asyncio.create_task(cut.prepare())
            await here.fleet.clock.sleep(0.001)
            await cut.close()
            controller._turns.running = None
            await asyncio.gather(preparing, return_exceptions=True)
        next_one = here.controller()
        next_one.config = next_one.config.model_copy(update={"release_timeout_s": release_timeout_s})
        (recovered,) = await next_one.recover()
        await next_one.close()
        assert recovered.is_settled, recovered.to_json()
        assert await here.fleet.everybody_accepts()


@virtual_time
async def test_every_step_of_every_machine_is_in_the_journal(tmp_path: Path) -> None:
    """With time, reason, and for an answer the verb and what it came to; in the order in which it was told."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("first") as cut:
        pass
    records = read_journal(controller.store.layout.journal(cut.wire_id)).records
    assert [saved.trace() for saved in records] == fleet.traces
    assert {saved.machine for saved in records} == {"TRANSACTION", "PARTICIPANT", "RELEASE"}
    assert all(saved.reason for saved in records)
    assert [saved.time_ts for saved in records] == sorted(saved.time_ts for saved in records)
    answers = [saved for saved in records if saved.event in ("cut_reached", "exported", "opened")]
    assert {(saved.call, saved.reply) for saved in answers} >= {("export", "exported"), ("release", "released")}


@virtual_time
async def test_whoever_interrupts_a_recovery_hears_what_it_could_not_settle(tmp_path: Path) -> None:
    """It is finished although its caller is gone; what it found, and who is in doubt, is told as after any other."""
    fleet = Fleet()
    journal = await left(fleet.controller(tmp_path))
    called = asyncio.Event()

    def broken(call: TappedCall) -> ControlReply | None:
        if call.site.participant != "main/policy":
            return None
        called.set()
        return ControlReply(500, {}, b"")

    controller = fleet.controller(tmp_path, transport=Wiretap(fleet.transport(), instead=broken))
    recovering = asyncio.ensure_future(controller.recover())
    await called.wait()
    recovering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recovering
    (found,) = controller.recovered
    assert (found.account.wire_id, found.is_settled) == (journal.stem, False)
    assert "main/policy" in found.what
