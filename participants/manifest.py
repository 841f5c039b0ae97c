"""Reading and writing ``MANIFEST.json`` as bytes, and its JSON Schema. No file is opened here.

The manifest is written last and has no final newline: a file that was cut anywhere, padded or mixed does not parse, and
is refused with SnapshotInvalid (field cases F-41, F-47).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import ValidationError

from quiesce.participants.capabilities import Contract
from quiesce.participants.errors import InvalidIdentity, SnapshotInvalid
from quiesce.participants.excerpts import escaped
from quiesce.participants.layout import index_path, manifest_path
from quiesce.participants.manifest_models import SCHEMA_VERSION, ParticipantEntry, SnapshotManifest
from quiesce.participants.strict_json import NotStrictJson, parse, pretty
from quiesce.participants.validation import first_problems

__all__ = ["MANIFEST_NAME", "deployment_folder", "load_manifest", "manifest_bytes", "manifest_schema"]

MANIFEST_NAME: Final = "MANIFEST.json"
MANIFEST_BYTES_MAX: Final = 256 << 20
TRAINER_FOLDER: Final = "trainer"


def deployment_folder(deployment: str) -> str:
    """Where the files of one deployment lie, relative to the snapshot's folder."""
    return f"deployments/{deployment}"


def manifest_bytes(manifest: SnapshotManifest) -> bytes:
    """The exact content of the file; it is proven to read back as it was.

    Raises:
        SnapshotInvalid: the manifest contradicts itself.
    """
    content = pretty(manifest.model_dump(mode="json"), indent=2, sort_keys=False).encode()
    if load_manifest(content) != manifest:
        raise SnapshotInvalid(subject="manifest", file=MANIFEST_NAME, reason="would not read back as it was written")
    return content


def load_manifest(content: bytes) -> SnapshotManifest:
    """The manifest in ``content``.

    Raises:
        SnapshotInvalid: torn, padded, not UTF-8, duplicate keys, of another shape, of a newer version (both are
            named), or contradicting itself.
    """
    try:
        value = parse(content, bytes_max=MANIFEST_BYTES_MAX)
    except NotStrictJson as error:
        raise _refused(f"cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise _refused("is JSON, but no object")
    _check_version(value.get("schema_version"))
    try:
        manifest = SnapshotManifest.model_validate_json(content)
    except ValidationError as error:
        raise _refused(first_problems(error)) from None
    for problem in _contradictions(manifest):
        raise _refused(problem)
    return manifest


def manifest_schema() -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of the file."""
    schema = SnapshotManifest.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _refused(reason: str) -> SnapshotInvalid:
    return SnapshotInvalid(subject="manifest", file=MANIFEST_NAME, reason=reason)


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise _refused(f"schema_version is {escaped(version)}, expected a number")
    if version > SCHEMA_VERSION:
        raise _refused(
            f"has schema {version}, but this version of Quiesce reads up to {SCHEMA_VERSION}: use a newer Quiesce"
        )


def _contradictions(manifest: SnapshotManifest) -> Iterator[str]:
    yield from _twice("participant", ((entry.deployment, entry.name) for entry in manifest.participants))
    yield from _twice("file", [*(file.path for file in manifest.files), *(file.path for file in manifest.trainer)])
    going_on = [(entry.deployment, entry.attempt) for entry in manifest.rollouts]
    starting_over = [(entry.deployment, entry.attempt) for entry in manifest.restarting]
    yield from _twice("rollout", [*going_on, *starting_over])
    for name, _ in (*going_on, *starting_over):
        if name not in manifest.deployments:
            yield f"rollouts: {escaped(name)} is no deployment of this snapshot"
    yield from _participants(manifest)
    yield from _misplaced(manifest)


def _misplaced(manifest: SnapshotManifest) -> Iterator[str]:
    folders = tuple(f"{deployment_folder(name)}/" for name in manifest.deployments)
    for file in manifest.files:
        if not file.path.startswith(folders):
            yield f"files: {escaped(file.path)} belongs to no deployment"
    for trainer_file in manifest.trainer:
        if not trainer_file.path.startswith(f"{TRAINER_FOLDER}/"):
            yield f"trainer: {escaped(trainer_file.path)} does not lie in {TRAINER_FOLDER}/"


def _twice(what: str, keys: Iterable[object]) -> Iterator[str]:
    for key, count in Counter(keys).items():
        if count > 1:
            yield f"names {what} {escaped(str(key))} {count} times"


def _participants(manifest: SnapshotManifest) -> Iterator[str]:
    digests = {file.path: file.sha256 for file in manifest.files}
    contracts = {
        (name, contract.server_name): contract
        for name, deployment in manifest.deployments.items()
        for contract in deployment.topology.topology().contracts
    }
    for entry in manifest.participants:
        yield from _participant(entry, contracts.get((entry.deployment, entry.name)), digests)


def _participant(entry: ParticipantEntry, contract: Contract | None, digests: dict[str, str]) -> Iterator[str]:
    who = f"participant {escaped(entry.name)}"
    if contract is None or (contract.role, contract.participant_name) != (entry.role, entry.participant_name):
        yield f"{who} is not in the topology of deployment {escaped(entry.deployment)} with this role and own name"
        return
    try:
        expected = manifest_path(entry.role, entry.participant_name), index_path(entry.role, entry.participant_name)
    except (InvalidIdentity, KeyError):
        yield f"{who} cannot have exported: its own name or its role does not allow it"
        return
    found = entry.manifest_path, entry.index.relative_path if entry.index else None
    if found != expected:
        yield f"{who} has its manifest and index at {escaped(str(found))}, expected {escaped(str(expected))}"
    if digests.get(f"{deployment_folder(entry.deployment)}/{entry.manifest_path}") != entry.manifest_digest:
        yield f"{who}: its manifest is not among the files with the digest {entry.manifest_digest}"
