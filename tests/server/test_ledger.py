"""The model ledger: rows, fences, and the refusals of an export and of a restore."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.refusals import refused
from support.stores import A0, A1, B0, FailingFiles, finished_call, tree

from quiesce.participants.artefact_records import ContinuationRow
from quiesce.participants.artefact_writing import index_file, reference_entry, reference_to
from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.identity import AttemptId, capture_key
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.ledger import CallRef, ModelLedger
from quiesce.participants.server.lineage import DirectoryLineage, LineageStore, MemoryLineage


def root(attempt: AttemptId, call_id: str = "call-1", *, key: str | None = None) -> ContinuationRow:
    """One continuation root."""
    return ContinuationRow(
        rollout_id=attempt.rollout_id,
        attempt_index=attempt.attempt_index,
        capture_key=key or capture_key(*attempt),
        last_committed_model_call_id=call_id,
    )


def index_of(directory: Path, *rows: ContinuationRow, name: str = "continuations.jsonl") -> dict[str, object]:
    """An agent's index in the directory; its reference."""
    content = index_file(rows)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(content)
    return reference_entry(reference_to(name, content))


def ledger_with(*attempts: AttemptId, lineage: LineageStore | None = None) -> ModelLedger:
    """A ledger in which each attempt has one finished call."""
    ledger = ModelLedger("policy", lineage=lineage)
    for attempt in attempts:
        finished_call(ledger, attempt)
    return ledger


async def export(
    ledger: ModelLedger, directory: Path, *references: Mapping[str, object], checkpoint_id: str = "ck-1"
) -> dict[str, object]:
    """Commit with these indexes."""
    return await ledger.export(checkpoint_id=checkpoint_id, directory=directory, continuation_indexes=references)


@pytest.fixture(params=["memory", "directory"])
def lineage(request: pytest.FixtureRequest, tmp_path: Path) -> LineageStore:
    """Both kinds of store."""
    return MemoryLineage() if request.param == "memory" else DirectoryLineage(tmp_path / "live" / "lineage")


async def test_rows_are_kept_in_the_order_in_which_calls_finished(lineage: LineageStore, tmp_path: Path) -> None:
    """Lengths and the staging chain go on from the parent's, and the file is copied byte for byte."""
    ledger = ModelLedger("policy", lineage=lineage)
    first = ledger.record_call(A0, model_call_id="c1", delta_len=3, staging_key="s1", weight_version=7)
    ledger.record_call(A0, model_call_id="c2", delta_len=4, staging_key="s2", parent=first)
    live = lineage.read("rollout-a")
    assert live is not None
    rows = [json.loads(line) for line in live.splitlines()]
    assert [(row["prev_len"], row["delta_len"], row["cum_len"]) for row in rows] == [(0, 3, 3), (3, 4, 7)]
    assert rows[1]["staging_chain"] == ["s1", "s2"]
    assert rows[1]["parent_call_id"] == "c1"
    reference = index_of(tmp_path, root(A0, "c2"))
    committed = await export(ledger, tmp_path, reference)
    assert (committed["rollouts"], committed["rows"]) == (1, 2)
    files = tree(tmp_path)
    assert files["model-ledger/policy/rollout-a.lineage.jsonl"] == live
    keys = [json.loads(line)["key"] for line in files["model-ledger/policy/storage-references.jsonl"].splitlines()]
    assert keys == ["s1", "s2"]


async def test_only_what_a_root_names_is_exported(lineage: LineageStore, tmp_path: Path) -> None:
    """Finished and fenced attempts are counted apart, and all that were seen are source attempts."""
    ledger = ledger_with(A0, B0, AttemptId("c", 0), lineage=lineage)
    ledger.note_call(AttemptId("d", 4))
    ledger.fence(AttemptId("c", 0))
    committed = await export(ledger, tmp_path, index_of(tmp_path, root(A0)))
    assert (committed["rollouts"], committed["excluded_inactive"], committed["excluded_tombstoned"]) == (1, 2, 1)
    manifest = json.loads(tree(tmp_path)["model-ledger/policy/manifest.json"])
    assert list(manifest["rollouts"]) == ["rollout-a"]
    assert manifest["tombstones"] == [{"attempt_index": 0, "rollout_id": "c"}]
    assert [entry["rollout_id"] for entry in manifest["source_attempts"]] == ["c", "d", "rollout-a", "rollout-b"]


async def test_roots_may_come_in_several_indexes_and_share_storage(tmp_path: Path) -> None:
    """The digest does not depend on which index names a root; a shared key is listed once."""
    ledger = ModelLedger("policy")
    for attempt in (A0, B0):
        ledger.record_call(attempt, model_call_id="call-1", delta_len=1, staging_key="shared")
    one = await export(ledger, tmp_path / "one", index_of(tmp_path / "one", root(A0), root(B0)))
    first = index_of(tmp_path / "two", root(B0), name="b.jsonl")
    second = index_of(tmp_path / "two", root(A0), name="a.jsonl")
    two = await export(ledger, tmp_path / "two", first, second)
    assert one == two
    index = one["storage_reference_index"]
    assert isinstance(index, dict)
    assert index["records"] == 1


