"""Verification of exports: real ones pass, and everything that can be wrong is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.artefact_tree import (
    CHECKPOINT,
    Exported,
    MemoryReader,
    agent_export,
    boundary,
    policy_export,
    resources_export,
)
from support.recorded_calls import OWN_NAMES, spec_of
from support.recordings import exchanges_of, trees

from quiesce.fsm.vocabulary import Outcome, Role
from quiesce.participants.artefact_records import ContinuationRow, StorageRow
from quiesce.participants.artefact_writing import continuation_row, reference_entry, sha256_hex
from quiesce.participants.artefacts import cross_check, verify_export
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import manifest_path
from quiesce.participants.replies import ExportReceipt

TREES = trees()
ROLE_OF = {"policy": Role.POLICY, "agent": Role.AGENT, "resources": Role.RESOURCES}


def _recorded_receipts(scenario: str) -> dict[str, ExportReceipt]:
    """What the servers of a scenario reported when they committed."""
    found: dict[str, ExportReceipt] = {}
    for exchange in exchanges_of(scenario):
        if exchange.path.endswith("commit") and exchange.status == 200:
            reading = GymA().read(spec_of(exchange), exchange.status, exchange.headers, exchange.body)
            assert reading.outcome is Outcome.EXPORTED
            assert isinstance(reading.payload, ExportReceipt)
            found[exchange.component] = reading.payload
    return found


WITH_COMMITS = [
    "full_prepare_commit_resume",
    "full_restore_resume",
    "replay_same_id",
    "resources_prepare_refuses_traffic",
    "status_after_commit_and_restore",
]


@pytest.mark.parametrize("scenario", WITH_COMMITS)
def test_recorded_trees_are_what_the_servers_reported(scenario: str) -> None:
    """Every file of the tree is verified against the recorded commit replies, and none is left over."""
    files = TREES[f"{scenario}/<checkpoint_dir>"]
    exports = [
        verify_export(
            participant=component,
            role=ROLE_OF[component],
            participant_name=OWN_NAMES[component],
            checkpoint_id="ck-1",
            receipt=receipt,
            reader=MemoryReader(dict(files)),
        )
        for component, receipt in _recorded_receipts(scenario).items()
    ]
    assert {file.path for export in exports for file in export.files} == set(files)
    assert all(sha256_hex(files[file.path]) == file.sha256 for export in exports for file in export.files)
    keys = cross_check(exports)
    assert keys == (("stage/rollout-a/call-1",) if "model-ledger/policy/rollout-a.lineage.jsonl" in files else ())


def _from_tree(place: str, component: str) -> Exported:
    """A participant's part of a tree whose commit replies were not recorded: its manifest is taken as it is."""
    files = TREES[place]
    role, name = ROLE_OF[component], OWN_NAMES[component]
    path = manifest_path(role, name)
    return Exported(MemoryReader(dict(files)), role, name, ExportReceipt(path, sha256_hex(files[path]), None))


@pytest.mark.parametrize("component", ["policy", "agent", "resources"])
def test_the_tree_that_was_restored_from_is_whole(component: str) -> None:
    """The directory from which the recorded servers restored passes our readers too."""
    assert _from_tree("restore_missing_dir/<checkpoint_dir>", component).verify("ck-1").files


@pytest.mark.parametrize(
    ("component", "file"),
    [("policy", "rollout-a.lineage.jsonl"), ("agent", "rollout-a.a0.json"), ("resources", "rollout-a.a0.json")],
)
def test_the_tampered_tree_is_refused_where_the_servers_refused_it(component: str, file: str) -> None:
    """One byte more in a file of each role is found, and the file is named."""
    with pytest.raises(SnapshotInvalid, match="has digest") as refused:
        _from_tree("restore_tampered/<checkpoint_dir>", component).verify("ck-1")
    assert refused.value.file.endswith(file)


