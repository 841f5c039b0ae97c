"""Which waves are due, and whether all members meet a joint condition: PHASES and JOINT, evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quiesce.fsm import messages as m
from quiesce.fsm.members import Draft, fire_member, fire_release
from quiesce.fsm.tables.joint import Condition
from quiesce.fsm.tables.participant import ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import MILESTONE_PHASE, PHASE_OF, Milestone, Wave, plan_for
from quiesce.fsm.tables.release import ReleaseEvent, ReleaseState
from quiesce.fsm.transaction import Member, MemberSpec, is_owed
from quiesce.fsm.vocabulary import Phase, Role

__all__ = ["meets", "send_due_waves", "wave_count"]

_AT_REST: Final = frozenset({ReleaseState.UNPROVEN, ReleaseState.OWES_RESTORE})


def wave_count(draft: Draft) -> int:
    """Number of waves of the phase that runs now."""
    phase = PHASE_OF.get(draft.transaction)
    return len(plan_for(phase, draft.plan.drain).waves) if phase is not None else 0


def send_due_waves(draft: Draft) -> None:
    """Send what is due in the phase that runs now; a wave may make the next one due."""
    phase = PHASE_OF.get(draft.transaction)
    if phase is None or draft.rested or draft.queue:
        return
    waves = plan_for(phase, draft.plan.drain).waves
    for number, wave in enumerate(waves):
        bit = 1 << number
        if not draft.waves & bit and _is_due(draft, wave, waves):
            draft.waves |= bit
            if wave.event is ParticipantEvent.RELEASED and number + 1 < len(waves):
                # its patience begins when it is sent, however long those before it took
                draft.commands.append(m.Arm(m.Timer.WAVE))
            _send(draft, wave, wave.members_of or phase)


def _send(draft: Draft, wave: Wave, phase: Phase) -> None:
    for index, spec in enumerate(draft.plan.members):
        member = draft.members[index]
        if spec.role not in wave.roles or phase not in spec.phases:
            continue
        if wave.event is not ParticipantEvent.RELEASED:
            if member.pending is None and member.state is not ParticipantState.RESTORED:
                fire_member(draft, index, wave.event)
        elif is_owed(member):
            fire_release(draft, index, ReleaseEvent.RELEASE_DUE)


def _is_due(draft: Draft, wave: Wave, waves: tuple[Wave, ...]) -> bool:
    """Whether everybody whom the wave waits for has come as far as it says."""
    given_up = waves[: draft.lagging]
    waited_for = [
        (role, MILESTONE_PHASE[milestone], _MILESTONES[milestone])
        for role, milestone in wave.waits_for
        if not _is_given_up(role, milestone, given_up)
    ]
    return not waited_for or _all_members(
        draft,
        lambda spec, member: all(
            there(member) for role, phase, there in waited_for if spec.role is role and phase in spec.phases
        ),
    )


def _is_given_up(role: Role, milestone: Milestone, given_up: tuple[Wave, ...]) -> bool:
    return milestone is Milestone.REOPENED_OR_LAGGING and any(role in wave.roles for wave in given_up)


def _all_members(draft: Draft, holds: Callable[[MemberSpec, Member], bool]) -> bool:
    """Whether it holds of everybody; looks first at whoever was missing last time, so that a wave costs O(N) in all."""
    specs, members = draft.plan.members, draft.members
    count = len(specs)
    for offset in range(count):
        index = (draft.scan + offset) % count
        if not holds(specs[index], members[index]):
            draft.scan = index
            return False
    return True


_CLOSED: Final = frozenset({ParticipantState.DRAINING, ParticipantState.PAUSED})

_MILESTONES: Final[Mapping[Milestone, Callable[[Member], bool]]] = {
    Milestone.CONFIRMED: lambda member: member.confirmed,
    Milestone.CLOSED: lambda member: member.state in _CLOSED,
    Milestone.PAUSED: lambda member: member.state is ParticipantState.PAUSED,
    Milestone.COMMITTED: lambda member: member.state is ParticipantState.COMMITTED,
    Milestone.RESTORED: lambda member: member.state is ParticipantState.RESTORED,
    Milestone.REOPENED_OR_LAGGING: lambda member: not is_owed(member) or member.release in _AT_REST,
}


def meets(draft: Draft, phase: Phase, condition: Condition) -> bool:
    """Whether every member that takes part in ``phase`` meets ``condition``."""
    met = _CONDITIONS[condition]
    return _all_members(draft, lambda spec, member: phase not in spec.phases or met(spec, member))


def _committed_and_verified(spec: MemberSpec, member: Member) -> bool:
    if Phase.COMMIT not in spec.phases:
        return member.confirmed
    return member.state is ParticipantState.COMMITTED and member.verified


_CONDITIONS: Final[Mapping[Condition, Callable[[MemberSpec, Member], bool]]] = {
    Condition.CONFIRMED: lambda _spec, member: member.confirmed,
    Condition.PAUSED: lambda _spec, member: member.state is ParticipantState.PAUSED,
    Condition.COMMITTED_AND_VERIFIED: _committed_and_verified,
    Condition.RESTORED: lambda _spec, member: member.state is ParticipantState.RESTORED,
    Condition.SETTLED: lambda _spec, member: not is_owed(member),
    Condition.SETTLED_OR_UNPROVEN: lambda _spec, member: not is_owed(member) or member.release in _AT_REST,
}
