"""What a test of a participant is made of: control calls, calls of its data plane, and waits, all of them symbolic.

A step names ids, attempts and directories by one letter; a session binds the letters to fresh names each time, since a
participant uses up every id. So the same sequence can be run again, shrunk, saved and replayed elsewhere. Deadlines and
waits are words as well: what "short" is depends on how long the participant's own work takes.

One line of text says the same as a step and is read back to it::

    prepare a deadline=short send=start
    work begin p
    commit a directory=d2
    wait work
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, field_validator

from quiesce.participants.errors import ConfigurationError
from quiesce.participants.validation import first_problems

__all__ = [
    "EARLIER_ID",
    "OWN_FIELDS",
    "Bearer",
    "CallStep",
    "Deadline",
    "Operation",
    "Receipt",
    "Roots",
    "Send",
    "Step",
    "Until",
    "WaitStep",
    "WorkKind",
    "WorkStep",
    "parse_step",
    "render_step",
]


class Operation(StrEnum):
    """A control call, by what it asks; ``prepare`` is ``pause`` on a policy server."""

    PREPARE = "prepare"
    STATUS = "status"
    ABORT_INFLIGHT = "abort_inflight"
    COMMIT = "commit"
    RESTORE = "restore"
    RESUME = "resume"
    RETIRE = "retire"
    DISCARD = "discard"
    ACKNOWLEDGE = "acknowledge"
    ACKNOWLEDGE_COMPLETED = "acknowledge_completed"
    RENEW = "renew"
    """Of a lease, an extension of Quiesce (docs/leases.md)."""
    CAPABILITIES = "capabilities"


class Deadline(StrEnum):
    """The ``deadline_ts`` of a call."""

    FAR = "far"
    SHORT = "short"
    """Before the participant's work in progress ends."""
    PAST = "past"
    ZERO = "zero"
    DISTANT = "distant"
    """So far away that a careless computation overflows."""


class Send(StrEnum):
    """What the client does while it waits for the reply."""

    WAIT = "wait"
    START = "start"
    """Goes on with the next steps; the reply is read when it comes."""
    AT_ONCE = "at_once"
    """As ``start``, but without giving the call time to arrive: the next one races it."""
    LEAVE = "leave"
    """Hangs up."""
    TWICE = "twice"
    """Sends the same call a second time before the first is answered."""


class Bearer(StrEnum):
    """The authorization header of a call."""

    GOOD = "good"
    MISSING = "missing"
    WRONG = "wrong"
    SHORTER = "shorter"
    LONGER = "longer"
    OTHER_CASE = "other_case"
    LOWER_SCHEME = "lower_scheme"
    TWO_BLANKS = "two_blanks"
    NO_SCHEME = "no_scheme"
    NOT_ASCII = "not_ascii"


class Roots(StrEnum):
    """The ``continuation_indexes`` of a policy's commit."""

    NONE = "none"
    UNKNOWN = "unknown"
    """One index that no agent has written."""


class Receipt(StrEnum):
    """Which result is acknowledged."""

    KNOWN = "known"
    """The one that the agent has reported for the attempt."""
    UNKNOWN = "unknown"
    ALTERED = "altered"
    """The reported one with another digest."""
    MIXED = "mixed"
    """The reported one and an unknown one together."""


class WorkKind(StrEnum):
    """A call of the data plane."""

    BEGIN = "begin"
    """Work that lasts a while: a model call, an execution, a call that holds its session."""
    PROBE = "probe"
    """A short call, which shows whether new work is admitted."""
    FINISH = "finish"
    """A run of an agent to its result."""
    SEED = "seed"
    """A resource server's session begins."""
    END = "end"
    """A resource server's session ends."""
    HALF_NAMED = "half_named"
    """A call with a rollout id and no attempt index."""


class Until(StrEnum):
    """What a wait waits for."""

    WORK = "work"
    """Every call of the data plane has ended."""
    CALLS = "calls"
    """Every control call that was started has been answered."""
    DEADLINES = "deadlines"
    """The deadlines of all calls that may still run are over."""
    GRACE = "grace"
    """An incomplete prepare that nobody repeats is given up by the participant."""


