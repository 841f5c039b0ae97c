"""Finding out who takes part: everybody is asked, everything is checked, and nobody is paused.

Three rounds, each concurrent: capabilities of everyone; the routes that each will be called on (wire-protocol F23); and
whether the control token is accepted. All problems of a round are reported together, each with the participant and
what to do. Only capabilities, status and calls without effect are made (field cases F-24).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar

from quiesce.controller.clock import Clock
from quiesce.controller.config import Config, ParticipantConfig
from quiesce.controller.errors import waits_for_a_restore
from quiesce.controller.requests import control_request
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Role, Verb
from quiesce.participants.capabilities import Contract
from quiesce.participants.dialects.base import CallSpec, Dialect, Reading, WireCall
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.discovery_rules import Discovered as Declared
from quiesce.participants.discovery_rules import validate_topology
from quiesce.participants.errors import TopologyError, Unreachable
from quiesce.participants.gym_config import GymConfiguration
from quiesce.participants.matrix import takes_part
from quiesce.participants.replies import Inspection
from quiesce.participants.topology import Topology
from quiesce.transport.port import ControlReply, Transport

__all__ = ["Answered", "Discovered", "DiscoveredParticipant", "DiscoveryFailed", "ask_everybody", "discover"]

AT_ONCE_MAX: Final = 64
"""Calls under way at once."""
PROBE_ID: Final = "quiesce-discovery"
"""The id in status calls that only ask whether the token is accepted. Status uses no id up."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DiscoveredParticipant:
    """One participant: where it is, what it declared, and what it takes part in.

    Attributes:
        key: deployment and routing name.
        url: base of its control routes.
        checkpoint_url: base of its commit and restore routes where another process serves them.
        contract: routing name and declaration, as in the topology.
        instance: its incarnation, where it names one.
        dialect: the wire generation that it speaks.
        phases: the phases that it takes part in.
    """

    key: ParticipantKey
    url: str
    checkpoint_url: str | None
    contract: Contract
    instance: str | None
    dialect: Dialect
    phases: frozenset[Phase]

    @property
    def role(self) -> Role:
        return self.contract.role

    @property
    def coordinator(self) -> bool:
        """Whether a coordinator answers for several workers."""
        return self.contract.declaration.coordinated

    def is_elsewhere(self, verb: Verb) -> bool:
        """Whether another server than the one at ``url`` serves a verb."""
        return self.checkpoint_url is not None and verb in {Verb.EXPORT, Verb.IMPORT}

    def base_url(self, verb: Verb) -> str:
        """Where a verb is sent."""
        return self.checkpoint_url if self.checkpoint_url and self.is_elsewhere(verb) else self.url


@dataclass(frozen=True, slots=True)
class Discovered:
    """Everybody who was found and validated.

    Attributes:
        participants: in topology order: by deployment, component, routing name.
        topologies: the topology of each deployment.
        notes: what could not be checked or deserves attention, each a sentence.
        gym: the resolved NeMo Gym configuration from which each deployment's participants came, where one did.
        holding: which checkpoint ids hold whom, as they say it.
    """

    participants: tuple[DiscoveredParticipant, ...]
    topologies: Mapping[str, Topology]
    notes: tuple[str, ...] = ()
    gym: Mapping[str, GymConfiguration] = field(default_factory=dict)
    holding: Mapping[str, tuple[ParticipantKey, ...]] = field(default_factory=dict)

    def waiting(self) -> tuple[ParticipantKey, ...]:
        """Who says that it waits for a restore, and refuses all work before it. Recorded servers do not say so."""
        return tuple(one.key for one in self.participants if one.contract.declaration.owes_restore)

    def without_lease(self) -> tuple[ParticipantKey, ...]:
        """Who takes part in cuts and would stay closed if this controller died, until the next one recovers it."""
        return tuple(
            participant.key
            for participant in self.participants
            if Phase.PREPARE in participant.phases and not participant.contract.declaration.leased
        )

    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of each deployment's topology."""
        return {name: topology.fingerprint() for name, topology in self.topologies.items()}


class DiscoveryFailed(ExceptionGroup[QuiesceError], QuiesceError):
    """Some participants did not answer as a participant must. Nobody was paused.

    Attributes:
        problems: one sentence for each, with what to do.
        exceptions: the errors themselves.
        asked: everybody who was asked, with the address.
    """

    problems: tuple[str, ...]
    asked: tuple[tuple[ParticipantKey, str], ...] = ()

    def __new__(cls, errors: Sequence[QuiesceError]) -> Self:
        problems = tuple(_sentence(error) for error in errors)
        numbered = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(problems, start=1))
        self = super().__new__(cls, f"discovery failed, nobody was paused:\n{numbered}\n", errors)
        self.problems = problems
        return self

    def derive(self, errors: Sequence[QuiesceError], /) -> DiscoveryFailed:  # type: ignore[override]  # of one type
        return DiscoveryFailed(errors)


