"""Whether a commit's files are what its reply says, and whether a restore loaded the save that it was pointed to."""

from __future__ import annotations

from pathlib import Path

from quiesce.controller.files import LocalFiles
from quiesce.controller.verification import DirectoryReader
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Verb
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.subject import Subject
from quiesce.participants.artefacts import verify_export
from quiesce.participants.dialects.base import CallSpec
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.replies import ExportReceipt

__all__ = ["export_problem", "restore_problem"]


def export_problem(subject: Subject, checkpoint_id: str, seen: Seen, directory: Path) -> str:
    """What is wrong with an export that was reported as done; empty when it verifies. Reads the files."""
    spec = _spec(subject, Verb.EXPORT, checkpoint_id)
    reading = GymA().read(spec, seen.status, seen.headers, seen.body)
    if reading.error is not None or not isinstance(reading.payload, ExportReceipt):
        return str(reading.error or "the reply holds no receipt")
    try:
        verify_export(
            participant=subject.name,
            role=subject.role,
            participant_name=subject.declaration.participant_name,
            checkpoint_id=checkpoint_id,
            receipt=reading.payload,
            reader=DirectoryReader(LocalFiles(), directory),
        )
    except QuiesceError as error:
        return str(error)
    return ""


def restore_problem(subject: Subject, checkpoint_id: str, source: str, seen: Seen) -> str:
    """What is wrong with the reply to a restore of the save ``source``; empty when nothing is."""
    spec = _spec(subject, Verb.IMPORT, checkpoint_id, source)
    error = GymA().read(spec, seen.status, seen.headers, seen.body).error
    return "" if error is None else str(error)


def _spec(subject: Subject, verb: Verb, checkpoint_id: str, source: str | None = None) -> CallSpec:
    return CallSpec(
        verb=verb,
        role=subject.role,
        coordinator=subject.coordinated,
        checkpoint_id=checkpoint_id,
        source_checkpoint_id=source,
        participant_name=subject.declaration.participant_name,
        participant=subject.name,
    )