@pytest.mark.parametrize(
    ("roots", "text"),
    [
        ([root(AttemptId("nobody", 0))], "no lineage"),
        ([root(A0, "call-9")], "succeeded 0 times"),
        ([root(A0), root(A0)], "twice"),
        ([root(A0), root(A0, "call-2")], "contradicts"),
        ([root(A0), root(A0, key="rollout-b")], "contradicts"),
        ([root(A0, key="rollout-b")], "another rollout"),
        ([root(A0, key="rollout-a-a1")], "later attempt"),
        ([root(A1, key="rollout-a-a01")], "another rollout"),
        ([root(B0)], "fenced"),
        ([root(AttemptId("failed", 0))], "succeeded 0 times"),
    ],
)
async def test_roots_that_cannot_be_served_are_refused_and_nothing_is_written(
    roots: list[ContinuationRow], text: str, tmp_path: Path
) -> None:
    """Unknown, failed, doubled, contradicting, foreign and fenced roots: ``ledger_mismatch``, each with its reason."""
    ledger = ledger_with(A0, B0)
    ledger.fence(B0)
    ledger.record_call(
        AttemptId("failed", 0), model_call_id="call-1", delta_len=0, staging_key=None, failure_reason="timeout"
    )
    reference = index_of(tmp_path, *roots)
    with refused(RefusalCode.LEDGER_MISMATCH, text):
        await export(ledger, tmp_path, reference)
    assert set(tree(tmp_path)) == {"continuations.jsonl"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"relative_path": "../continuations.jsonl"}, "segment"),
        ({"relative_path": "/etc/passwd"}, "relative POSIX path"),
        ({"relative_path": "nowhere.jsonl"}, "does not exist"),
        ({"sha256": "0" * 64}, "digest"),
        ({"records": 2}, "rows"),
        ({"bytes": 1}, "bytes"),
        ({"bytes": "1"}, "no reference"),
    ],
)
async def test_an_index_that_is_not_what_its_reference_says_is_refused(
    change: dict[str, object], text: str, tmp_path: Path
) -> None:
    """Path, existence, digest, count and size are all compared before a root is believed."""
    ledger = ledger_with(A0)
    reference = index_of(tmp_path, root(A0)) | change
    with refused(RefusalCode.LEDGER_MISMATCH, text):
        await export(ledger, tmp_path, reference)


async def test_a_call_that_failed_first_and_then_finished_is_one_root(tmp_path: Path) -> None:
    """Only the row without a failure counts."""
    ledger = ModelLedger("policy")
    ledger.record_call(A0, model_call_id="call-1", delta_len=0, staging_key=None, failure_reason="engine restarted")
    finished_call(ledger, A0)
    committed = await export(ledger, tmp_path, index_of(tmp_path, root(A0)))
    assert committed["rows"] == 2


async def test_a_repeated_commit_answers_as_the_first_time(tmp_path: Path) -> None:
    """The same inputs give the same reply, and no file is written again."""
    ledger = ledger_with(A0)
    reference = index_of(tmp_path, root(A0))
    first = await export(ledger, tmp_path, reference)
    before = tree(tmp_path)
    assert await export(ledger, tmp_path, reference) == first
    assert tree(tmp_path) == before


@pytest.mark.parametrize("change", ["id", "roots", "tombstone", "seen", "file"])
async def test_a_commit_into_another_ones_folder_is_refused(change: str, tmp_path: Path) -> None:
    """Another id, other roots, another state of the ledger, or a damaged file: ``ledger_mismatch``, nothing changed."""
    ledger = ledger_with(A0, B0)
    reference = index_of(tmp_path, root(A0))
    await export(ledger, tmp_path, reference)
    references = [index_of(tmp_path, root(A0), root(B0), name="other.jsonl")] if change == "roots" else [reference]
    if change == "tombstone":
        ledger.fence(B0)
    elif change == "seen":
        ledger.note_call(AttemptId("new", 0))
    elif change == "file":
        (tmp_path / "model-ledger/policy/rollout-a.lineage.jsonl").write_bytes(b"")
    before = tree(tmp_path)
    with refused(RefusalCode.LEDGER_MISMATCH, "committed export|was changed"):
        await export(ledger, tmp_path, *references, checkpoint_id="ck-2" if change == "id" else "ck-1")
    assert tree(tmp_path) == before