async def discover(config: Config, transport: Transport, clock: Clock, *, dialect: Dialect | None = None) -> Discovered:
    """Ask everybody in the configuration and validate what they declare.

    Each round is bounded by ``control_timeout_s``.

    Raises:
        DiscoveryFailed: participants that cannot be reached, are none, lack a route, or refuse the token.
        TopologyError: together they do not make a deployment that can be cut.
    """
    return await _Discovery(config, transport, clock, dialect or GymA()).run()


@dataclass(frozen=True, slots=True)
class Answered:
    """What everybody of a configuration says of itself, whatever they make together.

    Attributes:
        participants: those who answered as a participant does, in topology order.
        holding: which checkpoint ids hold whom, as they say it.
        silent: who did not answer so (``deployment/name``, or in words where nobody knows the names), and why.
    """

    participants: tuple[DiscoveredParticipant, ...]
    holding: Mapping[str, tuple[ParticipantKey, ...]]
    silent: Mapping[str, str]


async def ask_everybody(config: Config, transport: Transport, clock: Clock) -> Answered:
    """Ask everybody in the configuration once, within ``control_timeout_s``. One who is gone keeps nobody else."""
    return await _Discovery(config, transport, clock, GymA()).ask()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A participant as it is configured."""

    key: ParticipantKey
    settings: ParticipantConfig


@dataclass(frozen=True, slots=True)
class _Answer:
    """A candidate and what it declared."""

    candidate: _Candidate
    inspection: Inspection
    outcome: Outcome

    @property
    def contract(self) -> Contract:
        return Contract(self.candidate.key.name, self.inspection.capabilities.declaration)


class _Discovery:
    def __init__(self, config: Config, transport: Transport, clock: Clock, dialect: Dialect) -> None:
        self._config = config
        self._transport = transport
        self._clock = clock
        self._dialect = dialect
        self._deadline = 0.0

    def _candidates(self) -> list[_Candidate]:
        return [
            _Candidate(ParticipantKey(name, settings.name), settings)
            for name, deployment in self._config.deployment.items()
            for settings in deployment.participants
        ]

    async def ask(self) -> Answered:
        # an auxiliary server takes part in no pause
        candidates = [one for one in self._candidates() if one.settings.role is not Role.AUXILIARY]
        results = await self._each(self._inspect, candidates)
        answers = [result for result in results if isinstance(result, _Answer)]
        silent = {
            str(candidate.key): str(result)
            for candidate, result in zip(candidates, results, strict=True)
            if isinstance(result, QuiesceError)
        }
        for name, deployment in self._config.deployment.items():
            if not deployment.participants:
                silent[f"everybody of {name}"] = "the configuration of NeMo Gym that names them could not be read"
        participants = _in_topology_order(self._participant(answer) for answer in answers)
        return Answered(participants, _holding(answers), silent)

    async def run(self) -> Discovered:
        candidates = self._candidates()
        if not candidates:
            raise TopologyError(["no participants are configured: a cut over nobody proves nothing"])
        answers = await self._round(self._inspect, candidates)
        notes = self._validate(answers)
        participants = _in_topology_order(self._participant(answer) for answer in answers)
        taking_part = [participant for participant in participants if Phase.PREPARE in participant.phases]
        await self._round(self._probe, taking_part)
        await self._round(self._check_token, taking_part)
        held = [_held(answer) for answer in answers if answer.outcome is not Outcome.OPEN]
        found = Discovered(participants, _topologies(participants), holding=_holding(answers))
        waits = [waits_for_a_restore(found.waiting())] if found.waiting() else []
        return replace(found, notes=(*notes, *held, *waits))

    async def _round(self, ask: Callable[[T], Awaitable[R]], whom: Iterable[T]) -> list[R]:
        """Ask everybody concurrently; all errors are collected."""
        results = await self._each(ask, whom)
        errors = [result for result in results if isinstance(result, QuiesceError)]
        if errors:
            raise DiscoveryFailed(errors)
        return [result for result in results if not isinstance(result, QuiesceError)]

    async def _each(self, ask: Callable[[T], Awaitable[R]], whom: Iterable[T]) -> list[R | QuiesceError]:
        """Ask everybody concurrently; what each answered, or why it did not, in the order of ``whom``."""
        self._deadline = self._clock.monotonic() + self._config.control_timeout_s
        limit = asyncio.Semaphore(AT_ONCE_MAX)

        async def bounded(one: T) -> R | QuiesceError:
            async with limit:
                try:
                    return await ask(one)
                except QuiesceError as error:
                    return error

        return await asyncio.gather(*(bounded(one) for one in whom))

    async def _inspect(self, candidate: _Candidate) -> _Answer:
        role = candidate.settings.role or Role.POLICY  # capabilities are one route for all roles
        spec = CallSpec(verb=Verb.INSPECT, role=role, participant=str(candidate.key))
        reply = await self._send(candidate.settings.url, self._dialect.call(spec), candidate.key)
        reading = self._dialect.read(spec, reply.status, reply.headers, reply.body)
        if reading.error is not None or not isinstance(reading.payload, Inspection):
            raise reading.error or _unusable(candidate.key, reading)
        return _Answer(candidate, reading.payload, reading.outcome)

    def _validate(self, answers: Sequence[_Answer]) -> tuple[str, ...]:
        endpoints = [url for deployment in self._config.deployment.values() for url in deployment.policy_base_urls]
        declared = [
            Declared(
                contract=answer.contract,
                address=answer.candidate.settings.url,
                deployment=answer.candidate.key.deployment,
                declared_role=answer.candidate.settings.role,
                upstreams=answer.candidate.settings.upstream,
            )
            for answer in answers
        ]
        _, notes = validate_topology(declared, policy_endpoints=endpoints)
        return notes

    def _participant(self, answer: _Answer) -> DiscoveredParticipant:
        settings = answer.candidate.settings
        return DiscoveredParticipant(
            key=answer.candidate.key,
            url=settings.url,
            checkpoint_url=settings.checkpoint_url,
            contract=answer.contract,
            instance=answer.inspection.instance,
            dialect=self._dialect,
            phases=frozenset(phase for phase in Phase if takes_part(answer.contract.declaration, phase)),
        )

    async def _probe(self, participant: DiscoveredParticipant) -> None:
        for base_url, probe in _probes(participant):
            reply = await self._send(base_url, probe, participant.key)
            error = participant.dialect.read_probe(
                probe, reply.status, reply.headers, reply.body, participant=str(participant.key)
            )
            if error is not None:
                raise error

    async def _check_token(self, participant: DiscoveredParticipant) -> None:
        spec = CallSpec(
            verb=Verb.AWAIT_CUT,
            role=participant.role,
            coordinator=participant.coordinator,
            checkpoint_id=PROBE_ID,
            deadline_ts=self._clock.now_ts() + self._config.control_timeout_s,
            participant=str(participant.key),
        )
        reply = await self._send(participant.url, participant.dialect.progress_call(spec), participant.key)
        reading = participant.dialect.read_progress(spec, reply.status, reply.headers, reply.body)
        if reading.outcome is Outcome.UNAUTHORIZED and reading.error is not None:
            raise reading.error

    async def _send(self, base_url: str, call: WireCall, key: ParticipantKey) -> ControlReply:
        timeout_s = self._deadline - self._clock.monotonic()
        return await self._transport.send(
            control_request(call, base_url=base_url, participant=str(key), timeout_s=timeout_s)
        )


def _probes(participant: DiscoveredParticipant) -> list[tuple[str, WireCall]]:
    """Every route that the participant will be called on, each once, with the base URL that it is expected at."""
    phases = [phase for phase in (Phase.PREPARE, Phase.COMMIT, Phase.RESTORE) if phase in participant.phases]
    control = participant.dialect.probes(participant.role, [Phase.PREPARE, Phase.RESUME])
    return [
        (participant.url if probe in control else participant.base_url(Verb.EXPORT), probe)
        for probe in participant.dialect.probes(participant.role, phases)
    ]


def _in_topology_order(participants: Iterable[DiscoveredParticipant]) -> tuple[DiscoveredParticipant, ...]:
    def place(participant: DiscoveredParticipant) -> tuple[str, str, str]:
        contract = participant.contract
        return (participant.key.deployment, contract.declaration.component.value, contract.server_name)

    return tuple(sorted(participants, key=place))


def _topologies(participants: Sequence[DiscoveredParticipant]) -> dict[str, Topology]:
    names = dict.fromkeys(participant.key.deployment for participant in participants)
    return {
        name: Topology.of(participant.contract for participant in participants if participant.key.deployment == name)
        for name in names
    }


def _holding(answers: Iterable[_Answer]) -> dict[str, tuple[ParticipantKey, ...]]:
    holding: dict[str, tuple[ParticipantKey, ...]] = {}
    for answer in answers:
        holder = answer.inspection.capabilities.active_checkpoint_id
        if holder is not None:
            holding[holder] = (*holding.get(holder, ()), answer.candidate.key)
    return holding


def _held(answer: _Answer) -> str:
    live = answer.inspection.capabilities
    holder = f"by {live.active_checkpoint_id!r}" if live.active_checkpoint_id else "by nobody that it names"
    return f"{answer.candidate.key} is held {holder} (phase {live.phase.value}): no cut can begin before it is resumed"


def _unusable(key: ParticipantKey, reading: Reading) -> QuiesceError:
    return QuiesceError(f"{key}: its capabilities came to {reading.outcome.value} without a reason; please report it")


def _sentence(error: QuiesceError) -> str:
    if isinstance(error, Unreachable):
        return f"{error}; check that the server runs and that its url is right"
    return str(error)