RECORDS = [boundary("job7.r1"), boundary("job7.r3", call="call-9"), boundary("job7.r5", attempt=2, call=None)]
ROOTS = [row for record in RECORDS if (row := continuation_row(record))]


def test_an_agent_export_gives_its_attempts_and_roots() -> None:
    """A boundary without a call is exported without a root."""
    export = agent_export(records=RECORDS).verify()
    assert export.attempts == tuple(record.attempt for record in RECORDS)
    assert export.roots == tuple(ROOTS)
    assert export.checkpoint_id == CHECKPOINT


def test_a_policy_export_gives_its_keys_and_what_it_will_fence() -> None:
    """Storage keys and source attempts are what the trainer and a restore need."""
    export = policy_export(roots=ROOTS).verify()
    assert export.storage_keys == ("policy_model/job7.r1", "policy_model/job7.r3")
    assert export.source_attempts == (AttemptId("job7.r1", 0), AttemptId("job7.r3", 0))


def test_empty_exports_are_exports() -> None:
    """Participants with nothing to save still write a manifest, and it verifies."""
    exports = [agent_export().verify(), policy_export().verify(), resources_export().verify()]
    assert cross_check(exports) == ()


def test_blank_lines_are_skipped_but_digested() -> None:
    """A reference counts no blank line, but digest and size are those of the whole file (wire-protocol 6.2)."""
    export = agent_export(records=RECORDS)
    index = export.receipt.index
    assert index is not None
    padded = export.reader.text(export.index) + "\n\n"
    _set_index(export, padded.encode(), records=2)
    assert len(export.verify().roots) == 2


def test_digests_in_upper_case_are_the_same_digests() -> None:
    """Upper case changes no number (field cases F-46)."""
    export = agent_export(records=RECORDS)
    manifest = json.loads(export.reader.text(export.manifest))
    manifest["files"] = {name: digest.upper() for name, digest in manifest["files"].items()}
    export.replace_manifest(json.dumps(manifest).encode())
    assert export.verify().attempts


def test_state_that_is_no_utf8_text_is_only_digested() -> None:
    """An agent's state is its own: half a surrogate in it is written escaped and does not stop a cut."""
    assert agent_export(records=[boundary("r", agent_state={"text": "\ud83d"})]).verify().attempts


def _set_index(export: Exported, content: bytes, records: int) -> None:
    export.reader.files[export.index] = content
    assert export.receipt.index is not None
    index = replace(export.receipt.index, sha256=sha256_hex(content), size_bytes=len(content), records=records)
    manifest = json.loads(export.reader.text(export.manifest))
    key = "continuation_index" if export.role is Role.AGENT else "storage_reference_index"
    manifest[key] |= {"sha256": index.sha256, "bytes": index.size_bytes, "records": records}
    export.receipt = replace(export.receipt, index=index)
    export.replace_manifest(json.dumps(manifest).encode())


Damage = Callable[[Exported], object]


def _file(name: str, content: bytes | OSError | None) -> Damage:
    def damage(export: Exported) -> None:
        path = f"{export.folder}/{name}"
        if content is None:
            del export.reader.files[path]
        else:
            export.reader.files[path] = content

    return damage


def _manifest(**changes: object) -> Damage:
    def damage(export: Exported) -> None:
        manifest = json.loads(export.reader.text(export.manifest)) | changes
        export.replace_manifest(json.dumps({key: item for key, item in manifest.items() if item is not ...}).encode())

    return damage


def _receipt(**changes: object) -> Damage:
    def damage(export: Exported) -> None:
        export.receipt = replace(export.receipt, **changes)  # type: ignore[arg-type]  # names and types vary by row

    return damage


def _renamed(old: str, new: str) -> Damage:
    def damage(export: Exported) -> None:
        manifest = json.loads(export.reader.text(export.manifest))
        manifest["files"][new] = manifest["files"].pop(old)
        if f"{export.folder}/{old}" in export.reader.files:
            export.reader.files[f"{export.folder}/{new}"] = export.reader.files.pop(f"{export.folder}/{old}")
        export.replace_manifest(json.dumps(manifest).encode())

    return damage