async def test_a_full_disk_refuses_the_commit_and_a_repetition_works(tmp_path: Path) -> None:
    """The refusal names the disk; there is no manifest; the same commit works once there is room."""
    reference = index_of(tmp_path, root(A0))
    files = FailingFiles(fail_at=2)
    ledger = ModelLedger("policy", files=files)
    finished_call(ledger, A0)
    with refused(RefusalCode.LEDGER_NOT_CHECKPOINTABLE, "No space left"):
        await export(ledger, tmp_path, reference)
    assert "model-ledger/policy/manifest.json" not in tree(tmp_path)
    files.fail_at = None
    assert (await export(ledger, tmp_path, reference))["rollouts"] == 1


@pytest.mark.parametrize("row", [b'{"torn', b"[1]", b'{"a":1,"a":2}', b"\xff"])
async def test_a_lineage_that_is_no_json_cannot_be_exported(row: bytes, tmp_path: Path) -> None:
    """A torn row is found at the commit, not at the restore; blank lines are none."""
    lineage = MemoryLineage()
    ledger = ledger_with(A0, lineage=lineage)
    lineage.append("rollout-a", b"\n" + row)
    reference = index_of(tmp_path, root(A0))
    with refused(RefusalCode.LEDGER_NOT_CHECKPOINTABLE, "line 3"):
        await export(ledger, tmp_path, reference)


@pytest.mark.parametrize("fields", [{"staging_key": 7}, {"staging_chain": "s"}, {"staging_chain": [None]}])
async def test_a_root_whose_storage_cannot_be_named_is_refused(fields: dict[str, object], tmp_path: Path) -> None:
    """The trainer could not keep what it is not told."""
    ledger = ModelLedger("policy")
    ledger.append_row(A0, {"model_call_id": "call-1", **fields})
    reference = index_of(tmp_path, root(A0))
    with refused(RefusalCode.LEDGER_MISMATCH, "staging"):
        await export(ledger, tmp_path, reference)


@pytest.mark.parametrize("name", ["with\0zero", "x" * 300])
async def test_a_directory_that_cannot_exist_is_a_refusal_and_no_crash(name: str, tmp_path: Path) -> None:
    """For a commit as for a restore."""
    ledger = ledger_with(A0)
    with pytest.raises(ControlRefusal):
        await export(ledger, tmp_path / name)
    with pytest.raises(ControlRefusal):
        await ModelLedger("policy").restore(directory=tmp_path / name)


async def test_a_restored_ledger_goes_on_where_the_saved_one_was(lineage: LineageStore, tmp_path: Path) -> None:
    """Old attempts are fenced, the lineage keeps its old key, and the next attempt's first call has it as parent."""
    reference = index_of(tmp_path, root(A0))
    await export(ledger_with(A0, B0), tmp_path, reference)
    ledger = ModelLedger("policy", lineage=lineage)
    restored = await ledger.restore(directory=tmp_path)
    assert (restored["checkpoint_id"], restored["rollouts"], restored["rows"]) == ("ck-1", 1, 1)
    assert ledger.tombstones() == (A0, B0)
    assert not ledger.is_fenced(A1)
    ledger.record_call(A1, model_call_id="call-2", delta_len=2, staging_key="s2", parent=CallRef("rollout-a", "call-1"))
    row = ledger.call(CallRef("rollout-a-a1", "call-2"))
    assert row is not None
    assert (row["prev_len"], row["cum_len"], row["parent_capture_key"]) == (3, 5, "rollout-a")
    assert row["staging_chain"] == ["stage/rollout-a/call-1", "s2"]


async def test_a_restored_rollout_that_has_not_called_yet_is_in_the_next_cut(tmp_path: Path) -> None:
    """Its root names the old lineage under the new attempt; the cut after next fences the new attempt as well."""
    await export(ledger_with(A0), tmp_path / "one", index_of(tmp_path / "one", root(A0)))
    second = ModelLedger("policy")
    await second.restore(directory=tmp_path / "one")
    committed = await export(second, tmp_path / "two", index_of(tmp_path / "two", root(A1, key="rollout-a")))
    assert (committed["rollouts"], committed["excluded_inactive"]) == (1, 0)
    third = ModelLedger("policy")
    await third.restore(directory=tmp_path / "two")
    assert third.tombstones() == (A0, A1)
    assert third.call(CallRef("rollout-a", "call-1")) is not None


