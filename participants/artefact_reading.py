"""Reading artefacts that may be damaged, missing or foreign: each check in its order, each refusal named.

The order is that of wire-protocol 6.2: path safety, existence, row parse, digest, size, count. Files are opened by
whoever implements :class:`ArtefactReader`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from quiesce.participants.artefact_writing import sha256_hex
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.excerpts import escaped, printable
from quiesce.participants.layout import unsafe_path_reason
from quiesce.participants.replies import ArtefactReference
from quiesce.participants.strict_json import NotStrictJson, parse
from quiesce.participants.validation import first_problems

__all__ = ["ArtefactReader", "Source", "VerifiedFile"]

FILE_BYTES_MAX: Final = 1 << 30
RECORD_BYTES_MAX: Final = 256 << 20
M = TypeVar("M", bound=BaseModel)


class ArtefactReader(Protocol):
    """Reads files below one checkpoint directory. Paths are relative POSIX text and were proven safe before."""

    def read_bytes(self, relative_path: str, bytes_max: int) -> bytes:
        """The content, at most ``bytes_max`` + 1 bytes of it.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it cannot be read, is no regular file, or a link leads to it (``strerror`` says which).
        """
        ...


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file that was read and whose digest was compared: path below the checkpoint directory, digest, size."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """A reader, and on whose behalf it reads. Every refusal is a SnapshotInvalid that names both file and reason."""

    subject: str
    reader: ArtefactReader

    def refuse(self, path: str, reason: str) -> SnapshotInvalid:
        """The error for ``path``; foreign text in it is escaped and cut."""
        return SnapshotInvalid(subject=self.subject, file=printable(path, 300), reason=reason)

    def content(self, path: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
        """The bytes of a file: path safety and existence."""
        unsafe = unsafe_path_reason(path)
        if unsafe is not None:
            raise self.refuse(path, unsafe)
        try:
            content = self.reader.read_bytes(path, bytes_max)
        except FileNotFoundError:
            raise self.refuse(path, "does not exist") from None
        except OSError as error:
            raise self.refuse(path, f"cannot be read: {error.strerror or type(error).__name__}") from error
        if len(content) > bytes_max:
            raise self.refuse(path, f"is larger than {bytes_max} bytes")
        return content

    def check_digest(self, path: str, content: bytes, expected: str) -> VerifiedFile:
        """The file as verified; ``expected`` may be in upper case."""
        found = sha256_hex(content)
        if found != expected.lower():
            raise self.refuse(path, f"has digest {found}, expected {expected.lower()}")
        return VerifiedFile(path, found, len(content))

    def parsed(self, path: str, text: bytes, model: type[M], where: str = "") -> M:
        """``text`` as a ``model``; ``where`` names the line of an index."""
        return self.validated(path, self.json_object(path, text, where), model, where)

    def json_object(self, path: str, text: bytes, where: str = "") -> dict[str, object]:
        """``text`` as a JSON object."""
        try:
            value = parse(text, bytes_max=RECORD_BYTES_MAX)
        except NotStrictJson as error:
            raise self.refuse(path, f"{where}cannot be read: {error}") from None
        if not isinstance(value, dict):
            raise self.refuse(path, f"{where}is JSON, but no object")
        return value

    def validated(self, path: str, value: dict[str, object], model: type[M], where: str = "") -> M:
        """A JSON object as a ``model``."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise self.refuse(path, f"{where}{first_problems(error)}") from None

    def record(self, path: str, model: type[M], digest: str) -> tuple[M, VerifiedFile]:
        """One record file, parsed and compared with its digest."""
        content = self.content(path, RECORD_BYTES_MAX)
        record = self.parsed(path, content, model)
        return record, self.check_digest(path, content, digest)

    def manifest(self, path: str, model: type[M], schema_max: int, digest: str) -> tuple[M, VerifiedFile]:
        """A manifest. Its schema number is looked at first, so that a newer one is named as such."""
        content = self.content(path, RECORD_BYTES_MAX)
        value = self.json_object(path, content)
        version = value.get("schema_version")
        if isinstance(version, int) and version > schema_max:
            raise self.refuse(path, f"has schema {version}; this version reads up to {schema_max}")
        return self.validated(path, value, model), self.check_digest(path, content, digest)

    def index(self, reference: ArtefactReference, model: type[M]) -> tuple[tuple[M, ...], VerifiedFile]:
        """An index against its reference: rows, digest, size, count. Blank lines are skipped, but digested."""
        path = reference.relative_path
        content = self.content(path)
        lines = [(number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
        rows = tuple(self.parsed(path, line, model, f"line {number} ") for number, line in lines)
        verified = self.check_digest(path, content, reference.sha256)
        if len(content) != reference.size_bytes:
            raise self.refuse(path, f"has {len(content)} bytes, expected {reference.size_bytes}")
        if len(rows) != reference.records:
            raise self.refuse(path, f"has {len(rows)} rows, expected {reference.records}")
        return rows, verified

    def lines(self, path: str, digest: str) -> tuple[int, VerifiedFile]:
        """A file of JSON objects, one a line: how many there are. Their fields are private to the participant."""
        content = self.content(path)
        count = 0
        for number, line in enumerate(content.split(b"\n"), start=1):
            if not line.strip():
                continue
            self.json_object(path, line, f"line {number} ")
            count += 1
        return count, self.check_digest(path, content, digest)

    def require(self, path: str, what: str, expected: object, found: object) -> None:
        """Refuses ``path`` naming both values unless they are equal."""
        if expected != found:
            raise self.refuse(path, f"{what} is {escaped(found)}, expected {escaped(expected)}")