def _rows(*rows: ContinuationRow) -> Exported:
    return agent_export(records=RECORDS, rows=rows)


A0, A1 = ROOTS
FIRST = "job7.r1.a0.json"
DAMAGES: list[tuple[str, Damage, str]] = [
    ("record missing", _file(FIRST, None), "does not exist"),
    ("record empty", _file(FIRST, b""), "is empty"),
    ("record torn", _file(FIRST, b'{"rollout_id": "job7'), "not JSON"),
    ("record not UTF-8", _file(FIRST, b"\xff{}"), "not UTF-8"),
    ("record with a key twice", _file(FIRST, b'{"a": 1, "a": 2}'), "stands twice"),
    ("record of another shape", _file(FIRST, b"[]"), "no object"),
    ("record with a number as text", _file(FIRST, b'{"rollout_id":"a","attempt_index":"0"}'), "attempt_index"),
    ("record is a link", _file(FIRST, OSError(40, "Too many levels of symbolic links")), "symbolic links"),
    ("index missing", _file("continuations.jsonl", None), "does not exist"),
    ("index longer", _file("continuations.jsonl", b"{}\n"), "line 1 rollout_id"),
    ("manifest missing", _file("manifest.json", None), "does not exist"),
    ("manifest is another", _receipt(manifest_digest="0" * 64), "has digest"),
    ("manifest torn", lambda export: export.replace_manifest(b"{"), "not JSON"),
    ("manifest of another checkpoint", _manifest(checkpoint_id="step-41"), "checkpoint_id"),
    ("manifest of another agent", _manifest(instance_name="other"), "instance_name"),
    ("manifest without an instance", _manifest(instance_name=None), "instance_name"),
    ("manifest of a newer schema", _manifest(schema_version=2), "schema 2; this version reads up to 1"),
    ("manifest without files", _manifest(files=...), "files"),
    ("manifest that names a path", _renamed(FIRST, "../x.json"), "outside its own folder"),
    ("manifest that names a parent", _renamed(FIRST, ".."), "segment"),
    ("manifest that names nothing", _renamed(FIRST, ""), "segment"),
    ("record under another name", _renamed(FIRST, "job7.r2.a0.json"), "the name that its content gives"),
    ("fewer records than reported", _receipt(counts={"records": 4}), "has 3 records, but the participant reported 4"),
    (
        "another index than reported",
        lambda export: _receipt(
            index=replace(export.receipt.index, records=3)  # type: ignore[type-var]  # it has one
        )(export),
        "another index",
    ),
    (
        "index elsewhere",
        _manifest(
            continuation_index={
                "schema_version": 1,
                "relative_path": "agent/x.jsonl",
                "sha256": "0" * 64,
                "records": 0,
                "bytes": 0,
            }
        ),
        "the path of its index",
    ),
]


@pytest.mark.parametrize(("damage", "reason"), [row[1:] for row in DAMAGES], ids=[row[0] for row in DAMAGES])
def test_each_damage_of_an_agent_export_is_named(damage: Damage, reason: str) -> None:
    """The refusal names participant, file and reason."""
    export = agent_export(records=RECORDS)
    damage(export)
    with pytest.raises(SnapshotInvalid) as refused:
        export.verify()
    assert refused.value.subject == "main/solver_agent"
    assert reason in str(refused.value)
    assert refused.value.file


def test_wrong_size_and_wrong_count_of_an_index_are_told_apart() -> None:
    """Digest, size and count are compared one after another, each with both values."""
    right = agent_export(records=RECORDS).receipt.index
    assert right is not None
    for named, reason in (
        (replace(right, size_bytes=1), "bytes, expected 1"),
        (replace(right, records=7), "2 rows, expected 7"),
    ):
        wrong = agent_export(records=RECORDS)
        _manifest(continuation_index=reference_entry(named))(wrong)
        wrong.receipt = replace(wrong.receipt, index=named)
        with pytest.raises(SnapshotInvalid, match=reason):
            wrong.verify()


