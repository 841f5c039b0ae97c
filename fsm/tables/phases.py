"""PHASES: which verb goes to which roles in a phase, in which order of waves. Order is data, never control flow.

Inside a wave every call is concurrent. A wave is sent as soon as each member of the roles that it ``waits_for``
has come as far as the wave says; waves that wait for nothing go out together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from quiesce.fsm.tables.participant import ParticipantEvent
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Outcome, Phase, Role

__all__ = ["MILESTONE_PHASE", "PHASES", "PHASE_OF", "DrainMode", "Milestone", "PhasePlan", "Wave", "plan_for"]


class DrainMode(StrEnum):
    """How prepare treats agents while policies drain."""

    OVERLAPPED = "overlapped"
    """Agents park while the policies' drains are awaited."""
    POLICIES_FIRST = "policies_first"
    """No agent is touched before every policy is drained."""


class Milestone(StrEnum):
    """How far a member must have come before a later wave is sent."""

    CONFIRMED = "confirmed"
    CLOSED = "closed"
    PAUSED = "paused"
    COMMITTED = "committed"
    RESTORED = "restored"
    REOPENED_OR_LAGGING = "reopened_or_lagging"
    """Open again, or the wave's patience is over: one lost participant does not keep the others closed."""


@dataclass(frozen=True, slots=True)
class Wave:
    """One wave: ``event`` is what becomes due for each member of ``roles`` that takes part in the phase.

    ``members_of`` is the phase whose participants it goes to, where that is not the wave's own phase.
    ``expects`` is, for a reading of the capabilities, the only reading that lets the transaction go on.
    """

    event: ParticipantEvent
    roles: tuple[Role, ...]
    waits_for: tuple[tuple[Role, Milestone], ...] = ()
    expects: Outcome | None = None
    members_of: Phase | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """The waves of one phase, in order. ``drain`` tells variants of prepare apart."""

    phase: Phase
    waves: tuple[Wave, ...]
    drain: DrainMode | None = None


_EVERYONE: Final = (Role.POLICY, Role.AUXILIARY, Role.AGENT, Role.RESOURCES)
_CUT: Final = (Role.POLICY, Role.AGENT, Role.RESOURCES)
_E = ParticipantEvent
_M = Milestone


def _confirmed(*roles: Role) -> tuple[tuple[Role, Milestone], ...]:
    return tuple((role, _M.CONFIRMED) for role in roles)


def _prepare(drain: DrainMode, policies: Milestone) -> PhasePlan:
    return PhasePlan(
        Phase.PREPARE,
        (
            Wave(_E.CLOSE_DUE, (Role.POLICY,), reason="close the model before its callers are parked"),
            Wave(
                _E.CLOSE_DUE,
                (Role.AGENT,),
                ((Role.POLICY, policies),),
                reason="agents park at their next boundary",
            ),
            Wave(
                _E.CLOSE_DUE,
                (Role.RESOURCES,),
                ((Role.POLICY, policies), (Role.AGENT, _M.PAUSED)),
                reason="agents use resources until they are parked",
            ),
        ),
        drain,
    )


def _reopening(phase: Phase) -> PhasePlan:
    return PhasePlan(
        phase,
        (
            Wave(_E.RELEASED, (Role.RESOURCES,), reason="what an agent calls is open before the agent is released"),
            Wave(
                _E.RELEASED,
                (Role.POLICY,),
                ((Role.RESOURCES, _M.REOPENED_OR_LAGGING),),
                reason="an agent that is released calls its model",
            ),
            Wave(
                _E.RELEASED,
                (Role.AGENT,),
                ((Role.RESOURCES, _M.REOPENED_OR_LAGGING), (Role.POLICY, _M.REOPENED_OR_LAGGING)),
                reason="an agent released before its model would only park again",
            ),
        ),
    )


PHASES: Final = (
    PhasePlan(
        Phase.PREFLIGHT,
        (
            Wave(
                _E.INSPECT_DUE,
                _EVERYONE,
                expects=Outcome.OPEN,
                reason="idle, unchanged and nobody else's, before anyone is paused",
            ),
        ),
    ),
    _prepare(DrainMode.OVERLAPPED, _M.CLOSED),
    _prepare(DrainMode.POLICIES_FIRST, _M.PAUSED),
    PhasePlan(
        Phase.COMMIT,
        (
            Wave(
                _E.INSPECT_DUE,
                _CUT,
                expects=Outcome.HELD_PREPARED,
                members_of=Phase.PREPARE,
                reason="phases are read again right before, also of those who export nothing",
            ),
            Wave(
                _E.EXPORT_DUE,
                (Role.AGENT,),
                _confirmed(*_CUT),
                reason="the agents' continuation indexes are an input of the policies' export",
            ),
            Wave(
                _E.EXPORT_DUE,
                (Role.POLICY,),
                (*_confirmed(*_CUT), (Role.AGENT, _M.COMMITTED)),
                reason="its lineage is chosen by the agents' continuations",
            ),
            Wave(
                _E.EXPORT_DUE,
                (Role.RESOURCES,),
                (*_confirmed(*_CUT), (Role.AGENT, _M.COMMITTED), (Role.POLICY, _M.COMMITTED)),
                reason="only writes what was taken when it was frozen",
            ),
        ),
    ),
    PhasePlan(
        Phase.RESTORE,
        (
            Wave(_E.IMPORT_DUE, (Role.POLICY,), reason="policies close first, so that no restored work proceeds"),
            Wave(_E.IMPORT_DUE, (Role.AGENT,), ((Role.POLICY, _M.RESTORED),), reason="boundaries wait for their model"),
            Wave(
                _E.IMPORT_DUE,
                (Role.RESOURCES,),
                ((Role.POLICY, _M.RESTORED), (Role.AGENT, _M.RESTORED)),
                reason="sessions belong to restored boundaries",
            ),
        ),
    ),
    _reopening(Phase.RESUME),
    _reopening(Phase.ABORT),
    _reopening(Phase.ROLLBACK),
)
"""Every phase's waves."""

MILESTONE_PHASE: Final = {
    Milestone.CONFIRMED: Phase.PREPARE,
    Milestone.CLOSED: Phase.PREPARE,
    Milestone.PAUSED: Phase.PREPARE,
    Milestone.COMMITTED: Phase.COMMIT,
    Milestone.RESTORED: Phase.RESTORE,
    Milestone.REOPENED_OR_LAGGING: Phase.RESUME,
}
"""The phase whose participants must have reached a milestone; who takes no part in it is not waited for."""

PHASE_OF: Final = {
    TransactionState.PREFLIGHT: Phase.PREFLIGHT,
    TransactionState.DRAINING: Phase.PREPARE,
    TransactionState.COMMITTING: Phase.COMMIT,
    TransactionState.RESTORING: Phase.RESTORE,
    TransactionState.RESUMING: Phase.RESUME,
    TransactionState.ABORTING: Phase.ABORT,
    TransactionState.PUBLISH_UNKNOWN: Phase.ROLLBACK,
}
"""The phase that runs while the transaction is in a state; other states send no waves."""


@cache
def plan_for(phase: Phase, drain: DrainMode) -> PhasePlan:
    """The waves of ``phase`` under drain mode ``drain``."""
    return next(plan for plan in PHASES if plan.phase is phase and plan.drain in (None, drain))
