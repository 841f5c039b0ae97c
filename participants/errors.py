"""What can go wrong between us and a participant, and in what was saved.

QuiesceError (quiesce.fsm.errors)
├── ConfigurationError     what the user configured or named cannot be used
│   └── InvalidIdentity    an id, a label or a name that may not become a path or go on the wire (also a ValueError)
├── TopologyError          the participants that were discovered do not make a deployment that can be cut
├── ControlRequestError    a participant answered and refused, or crashed: status and ``error_code``
├── ProtocolViolation      a reply that cannot be believed: wrong type, id, count, digest, incarnation
├── Unreachable            no answer
│   ├── NeverSent          the request certainly did not reach the participant
│   └── MaybeApplied       it may have been applied: the participant may be paused
├── UnsupportedVerb        we asked a dialect for what its wire generation does not have
└── SnapshotInvalid        what was saved cannot be trusted

No message holds a token; foreign text is escaped and cut before it enters one.
"""

from __future__ import annotations

from collections.abc import Sequence

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import ParticipantKey

__all__ = [
    "ConfigurationError",
    "ControlRequestError",
    "InvalidIdentity",
    "MaybeApplied",
    "NeverSent",
    "ProtocolViolation",
    "QuiesceError",
    "SnapshotInvalid",
    "TopologyError",
    "Unreachable",
    "UnsupportedVerb",
]


class ConfigurationError(QuiesceError):
    """What the user configured or named cannot be used. Nothing was done."""


class InvalidIdentity(ConfigurationError, ValueError):
    """An id, label or name is not allowed. Raised before any I/O (field cases F-44).

    Attributes:
        field: which input it was.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class TopologyError(QuiesceError):
    """The participants do not make a deployment that can be cut. Nobody was paused.

    Attributes:
        problems: every problem that was found, each a sentence that names the server and what to do.
        asked: everybody who was asked, with the address; empty where nobody was.
    """

    asked: tuple[tuple[ParticipantKey, str], ...] = ()

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        numbered = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(self.problems, start=1))
        noun = "problem" if len(self.problems) == 1 else "problems"
        super().__init__(f"the topology has {len(self.problems)} {noun}:\n{numbered}")


class ControlRequestError(QuiesceError):
    """A participant answered a control call with something other than success (wire-protocol 3).

    Attributes:
        participant: how the caller names it.
        call: method and path, for example ``POST /ng-control/v1/model-admission/pause``.
        status: the HTTP status.
        error_code: ``error.code`` of the reply, or None where it has none.
        detail: what the participant said, escaped and cut.
    """

    def __init__(self, *, participant: str, call: str, status: int, error_code: str | None, detail: str) -> None:
        code = f" {error_code}" if error_code else ""
        said = f": {detail}" if detail else ""
        super().__init__(f"{participant} answered {call} with {status}{code}{said}")
        self.participant = participant
        self.call = call
        self.status = status
        self.error_code = error_code
        self.detail = detail


class ProtocolViolation(QuiesceError):
    """A reply that cannot be believed. What the participant did must be found out, not assumed.

    Attributes:
        participant, call: as in ControlRequestError.
        reason: what is wrong, with the expected and the received value.
        status, content_type: of the reply, where there was one.
        excerpt: at most 200 characters of the body, without control characters.
    """

    def __init__(
        self,
        *,
        participant: str,
        call: str,
        reason: str,
        status: int | None = None,
        content_type: str = "",
        excerpt: str = "",
    ) -> None:
        where = "" if status is None else f" (status {status}, content type {content_type or 'none'})"
        body = f"; the body begins: {excerpt}" if excerpt else ""
        super().__init__(f"{participant}: the reply to {call} cannot be believed{where}: {reason}{body}")
        self.participant = participant
        self.call = call
        self.reason = reason
        self.status = status
        self.content_type = content_type
        self.excerpt = excerpt


class Unreachable(QuiesceError):
    """A control call got no answer.

    Attributes:
        participant, call: as in ControlRequestError.
        applied: "no" when the request certainly did not arrive, "maybe" otherwise.
    """

    applied: str = "maybe"

    def __init__(self, *, participant: str, call: str, reason: str) -> None:
        super().__init__(f"{participant} gave no answer to {call}: {reason}")
        self.participant = participant
        self.call = call
        self.reason = reason


class NeverSent(Unreachable):
    """The request certainly did not reach the participant: nothing changed on it."""

    applied = "no"


class MaybeApplied(Unreachable):
    """The request may have reached the participant: it may be paused."""

    applied = "maybe"


class UnsupportedVerb(QuiesceError):
    """A dialect was asked for a verb that its wire generation, or this role in it, does not have."""

    def __init__(self, dialect: str, verb: str, role: str, reason: str) -> None:
        super().__init__(f"{dialect} has no '{verb}' for role '{role}': {reason}")
        self.dialect = dialect
        self.verb = verb
        self.role = role


class SnapshotInvalid(QuiesceError):
    """What was saved cannot be trusted. It is neither restored from nor published.

    Attributes:
        subject: whose part it is: a participant's name, or "manifest", "trainer".
        file: path relative to the checkpoint directory or the snapshot, escaped and cut.
        reason: what is wrong with it, with the expected and the found value.
    """

    def __init__(self, *, subject: str, file: str, reason: str) -> None:
        super().__init__(f"{subject}: {file}: {reason}")
        self.subject = subject
        self.file = file
        self.reason = reason
