"""From a symbolic call to a request: fresh names for its letters, and the fields that its route wants."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlencode

from quiesce.fuzz.spoiled import spoiling_of
from quiesce.fuzz.steps import EARLIER_ID, CallStep, Deadline, Operation, Receipt, Roots
from quiesce.fuzz.subject import Subject
from quiesce.participants.dialects.gym_a.routes import Route
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.excerpts import printable
from quiesce.participants.identity import AttemptId
from quiesce.transport.port import ControlRequest

__all__ = [
    "ANSWER_S",
    "OWN_NAMES",
    "REPLY_BODY_CAP",
    "Asked",
    "Bindings",
    "Durations",
    "Wording",
    "check_checkpoint_dir",
]

REPLY_BODY_CAP: Final = 2**20
SENT_CHARS_MAX: Final = 600
OWN_NAMES: Final = "fuzz-"
"""How the name of everything begins that the fuzzer makes on a participant."""
ANSWER_S: Final = 10.0
"""How long a call that does not wait may take to be answered, where nothing else is asked for."""
DISTANT_TS: Final = 1e15
PAST_S: Final = -10.0
_UNKNOWN_DIGEST: Final = "0" * 64
_LONG_POLL_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class Durations:
    """How long things take with one participant, in seconds.

    Attributes:
        far_s: a deadline that does not come.
        short_s: a deadline that comes before the participant's work in progress ends.
        answer_s: within which every call that does not wait is answered.
        arrive_s: what a request needs to arrive, as measured.
        settle_s: the same, with a margin.
        prompt_s: within which something that happens at once has happened.
        work_s: how long work of the data plane lasts at most.
        grace_s: after which an incomplete prepare must have been given up; None: nobody waits for that.
    """

    far_s: float = 30.0
    short_s: float = 0.1
    answer_s: float = ANSWER_S
    arrive_s: float = 0.05
    settle_s: float = 0.05
    prompt_s: float = 1.0
    work_s: float = 5.0
    grace_s: float | None = None

    @property
    def long_poll_s(self) -> float:
        """For how long a status may wait for the drain."""
        return self.work_s * _LONG_POLL_SHARE


class Bindings:
    """The names that stand for the letters of one run of a sequence. No two runs share any.

    ``root`` is where directories are made, None where the participant may export nowhere. ``earlier`` is the id of an
    earlier run that this one asks about; empty where none was chosen.
    """

    def __init__(self, prefix: str, root: Path | None) -> None:
        self._prefix = prefix
        self._root = root
        self.earlier = ""

    def id(self, symbol: str) -> str:
        """The wire id of a letter."""
        return self.earlier if symbol == EARLIER_ID and self.earlier else f"{self._prefix}-{symbol}"

    def attempt(self, symbol: str) -> AttemptId:
        """The attempt of a letter."""
        return AttemptId(f"{self._prefix}-{symbol}", 0)

    def directory(self, symbol: str) -> str:
        """The path of a directory; a place that nobody writes to where there is no root."""
        return str(self.local(symbol) or PurePosixPath("/nonexistent") / self._prefix / symbol)

    def local(self, symbol: str) -> Path | None:
        """Where a directory is in this machine's file system."""
        return None if self._root is None else self._root / self._prefix / symbol

    def symbol(self, wire_id: str) -> str:
        """The letter of a wire id; a foreign id as it is."""
        if self.earlier and wire_id == self.earlier:
            return EARLIER_ID
        return wire_id.removeprefix(f"{self._prefix}-")

    def unnamed(self, text: str) -> str:
        """``text`` with letters in place of this run's names, so that two runs say the same."""
        named = text if self._root is None else text.replace(f"{self._root}/", "")
        if self.earlier:
            named = named.replace(self.earlier, EARLIER_ID)
        return named.replace(f"{self._prefix}-", "").replace(f"{self._prefix}/", "")

    def make_directory(self, symbol: str) -> None:
        """Make what a commit or restore is going to name: an empty folder, a file, or nothing.

        Raises:
            ConfigurationError: it cannot be made.
        """
        path = self.local(symbol)
        if path is None or symbol == "missing":
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if symbol == "file":
                path.touch()
            else:
                path.mkdir(exist_ok=True)
        except OSError as error:
            raise _no_checkpoint_dir(self._root, error) from error


def check_checkpoint_dir(root: Path) -> None:
    """Folders can be made in ``root``.

    Raises:
        ConfigurationError: they cannot.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=OWN_NAMES, dir=root):
            pass
    except OSError as error:
        raise _no_checkpoint_dir(root, error) from error


def _no_checkpoint_dir(root: Path | None, error: OSError) -> ConfigurationError:
    """What to say of a directory in which nothing can be made."""
    reason = error.strerror or type(error).__name__
    return ConfigurationError(
        f"the checkpoint directory {root} cannot be used: {reason}; name a folder that this process may write to"
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as it goes out. ``valid`` is false for a spoiled one; ``spoiling_rule`` is then what it is about."""

    step: CallStep
    route: Route
    request: ControlRequest
    deadline_ts: float
    spoiling_rule: str = ""

    def __str__(self) -> str:
        return f"{self.route.method} {self.route.path}"

    @property
    def sent(self) -> str:
        """What went over the wire, for whoever has to find out why it was not understood."""
        query = "?" + urlencode(self.request.query) if self.request.query else ""
        body = "" if self.request.body is None else f" {self.request.body.decode(errors='replace')}"
        return printable(f"{self}{query}{body}", SENT_CHARS_MAX)


