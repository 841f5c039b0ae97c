"""A journal on disk is held against the tables: one of a real cut is whole, and one that was edited is not."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from support.fleet import SERVED_AS, Fleet
from support.virtual_loop import virtual_time

from quiesce.controller.journal_check import check_journal, roles_in


@virtual_time
async def test_the_journals_of_a_cut_and_a_restore_are_whole(tmp_path: Path) -> None:
    """With the roles that the snapshot itself names."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1") as cut:
        pass
    fresh = Fleet(restore_expected=True)
    async with fresh.controller(tmp_path) as controller, controller.restore("step-1") as restored:
        pass
    roles = roles_in(controller.store.load(cut.wire_id))
    assert roles == SERVED_AS
    for wire_id in (cut.wire_id, restored.wire_id):
        assert check_journal(controller.store.layout.journal(wire_id), roles=roles) == ()


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        ({"target": "resumed"}, "no row of the table"),
        ({"source": "paused"}, "but the machine stands in"),
        ({"machine": "OTHER"}, "there is no machine 'OTHER'"),
    ],
)
@virtual_time
async def test_a_line_that_was_edited_is_named_although_its_checksum_fits(
    tmp_path: Path, edit: dict[str, str], fault: str
) -> None:
    """The checksum finds damage; what finds an edit is the table."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1") as cut:
        pass
    path = controller.store.layout.journal(cut.wire_id)
    lines = path.read_bytes().splitlines()
    record = {**json.loads(lines[5]), **edit}
    del record["checksum"]
    body = json.dumps(record, separators=(",", ":")).encode()
    lines[5] = body[:-1] + b',"checksum":"%08x"}' % zlib.crc32(body)
    path.write_bytes(b"\n".join(lines) + b"\n")
    faults = check_journal(path, roles=SERVED_AS)
    assert any(found.startswith("record 6 ") and fault in found for found in faults), faults


@virtual_time
async def test_a_journal_that_is_cut_off_says_so(tmp_path: Path) -> None:
    """The steps before the damage are checked all the same."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1") as cut:
        pass
    path = controller.store.layout.journal(cut.wire_id)
    path.write_bytes(path.read_bytes()[:-20])
    assert ["it is not a whole record" in fault for fault in check_journal(path)] == [True]
    path.write_bytes(b"")
    assert ["it has no step of the transaction" in fault for fault in check_journal(path)] == [True]
