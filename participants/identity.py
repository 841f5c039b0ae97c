"""Ids, labels and names: what may go on the wire and become a part of a path.

Three things are kept apart: the *label* that a user gives to a checkpoint, the *wire id* that participants see
(label, dash, nonce) and that names the snapshot's folder, and a caller's own request id. Participants use up
every wire id, so each transaction has a fresh nonce. Sources: wire-protocol 0.2; field cases F-44; design 3.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.excerpts import escaped

__all__ = [
    "IDENTITY_LENGTH_MAX",
    "IDENTITY_PATTERN",
    "LABEL_LENGTH_MAX",
    "AttemptId",
    "asking_id",
    "capture_key",
    "captures",
    "check_identity",
    "check_label",
    "healing_id",
    "is_restore_id",
    "restore_wire_id",
    "wire_id",
]

IDENTITY_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""The identity pattern. In Python match with ``fullmatch`` only: there ``$`` would let a final newline pass."""

IDENTITY_LENGTH_MAX: Final = 128
LABEL_LENGTH_MAX: Final = 90
HEALINGS_MAX: Final = 9
ATTEMPT_DIGITS_MAX: Final = 18

_RESTORE: Final = "restore-"
_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NONCE = re.compile(r"[0-9a-f]{8}")
_DEVICES: Final = frozenset(
    ["con", "prn", "aux", "nul", *(f"{stem}{digit}" for stem in ("com", "lpt") for digit in range(1, 10))]
)


class AttemptId(NamedTuple):
    """One attempt at one rollout. Attempt n of a snapshot goes on as n + 1 after a restore (wire-protocol 6.7)."""

    rollout_id: str
    attempt_index: int

    def __str__(self) -> str:
        return f"{self.rollout_id} attempt {self.attempt_index}"


def check_identity(value: object, *, field: str, longest: int = IDENTITY_LENGTH_MAX) -> str:
    """``value``, proven to be usable as an id on the wire and as one component of a path.

    Raises:
        InvalidIdentity: not text, empty, too long, other characters than letters, digits, dot, underscore and
            dash, a first character that is no letter or digit, a final dot, or a reserved device name.
    """
    if not isinstance(value, str):
        raise InvalidIdentity(field, f"{escaped(value)} is not text")
    if not value:
        raise InvalidIdentity(field, "is empty")
    if len(value) > longest:
        raise InvalidIdentity(field, f"{escaped(value)} has {len(value)} characters; at most {longest} are allowed")
    if not _IDENTITY.fullmatch(value):
        raise InvalidIdentity(
            field, f"{escaped(value)} must begin with a letter or digit and hold only letters, digits, '.', '_', '-'"
        )
    if value.endswith("."):
        raise InvalidIdentity(field, f"{escaped(value)} must not end with a dot")
    if value.split(".", 1)[0].lower() in _DEVICES:
        raise InvalidIdentity(field, f"{escaped(value)} is a reserved device name")
    return value


def check_label(value: object) -> str:
    """``value``, proven to be usable as the label of a checkpoint (at most 90 characters, not ``latest``).

    Raises:
        InvalidIdentity: as check_identity, or the label is ``latest``, which names the newest snapshot.
    """
    label = check_identity(value, field="label", longest=LABEL_LENGTH_MAX)
    if label.lower() == "latest":
        raise InvalidIdentity("label", "'latest' is reserved for the newest snapshot; choose another label")
    return label


def wire_id(label: str, nonce: str) -> str:
    """The id of a cut on the wire: ``label`` + ``-`` + ``nonce`` (8 lower-case hex digits)."""
    return f"{check_label(label)}-{_checked_nonce(nonce)}"


def restore_wire_id(label: str, nonce: str) -> str:
    """The id of a restore on the wire: ``restore-`` + label + ``-`` + nonce. Never the id of the save."""
    return f"{_RESTORE}{check_label(label)}-{_checked_nonce(nonce)}"


def is_restore_id(transaction_id: str) -> bool:
    """Whether an id may be a restore's. A save whose label begins so has one that looks the same."""
    return transaction_id.startswith(_RESTORE)


def healing_id(transaction_id: str, number: int) -> str:
    """The fresh id number ``number`` (from 1) under which a fence of ``transaction_id`` is healed."""
    check_identity(transaction_id, field="checkpoint id", longest=IDENTITY_LENGTH_MAX - 3)
    if not 1 <= number <= HEALINGS_MAX:
        raise InvalidIdentity("healing number", f"{number} is not between 1 and {HEALINGS_MAX}")
    return f"{transaction_id}-h{number}"


def asking_id(transaction_id: str) -> str:
    """The id of the resume by which ``transaction_id`` asks a resource server whether it still owes a restore."""
    return f"{check_identity(transaction_id, field='checkpoint id', longest=IDENTITY_LENGTH_MAX - 2)}-q"


def capture_key(rollout_id: str, attempt_index: int) -> str:
    """The key under which a model server captures an attempt: the rollout id, with ``-a<n>`` from attempt 1 on."""
    return rollout_id if attempt_index == 0 else f"{rollout_id}-a{attempt_index}"


def captures(key: str, attempt: AttemptId) -> bool:
    """Whether ``key`` is the capture key of this attempt or of an earlier one of its rollout, never of a later one."""
    if key == attempt.rollout_id:
        return True
    number = key.removeprefix(f"{attempt.rollout_id}-a")
    is_number = number != key and number.isascii() and number.isdecimal() and len(number) <= ATTEMPT_DIGITS_MAX
    return is_number and not number.startswith("0") and int(number) <= attempt.attempt_index


def _checked_nonce(nonce: str) -> str:
    if not _NONCE.fullmatch(nonce):
        raise InvalidIdentity("nonce", f"{escaped(nonce)} is not 8 lower-case hex digits")
    return nonce