ODD_ROWS = [
    ("a row is missing", (A0,), "lacks the row of 'job7.r3 attempt 0'"),
    ("a row stands twice", (A0, A0, A1), "twice or without a record"),
    (
        "a row without a record",
        (A0, A1, A1.model_copy(update={"capture_key": "z", "rollout_id": "z"})),
        "without a record",
    ),
    ("rows out of order", (A1, A0), "not sorted"),
    ("another call", (A0.model_copy(update={"last_committed_model_call_id": "call-7"}), A1), "call id"),
    ("another's capture key", (A0.model_copy(update={"capture_key": "job7.r0"}), A1), "does not belong"),
    ("a later attempt's key", (A0.model_copy(update={"capture_key": "job7.r1-a1"}), A1), "does not belong"),
    ("other revisions", (A0.model_copy(update={"resource_state_revisions": {"t": 1}}), A1), "revisions"),
]


@pytest.mark.parametrize(("rows", "reason"), [row[1:] for row in ODD_ROWS], ids=[row[0] for row in ODD_ROWS])
def test_the_index_must_be_the_set_that_the_records_give(rows: tuple[ContinuationRow, ...], reason: str) -> None:
    """An index that is well-formed but is not derived from the records is refused."""
    with pytest.raises(SnapshotInvalid, match=reason):
        _rows(*rows).verify()


def test_an_earlier_attempts_key_is_allowed() -> None:
    """A restored execution that has not called again goes on from a call of its earlier attempt."""
    record = boundary("r", attempt=1)
    row = continuation_row(record, captured_as="r")
    assert row is not None
    assert agent_export(records=[record], rows=[row]).verify().roots == (row,)


def _storage(key: str, capture_key: str = "job7.r1") -> StorageRow:
    return StorageRow(capture_key=capture_key, boundary_model_call_id="c", kind="token_capture_staging", key=key)


POLICY_DAMAGES: list[tuple[str, Callable[[], Exported], str]] = [
    ("key twice", lambda: policy_export(roots=ROOTS, storage=[_storage("a"), _storage("a")]), "key 'a' twice"),
    ("keys out of order", lambda: policy_export(roots=ROOTS, storage=[_storage("b"), _storage("a")]), "not sorted"),
    ("a foreign lineage", lambda: policy_export(roots=ROOTS, storage=[_storage("a", "z")]), "was not exported"),
    ("schema 3", lambda: _damaged(policy_export(roots=ROOTS), _manifest(schema_version=3)), "schema 3"),
    ("another server", lambda: _damaged(policy_export(), _manifest(server_name="other")), "server_name"),
    (
        "a lineage row that is no object",
        lambda: _damaged(policy_export(roots=ROOTS), _file("job7.r1.lineage.jsonl", b'{"a":1}\n7\n')),
        "line 2 is JSON, but no object",
    ),
    (
        "a lineage that is torn",
        lambda: _damaged(policy_export(roots=ROOTS), _file("job7.r1.lineage.jsonl", b'{"a":')),
        "line 1 cannot be read",
    ),
    (
        "other rows than reported",
        lambda: _damaged(policy_export(roots=ROOTS), _receipt(counts={"rows": 9})),
        "has 2 rows, but the participant reported 9",
    ),
    (
        "other tombstones than reported",
        lambda: _damaged(policy_export(), _receipt(counts={"excluded_tombstoned": 1})),
        "excluded_tombstoned",
    ),
    ("wrong bytes", lambda: _entry(bytes=1), "the number of bytes of job7.r1"),
    ("wrong rows", lambda: _entry(rows=5), "the number of rows of job7.r1"),
]


