"""The journal: barriers are durable, a failing storage loses and doubles nothing, damage is never read past."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_files import FaultyFiles
from support.virtual_loop import run_virtual, virtual_time

from quiesce.controller.errors import StorageFailed
from quiesce.controller.journal import JournalFile, read_journal
from quiesce.controller.journal_lines import SavedRecord
from quiesce.controller.records import JournalRecord, MemoryRecords, RecordPort
from quiesce.fsm.trace import TraceRecord


def record(number: int) -> JournalRecord:
    """A record that can be told from others."""
    trace = TraceRecord(
        machine="PARTICIPANT",
        subject="main/policy",
        source="idle",
        event="close_sent",
        target="draining",
        effects=("call",),
        verdicts=(("admission_closed", True),),
        reason=f"step {number}",
    )
    return JournalRecord(1_900_000_000.5 + number, "step-40-1a2b3c4d", trace, "POST /pause", "200 draining")


def numbers(path: Path) -> list[int]:
    """Which records a journal holds, after proving that it is undamaged."""
    reading = read_journal(path)
    assert reading.damage == ""
    assert [saved.sequence for saved in reading.records] == list(range(1, len(reading.records) + 1))
    return [int(saved.reason.removeprefix("step ")) for saved in reading.records]


async def written(path: Path, plan: list[bool]) -> None:
    """Append one record for each entry of ``plan``, which says whether it is a barrier, and close."""
    journal = JournalFile(path)
    for number, barrier in enumerate(plan):
        await journal.append(record(number), barrier=barrier)
    await journal.close()


async def test_a_barrier_returns_when_it_and_all_before_it_are_on_disk(tmp_path: Path) -> None:
    """With real threads: after a barrier the file holds every record so far; before it nothing need be there."""
    journal = JournalFile(tmp_path / "deep" / "j.ndjson")
    for number in range(3):
        await journal.append(record(number), barrier=False)
    await journal.append(record(3), barrier=True)
    assert numbers(journal.path) == [0, 1, 2, 3]
    await journal.append(record(4), barrier=False)
    await journal.close()
    await journal.close()
    assert numbers(journal.path) == [0, 1, 2, 3, 4]


async def test_many_appenders_share_syncs(tmp_path: Path) -> None:
    """A hundred barriers at once are a handful of syncs, and all of them are in the file."""
    files = FaultyFiles()
    journal = JournalFile(tmp_path / "j.ndjson", files=files)
    await asyncio.gather(*(journal.append(record(number), barrier=True) for number in range(100)))
    await journal.close()
    assert sorted(numbers(journal.path)) == list(range(100))
    assert sum(operation.startswith("sync ") for operation in files.operations) <= 4


@virtual_time
async def test_a_journal_without_records_creates_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Opening and closing leaves no file and no folder."""
    root = tmp_path_factory.mktemp("root")
    journal = JournalFile(root / "journal" / "j.ndjson")
    await journal.close()
    assert list(root.iterdir()) == []
    with pytest.raises(RuntimeError, match="closed"):
        await journal.append(record(0), barrier=True)


def test_every_field_survives(tmp_path: Path) -> None:
    """What is read is what was written, and the record's own checksum and version stand in it."""
    run_virtual(written(tmp_path / "j.ndjson", [True]))
    saved = read_journal(tmp_path / "j.ndjson").records[0]
    fields = saved.model_dump()
    assert fields.pop("schema_version") == 1
    assert fields.pop("sequence") == 1
    assert len(fields.pop("checksum")) == 8
    assert fields == record(0).to_json()


@given(plan=st.lists(st.booleans(), min_size=1, max_size=6), wanted=st.integers(min_value=1, max_value=60))
def test_one_failing_operation_loses_and_doubles_nothing(plan: list[bool], wanted: int) -> None:
    """Whichever operation fails once: a barrier that returned is in the file, and the rest follows with the next."""

    async def scenario(path: Path) -> None:
        files = FaultyFiles(fail_at=wanted)
        journal = JournalFile(path, files=files)
        for number, barrier in enumerate(plan):
            try:
                await journal.append(record(number), barrier=barrier)
            except StorageFailed:
                continue
            if barrier:
                assert numbers(path) == list(range(number + 1))
        try:
            await journal.close()
        except StorageFailed:
            return
        assert numbers(path) == list(range(len(plan)))

    with TemporaryDirectory() as folder:
        run_virtual(scenario(Path(folder) / "journal" / "j.ndjson"))


