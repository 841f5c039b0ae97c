"""The lines of a journal: what each of them says, how it is sealed, and when it is believed.

The first line says what the transaction is about, so that a controller which knows nothing else can finish it. A step
of a machine is a line without ``kind``; there are many of them. A line says so where another controller took the
transaction over, and where a participant was excused: it is owed nothing any more although nothing proved it open.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.manifest_models import ContractEntry
from quiesce.participants.strict_json import NotStrictJson, parse
from quiesce.participants.validation import first_problems

__all__ = [
    "SCHEMA_VERSION",
    "ExcusedLine",
    "Line",
    "OpenedLine",
    "OpenedParticipant",
    "SavedRecord",
    "TakenOverLine",
    "is_whole",
    "journal_schema",
    "read_line",
    "sealed",
]

SCHEMA_VERSION: Final = 1
LINE_BYTES_MAX: Final = 256 << 20

_SEALED = re.compile(rb'(?P<body>\{.*),"checksum":"(?P<checksum>[0-9a-f]{8})"\}', re.DOTALL)


class _Saved(BaseModel):
    """What is saved forbids what it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Line(_Saved):
    schema_version: Literal[1]
    sequence: int = Field(ge=1, description="counts the lines of the journal")
    time_ts: float = Field(allow_inf_nan=False, description="Unix seconds by the clock of the controller")
    wire_id: str
    checksum: str = Field(description="CRC-32 of the line without this field, 8 hex digits")


class SavedRecord(_Line):
    """A step of a machine: from where to where, why, what was called and what was answered."""

    machine: str
    subject: str
    source: str
    event: str
    target: str
    effects: list[str]
    verdicts: dict[str, bool]
    reason: str
    call: str | None
    reply: str | None

    def trace(self) -> TraceRecord:
        """The step that was written down."""
        return TraceRecord(
            machine=self.machine,
            subject=self.subject,
            source=self.source,
            event=self.event,
            target=self.target,
            effects=tuple(self.effects),
            verdicts=tuple(self.verdicts.items()),
            reason=self.reason,
        )


class OpenedParticipant(_Saved):
    """Somebody over whom the transaction is: where it was, which incarnation, and what it had declared."""

    deployment: str
    url: str
    checkpoint_url: str | None
    instance: str | None
    dialect: str
    contract: ContractEntry

    @property
    def key(self) -> ParticipantKey:
        return ParticipantKey(self.deployment, self.contract.participant.server_name)


class OpenedLine(_Line):
    """What the transaction is about: a restore names the save that it restores, a cut names none."""

    kind: Literal["opened"]
    label: str
    source_wire_id: str | None
    drain: DrainMode
    epoch: int | None
    participants: list[OpenedParticipant]


class TakenOverLine(_Line):
    """Another tenure goes on with it. ``damage`` says which line of the journal could not be believed, if any."""

    kind: Literal["taken_over"]
    epoch: int
    damage: str


class ExcusedLine(_Line):
    """Nothing is owed to this participant any more, for a reason that is no answer of its own to a resume."""

    kind: Literal["excused"]
    subject: str
    reason: str


Line: TypeAlias = SavedRecord | OpenedLine | TakenOverLine | ExcusedLine

_KINDS: Final[Mapping[object, type[Line]]] = {
    None: SavedRecord,
    "opened": OpenedLine,
    "taken_over": TakenOverLine,
    "excused": ExcusedLine,
}


def sealed(sequence: int, fields: Mapping[str, object]) -> bytes:
    """The bytes of a line with its number and its checksum."""
    body = to_json({"schema_version": SCHEMA_VERSION, "sequence": sequence, **fields}, inf_nan_mode="constants")
    return body[:-1] + b',"checksum":"%08x"}\n' % zlib.crc32(body)


def read_line(line: bytes, number: int | None = None) -> Line | str:
    """What a line says, which must have this number (any with None), or why it cannot be believed."""
    found = _found(line)
    if found is None:
        return "it is not a whole record"
    if not _matches(found):
        return "its checksum does not match"
    try:
        value = parse(line, bytes_max=LINE_BYTES_MAX)
        kind = value.get("kind") if isinstance(value, dict) else None
        model = _KINDS.get(kind if isinstance(kind, str) else None)
        if model is None:
            return f"a line of kind {kind!r} is not known to this version of Quiesce"
        # a strict model takes a word for an enum only where it reads the JSON itself
        saved = model.model_validate(value) if model is SavedRecord else model.model_validate_json(line)
    except NotStrictJson as error:
        return str(error)
    except ValidationError as error:
        return first_problems(error)
    return saved if number in (None, saved.sequence) else f"its number is {saved.sequence}"


def is_whole(line: bytes) -> bool:
    """Whether a line is one that somebody wrote, whatever it says and whatever number it has."""
    found = _found(line)
    return found is not None and _matches(found)


def _found(line: bytes) -> re.Match[bytes] | None:
    return _SEALED.fullmatch(line.removesuffix(b"\n")) if line.endswith(b"\n") else None


def _matches(found: re.Match[bytes]) -> bool:
    return f"{zlib.crc32(found['body'] + b'}'):08x}".encode() == found["checksum"]


def journal_schema() -> dict[str, object]:
    """The JSON Schema of one line, as it is published in ``docs/schemas``."""
    lines: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(title="A line of a journal")])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **lines.json_schema()}