class _Symbolic(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


EARLIER_ID: Final = "z"
"""An id that an earlier sequence has used up."""
IdSymbol = Annotated[StrictStr, Field(pattern=r"^[a-hz]$")]
AttemptSymbol = Annotated[StrictStr, Field(pattern=r"^[p-w]$")]
DirectorySymbol = Annotated[StrictStr, Field(pattern=r"^(d[1-9]|missing|file)$")]
SpoilName = Annotated[StrictStr, Field(pattern=r"^[a-z0-9_.-]*$", max_length=120)]


class CallStep(_Symbolic):
    """A control call. Fields that its operation does not have keep their defaults and mean nothing.

    ``spoiled`` names a malformed form of the request (``quiesce.fuzz.spoiled``). ``directory`` ``missing`` is a folder
    that nobody made, ``file`` a file where a folder should be. ``long_poll``: a status that waits for the drain.
    """

    do: Literal["call"] = "call"
    operation: Operation = Field(strict=False)
    id: IdSymbol = "a"
    deadline: Deadline = Field(default=Deadline.FAR, strict=False)
    directory: DirectorySymbol = "d1"
    roots: Roots = Field(default=Roots.NONE, strict=False)
    attempt: AttemptSymbol = "p"
    receipt: Receipt = Field(default=Receipt.KNOWN, strict=False)
    long_poll: StrictBool = False
    spoiled: SpoilName = ""
    bearer: Bearer = Field(default=Bearer.GOOD, strict=False)
    send: Send = Field(default=Send.WAIT, strict=False)


class WorkStep(_Symbolic):
    """A call of the data plane in the name of an attempt.

    ``send`` is ``wait``, which gives it time to be refused, or ``at_once``: the next step is sent right behind it, so
    that it meets work that is soon over.
    """

    do: Literal["work"] = "work"
    kind: WorkKind = Field(strict=False)
    attempt: AttemptSymbol = "p"
    send: Send = Field(default=Send.WAIT, strict=False)

    @field_validator("send")
    @classmethod
    def _is_of_work(cls, send: Send) -> Send:
        if send not in {Send.WAIT, Send.AT_ONCE}:
            raise ValueError("of a call of the data plane it is wait or at_once")
        return send


class WaitStep(_Symbolic):
    """A wait for something that the participant does by itself."""

    do: Literal["wait"] = "wait"
    until: Until = Field(strict=False)


Step: TypeAlias = CallStep | WorkStep | WaitStep

OWN_FIELDS: Final[Mapping[Operation, tuple[str, ...]]] = {
    Operation.PREPARE: ("id", "deadline"),
    Operation.STATUS: ("id", "deadline", "long_poll"),
    Operation.ABORT_INFLIGHT: ("id", "deadline", "attempt"),
    Operation.COMMIT: ("id", "deadline", "directory", "roots"),
    Operation.RESTORE: ("id", "deadline", "directory"),
    Operation.RESUME: ("id", "deadline"),
    Operation.RETIRE: ("id", "deadline", "attempt"),
    Operation.DISCARD: ("id", "deadline", "attempt"),
    Operation.ACKNOWLEDGE: ("attempt", "receipt"),
    Operation.ACKNOWLEDGE_COMPLETED: ("attempt", "receipt"),
    Operation.RENEW: ("id", "deadline"),
    Operation.CAPABILITIES: (),
}
"""The fields that a call of each operation has, apart from those of every call."""

_EVERY_CALL: Final = ("spoiled", "bearer", "send")
_POSITIONAL: Final = ("id", "attempt")
_YES_OR_NO: Final = {"yes": True, "no": False}
S = TypeVar("S", bound=_Symbolic)


def render_step(step: Step) -> str:
    """The step as one line of text; :func:`parse_step` reads it back."""
    if isinstance(step, WaitStep):
        return f"wait {step.until.value}"
    if isinstance(step, WorkStep):
        at_once = "" if step.send is Send.WAIT else f" send={step.send.value}"
        return f"work {step.kind.value} {step.attempt}{at_once}"
    own = OWN_FIELDS[step.operation]
    words = [step.operation.value, *(str(getattr(step, name)) for name in _POSITIONAL if name in own)]
    for name in (*own, *_EVERY_CALL):
        value, default = getattr(step, name), CallStep.model_fields[name].default
        if name not in _POSITIONAL and value != default:
            words.append(f"{name}={_text(value)}")
    return " ".join(words)


def parse_step(line: str) -> Step:
    """The step that a line of text says.

    Raises:
        ConfigurationError: it says none; the text says why.
    """
    words = line.split()
    verb, rest = (words[0], words[1:]) if words else ("", [])
    match verb:
        case "wait":
            return _made(WaitStep, line, {"until": " ".join(rest)})
        case "work":
            sends = [word.removeprefix("send=") for word in rest if word.startswith("send=")]
            names = [word for word in rest if not word.startswith("send=")]
            fields = dict([*zip(("kind", "attempt"), names, strict=False), *(("send", send) for send in sends)])
            return _made(WorkStep, line, fields, extra=len(names) > 2 or len(sends) > 1)  # noqa: PLR2004 - kind and attempt
    if verb not in set(Operation):
        raise ConfigurationError(f"{line!r} is no step: it begins with none of {', '.join(Operation)}, work, wait")
    return _made(CallStep, line, {"operation": verb, **_fields(line, Operation(verb), rest)})


def _fields(line: str, operation: Operation, words: list[str]) -> dict[str, object]:
    positions = [name for name in _POSITIONAL if name in OWN_FIELDS[operation]]
    found: dict[str, object] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if separator and name not in (*OWN_FIELDS[operation], *_EVERY_CALL):
            raise ConfigurationError(f"{line!r} is no step: {operation.value} has no {name!r}")
        if separator:
            found[name] = _YES_OR_NO.get(value, value) if name == "long_poll" else value
        elif positions:
            found[positions.pop(0)] = word
        else:
            raise ConfigurationError(f"{line!r} is no step: {word!r} is one word too many")
    return found


def _text(value: object) -> str:
    return "yes" if value is True else str(value)


def _made(model: type[S], line: str, fields: Mapping[str, object], *, extra: bool = False) -> S:
    if extra:
        raise ConfigurationError(f"{line!r} is no step: it has a word too many")
    try:
        return model.model_validate(dict(fields))
    except ValidationError as error:
        raise ConfigurationError(f"{line!r} is no step: {first_problems(error)}") from None
