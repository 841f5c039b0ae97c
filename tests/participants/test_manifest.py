"""``MANIFEST.json``: strict, versioned, never half read, and never contradicting itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.artefact_tree import agent_export, boundary, policy_export, resources_export
from support.declarations import healthy
from support.snapshots import entry_of

from quiesce.participants.artefact_writing import continuation_row
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.identity import AttemptId
from quiesce.participants.manifest import deployment_folder, load_manifest, manifest_bytes, manifest_schema
from quiesce.participants.manifest_models import (
    METADATA_BYTES_MAX,
    DeploymentEntry,
    FileEntry,
    RestartingEntry,
    RolloutEntry,
    SnapshotManifest,
    TopologyEntry,
    TrainerFileEntry,
)
from quiesce.participants.topology import Topology

Json = Any  # JSON has no shape that a type could hold
RECORDS = [boundary("job7.r1"), boundary("job7.r3")]
ROOTS = [row for record in RECORDS if (row := continuation_row(record))]
SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "manifest-1.schema.json"


def whole(**changes: Json) -> SnapshotManifest:
    """A manifest as a cut over one participant of each role would write it."""
    topology = Topology.of(participant.contract for participant in healthy())
    exports = [
        agent_export(records=RECORDS),
        policy_export(roots=ROOTS),
        resources_export(attempts=[AttemptId("job7.r1", 0)]),
    ]
    files = [file for export in exports for file in export.verify().files]
    folder = deployment_folder("main")
    deployment = DeploymentEntry(
        topology=TopologyEntry.model_validate_json(json.dumps(topology.as_object())),
        fingerprint=topology.fingerprint(),
        storage_keys=("policy_model/job7.r1", "policy_model/job7.r3"),
    )
    fields: dict[str, Json] = {
        "checkpoint_id": "step-40-0123abcd",
        "label": "step-40",
        "created_at": 1_800_000_000.25,
        "deployments": {"main": deployment},
        "participants": tuple(entry_of(export) for export in exports),
        "rollouts": tuple(
            RolloutEntry(deployment="main", agent="solver_agent", rollout_id=name, attempt_index=0)
            for name in ("job7.r1", "job7.r3")
        ),
        "restarting": (
            RestartingEntry(
                deployment="main", agent="solver_agent", rollout_id="job7.r9", attempt_index=1, reason="no boundary"
            ),
        ),
        "files": tuple(
            FileEntry(path=f"{folder}/{file.path}", bytes=file.size_bytes, sha256=file.sha256) for file in files
        ),
        "trainer": (TrainerFileEntry(path="trainer/state.bin", bytes=7, sha256=None),),
        "metadata": {"step": 40, "note": "Größe \N{GRINNING FACE}"},
    }
    return SnapshotManifest(**(fields | changes))


def test_a_manifest_reads_back_as_it_was_written() -> None:
    """What a cut writes, everybody else reads, and receipts and topology come back out of it."""
    manifest = whole()
    again = load_manifest(manifest_bytes(manifest))
    assert again == manifest
    assert again.participants[0].receipt() == agent_export(records=RECORDS).receipt
    assert again.deployments["main"].topology.topology().fingerprint() == again.deployments["main"].fingerprint
    assert again.restarting[0].attempt == AttemptId("job7.r9", 1)


def test_a_manifest_without_participants_is_one() -> None:
    """Where quiesce is switched off, a snapshot holds the trainer's part alone."""
    manifest = whole(deployments={}, participants=(), rollouts=(), restarting=(), files=())
    assert load_manifest(manifest_bytes(manifest)) == manifest


