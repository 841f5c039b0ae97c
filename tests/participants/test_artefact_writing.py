"""The exact bytes of artefacts: the wire document's vectors, and what real servers wrote."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from support.artefact_tree import boundary
from support.recordings import trees

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_records import (
    AgentManifest,
    BoundaryRecord,
    ContinuationRow,
    ModelManifest,
    ResourcesManifest,
    SessionRecord,
    StorageRow,
)
from quiesce.participants.artefact_writing import (
    agent_manifest_file,
    continuation_row,
    index_file,
    lineage_entry,
    model_manifest_file,
    record_file,
    reference_to,
    resources_manifest_file,
    result_digest,
    result_identity,
    roots_digest,
    sha256_hex,
    storage_rows,
)
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import index_path, lineage_name, manifest_path, record_name

TREES = trees()
TAMPERED = "restore_tampered/<checkpoint_dir>"
INTACT = {place: files for place, files in TREES.items() if place != TAMPERED}
VECTOR_ROW = ContinuationRow(
    rollout_id="job7.r3", attempt_index=0, capture_key="job7.r3", last_committed_model_call_id="mc-0002"
)


def test_the_vectors_of_the_wire_document() -> None:
    """Folder name, empty index, continuation row, roots digest and result digest, to the byte (6.8)."""
    instance = "instance-ba497424a9d475f080ac1c4be7025753381ec832778b55f5b125f1fc60acb9e0"
    assert manifest_path(Role.AGENT, "solver_agent") == f"agent/{instance}/manifest.json"
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (index_file([]), sha256_hex(index_file([]))) == (b"", empty)
    row = index_file([VECTOR_ROW])
    assert len(row) == 127
    assert sha256_hex(row) == "624f8225d66cea63b269005d641e7badbe62644c347767c69a0935e228ffccb1"
    assert roots_digest([VECTOR_ROW]) == "f9ab505f22d310b25504c7cd9446ba3de538fbb85c2174da47d4e778f2d6c8ce"
    result = {"reward": 1.0, "id": "resp-88"}
    assert result_digest(result) == "1d52c6e1c85502763d6953a89cafb6bfde19c79257ed0f92f4ac3b51af5ae734"


def test_seven_trees_are_recorded() -> None:
    """The walk finds the trees, one of them tampered with."""
    assert len(TREES) == 7
    assert TAMPERED in TREES


@pytest.mark.parametrize("place", sorted(INTACT))
def test_what_real_servers_wrote_is_what_we_would_write(place: str) -> None:
    """Every record, index and manifest of a recorded tree, read and written again, has the same bytes."""
    written = 0
    for path, content in INTACT[place].items():
        again = _again(path, content, INTACT[place])
        if again is not None:
            assert again == content, path
            written += 1
    assert written >= 2


def _again(path: str, content: bytes, files: dict[str, bytes]) -> bytes | None:
    room, _, name = path.partition("/")
    if name.endswith("manifest.json"):
        return _manifest_again(room, content, files)
    if path.endswith(".lineage.jsonl"):
        return None  # copied by the server, never made
    if path.endswith(".jsonl"):
        row = ContinuationRow if room == "agent" else StorageRow
        rows = [row.model_validate(json.loads(line)) for line in content.splitlines()]
        return index_file(rows)  # type: ignore[arg-type]  # all rows of one file are of one kind
    record = BoundaryRecord if room == "agent" else SessionRecord
    return record_file(record.model_validate(json.loads(content)))


def _manifest_again(room: str, content: bytes, files: dict[str, bytes]) -> bytes:
    if room == "agent":
        agent = AgentManifest.model_validate(json.loads(content))
        index = agent.continuation_index.neutral()
        assert reference_to(index.relative_path, files[index.relative_path]) == index
        return agent_manifest_file(agent.checkpoint_id, agent.instance_name, agent.files, index)
    if room == "resources":
        resources = ResourcesManifest.model_validate(json.loads(content))
        return resources_manifest_file(resources.checkpoint_id, resources.server_name, resources.files)
    model = ModelManifest.model_validate(json.loads(content))
    lineage = {key: f"model-ledger/policy/{lineage_name(AttemptId(key, 0))}" for key in model.rollouts}
    roots = [
        ContinuationRow.model_validate(json.loads(line))
        for path, text in files.items()
        if path.endswith("continuations.jsonl")
        for line in text.splitlines()
    ]
    return model_manifest_file(
        checkpoint_id=model.checkpoint_id,
        server_name=model.server_name,
        rollouts={key: lineage_entry(path.rsplit("/", 1)[1], files[path]) for key, path in lineage.items()},
        roots=roots,
        excluded_inactive=model.excluded_inactive,
        index=model.storage_reference_index.neutral(),
        tombstones=[entry.attempt for entry in model.tombstones],
        source_attempts=[entry.attempt for entry in reversed(model.source_attempts)],
    )


def test_the_recorded_indexes_follow_from_the_recorded_records() -> None:
    """Our derivation of continuation rows and storage rows gives what the real servers wrote."""
    files = TREES["full_prepare_commit_resume/<checkpoint_dir>"]
    record = BoundaryRecord.model_validate(
        json.loads(
            next(content for path, content in files.items() if path.endswith("rollout-a.a0.json") and "agent" in path)
        )
    )
    row = continuation_row(record)
    assert row is not None
    assert index_file([row]) == files[index_path(Role.AGENT, "agent") or ""]
    lineage = json.loads(files["model-ledger/policy/rollout-a.lineage.jsonl"])
    assert index_file(storage_rows(row, lineage)) == files["model-ledger/policy/storage-references.jsonl"]


def test_a_boundary_without_a_call_has_no_root() -> None:
    """An execution that has not called the model yet goes on from its input and needs no lineage."""
    assert continuation_row(boundary("r", call=None)) is None


def test_a_restored_boundary_names_the_key_of_its_earlier_attempt() -> None:
    """After a restore the last call is still captured under the earlier attempt (wire-protocol 6.7)."""
    row = continuation_row(boundary("r", attempt=1), captured_as="r")
    assert row is not None
    assert (row.attempt_index, row.capture_key) == (1, "r")


def test_a_chain_gives_each_storage_key_once_in_its_order() -> None:
    """The last key usually ends the chain as well and is not named twice."""
    rows = storage_rows(VECTOR_ROW, {"staging_chain": ["b", "a"], "staging_key": "a"})
    assert [row.key for row in rows] == ["b", "a"]
    assert [row.key for row in storage_rows(VECTOR_ROW, {"staging_key": "c"})] == ["c"]
    assert storage_rows(VECTOR_ROW, {}) == ()


@pytest.mark.parametrize("lineage", [{"staging_chain": "a"}, {"staging_chain": [1]}, {"staging_key": ""}])
def test_a_lineage_with_odd_keys_is_refused(lineage: dict[str, object]) -> None:
    """A key that is not text can be no reference."""
    with pytest.raises(ValueError, match="staging"):
        storage_rows(VECTOR_ROW, lineage)


@pytest.mark.parametrize(
    ("result", "identity"),
    [
        ({"id": "a", "response": {"id": "b"}}, "a"),
        ({"id": 7, "response": {"id": "b"}}, "b"),
        ({"id": "", "response": {"id": "x" * 513}}, None),
        ([1], None),
    ],
)
def test_a_result_is_named_by_its_id_its_response_or_its_digest(result: object, identity: str | None) -> None:
    """The identity is always 1..512 characters (wire-protocol 2.15)."""
    assert result_identity(result) == (identity or result_digest(result))


def test_names_of_files_carry_attempt_or_capture_key() -> None:
    """Records are named by attempt, lineage by capture key (wire-protocol 6.1)."""
    assert record_name(AttemptId("job7.r9", 1)) == "job7.r9.a1.json"
    assert lineage_name(AttemptId("job7.r9", 1)) == "job7.r9-a1.lineage.jsonl"
    assert index_path(Role.RESOURCES, "tools") is None
    assert manifest_path(Role.POLICY, "") == "model-ledger/manifest.json"


def test_a_pending_model_call_is_there_exactly_when_the_kind_says_so() -> None:
    """A record that says one thing and holds another is refused (wire-protocol 6.3)."""
    pending = boundary("r", boundary_kind="pending_model", pending_model={"model_call_id": "call-2"})
    assert pending.pending_model == {"model_call_id": "call-2"}
    with pytest.raises(ValidationError, match="pending_model"):
        boundary("r", boundary_kind="pending_model")
    with pytest.raises(ValidationError, match="pending_model"):
        boundary("r", pending_model={})


def test_an_old_record_is_at_the_turn_of_its_boundary() -> None:
    """Schema 1 has no turn; a named turn wins."""
    assert boundary("r", schema_version=1, boundary_index=4).turn == 4
    assert boundary("r", boundary_index=4, turn_index=2).turn == 2
    with pytest.raises(ValidationError, match="schema_version"):
        boundary("r", schema_version=3)
