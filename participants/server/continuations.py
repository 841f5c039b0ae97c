"""Which lineage a policy exports: exactly what the agents' continuation roots name (wire-protocol 6.4).

A root is the last model call that a parked execution has committed. Whatever no root names is left out: its rollout
is finished, fenced, or starts over from its input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from quiesce.participants.artefact_reading import Source
from quiesce.participants.artefact_records import ContinuationRow, ReferenceEntry, StorageRow
from quiesce.participants.artefact_writing import sorted_roots, storage_rows
from quiesce.participants.excerpts import escaped
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.saved import SnapshotDirectory
from quiesce.participants.server.storage import FilePort
from quiesce.participants.strict_json import NotStrictJson, parse
from quiesce.participants.validation import first_problems

__all__ = ["Selection", "read_roots", "rows_of", "select_lineage"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What is exported: the roots in their order, lineage by capture key, and the token storage to keep."""

    roots: tuple[ContinuationRow, ...]
    lineages: Mapping[str, bytes]
    storage: tuple[StorageRow, ...]


def read_roots(
    files: FilePort, directory: Path, subject: str, references: Sequence[Mapping[str, object]]
) -> tuple[ContinuationRow, ...]:
    """The rows of the agents' indexes, each index compared with the reference that the request gives.

    Raises:
        SnapshotInvalid: an index is not there or is not what its reference says.
        ControlRefusal: ``ledger_mismatch``: a reference cannot be understood.
    """
    source = Source(subject, SnapshotDirectory(files, directory))
    roots: list[ContinuationRow] = []
    for reference in references:
        try:
            entry = ReferenceEntry.model_validate(reference)
        except ValidationError as error:
            raise _mismatch(f"a continuation index is no reference: {first_problems(error)}") from None
        roots += source.index(entry.neutral(), ContinuationRow)[0]
    return sorted_roots(roots)


def select_lineage(
    roots: Sequence[ContinuationRow], fenced: Collection[AttemptId], read: Callable[[str], bytes | None]
) -> Selection:
    """The lineage that the roots name; ``read`` gives a lineage by its capture key.

    Raises:
        ControlRefusal: ``ledger_mismatch``: a root is given twice or against another, its attempt is fenced, its
            capture key is another rollout's, or its call did not succeed exactly once here.
    """
    _refuse_doubles(roots)
    lineages: dict[str, bytes] = {}
    storage: dict[str, StorageRow] = {}
    for root in roots:
        if root.attempt in fenced:
            raise _mismatch(f"root {_named(root)} belongs to a fenced attempt")
        if not _belongs(root):
            raise _mismatch(f"root {_named(root)} names the lineage of another rollout or of a later attempt")
        content = read(root.capture_key)
        if content is None:
            raise _mismatch(f"root {_named(root)} has no lineage here")
        lineages[root.capture_key] = content
        for row in _references(root, content):
            storage.setdefault(row.key, row)
    return Selection(tuple(roots), lineages, tuple(storage[key] for key in sorted(storage)))


def rows_of(capture_key: str, content: bytes) -> tuple[Mapping[str, object], ...]:
    """The rows of a lineage, blank lines skipped.

    Raises:
        ControlRefusal: ``ledger_not_checkpointable``: a line is no JSON object.
    """
    found: list[Mapping[str, object]] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            found.append(_row(f"line {number} of the lineage of {capture_key}", line))
    return tuple(found)


def _row(where: str, line: bytes) -> Mapping[str, object]:
    try:
        row = parse(line)
    except NotStrictJson as error:
        raise ControlRefusal(RefusalCode.LEDGER_NOT_CHECKPOINTABLE, f"{where} cannot be read: {error}") from None
    if not isinstance(row, dict):
        raise ControlRefusal(RefusalCode.LEDGER_NOT_CHECKPOINTABLE, f"{where} is no JSON object")
    return row


def _references(root: ContinuationRow, content: bytes) -> tuple[StorageRow, ...]:
    call_id = root.last_committed_model_call_id
    rows = [row for row in rows_of(root.capture_key, content) if row.get("model_call_id") == call_id]
    succeeded = [row for row in rows if row.get("failure_reason") is None]
    if len(succeeded) != 1:
        raise _mismatch(f"root {_named(root)} succeeded {len(succeeded)} times in {len(rows)} rows, expected once")
    try:
        return storage_rows(root, succeeded[0])
    except ValueError as error:
        raise _mismatch(f"root {_named(root)}: {error}") from None


def _refuse_doubles(roots: Iterable[ContinuationRow]) -> None:
    by_key: dict[str, ContinuationRow] = {}
    by_attempt: dict[AttemptId, ContinuationRow] = {}
    for root in roots:
        other = by_key.setdefault(root.capture_key, root)
        if other is root:
            other = by_attempt.setdefault(root.attempt, root)
        if other is not root:
            how = "twice" if other == root else f"and contradicts root {_named(other)}"
            raise _mismatch(f"root {_named(root)} is given {how}")


def _belongs(root: ContinuationRow) -> bool:
    if root.capture_key == root.rollout_id:
        return True
    number = root.capture_key.removeprefix(f"{root.rollout_id}-a")
    if number == root.capture_key or not (number.isascii() and number.isdigit()) or number.startswith("0"):
        return False
    # lengths first: an index is small, and a text of digits may be of any length
    return len(number) <= len(str(root.attempt_index)) and int(number) <= root.attempt_index


def _named(root: ContinuationRow) -> str:
    return f"{escaped(root.capture_key)} call {escaped(root.last_committed_model_call_id)} of {root.attempt}"


def _mismatch(reason: str) -> ControlRefusal:
    return ControlRefusal(RefusalCode.LEDGER_MISMATCH, reason)