def test_every_torn_manifest_is_refused() -> None:
    """Cut at any byte, padded with NUL or blank, or empty: never read (field cases F-41)."""
    content = manifest_bytes(whole())
    step = max(1, len(content) // 700)
    for length in [*range(0, len(content), step), *range(len(content) - 50, len(content))]:
        with pytest.raises(SnapshotInvalid):
            load_manifest(content[:length])
        with pytest.raises(SnapshotInvalid):
            load_manifest(content[:length].ljust(len(content), b"\0"))


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_and_raise_nothing_else(content: bytes) -> None:
    """Whatever stands in the file, the error is SnapshotInvalid and names the manifest."""
    with pytest.raises(SnapshotInvalid, match=r"MANIFEST\.json"):
        load_manifest(content)


Edit = Callable[[Json], object]


def _set(*path: str | int, to: Json) -> Edit:
    def edit(manifest: Json) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = to

    return edit


def _del(*path: str | int) -> Edit:
    def edit(manifest: Json) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        del manifest[path[-1]]

    return edit


def _again(list_name: str) -> Edit:
    return lambda manifest: manifest[list_name].append(manifest[list_name][0])


EDITS: list[tuple[str, Edit, str]] = [
    ("unknown field", _set("surprise", to=1), "surprise"),
    ("unknown field inside", _set("participants", 0, "surprise", to=1), r"participants\.0\.surprise"),
    ("newer schema", _set("schema_version", to=2), "schema 2, but this version of Quiesce reads up to 1"),
    ("much newer schema", _set("schema_version", to=10**30), "reads up to 1"),
    ("no schema", _del("schema_version"), "schema_version is None"),
    ("schema as text", _set("schema_version", to="1"), "schema_version"),
    ("schema as truth", _set("schema_version", to=True), "schema_version"),
    ("old schema", _set("schema_version", to=0), "schema_version"),
    ("another kind", _set("kind", to="other"), "kind"),
    ("missing field", _del("files"), "files"),
    ("number as text", _set("files", 0, "bytes", to="7"), r"files\.0\.bytes"),
    ("negative size", _set("files", 0, "bytes", to=-1), r"files\.0\.bytes"),
    ("path upwards", _set("files", 0, "path", to="deployments/main/../../x"), r"files\.0\.path"),
    ("absolute path", _set("trainer", 0, "path", to="/etc/passwd"), r"trainer\.0\.path"),
    ("trainer file elsewhere", _set("trainer", 0, "path", to="deployments/main/x"), "does not lie in trainer/"),
    ("file of no deployment", _set("files", 0, "path", to="trainer/x"), "belongs to no deployment"),
    ("id that is a path", _set("checkpoint_id", to="../x"), "checkpoint_id"),
    ("label latest", _set("label", to="latest"), "label"),
    ("not a finite time", _set("created_at", to="soon"), "created_at"),
    ("digest of 63", _set("files", 0, "sha256", to="a" * 63), r"files\.0\.sha256"),
    ("other fingerprint", _set("deployments", "main", "fingerprint", to="0" * 64), "fingerprint"),
    (
        "other topology",
        _set("deployments", "main", "topology", "participants", 0, "multi_process", "num_workers", to=2),
        "fingerprint",
    ),
    ("keys twice", _set("deployments", "main", "storage_keys", to=["a", "a"]), "storage_keys"),
    ("participant twice", _again("participants"), "names participant"),
    ("file twice", _again("files"), "names file"),
    ("rollout twice", _again("rollouts"), "names rollout"),
    (
        "rollout in two lists",
        lambda m: m["restarting"][0].update(rollout_id="job7.r1", attempt_index=0),
        "names rollout",
    ),
    ("rollout of nowhere", _set("rollouts", 0, "deployment", to="second"), "'second' is no deployment"),
    ("participant of nowhere", _set("participants", 0, "deployment", to="second"), "not in the topology"),
    ("participant of another role", _set("participants", 0, "role", to="resources"), "not in the topology"),
    ("unknown participant", _set("participants", 0, "name", to="nobody"), "not in the topology"),
    (
        "manifest elsewhere",
        _set("participants", 2, "manifest_path", to="resources/x.json"),
        "has its manifest and index at",
    ),
    ("index dropped", _set("participants", 0, "index", to=None), "has its manifest and index at"),
    ("manifest not among the files", _set("participants", 0, "manifest_digest", to="0" * 64), "not among the files"),
    ("metadata that is a list", _set("metadata", to=[]), "metadata"),
    ("metadata too large", _set("metadata", to={"a": "x" * METADATA_BYTES_MAX}), "at most"),
]


@pytest.mark.parametrize(("edit", "reason"), [row[1:] for row in EDITS], ids=[row[0] for row in EDITS])
def test_each_change_is_refused_by_name(edit: Edit, reason: str) -> None:
    """One thing that is wrong is refused with the path of the field, or with what contradicts what."""
    manifest = json.loads(manifest_bytes(whole()))
    edit(manifest)
    with pytest.raises(SnapshotInvalid, match=reason) as refused:
        load_manifest(json.dumps(manifest).encode())
    assert refused.value.subject == "manifest"


def test_an_auxiliary_model_cannot_have_exported() -> None:
    """The topology may name it, but no participant entry can be its."""
    manifest = json.loads(manifest_bytes(whole()))
    manifest["participants"][1] |= {"name": "judge", "participant_name": "judge", "role": "auxiliary"}
    with pytest.raises(SnapshotInvalid, match="'judge' cannot have exported"):
        load_manifest(json.dumps(manifest).encode())


def test_a_list_is_no_manifest() -> None:
    """Valid JSON of another shape is refused."""
    with pytest.raises(SnapshotInvalid, match="no object"):
        load_manifest(b"[]")


def test_a_key_that_stands_twice_is_refused() -> None:
    """Two readers could disagree on such a file (field cases F-47)."""
    content = manifest_bytes(whole()).replace(b'"label":', b'"label": "other",\n  "label":')
    with pytest.raises(SnapshotInvalid, match="'label' stands twice"):
        load_manifest(content)


def test_a_manifest_that_contradicts_itself_is_not_written() -> None:
    """The same checks stand before writing and after reading."""
    with pytest.raises(SnapshotInvalid, match="names file"):
        manifest_bytes(whole(files=whole().files * 2))


@pytest.mark.parametrize(
    "metadata",
    [{"a": float("nan")}, {"a": "\ud83d"}, {"a": {1}}, {7: "a"}, {"a": "x" * METADATA_BYTES_MAX}],
    ids=lambda metadata: ascii(metadata)[:40],
)
def test_metadata_that_could_not_be_read_back_is_refused(metadata: dict[Any, Any]) -> None:
    """What the embedding code gives must be JSON, whole and of bounded size."""
    with pytest.raises(ValidationError):
        whole(metadata=metadata)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_any_metadata_comes_back_as_it_was_given(metadata: dict[str, Json]) -> None:
    """Text in any script, numbers and nesting survive."""
    manifest = whole(deployments={}, participants=(), rollouts=(), restarting=(), files=(), metadata=metadata)
    assert load_manifest(manifest_bytes(manifest)).metadata == metadata


@pytest.mark.source
def test_the_published_schema_is_that_of_the_code() -> None:
    """``docs/schemas`` holds the JSON Schema of this version; it forbids unknown fields everywhere."""
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == manifest_schema()
    definitions = manifest_schema()["$defs"]
    assert isinstance(definitions, dict)
    objects = [item for item in definitions.values() if item.get("type") == "object"]
    assert len(objects) >= 10
    assert all(item["additionalProperties"] is False for item in objects)