async def test_only_a_fresh_ledger_is_restored(tmp_path: Path) -> None:
    """A process that has served calls, was restored before, or has other lineage refuses and keeps what it has."""
    await export(ledger_with(A0), tmp_path, index_of(tmp_path, root(A0)))
    served = ledger_with(B0)
    with refused(RefusalCode.LEDGER_MISMATCH, "has served 1 attempts"):
        await served.restore(directory=tmp_path)
    assert served.tombstones() == ()
    restored = ModelLedger("policy")
    await restored.restore(directory=tmp_path)
    with refused(RefusalCode.LEDGER_MISMATCH, "restored before"):
        await restored.restore(directory=tmp_path)
    lineage = MemoryLineage()
    lineage.append("stray", b"{}\n")
    with refused(RefusalCode.LEDGER_MISMATCH, "stray"):
        await ModelLedger("policy", lineage=lineage).restore(directory=tmp_path)
    assert lineage.keys() == {"stray"}


async def test_a_restore_that_broke_off_while_copying_can_be_repeated(tmp_path: Path) -> None:
    """Files of the same save that are there already are no reason to refuse (9, 60)."""
    attempts = [AttemptId(f"r{number}", 0) for number in range(3)]
    reference = index_of(tmp_path / "save", *(root(attempt) for attempt in attempts))
    await export(ledger_with(*attempts), tmp_path / "save", reference)
    files = FailingFiles(fail_at=4)
    lineage = DirectoryLineage(tmp_path / "lineage", files=files)
    ledger = ModelLedger("policy", lineage=lineage)
    with refused(RefusalCode.LEDGER_MISMATCH, "could not be installed"):
        await ledger.restore(directory=tmp_path / "save")
    assert ledger.tombstones() == ()
    assert 0 < len(lineage.keys()) < 3
    files.fail_at = None
    assert (await ledger.restore(directory=tmp_path / "save"))["rollouts"] == 3
    assert ledger.tombstones() == tuple(attempts)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema_version": 3}, "schema 3"),
        ({"server_name": "other"}, "other"),
        ({"rollouts": {"rollout-a": {"bytes": 0, "files": {}, "rows": 0}}}, "rollout-a"),
        ({"tombstones": "none"}, "tombstones"),
    ],
)
async def test_a_manifest_that_is_not_ours_to_restore_is_refused(
    change: dict[str, object], text: str, tmp_path: Path
) -> None:
    """A newer schema, another server's ledger, and lineage that is not in its one file."""
    await export(ledger_with(A0), tmp_path, index_of(tmp_path, root(A0)))
    path = tmp_path / "model-ledger/policy/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    ledger = ModelLedger("policy")
    with refused(RefusalCode.LEDGER_MISMATCH, text):
        await ledger.restore(directory=tmp_path)
    assert ledger.tombstones() == ()


def test_a_fenced_attempt_leaves_no_rows() -> None:
    """A call that ends after its attempt was aborted is not recorded."""
    ledger = ledger_with(A0)
    ledger.fence(A0)
    with refused(RefusalCode.STALE_ATTEMPT, "fenced"):
        finished_call(ledger, A0, "call-2")
    assert ledger.call(CallRef("rollout-a", "call-2")) is None


def test_a_call_is_recorded_once_and_only_after_its_parent() -> None:
    """A repeated id and an unknown parent would make the lineage useless, so they are refused at once."""
    ledger = ledger_with(A0)
    with refused(RefusalCode.LEDGER_MISMATCH, "recorded already"):
        finished_call(ledger, A0)
    with refused(RefusalCode.LEDGER_MISMATCH, "did not finish here"):
        ledger.record_call(A0, model_call_id="c2", delta_len=1, staging_key="s", parent=CallRef("rollout-a", "call-9"))
    with pytest.raises(ValueError, match="model_call_id"):
        ledger.append_row(A0, {"delta_len": 1})
    with pytest.raises(ValueError, match="JSON"):
        ledger.append_row(A0, {"model_call_id": "c3", "score": float("nan")})


def test_two_attempts_never_share_a_capture_key() -> None:
    """``x-a2`` attempt 0 and ``x`` attempt 2 would be one file: the second is refused (9, 31)."""
    ledger = ModelLedger("policy")
    ledger.note_call(AttemptId("x-a2", 0))
    with refused(RefusalCode.EXECUTION_IDENTITY_MISMATCH, "another id"):
        ledger.note_call(AttemptId("x", 2))
    ledger.note_call(AttemptId("x", 1))
    ledger.note_call(AttemptId("x-a2", 0))


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x" * 129, ".hidden"])
def test_a_ledger_needs_a_name_that_can_be_a_folder(name: str) -> None:
    """A bad name is refused when the ledger is made, not at the first commit."""
    with pytest.raises(InvalidIdentity):
        ModelLedger(name)


def test_a_lineage_directory_is_not_left_by_a_capture_key(tmp_path: Path) -> None:
    """A key that could be a path is refused."""
    lineage = DirectoryLineage(tmp_path / "lineage")
    for key in ("../x", "a/b", "", "x" * 300, "x\n"):
        with pytest.raises(InvalidIdentity):
            lineage.append(key, b"{}\n")
    assert not (tmp_path / "lineage").exists()