def _damaged(export: Exported, damage: Damage) -> Exported:
    damage(export)
    return export


def _entry(**changes: int) -> Exported:
    export = policy_export(roots=ROOTS)
    manifest = json.loads(export.reader.text(export.manifest))
    manifest["rollouts"]["job7.r1"] |= changes
    export.replace_manifest(json.dumps(manifest).encode())
    return export


@pytest.mark.parametrize(
    ("made", "reason"), [row[1:] for row in POLICY_DAMAGES], ids=[row[0] for row in POLICY_DAMAGES]
)
def test_each_damage_of_a_policy_export_is_named(made: Callable[[], Exported], reason: str) -> None:
    """Lineage and storage references are counted, digested and compared with the manifest."""
    with pytest.raises(SnapshotInvalid, match=reason):
        made().verify()


def test_a_resource_export_is_of_its_server_and_count() -> None:
    """Another server's folder or another number of sessions is refused."""
    attempts = [AttemptId("job7.r1", 0), AttemptId("job7.r3", 1)]
    assert resources_export(attempts=attempts).verify().attempts == tuple(attempts)
    with pytest.raises(SnapshotInvalid, match="server_name"):
        _damaged(resources_export(attempts=attempts), _manifest(server_name="other")).verify()
    with pytest.raises(SnapshotInvalid, match="has 2 sessions"):
        _damaged(resources_export(attempts=attempts), _receipt(counts={"sessions": 3})).verify()


def test_a_storage_key_belongs_to_one_policy() -> None:
    """Two policies that claim one key are an error which names both (wire-protocol 7.11)."""
    same = {root.capture_key: ["shared"] for root in ROOTS[:1]}
    one = policy_export("policy_1", ROOTS[:1], same).verify()
    other = policy_export("policy_2", ROOTS[:1], same).verify()
    agent = agent_export(records=RECORDS[:1]).verify()
    with pytest.raises(SnapshotInvalid, match=r"policy_2.*'shared' is also claimed by main/policy_1"):
        cross_check([agent, one, other])


def test_a_policy_exports_for_the_roots_of_this_cut() -> None:
    """A policy that exported for other roots than the agents' is refused: the snapshot would mix two moments."""
    agent = agent_export(records=RECORDS).verify()
    assert cross_check([agent, policy_export(roots=ROOTS).verify()])
    with pytest.raises(SnapshotInvalid, match="other continuation roots than the 2"):
        cross_check([agent, policy_export(roots=ROOTS[:1]).verify()])


def test_an_auxiliary_model_has_no_export() -> None:
    """Asking for one is refused."""
    export = replace(agent_export(), role=Role.AUXILIARY)
    with pytest.raises(SnapshotInvalid, match="auxiliary"):
        export.verify()


WHOLE = agent_export(records=RECORDS)
PLACES = [(path, offset) for path in WHOLE.reader.files for offset in range(len(WHOLE.reader.text(path)))]


@given(st.sampled_from(PLACES), st.integers(1, 255))
def test_any_changed_byte_is_found(place: tuple[str, int], flip: int) -> None:
    """Whichever byte of whichever file changes, verification refuses, and with nothing but SnapshotInvalid."""
    path, offset = place
    export = agent_export(records=RECORDS)
    content = bytearray(export.reader.text(path).encode())
    content[offset] ^= flip
    export.reader.files[path] = bytes(content)
    with pytest.raises(SnapshotInvalid):
        export.verify()


@given(st.sampled_from(sorted(WHOLE.reader.files)), st.binary(max_size=300))
def test_any_other_content_is_found(path: str, content: bytes) -> None:
    """Arbitrary bytes in the place of a file are refused, and with nothing but SnapshotInvalid."""
    export = agent_export(records=RECORDS)
    export.reader.files[path] = content
    with pytest.raises(SnapshotInvalid):
        export.verify()
