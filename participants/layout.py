"""Where each participant's artefacts lie under the checkpoint directory (wire-protocol 6.1).

Paths are POSIX text relative to that directory. They are computed by us; a path in a reply is only compared with
them. The names in paths are the participants' own, not the controller's routing names.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.excerpts import escaped
from quiesce.participants.identity import AttemptId, capture_key, check_identity

__all__ = [
    "MANIFEST_NAME",
    "agent_instance",
    "check_participant_name",
    "index_path",
    "lineage_name",
    "manifest_path",
    "participant_folder",
    "record_name",
    "unsafe_path_reason",
]

MANIFEST_NAME: Final = "manifest.json"
AGENT_NAME_BYTES_MAX: Final = 512
_ROOM: Final = {Role.POLICY: "model-ledger", Role.AGENT: "agent", Role.RESOURCES: "resources"}
_INDEX_NAME: Final = {Role.POLICY: "storage-references.jsonl", Role.AGENT: "continuations.jsonl"}


def check_participant_name(role: Role, name: object) -> str:
    """``name``, proven to be usable as the own name of a participant of this role.

    Raises:
        InvalidIdentity: model and resource names become a path as they are, so they must match the identity
            pattern; agent names are hashed and may be any 1..512 bytes of UTF-8 without control characters.
    """
    if role is not Role.AGENT:
        return check_identity(name, field=f"{role.value} name")
    if not isinstance(name, str) or not name:
        raise InvalidIdentity("agent name", f"{escaped(name)} is no text or is empty")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
        raise InvalidIdentity("agent name", f"{escaped(name)} holds a control character or half a character")
    if len(name.encode()) > AGENT_NAME_BYTES_MAX:
        raise InvalidIdentity("agent name", f"{escaped(name)} is longer than {AGENT_NAME_BYTES_MAX} bytes")
    return name


def agent_instance(name: str) -> str:
    """The folder of an agent: ``instance-`` and the SHA-256 of its name in UTF-8."""
    return f"instance-{hashlib.sha256(name.encode()).hexdigest()}"


def participant_folder(role: Role, name: str) -> str:
    """The folder of a participant. A policy or agent without a name (empty text) writes into the room itself.

    Raises:
        InvalidIdentity: the name may not become a path.
        KeyError: the role exports nothing (auxiliary).
    """
    room = _ROOM[role]
    if not name and role is not Role.RESOURCES:
        return room
    checked = check_participant_name(role, name)
    return f"{room}/{agent_instance(checked) if role is Role.AGENT else checked}"


def manifest_path(role: Role, name: str) -> str:
    """The participant's own manifest."""
    return f"{participant_folder(role, name)}/{MANIFEST_NAME}"


def index_path(role: Role, name: str) -> str | None:
    """The participant's index, None where its role has none."""
    index = _INDEX_NAME.get(role)
    return None if index is None else f"{participant_folder(role, name)}/{index}"


def record_name(attempt: AttemptId) -> str:
    """The file of an agent's boundary or of a resource session, inside the participant's folder."""
    return f"{attempt.rollout_id}.a{attempt.attempt_index}.json"


def lineage_name(attempt: AttemptId) -> str:
    """The file of a model's lineage, inside the participant's folder. It is named by the capture key."""
    return f"{capture_key(attempt.rollout_id, attempt.attempt_index)}.lineage.jsonl"


def unsafe_path_reason(path: str) -> str | None:
    """Why ``path`` may not be joined to a directory, or None when it is a plain relative POSIX path (F-44).

    Whether a link leads out of the directory is for whoever opens it to find out.
    """
    if not path:
        return "the path is empty"
    if path.startswith("/") or "\\" in path or path[1:2] == ":":
        return f"the path {escaped(path)} is not a relative POSIX path"
    if not path.isprintable():
        return f"the path {escaped(path)} holds a character that is not printable"
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return f"the path {escaped(path)} has an empty, '.' or '..' segment"
    return None