@virtual_time
async def test_a_full_disk_fails_every_barrier_and_the_close() -> None:
    """While nothing can be written every barrier says so, with what to do; afterwards all of it is written."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "j.ndjson"
        files = FaultyFiles(fail_at=3, lasting=True)
        journal = JournalFile(path, files=files)
        for number in range(3):
            with pytest.raises(StorageFailed, match=r"cannot write the journal at .*j\.ndjson.*free space"):
                await journal.append(record(number), barrier=True)
        files.fail_at = None
        await journal.append(record(3), barrier=True)
        assert numbers(path) == [0, 1, 2, 3]
        files.fail_at = len(files.operations) + 1
        await journal.append(record(4), barrier=False)
        with pytest.raises(StorageFailed):
            await journal.close()


@pytest.mark.parametrize("takes_effect", [False, True], ids=["without effect", "in effect"])
@virtual_time
async def test_a_decision_that_cannot_be_made_durable_is_taken_back(takes_effect: bool) -> None:  # noqa: FBT001 - a table
    """At whatever operation: none of its records is in the journal, which goes on without a gap."""
    for operation in range(1, 4):
        with TemporaryDirectory() as folder:
            files = FaultyFiles()
            journal = JournalFile(Path(folder) / "j.ndjson", files=files)
            await journal.append(record(0), barrier=True)
            await journal.append(record(1), barrier=False)
            await asyncio.sleep(0)
            files.fail_at, files.takes_effect = len(files.operations) + operation, takes_effect
            done = [0, 1]
            try:
                await journal.decide([record(2), record(3)])
                done += [2, 3]
            except StorageFailed:
                pass
            files.fail_at = None
            await journal.append(record(4), barrier=True)
            assert numbers(journal.path) == [*done, 4]
            await journal.close()


@virtual_time
async def test_a_cancelled_caller_does_not_take_its_record_back() -> None:
    """The record of a cancelled append is written, and later ones follow it."""
    with TemporaryDirectory() as folder:
        journal = JournalFile(Path(folder) / "j.ndjson")
        caller = asyncio.ensure_future(journal.append(record(0), barrier=True))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await journal.append(record(1), barrier=True)
        assert numbers(journal.path) == [0, 1]
        await journal.close()


@given(cut=st.integers(min_value=0, max_value=10_000), padding=st.sampled_from([b"", b"\0" * 64, b"\xff\xfe", b"{}\n"]))
def test_a_torn_journal_is_read_up_to_the_damage(cut: int, padding: bytes) -> None:
    """Cut at any byte and followed by anything, only whole records are read, and the damage is named."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "j.ndjson"
        run_virtual(written(path, [False, False, True]))
        content = path.read_bytes()
        cut %= len(content)
        path.write_bytes(content[:cut] + padding)
        whole = content[:cut].count(b"\n")
        reading = read_journal(path)
        assert len(reading.records) == whole
        assert bool(reading.damage) is bool(padding or (not content[:cut].endswith(b"\n") and cut > 0))


@given(position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_one_changed_byte_is_noticed(position: int, flip: int) -> None:
    """No changed byte passes for a record."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "j.ndjson"
        run_virtual(written(path, [False, True]))
        content = bytearray(path.read_bytes())
        content[position % len(content)] ^= flip
        path.write_bytes(content)
        assert read_journal(path).damage


def test_what_is_saved_forbids_what_it_does_not_know(tmp_path: Path) -> None:
    """A record with an unknown field, a later version or a gap in the numbers is damage, also with a right checksum."""
    run_virtual(written(tmp_path / "j.ndjson", [True]))
    fields = json.loads((tmp_path / "j.ndjson").read_text())
    changes: list[tuple[dict[str, object], str]] = [
        ({"extra": 1}, "extra"),
        ({"schema_version": 2}, "schema_version"),
        ({"sequence": 7}, "its number is 7"),
        ({"time_ts": "x"}, "time_ts"),
    ]
    for change, fragment in changes:
        (tmp_path / "j.ndjson").write_bytes(_sealed({**fields, **change}))
        assert fragment in read_journal(tmp_path / "j.ndjson").damage


def test_a_journal_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    """The reader names the path."""
    with pytest.raises(StorageFailed, match=r"read the journal at .*gone\.ndjson"):
        read_journal(tmp_path / "gone.ndjson")


def test_the_schema_of_a_record_is_closed() -> None:
    """The published schema forbids unknown fields and requires every known one."""
    schema = SavedRecord.model_json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(SavedRecord.model_fields)


async def test_memory_records_keep_their_order() -> None:
    """The port without a file keeps what it is given."""
    records: RecordPort = MemoryRecords()
    assert isinstance(records, MemoryRecords)
    for number in range(3):
        await records.append(record(number), barrier=number == 2)
    await records.close()
    assert records.records == [record(number) for number in range(3)]


def _sealed(fields: dict[str, object]) -> bytes:
    """The line of a record with these fields and the checksum that belongs to them."""
    body = json.dumps({name: value for name, value in fields.items() if name != "checksum"}, separators=(",", ":"))
    return f'{body[:-1]},"checksum":"{zlib.crc32(body.encode()):08x}"}}\n'.encode()
