"""Who answers at a URL: whether it is a participant that may be tested, and what can be known of it beforehand.

Nothing is paused before it is known that the server is a participant, that our token is accepted and that nobody's id
holds it. Whether it has live work can be seen of a model or resource server only by closing it for a moment; it is
opened again at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import ValidationError

from quiesce.controller.cancellation import finish_first
from quiesce.fsm.tables.fence import FencePhase
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.asking import Asking
from quiesce.fuzz.declared import contradictions
from quiesce.fuzz.errors import StillClosed
from quiesce.fuzz.findings import Finding
from quiesce.fuzz.line import Line
from quiesce.fuzz.rulebook import RULE_BY_ID
from quiesce.fuzz.rules import Profile
from quiesce.fuzz.seen import CONFLICT, OK, Seen
from quiesce.fuzz.steps import Operation
from quiesce.fuzz.subject import Subject, routes_for
from quiesce.fuzz.verdicts import Verdict
from quiesce.fuzz.wording import ANSWER_S, OWN_NAMES
from quiesce.participants.capabilities import LEASE_FEATURE, Declaration, WorkerMode
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.routes import LEASE_ROUTE, PREFIX, ROUTE_BY_NAME, Route
from quiesce.participants.errors import MaybeApplied, NeverSent, Unreachable
from quiesce.participants.excerpts import body_excerpt, printable
from quiesce.participants.validation import first_problems

__all__ = ["CHECK_URL", "Found", "Survey"]

CHECK_URL: Final = "; check the URL: it is the base of a server's control routes"
CLOSED_S_MAX: Final = 1.0
"""For how long a server is closed at most, to see whether it has live work."""
UNAUTHORIZED: Final = frozenset({401, 403})
MISSING: Final = frozenset({404, 405, 501})
CAPABILITIES_VERSION: Final = 1
_B_STATUS: Final = f"{PREFIX}/checkpoint/status"
_EXERCISED: Final = frozenset(
    {"capabilities.open", "capabilities.shape", "capabilities.fields", "capabilities.declared", "routes.present"}
)
_OF_CAPABILITIES: Final = frozenset({"component", "checkpoint_mode", "phase"})
"""What shows that an object means to be the capabilities of a participant."""
_B_MEMBERS: Final = frozenset({"kind", "phase", "report"})
_FEATURES: Final = {
    Operation.DISCARD: "discard_restored_continuation_v1",
    Operation.ACKNOWLEDGE: "completed_result_acknowledgement",
    Operation.ACKNOWLEDGE_COMPLETED: "completed_result_acknowledgement",
    Operation.RENEW: LEASE_FEATURE,
}
"""Routes of later servers: one that does not declare the feature need not have the route."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a survey found. ``subject`` is None where the participant is not to be tested; ``reason`` says why.

    ``findings`` are rules that are broken already, ``exercised`` those that were looked at.
    """

    verdict: Verdict
    reason: str = ""
    subject: Subject | None = None
    findings: tuple[Finding, ...] = ()
    owes_restore: tuple[bool, ...] = (False,)
    alone: bool = True
    exercised: frozenset[str] = frozenset()


class _NotOpened(Exception):
    """The server was closed for the survey and is held by that id still."""


@dataclass(slots=True)
class Survey:
    """Looks at one URL. ``own_ids`` gives fresh ids; ``answer_s`` is what a call that does not wait may take."""

    url: str
    line: Line
    own_ids: Iterator[str]
    profile: Profile = Profile.STRICT
    allow_live_work: bool = False
    allow_restore: bool = False
    answer_s: float = ANSWER_S
    _findings: list[Finding] = field(default_factory=list, init=False)
    _asking: Asking = field(init=False)
    _opened: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._asking = Asking(self.url, self.line, self.answer_s)

    async def look(self) -> Found:
        """Find out who it is. Never raises for what a server does."""
        try:
            return await self._look()
        except _NotOpened as error:
            return self._refused(Verdict.LEFT_CLOSED, str(error))
        except NeverSent as error:
            return Found(Verdict.UNREACHABLE, f"{error.reason}; check that the server runs and that its URL is right")
        except Unreachable as error:
            verdict = self._asking.verdict_on(error)
            return Found(verdict, f"{error.call} is not answered as it should be: {error.reason}")

    async def _look(self) -> Found:
        seen = await self._asking.get(ROUTE_BY_NAME["capabilities"].path)
        if seen.status in UNAUTHORIZED:
            self._break("capabilities.open", "200 without a bearer", str(seen))
            seen = await self._asking.get(ROUTE_BY_NAME["capabilities"].path, authorized=True)
        if seen.status != OK or not isinstance(seen.json, dict):
            return await self._not_a_participant(seen)
        if (other := _other_version(seen)) is not None:
            return other
        try:
            capabilities = wire.Capabilities.model_validate_json(seen.body)
        except ValidationError as error:
            return await self._unreadable(seen, first_problems(error))
        self._check_declaration(capabilities, seen)
        return await self._ask(capabilities)

    async def _not_a_participant(self, seen: Seen) -> Found:
        if await self._speaks_b():
            return _other_dialect()
        kind = printable(seen.headers.get("content-type", "no content type"), 60)
        said = f"its capabilities route answers {seen.status} ({kind}): {body_excerpt(seen.body, 80) or 'nothing'}"
        return Found(Verdict.NOT_A_PARTICIPANT, f"{said}{CHECK_URL}")

    async def _unreadable(self, seen: Seen, problems: str) -> Found:
        if await self._speaks_b():
            return _other_dialect()
        if not _OF_CAPABILITIES & set(seen.fields):
            return Found(Verdict.NOT_A_PARTICIPANT, f"its capabilities route answers something else: {problems}")
        self._break("capabilities.shape", "the fields of 2.1", problems)
        return Found(Verdict.GARBAGE, f"its capabilities cannot be read: {problems}", findings=tuple(self._findings))

    async def _speaks_b(self) -> bool:
        seen = await self._asking.get(_B_STATUS, authorized=True)
        return (seen.status == OK and set(seen.fields) >= _B_MEMBERS) or seen.code == "unauthorized"

    # ---- a participant

    async def _ask(self, capabilities: wire.Capabilities) -> Found:
        declaration = capabilities.declaration()
        if declaration.worker_mode is WorkerMode.UNMANAGED:
            reason = f"{declaration.num_workers} workers share its port and nobody answers for all of them"
            return self._refused(Verdict.UNMANAGED, f"{reason}; test one worker, or put a coordinator before them")
        subject = self._subject(declaration)
        subject, missing = await self._with_routes(subject)
        if not subject.has(Operation.PREPARE) or not subject.has(Operation.RESUME):
            reason = "it has no control routes: most likely no control token is configured there"
            return self._refused(Verdict.TAKES_NO_PART, reason)
        for route in missing:
            self._break("routes.present", "422 for an empty request", f"404 for {route.method} {route.path}")
        status = await self._asking.status(subject, next(self.own_ids))
        if status.status in UNAUTHORIZED:
            return self._refused(Verdict.TOKEN_REFUSED, f"it answers {status}; check the control token on both sides")
        if capabilities.phase is not FencePhase.IDLE or capabilities.active_checkpoint_id is not None:
            holder = printable(capabilities.active_checkpoint_id or "nobody that it names", 128)
            reason = f"its phase is {capabilities.phase.value}, held by {holder}: resume it first"
            return self._refused(Verdict.HELD, reason)
        if subject.role is Role.AUXILIARY:
            return Found(Verdict.TESTED, subject=subject, findings=tuple(self._findings), exercised=_EXERCISED)
        return await self._try(subject, status)

    async def _try(self, subject: Subject, status: Seen) -> Found:
        resumed = await self._asking.post(subject, Operation.RESUME, next(self.own_ids))
        owes = resumed.status == CONFLICT and resumed.code == "resources_checkpoint_error"
        if owes and not self.allow_restore:
            reason = "it was started to be restored and serves nothing before that; --allow-restore tests it"
            return self._refused(Verdict.OWES_RESTORE, reason)
        live = "" if owes else await self._live_work(subject, status)
        if live and not self.allow_live_work:
            reason = f"{live}; testing it would disturb them (--live-work, or allow_live_work, tests it all the same)"
            return self._refused(Verdict.LIVE_WORK, reason)
        return Found(
            Verdict.TESTED,
            subject=subject,
            findings=tuple(self._findings),
            owes_restore=(owes,),
            alone=not live,
            exercised=_EXERCISED | ({"fence.resume-opens"} if self._opened else set()),
        )

    async def _live_work(self, subject: Subject, status: Seen) -> str:
        """What live work there is, in words; empty when there is none."""
        if subject.role is Role.AGENT:
            executions = status.fields.get("executions")
            count = len(executions) if isinstance(executions, list) else 0
            return f"{count} executions are there" if count else ""
        id_ = next(self.own_ids)
        try:
            closed = await self._asking.post(subject, Operation.PREPARE, id_, within_s=CLOSED_S_MAX)
            held = await self._asking.status(subject, id_)
        except MaybeApplied:
            await self._reopen(subject, id_)
            return ""  # the test will tell what is wrong with it
        except asyncio.CancelledError:
            await self._reopen(subject, id_, cancelled=True)
            raise
        await self._reopen(subject, id_)
        if closed.status == CONFLICT and closed.code == "resources_checkpoint_error":
            return "a session is busy, or has state that belongs to nobody"
        calls, sessions = closed.fields.get("inflight_total"), closed.fields.get("sessions")
        if isinstance(calls, int) and calls:
            return f"{calls} calls are in flight"
        live = isinstance(sessions, int) and sessions and not _are_left_by_us(held, sessions)
        return f"{sessions} sessions are there" if live else ""

    async def _open(self, subject: Subject, checkpoint_id: str) -> None:
        """Resume what was closed for a moment.

        Raises:
            _NotOpened: it is held by that id still.
        """
        try:
            resumed = await self._asking.post(subject, Operation.RESUME, checkpoint_id)
        except Unreachable as error:
            said = f"its resume is not answered: {error.reason}"
        else:
            if resumed.status == OK or await self._holder() != checkpoint_id:
                self._opened = resumed.status == OK
                return
            shown = f"{resumed}, after prepare {checkpoint_id} -> 200"
            self._break("fence.resume-opens", f"200 for resume {checkpoint_id}", shown)
            said = f"its resume answers {resumed}"
        raise _NotOpened(
            f"it was closed for a moment by {checkpoint_id}, and {said}; resume that id or restart the server"
        )

    async def _holder(self) -> str | None:
        seen = await self._asking.get(ROUTE_BY_NAME["capabilities"].path)
        holder = seen.fields.get("active_checkpoint_id")
        return holder if isinstance(holder, str) else None

    async def _reopen(self, subject: Subject, checkpoint_id: str, *, cancelled: bool = False) -> None:
        """Resume what was closed for a moment, to the end of it whatever cancels this.

        Raises:
            _NotOpened: it is held by that id still.
            StillClosed: it is, and the survey is being cancelled.
        """
        try:
            with self.line.at_once():
                await finish_first(self._open(subject, checkpoint_id))
        except _NotOpened as error:
            if cancelled:
                raise StillClosed(f"{self.url}: {error}") from None
            raise
        except asyncio.CancelledError as error:
            if isinstance(error.__cause__, _NotOpened):
                raise StillClosed(f"{self.url}: {error.__cause__}") from None
            raise

    def _subject(self, declaration: Declaration) -> Subject:
        role, coordinated = declaration.role, declaration.coordinated
        routes = {
            operation: route
            for operation, route in _every_route(role, coordinated=coordinated).items()
            if _FEATURES.get(operation) is None or _FEATURES[operation] in declaration.features
        }
        return Subject(self.url, declaration.participant_name, role, coordinated, declaration, routes)

    async def _with_routes(self, subject: Subject) -> tuple[Subject, list[Route]]:
        """The subject with the routes that are there, and those that are missing although they are promised."""
        there: dict[Operation, Route] = {Operation.CAPABILITIES: subject.routes[Operation.CAPABILITIES]}
        missing: list[Route] = []
        for operation, route in subject.routes.items():
            if operation is Operation.CAPABILITIES:
                continue
            if await self._is_there(route):
                there[operation] = route
            elif subject.declaration.exports or operation not in {Operation.COMMIT, Operation.RESTORE}:
                missing.append(route)
        return replace(subject, routes=there), missing

    async def _is_there(self, route: Route) -> bool:
        """Whether a route exists. One that does not answer does: what is wrong with it, the test will tell."""
        try:
            seen = await self._asking.send(route.method, route.path, None, {} if route.method == "POST" else None)
        except NeverSent:
            raise
        except Unreachable:
            return True
        return seen.status not in MISSING

    # ---- what it declares

    def _check_declaration(self, capabilities: wire.Capabilities, seen: Seen) -> None:
        known = set(wire.Capabilities.model_fields)
        if unknown := sorted(set(seen.fields) - known):
            self._break("capabilities.fields", "no further fields", printable(", ".join(unknown), 80))
        declaration = capabilities.declaration()
        for expected, got in contradictions(declaration):
            self._break("capabilities.declared", expected, got)

    def _break(self, rule_id: str, expected: str, got: str) -> None:
        rule = RULE_BY_ID[rule_id]
        known = rule.known.get(self.profile)
        if all(finding.rule is not rule for finding in self._findings):
            self._findings.append(Finding(rule, expected, got, "" if known is None else known.name))

    def _refused(self, verdict: Verdict, reason: str) -> Found:
        return Found(verdict, reason, findings=tuple(self._findings))


def _every_route(role: Role, *, coordinated: bool) -> Mapping[Operation, Route]:
    """The routes that the declaration promises; a coordinator's has those of its workers' exports as well."""
    promised = dict(routes_for(role))
    if role in LEASE_ROUTE.served_by:
        promised[Operation.RENEW] = LEASE_ROUTE
    return promised | dict(routes_for(role, coordinated=coordinated))


def _are_left_by_us(held: Seen, sessions: int) -> bool:
    """Whether all these sessions are of fuzzed agents, whose executions have ended by now; nobody else needs them."""
    try:
        found = wire.ResourcesStatusReply.model_validate_json(held.body).per_session
    except ValidationError:
        return False
    return sum(session.rollout_id.startswith(OWN_NAMES) for session in found) == len(found) == sessions


def _other_dialect() -> Found:
    return Found(
        Verdict.OTHER_DIALECT,
        "it speaks generation B of the protocol (one family of routes below /ng-control/v1/checkpoint); "
        "these rules are those of generation A",
    )


def _other_version(seen: Seen) -> Found | None:
    """The verdict on capabilities that say of themselves that they are of another version; None: they do not."""
    version = seen.fields.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version == CAPABILITIES_VERSION:
        return None
    if not _OF_CAPABILITIES & set(seen.fields):
        return None
    reason = (
        f"its capabilities have schema_version {version}, and these rules are those of {CAPABILITIES_VERSION}; "
        "nothing was asked of it. A newer Quiesce may know that version"
    )
    return Found(Verdict.OTHER_DIALECT, reason)