class Wording:
    """Puts the calls of one run on the wire. ``silent``: operations of which it is known that they are not answered."""

    def __init__(
        self, subject: Subject, bindings: Bindings, durations: Durations, silent: Collection[Operation] = ()
    ) -> None:
        self._subject = subject
        self._bindings = bindings
        self._durations = durations
        self._silent = silent

    def asked(self, step: CallStep, now_ts: float, receipts: Mapping[str, Mapping[str, object]]) -> Asked:
        """The request of a step that is sent now. ``receipts`` has what the agent reported, by attempt symbol."""
        route = self._subject.routes[step.operation]
        deadline_ts = self.deadline_ts(step.deadline, now_ts)
        fields = self._fields(step, deadline_ts, receipts)
        content: bytes | None = None
        query: Mapping[str, str] | None = None
        rule = ""
        if step.spoiled:
            spoiling = spoiling_of(route, step.spoiled)
            rule, spoiled = spoiling.rule_id, spoiling.apply(fields)
            content, query = (spoiled, None) if isinstance(spoiled, bytes) else (None, spoiled)
        elif route.method == "POST":
            content = json.dumps(fields, allow_nan=False).encode()
        else:
            query = {name: str(value) for name, value in fields.items()} or None
        return Asked(step, route, self._request(step, route, content, query), deadline_ts, rule)

    def deadline_ts(self, deadline: Deadline, now_ts: float) -> float:
        """The instant that a deadline's word means now, in Unix seconds."""
        match deadline:
            case Deadline.FAR:
                return now_ts + self._durations.far_s
            case Deadline.SHORT:
                return now_ts + self._durations.short_s
            case Deadline.PAST:
                return now_ts + PAST_S
            case Deadline.ZERO:
                return 0.0
            case Deadline.DISTANT:
                return DISTANT_TS

    def _request(
        self, step: CallStep, route: Route, content: bytes | None, query: Mapping[str, str] | None
    ) -> ControlRequest:
        return ControlRequest(
            participant=self._subject.name,
            method=route.method,
            url=self._subject.url.rstrip("/") + route.path,
            timeout_s=self.patience_s(step),
            query=query,
            body=content,
            headers={} if content is None else {"content-type": "application/json"},
            authorized=route.authorized,
            body_cap=REPLY_BODY_CAP,
        )

    def patience_s(self, step: CallStep) -> float:
        """Within which the call must be answered. One of which it is known that it is not gets little time more."""
        durations = self._durations
        answer_s = durations.prompt_s if step.operation in self._silent else durations.answer_s
        if step.operation is not Operation.PREPARE and not step.long_poll:
            return answer_s
        waits = {Deadline.FAR: durations.far_s, Deadline.DISTANT: durations.far_s, Deadline.SHORT: durations.short_s}
        return waits.get(step.deadline, 0.0) + answer_s

    def _fields(
        self, step: CallStep, deadline_ts: float, receipts: Mapping[str, Mapping[str, object]]
    ) -> dict[str, object]:
        if step.operation in {Operation.ACKNOWLEDGE, Operation.ACKNOWLEDGE_COMPLETED}:
            return self._acknowledgement(step, receipts)
        if step.operation is Operation.CAPABILITIES:
            return {}
        fields: dict[str, object] = {"checkpoint_id": self._bindings.id(step.id)}
        if step.operation is not Operation.STATUS or "deadline_ts" in _query_names(self._subject, step):
            fields["deadline_ts"] = deadline_ts
        match step.operation:
            case Operation.COMMIT | Operation.RESTORE:
                fields["checkpoint_dir"] = self._bindings.directory(step.directory)
            case Operation.ABORT_INFLIGHT | Operation.RETIRE | Operation.DISCARD:
                fields |= self._bindings.attempt(step.attempt)._asdict()
            case Operation.STATUS if step.long_poll:
                fields |= {"wait_state": "paused", "timeout_s": self._durations.long_poll_s}
        if step.operation is Operation.COMMIT and "continuation_indexes" in _body_names(self._subject, step):
            fields["continuation_indexes"] = [] if step.roots is Roots.NONE else [_UNKNOWN_INDEX]
        return fields

    def _acknowledgement(self, step: CallStep, receipts: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
        unknown = {
            **self._bindings.attempt("w")._asdict(),
            "execution_generation": 1,
            "result_identity": "nobody's result",
            "result_digest": _UNKNOWN_DIGEST,
        }
        known = dict(receipts.get(step.attempt, {**unknown, **self._bindings.attempt(step.attempt)._asdict()}))
        altered = {**known, "result_digest": _UNKNOWN_DIGEST}
        chosen = {
            Receipt.KNOWN: [known],
            Receipt.UNKNOWN: [unknown],
            Receipt.ALTERED: [altered],
            Receipt.MIXED: [known, unknown],
        }[step.receipt]
        if step.operation is Operation.ACKNOWLEDGE:
            return chosen[-1]
        return {"executions": chosen}


_UNKNOWN_INDEX: Final = {
    "schema_version": 1,
    "relative_path": "agent/instance-of-nobody/continuations.jsonl",
    "sha256": _UNKNOWN_DIGEST,
    "records": 1,
    "bytes": 1,
}


def _query_names(subject: Subject, step: CallStep) -> frozenset[str]:
    query = subject.routes[step.operation].query
    return frozenset() if query is None else frozenset(query.model_fields)


def _body_names(subject: Subject, step: CallStep) -> frozenset[str]:
    request = subject.routes[step.operation].request
    return frozenset() if request is None else frozenset(request.model_fields)
