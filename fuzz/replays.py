"""Replay files: one violation as JSON, with all that is needed to see it again, here or elsewhere.

What is saved is strict: unknown fields, another version and another kind are refused; the schema is
``docs/schemas/replay-1.schema.json``. Every replay file says its ``kind``, so that other kinds can be told apart before
anything else of them is read (:func:`kind_of`).
"""

from __future__ import annotations

from itertools import takewhile
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.errors import ReplayInvalid
from quiesce.fuzz.report import ParticipantReport, Violation
from quiesce.fuzz.rulebook import RULE_BY_ID
from quiesce.fuzz.rules import Profile, Severity
from quiesce.fuzz.steps import CallStep, WaitStep, WorkStep
from quiesce.participants.excerpts import escaped
from quiesce.participants.strict_json import NotStrictJson, parse, pretty
from quiesce.participants.validation import first_problems

__all__ = [
    "BYTES_MAX",
    "KIND",
    "SCHEMA_VERSION",
    "Answered",
    "ReplayFile",
    "kind_of",
    "parse_replay",
    "replay_of",
    "replay_schema",
    "replay_text",
]

SCHEMA_VERSION: Final = 1
KIND: Final = "quiesce.fuzz"
BYTES_MAX: Final = 2**20
STEPS_MAX: Final = 500

_Text = Annotated[StrictStr, Field(max_length=2000)]
_Name = Annotated[StrictStr, Field(max_length=512)]
_SavedStep = Annotated[CallStep | WorkStep | WaitStep, Field(discriminator="do")]


class _Saved(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Tested(_Saved):
    """Who was tested, and how.

    ``fence`` is the variant of an in-process server of the kit; null for a server that was reached over a URL.
    """

    name: _Name
    role: Role = Field(strict=False)
    coordinated: StrictBool
    profile: Profile = Field(strict=False)
    seed: StrictInt
    fence: Annotated[FenceVariant, Field(strict=False)] | None


class Broken(_Saved):
    """The rule that was broken, and how that showed."""

    rule: Annotated[StrictStr, Field(pattern=r"^[a-z-]+\.[a-z-]+$", max_length=80)]
    sentence: _Text
    section: _Text
    severity: Severity = Field(strict=False)
    known: Annotated[StrictStr, Field(max_length=80)] | None
    expected: _Text
    got: _Text


class Answered(_Saved):
    """What came of a step when the rule was broken: its outcome, and how the participant stood afterwards."""

    outcome: _Text
    seen: _Text


class ReplayFile(_Saved):
    """The whole file. ``steps`` are the minimal sequence; letters stand for fresh names.

    ``answers`` are those of its first steps, up to one that breaks a rule: by them a replay tells whether the same
    situation came up. A file that was written before they were kept has none.
    """

    kind: Literal["quiesce.fuzz"]
    schema_version: Annotated[StrictInt, Field(ge=1, le=1)]
    tested: Tested
    violation: Broken
    steps: Annotated[tuple[_SavedStep, ...], Field(max_length=STEPS_MAX, strict=False, fail_fast=True)]
    answers: Annotated[tuple[Answered, ...], Field(max_length=STEPS_MAX, strict=False, fail_fast=True)] = ()


def replay_of(report: ParticipantReport, violation: Violation, *, fence: FenceVariant | None = None) -> ReplayFile:
    """The replay file of a violation. ``fence``: the kit's server that was tested in process."""
    if report.role is None:
        raise ReplayInvalid(report.url, "it was not tested, so there is nothing to replay")
    rule = violation.rule
    return ReplayFile(
        kind="quiesce.fuzz",
        schema_version=SCHEMA_VERSION,
        tested=Tested(
            name=report.name,
            role=report.role,
            coordinated=report.coordinated,
            profile=report.profile,
            seed=report.seed,
            fence=fence,
        ),
        violation=Broken(
            rule=rule.id,
            sentence=rule.sentence,
            section=rule.section,
            severity=rule.severity,
            known=violation.known or None,
            expected=violation.expected[:2000],
            got=violation.got[:2000],
        ),
        steps=violation.steps,
        answers=tuple(
            Answered(outcome=line.outcome[:2000], seen=line.seen[:2000])
            for line in takewhile(lambda line: not line.is_odd, violation.trace)
        ),
    )


def replay_text(replay: ReplayFile) -> str:
    """The exact content of the file. Fields of a step that have their default are left out."""
    fields = replay.model_dump(mode="json")
    fields["steps"] = [{"do": step.do, **step.model_dump(mode="json", exclude_defaults=True)} for step in replay.steps]
    return pretty(fields, indent=2, sort_keys=False) + "\n"


def parse_replay(content: bytes, *, source: str) -> ReplayFile:
    """The replay in ``content``; ``source`` is how errors call it.

    Raises:
        ReplayInvalid: torn, no JSON, of another kind or version, with unknown fields, or about a rule that is none.
    """
    if kind_of(content, source=source) != KIND:
        raise ReplayInvalid(source, f"it is no replay of a fuzzing run (its kind is not {KIND!r})")
    try:
        replay = ReplayFile.model_validate_json(content)
    except ValidationError as error:
        raise ReplayInvalid(source, first_problems(error)) from None
    if replay.violation.rule not in RULE_BY_ID:
        raise ReplayInvalid(source, f"there is no rule {replay.violation.rule!r}; it may come from a newer Quiesce")
    rule, role = RULE_BY_ID[replay.violation.rule], replay.tested.role
    if role not in rule.roles:
        raise ReplayInvalid(source, f"the rule {rule.id} binds no server of role {role.value}, which was tested")
    return replay


def kind_of(content: bytes, *, source: str) -> str:
    """What a replay file is of, by its member ``kind``.

    Raises:
        ReplayInvalid: it is no JSON object, or does not say.
    """
    try:
        value = parse(content, bytes_max=BYTES_MAX)
    except NotStrictJson as error:
        raise ReplayInvalid(source, f"cannot be read: {error}") from None
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise ReplayInvalid(source, "is no replay file: it has no member 'kind'")
    if kind == KIND and isinstance(value, dict):
        version = value.get("schema_version")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise ReplayInvalid(
                source, f"has schema_version {escaped(version)}; this Quiesce reads {SCHEMA_VERSION} only"
            )
    return kind


def replay_schema() -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of the file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **ReplayFile.model_json_schema()}
