"""Planted bugs: each is one row, one guard or one order of the declarations that is changed, and what must break.

The search must find each of them (``tests/fsm/test_explore_mutations.py``), and what it finds can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any
from unittest.mock import patch

from quiesce.fsm import messages as m
from quiesce.fsm.advance import _INTAKE, _meaning, _on_recover
from quiesce.fsm.explore import Exploration, Kind, Verdict, explore
from quiesce.fsm.explore_changes import ChangedEngine, RowChange
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_site import Fault, Site
from quiesce.fsm.explore_suites import SUITES, suite
from quiesce.fsm.members import Draft
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.tables import PARTICIPANT, RELEASE, TRANSACTION
from quiesce.fsm.tables.fence import FENCE, FenceEvent, FencePhase, FenceVariant
from quiesce.fsm.tables.joint import Condition
from quiesce.fsm.tables.participant import ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import PHASES, DrainMode, Milestone, PhasePlan, Wave
from quiesce.fsm.tables.release import ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.transaction import Plan
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Role, Verb
from quiesce.fsm.waves import _CONDITIONS

__all__ = ["BUGS", "Bug", "Misorder", "doubled", "in_place", "named", "planted", "searched", "setups", "verdict_of"]

AnyRow = Row[Any, Any]
Change = Callable[[AnyRow], AnyRow]


@dataclass(frozen=True)
class Bug:
    """What is changed, where it is looked for, and what must break.

    ``beside`` is a second change, where one alone is caught by another part of the protocol. ``budgets`` are the faults
    that it takes, where one class of them is not enough.
    """

    table: Table[Any, Any]
    source: Enum
    event: Enum
    change: Change
    where: str
    breaks: str
    wants: tuple[str, ...] = ()
    beside: Bug | None = None
    budgets: Mapping[Fault, int] | None = None

    @property
    def is_of_the_controller(self) -> bool:
        """Whether it is a matter of the controller's own tables, so that a file holds it and servers can be played."""
        return all(part.table in (TRANSACTION, PARTICIPANT, RELEASE) for part in self._parts())

    def changed(self) -> list[RowChange]:
        """Every row that is changed."""
        return [change for part in self._parts() for change in part._row_changes()]

    def said(self) -> str:
        """What is changed, in one line."""
        return "; ".join(
            f"{change.table}: `{change.row}` goes to `{change.target}`, {_listed(change.effects)}"
            for change in self.changed()
        )

    def _parts(self) -> Iterator[Bug]:
        yield self
        if self.beside is not None:
            yield from self.beside._parts()

    def _row_changes(self) -> list[RowChange]:
        rows = [
            row
            for row in self.table.rows
            if (row.source, row.event) == (self.source, self.event) and set(self.wants) <= set(row.guards)
        ]
        assert rows, "the row that the bug changes is gone; plant it elsewhere"
        return [RowChange.of(self.table, row, self.change(row)) for row in rows]


def _listed(effects: tuple[str, ...]) -> str:
    return ", ".join(effects) or "with no effect"


@dataclass(frozen=True)
class Misorder:
    """A bug of what is no row: a wave, a joint rule, the reading of an answer. ``patches`` are exchanged by name.

    ``drain`` is how agents are treated while policies drain, where a search of the suites has it otherwise.
    """

    what: str
    patches: Mapping[str, object]
    where: str
    breaks: str
    budgets: Mapping[Fault, int] | None = None
    drain: DrainMode = DrainMode.OVERLAPPED

    @property
    def is_of_the_controller(self) -> bool:
        """No file can hold it."""
        return False

    def changed(self) -> list[RowChange]:
        """No row is changed."""
        return []

    def said(self) -> str:
        """What is changed, in one line."""
        return self.what


def goes_to(target: Enum, *effects: str) -> Change:
    """The row leads elsewhere, with other effects."""
    return lambda row: replace(row, target=target, effects=effects)


def without(*effects: str) -> Change:
    """The row forgets some of its effects."""
    return lambda row: replace(row, effects=tuple(effect for effect in row.effects if effect not in effects))


T, P, R = TransactionState, ParticipantState, ReleaseState
TE, PE, RE = TransactionEvent, ParticipantEvent, ReleaseEvent

STRICT_AGENT = "strict: policy (strict) + agent (strict), cut, {}"
STRICT_RESOURCES = "strict: policy (strict) + resources (strict), cut, {}"
STRICT_RESTORE = "strict: policy (strict) + resources (strict), restore, {}"
RECORDED = "gym_a_single: policy (gym_a_single) + agent (gym_a_single), cut, {}"
COORDINATOR = "gym_a_coordinator: policy (gym_a_coordinator) + agent (gym_a_single), cut, {}"

STRICT_RESTORE_AGENT = "strict: policy (strict) + agent (strict), restore, {}"
AGENT_RESOURCES = "mixed: agent (strict) + resources (gym_a_single), cut, {}"
JUDGED = "strict: policy (strict) + auxiliary (strict), cut, {}"


def waves(change: Callable[[PhasePlan], PhasePlan], *phases: Phase) -> dict[str, object]:
    """PHASES with the plans of some phases changed."""
    changed = tuple(change(plan) if plan.phase in phases else plan for plan in PHASES)

    def plan_for(phase: Phase, drain: DrainMode) -> PhasePlan:
        return next(plan for plan in changed if plan.phase is phase and plan.drain in (None, drain))

    return {"quiesce.fsm.waves.plan_for": plan_for, "quiesce.fsm.advance.plan_for": plan_for}


def without_waiting_for(milestone: Milestone, *roles: Role) -> Callable[[PhasePlan], PhasePlan]:
    """No wave (of ``roles``, or of anybody) waits for the milestone any more."""

    def hasty(wave: Wave) -> Wave:
        if roles and not set(wave.roles) & set(roles):
            return wave
        return replace(wave, waits_for=tuple(pair for pair in wave.waits_for if pair[1] is not milestone))

    return lambda plan: replace(plan, waves=tuple(hasty(wave) for wave in plan.waves))


def until_closed(plan: PhasePlan) -> PhasePlan:
    """Whoever waits until policies are drained waits until they are closed."""

    def sooner(wave: Wave) -> Wave:
        waits_for = tuple((role, Milestone.CLOSED if role is Role.POLICY else least) for role, least in wave.waits_for)
        return replace(wave, waits_for=waits_for)

    return replace(plan, waves=tuple(sooner(wave) for wave in plan.waves))


def unread(plan: PhasePlan) -> PhasePlan:
    """Nobody's capabilities are read again."""
    kept = tuple(wave for wave in plan.waves if wave.event is not ParticipantEvent.INSPECT_DUE)
    return without_waiting_for(Milestone.CONFIRMED)(replace(plan, waves=kept))


def backwards(plan: PhasePlan) -> PhasePlan:
    """The roles in the opposite order; who waits for whom is turned round with them."""
    roles = [role for wave in plan.waves for role in wave.roles]
    turned = dict(zip(roles, reversed(roles), strict=True))

    def other(wave: Wave) -> Wave:
        waits_for = tuple((turned[role], milestone) for role, milestone in wave.waits_for)
        return replace(wave, roles=tuple(turned[role] for role in wave.roles), waits_for=waits_for)

    return replace(plan, waves=tuple(other(wave) for wave in plan.waves))


def forgetting(role: Role) -> Callable[[PhasePlan], PhasePlan]:
    """No wave goes to the role."""
    return lambda plan: replace(plan, waves=tuple(wave for wave in plan.waves if role not in wave.roles))


def pausing_the_judge(plan: PhasePlan) -> PhasePlan:
    """Whoever is closed with the policies: everybody who was read and answers for a model."""
    first, *others = plan.waves
    both = replace(first, roles=(Role.POLICY, Role.AUXILIARY), members_of=Phase.PREFLIGHT)
    return replace(plan, waves=(both, *others))


def draining_is_paused() -> dict[str, object]:
    """The joint rule takes whoever is closed for one who stands at the cut, and nobody is read again."""
    paused = {ParticipantState.PAUSED, ParticipantState.DRAINING}
    conditions = {**_CONDITIONS, Condition.PAUSED: lambda _spec, member: member.state in paused}
    return {"quiesce.fsm.waves._CONDITIONS": conditions, **waves(unread, Phase.COMMIT)}


def open_is_confirmed(draft: Draft, verb: Verb, outcome: Outcome) -> ParticipantEvent:
    """Before the exports, whoever reads idle is taken for one who stands at the cut."""
    if verb is Verb.INSPECT and outcome is Outcome.OPEN:
        return ParticipantEvent.CONFIRMED
    return _meaning(draft, verb, outcome)


def of_those_who_are_there(site: Site) -> bool:
    """A worker that is gone is taken for one that has acknowledged and has nothing in flight."""
    return not site.work or site.away


def recovered_in_good_faith(draft: Draft, event: m.Recover) -> None:
    """Nobody is taken for one that was resumed while a call of the dead controller ran."""
    _on_recover(draft, event)
    for index in range(len(draft.members)):
        draft.edit(index, overlapped=False)


def recovered_alone(draft: Draft, event: m.Recover) -> None:
    """Nothing of the dead controller's is taken to run on."""
    recovered_in_good_faith(draft, event)
    for index in range(len(draft.members)):
        draft.edit(index, lingering=None)


def in_every(sources: Sequence[Enum], bug: Callable[[Enum, Bug | None], Bug]) -> Bug:
    """The same change in each of several states, beside each other."""
    planted_there: Bug | None = None
    for source in reversed(sources):
        planted_there = bug(source, planted_there)
    assert planted_there is not None
    return planted_there


def held_too_long(source: Enum, beside: Bug | None) -> Bug:
    """A cut that was held for too long goes on as if it had been taken."""
    resumes = goes_to(T.RESUMING, "note_failure", "disarm_budgets", "arm_release", "start_release")
    where, breaks = STRICT_AGENT.format("deadline"), "taken_is_published"
    return Bug(TRANSACTION, source, TE.HOLD_EXPIRED, resumes, where, breaks, beside=beside)


def left_otherwise(source: Enum, beside: Bug | None) -> Bug:
    """Whoever is released is left aborted by what stands, and resumed by what does not."""
    where, breaks = STRICT_AGENT.format("no fault"), "left_as_it_ended"
    undone = Bug(PARTICIPANT, source, PE.RELEASED, goes_to(P.RESUMED), where, breaks, ("!decided",), beside=beside)
    return Bug(PARTICIPANT, source, PE.RELEASED, goes_to(P.ABORTED), where, breaks, ("decided",), beside=undone)


BUGS: dict[str, Bug | Misorder] = {
    "a drain is neither waited for nor read again": Bug(
        PARTICIPANT,
        P.UNKNOWN,
        PE.STILL_DRAINING,
        goes_to(P.PAUSED),
        COORDINATOR.format("no fault"),
        "published_whole",
        ("going_forward",),
        beside=Bug(PARTICIPANT, P.PAUSED, PE.INSPECT_DUE, goes_to(P.PAUSED, "confirm"), "", ""),
    ),
    "a participant is not marked before its first call": Bug(
        PARTICIPANT,
        P.IDLE,
        PE.CLOSE_DUE,
        goes_to(P.IDLE, "call_close"),
        STRICT_AGENT.format("no fault"),
        "closed_is_known",
    ),
    "an export is not waited for": Bug(
        PARTICIPANT,
        P.PAUSED,
        PE.EXPORT_DUE,
        goes_to(P.COMMITTED, "call_export", "mark_verified"),
        STRICT_AGENT.format("no fault"),
        "published_whole",
    ),
    "a lost close is taken for one that never left": Bug(
        PARTICIPANT,
        P.UNKNOWN,
        PE.UNANSWERED,
        goes_to(P.IDLE, "fail_transaction"),
        STRICT_AGENT.format("loss"),
        "closed_is_known",
        ("going_forward", "tries_left", "may_have_seen_a_call"),
    ),
    "a resume that is refused from idle is taken for success": Bug(
        RELEASE,
        R.RELEASING,
        RE.WRONG_PHASE,
        goes_to(R.RELEASED, "report_released"),
        COORDINATOR.format("no fault"),
        "settled_is_open",
    ),
    "an outstanding call is not waited for": Bug(
        RELEASE,
        R.RELEASING,
        RE.OPENED,
        goes_to(R.RELEASED, "report_released"),
        STRICT_AGENT.format("abandoned"),
        "settled_is_quiet",
        ("call_outstanding",),
    ),
    "a call that ended under the resume is not looked after": Bug(
        RELEASE,
        R.RELEASING,
        RE.OPENED,
        goes_to(R.RELEASED, "report_released"),
        RECORDED.format("no fault"),
        "settled_takes_next_cut",
        ("overlapped",),
    ),
    "an orphan fence is not repaired": Bug(
        RELEASE,
        R.CONFIRMING,
        RE.READ_ORPHAN,
        goes_to(R.RELEASED, "report_released"),
        RECORDED.format("no fault"),
        "settled_takes_next_cut",
        ("fresh_ids_left",),
    ),
    "an orphan fence is resumed under the used-up id for ever": Bug(
        RELEASE,
        R.CONFIRMING,
        RE.READ_ORPHAN,
        goes_to(R.RELEASING, "call_release"),
        RECORDED.format("no fault"),
        "everybody can accept work again, or is named",
        ("fresh_ids_left",),
    ),
    "the idle resume is not healed": Bug(
        RELEASE,
        R.INSPECTING,
        RE.READ_OPEN,
        goes_to(R.BACKING_OFF, "arm_backoff"),
        COORDINATOR.format("failure"),
        "everybody can accept work again, or is named",
        ("heals_by_pausing", "heals_left"),
    ),
    "a coordinator is resumed while a pause runs": Bug(
        RELEASE,
        R.NOT_DUE,
        RE.RELEASE_DUE,
        goes_to(R.RELEASING, "call_release"),
        COORDINATOR.format("no fault"),
        "closed_is_known",
        ("pause_runs",),
        budgets={Fault.ABANDONED: 1, Fault.FAILURE: 1, Fault.ABORT: 1},
    ),
    "a coordinator is healed while a resume runs": Bug(
        RELEASE,
        R.INSPECTING,
        RE.READ_OPEN,
        goes_to(R.CLOSING, "count_heal", "call_healing_close"),
        COORDINATOR.format("no fault"),
        "settled_takes_next_cut",
        ("heals_by_pausing", "call_outstanding"),
        budgets={Fault.ABANDONED: 1, Fault.FAILURE: 1, Fault.ABORT: 1},
    ),
    "another controller's conflict is believed too early": Bug(
        RELEASE,
        R.RELEASING,
        RE.CONFLICT,
        goes_to(R.HELD_BY_OTHER, "note_holder", "report_released"),
        STRICT_AGENT.format("intruder"),
        "closed_is_known",
        ("overlapped",),
    ),
    "back-off is not armed": Bug(
        RELEASE, R.RELEASING, RE.UNANSWERED, without("arm_backoff"), STRICT_AGENT.format("loss"), "no deadlock"
    ),
    "the deadline of reopening names nobody": Bug(
        RELEASE,
        R.RELEASING,
        RE.EXPIRED,
        goes_to(R.RELEASED, "report_released"),
        STRICT_AGENT.format("deadline"),
        "settled_is_open",
    ),
    "an answer from before the deadline is taken for a new one": Bug(
        RELEASE,
        R.UNPROVEN,
        RE.RELEASE_DUE,
        goes_to(R.RELEASING, "call_release"),
        COORDINATOR.format("no fault"),
        "settled_is_quiet",
        ("answer_awaited",),
        budgets={Fault.LOSS: 1, Fault.DEADLINE: 1, Fault.ABORT: 1, Fault.RETRY: 1},
    ),
    "an abort does not wait for the rename": Bug(
        TRANSACTION,
        T.PUBLISHING,
        TE.ABORT_REQUESTED,
        goes_to(T.ABORTING, "arm_release", "start_release"),
        STRICT_AGENT.format("no fault"),
        "never_published_and_aborted",
    ),
    "a failed record undoes what the rename decides": Bug(
        TRANSACTION,
        T.PUBLISHING,
        TE.RECORD_FAILED,
        goes_to(T.ABORTING, "arm_release", "start_release"),
        STRICT_AGENT.format("store"),
        "never_published_and_aborted",
    ),
    "an unreadable rename is taken for one that failed": Bug(
        TRANSACTION,
        T.PUBLISHING,
        TE.PUBLISH_UNCERTAIN,
        goes_to(T.ABORTING, "arm_release", "start_release"),
        STRICT_AGENT.format("store"),
        "never_published_and_aborted",
    ),
    "everybody is released before the rename": Bug(
        TRANSACTION,
        T.COMMITTED,
        TE.PUBLISH_REQUESTED,
        lambda row: replace(row, target=T.RESUMING, effects=("publish", "arm_release", "start_release")),
        STRICT_AGENT.format("no fault"),
        "published_whole",
    ),
    "a failed restore is opened": Bug(
        TRANSACTION,
        T.RESTORING,
        TE.PARTICIPANT_FAILED,
        goes_to(T.ABORTING, "arm_release", "start_release"),
        STRICT_RESTORE.format("failure"),
        "restore_undone_by_request",
    ),
    "an export is published before it was checked": Bug(
        PARTICIPANT,
        P.PAUSED,
        PE.EXPORTED,
        lambda row: replace(row, effects=("verify", "mark_verified")),
        STRICT_AGENT.format("no fault"),
        "published_verified",
        ("going_forward",),
    ),
    "an export that differs from what was said is published": Bug(
        PARTICIPANT,
        P.COMMITTED,
        PE.REFUSED,
        goes_to(P.COMMITTED, "mark_verified"),
        STRICT_AGENT.format("failure"),
        "published_verified",
        ("going_forward",),
    ),
    "a first call leaves before its record is durable": Bug(
        PARTICIPANT,
        P.IDLE,
        PE.CLOSE_DUE,
        goes_to(P.DRAINING, "call_close"),
        STRICT_AGENT.format("no fault"),
        "recorded_before_done",
    ),
    "a controller that takes over is not told of a first call": Bug(
        PARTICIPANT,
        P.IDLE,
        PE.CLOSE_DUE,
        goes_to(P.DRAINING, "call_close"),
        STRICT_AGENT.format("controller"),
        "closed_is_known",
    ),
    "the decision is recorded after the rename": Bug(
        TRANSACTION,
        T.COMMITTED,
        TE.PUBLISH_REQUESTED,
        without("record_decision"),
        STRICT_AGENT.format("no fault"),
        "recorded_before_done",
    ),
    "a recovery undoes what was published": Bug(
        TRANSACTION,
        T.IDLE,
        TE.RECOVER,
        goes_to(T.ABORTING, "arm_release", "start_release"),
        STRICT_AGENT.format("controller"),
        "never_published_and_aborted",
        ("snapshot_is_published",),
    ),
    "a recovery believes the first 200": Misorder(
        "the core: a recovery does not take a resume of its predecessor for one that a call of theirs overlapped",
        {"quiesce.fsm.advance._INTAKE": {**_INTAKE, m.Recover: recovered_in_good_faith}},
        RECORDED.format("controller"),
        "settled_takes_next_cut",
    ),
    "a recovery forgets the calls of its predecessor": Misorder(
        "the core: a recovery does not wait for what may still run of its predecessor's calls",
        {"quiesce.fsm.advance._INTAKE": {**_INTAKE, m.Recover: recovered_alone}},
        RECORDED.format("controller"),
        "settled_is_quiet",
    ),
    "a recovery opens half a restore": Bug(
        TRANSACTION,
        T.IDLE,
        TE.RECOVER,
        goes_to(T.ABORTING, "arm_release", "start_release"),
        STRICT_RESTORE.format("controller"),
        "restore_undone_by_request",
        ("somebody_touched",),
    ),
    "a recovery releases half a restore": Bug(
        TRANSACTION,
        T.IDLE,
        TE.RECOVER,
        goes_to(T.RESUMING, "arm_release", "start_release"),
        STRICT_RESTORE.format("controller"),
        "restore_undone_by_request",
        ("somebody_touched",),
    ),
    "a recovery holds a restore that was being released": Bug(
        TRANSACTION,
        T.IDLE,
        TE.RECOVER,
        goes_to(T.RESTORE_FAILED, "finish"),
        STRICT_RESTORE.format("controller"),
        "restored_is_held",
        ("release_is_recorded",),
    ),
    "a restore is released before that is recorded": Bug(
        TRANSACTION,
        T.RESTORED,
        TE.RELEASE_REQUESTED,
        without("record_decision"),
        STRICT_RESTORE.format("controller"),
        "restored_is_held",
    ),
    "a restore is aborted before that is recorded": Bug(
        TRANSACTION,
        T.RESTORE_FAILED,
        TE.ABORT_REQUESTED,
        without("record_decision"),
        STRICT_RESTORE.format("controller"),
        "recorded_before_done",
    ),
    "another id is used while a call of ours may run": Bug(
        RELEASE,
        R.RELEASING,
        RE.WRONG_PHASE,
        goes_to(R.RELEASING, "take_fresh_id", "call_release"),
        RECORDED.format("abandoned"),
        "one_id_at_a_time",
    ),
    "a resume is not compared with the id that holds": Bug(
        FENCE[FenceVariant.STRICT, Role.AGENT],
        FencePhase.PREPARED,
        FenceEvent.RESUME,
        goes_to(FencePhase.IDLE, "open_admission", "finish_id", "clear_active", "answer_now"),
        STRICT_AGENT.format("intruder"),
        "held_by_its_holder",
        ("other_active",),
        budgets={Fault.INTRUDER: 1, Fault.LOSS: 1, Fault.ABORT: 1},
    ),
    "a prepare whose id is used up is taken": Bug(
        FENCE[FenceVariant.STRICT, Role.POLICY],
        FencePhase.IDLE,
        FenceEvent.PREPARE,
        goes_to(FencePhase.PREPARED, "close_admission", "set_active", "record_reply", "answer_now"),
        STRICT_AGENT.format("abandoned"),
        "used_up_ids_stay_so",
        ("id_finished",),
    ),
    "a policy exports with a call in flight": Bug(
        FENCE[FenceVariant.STRICT, Role.POLICY],
        FencePhase.IDLE,
        FenceEvent.PREPARE,
        goes_to(FencePhase.PREPARED, "close_admission", "set_active", "record_reply", "answer_now"),
        STRICT_AGENT.format("no fault"),
        "quiesced_before_export",
        ("!drained",),
        beside=Bug(PARTICIPANT, P.UNKNOWN, PE.STILL_DRAINING, goes_to(P.PAUSED), "", "", ("going_forward",)),
    ),
    "the order of reopening is turned round": Misorder(
        "PHASES: agents, policies, resources are reopened in this order",
        waves(backwards, Phase.RESUME, Phase.ABORT, Phase.ROLLBACK),
        STRICT_AGENT.format("no fault"),
        "reopened_in_order",
    ),
    "an abort forgets the agents": Misorder(
        "PHASES: no wave of an abort goes to agents",
        waves(forgetting(Role.AGENT), Phase.ABORT),
        STRICT_AGENT.format("no fault"),
        "no deadlock",
    ),
    "resources are frozen before the agents are parked": Misorder(
        "PHASES: the wave that closes resources waits for no agent",
        waves(without_waiting_for(Milestone.PAUSED, Role.RESOURCES), Phase.PREPARE),
        AGENT_RESOURCES.format("no fault"),
        "frozen_after_parked",
    ),
    "agents are closed before the policies": Misorder(
        "PHASES: the wave that closes agents waits for no policy",
        waves(without_waiting_for(Milestone.CLOSED, Role.AGENT), Phase.PREPARE),
        STRICT_AGENT.format("no fault"),
        "closed_in_order",
    ),
    "resources are frozen before the policies are closed": Misorder(
        "PHASES: the wave that closes resources waits for no policy",
        waves(without_waiting_for(Milestone.CLOSED, Role.RESOURCES), Phase.PREPARE),
        STRICT_RESOURCES.format("no fault"),
        "closed_in_order",
    ),
    "agents are closed while the policies drain, where they must not be": Misorder(
        "PHASES: with `policies_first` too, the wave that closes agents waits until policies are closed, not drained",
        waves(until_closed, Phase.PREPARE),
        STRICT_AGENT.format("no fault"),
        "closed_in_order",
        drain=DrainMode.POLICIES_FIRST,
    ),
    "a close that got lost counts as one": Bug(
        PARTICIPANT,
        P.UNKNOWN,
        PE.UNANSWERED,
        goes_to(P.DRAINING, "arm_retry"),
        STRICT_AGENT.format("loss"),
        "closed_in_order",
        ("going_forward", "tries_left", "may_have_seen_a_call"),
    ),
    "policies export before the agents have": Misorder(
        "PHASES: the wave of the policies' exports waits for no agent",
        waves(without_waiting_for(Milestone.COMMITTED, Role.POLICY), Phase.COMMIT),
        STRICT_AGENT.format("no fault"),
        "exported_in_order",
    ),
    "resources export before the agents have": Misorder(
        "PHASES: the wave of the resources' exports waits for nobody's export",
        waves(without_waiting_for(Milestone.COMMITTED, Role.RESOURCES), Phase.COMMIT),
        AGENT_RESOURCES.format("no fault"),
        "exported_in_order",
    ),
    "an export that got lost counts as one": Bug(
        PARTICIPANT,
        P.PAUSED,
        PE.UNANSWERED,
        goes_to(P.COMMITTED, "arm_retry"),
        STRICT_AGENT.format("loss"),
        "exported_in_order",
        ("going_forward", "tries_left"),
    ),
    "agents are restored before the policies": Misorder(
        "PHASES: the wave that restores agents waits for no policy",
        waves(without_waiting_for(Milestone.RESTORED, Role.AGENT), Phase.RESTORE),
        STRICT_RESTORE_AGENT.format("no fault"),
        "imported_in_order",
    ),
    "resources are restored before the policies": Misorder(
        "PHASES: the wave that restores resources waits for nobody",
        waves(without_waiting_for(Milestone.RESTORED, Role.RESOURCES), Phase.RESTORE),
        STRICT_RESTORE.format("no fault"),
        "imported_in_order",
    ),
    "the order of restoring is turned round": Misorder(
        "PHASES: resources, agents, policies are restored in this order",
        waves(backwards, Phase.RESTORE),
        STRICT_RESTORE_AGENT.format("no fault"),
        "imported_in_order",
    ),
    "an import that got lost counts as one": Bug(
        PARTICIPANT,
        P.UNKNOWN,
        PE.UNANSWERED,
        goes_to(P.RESTORED, "arm_retry"),
        STRICT_RESTORE_AGENT.format("loss"),
        "imported_in_order",
        ("going_forward", "tries_left", "may_have_seen_a_call"),
    ),
    "the judge is paused": Misorder(
        "PHASES: the wave that closes policies goes to auxiliary models as well",
        waves(pausing_the_judge, Phase.PREPARE),
        JUDGED.format("no fault"),
        "bystanders_left_alone",
    ),
    "phases are not read again before the exports": Misorder(
        "PHASES: there is no wave of readings before the exports, and none waits for one",
        waves(unread, Phase.COMMIT),
        STRICT_AGENT.format("restart"),
        "quiesced_before_export",
    ),
    "exports begin before everybody is paused": Misorder(
        "JOINT: whoever is closed counts as standing at the cut; PHASES: and is not read again",
        draining_is_paused(),
        STRICT_AGENT.format("no fault"),
        "quiesced_before_export",
    ),
    "a restarted participant commits": Misorder(
        "the core: before the exports, whoever reads idle is taken for one who stands at the cut",
        {"quiesce.fsm.advance._meaning": open_is_confirmed},
        COORDINATOR.format("restart"),
        "quiesced_before_export",
    ),
    "a rename that failed is taken for one that happened": Bug(
        TRANSACTION,
        T.PUBLISHING,
        TE.PUBLISH_FAILED,
        goes_to(T.RESUMING, "disarm_budgets", "arm_release", "start_release"),
        STRICT_AGENT.format("store"),
        "taken_is_published",
    ),
    "a snapshot that is looked for and not found is taken for one": Bug(
        TRANSACTION,
        T.PUBLISH_UNKNOWN,
        TE.PUBLISH_FAILED,
        goes_to(T.RESUMING),
        STRICT_AGENT.format("store"),
        "taken_is_published",
    ),
    "a recovery goes on without a snapshot": Bug(
        TRANSACTION,
        T.IDLE,
        TE.RECOVER,
        goes_to(T.RESUMING, "arm_release", "start_release"),
        STRICT_AGENT.format("controller"),
        "taken_is_published",
        ("!is_restore", "!snapshot_is_published"),
    ),
    "an abort ends as a cut that was taken": Bug(
        TRANSACTION,
        T.ABORTING,
        TE.ALL_RELEASED,
        goes_to(T.RESUMED, "disarm_budgets", "finish"),
        STRICT_AGENT.format("no fault"),
        "taken_is_published",
    ),
    "a cut that is held for too long goes on as taken": in_every((T.PAUSED, T.COMMITTING, T.COMMITTED), held_too_long),
    "a retry of an abort in doubt goes on as taken": Bug(
        TRANSACTION,
        T.IN_DOUBT_UNPUBLISHED,
        TE.RETRY_REQUESTED,
        goes_to(T.RESUMING, "arm_release", "start_release"),
        STRICT_AGENT.format("deadline"),
        "taken_is_published",
    ),
    "what stands leaves participants aborted, and what does not resumed": in_every(
        (P.UNKNOWN, P.DRAINING, P.PAUSED, P.COMMITTED, P.RESTORED), left_otherwise
    ),
    "whoever was exported is left aborted": Bug(
        PARTICIPANT,
        P.COMMITTED,
        PE.RELEASED,
        goes_to(P.ABORTED),
        STRICT_AGENT.format("store"),
        "left_as_it_ended",
        ("decided",),
    ),
    "half a restore that failed counts as a whole one": Bug(
        TRANSACTION,
        T.RESTORING,
        TE.PARTICIPANT_FAILED,
        goes_to(T.RESTORED, "disarm_budgets", "arm_hold"),
        STRICT_RESTORE_AGENT.format("failure"),
        "restored_whole",
    ),
    "half a restore that ran out of time counts as a whole one": Bug(
        TRANSACTION,
        T.RESTORING,
        TE.REACH_EXPIRED,
        goes_to(T.RESTORED, "disarm_budgets", "arm_hold"),
        STRICT_RESTORE_AGENT.format("deadline"),
        "restored_whole",
    ),
    "workers' acknowledgements are not counted": Misorder(
        "a coordinator's status, and the reading of it: what is in flight is summed up over the workers that are there",
        {"quiesce.fsm.explore_participant.is_drained": of_those_who_are_there},
        COORDINATOR.format("failure"),
        "quiesced_before_export",
    ),
}


@cache
def setups() -> dict[str, Setup]:
    """Every set-up of every suite by name."""
    return {setup.name: setup for name in SUITES for setup in suite(name)}


def planted(bug: Bug | Misorder) -> Setup:
    """The set-up in which a bug is looked for, with the rows that it changes."""
    sound = setups()[bug.where]
    engine = ChangedEngine(bug.changed())
    plan = sound.controller.plan
    if isinstance(bug, Misorder):
        plan = replace(plan, drain=bug.drain)
    return replace(
        sound,
        controller=replace(sound.controller, plan=plan, engine=engine),
        sites=tuple(replace(site, engine=engine) for site in sound.sites),
        budgets=sound.budgets if bug.budgets is None else bug.budgets,
    )


@contextmanager
def in_place(bug: Bug | Misorder) -> Iterator[None]:
    """What is no row is exchanged while this lasts."""
    with ExitStack() as stack:
        if isinstance(bug, Misorder):
            for place, exchanged in bug.patches.items():
                stack.enter_context(patch(place, exchanged))
        yield


@cache
def searched(name: str) -> Exploration:
    """The search that must find the bug; with several classes of faults it ends at the first violation."""
    bug = BUGS[name]
    with in_place(bug):
        return explore(System(planted(bug)), states_max=200_000, stop_at_violation=bug.budgets is not None)


def doubled(setup: Setup) -> Setup:
    """The same set-up with a twin of its last participant."""
    plan, (first, last) = setup.controller.plan, setup.sites
    names = (f"{last.spec.key.name}1", f"{last.spec.key.name}2")
    specs = tuple(replace(last.spec, key=ParticipantKey("main", name)) for name in names)
    members = Plan(
        (first.spec, *specs),
        plan.is_restore,
        plan.drain,
        watches_stragglers=plan.watches_stragglers,
        restarts_stragglers=plan.restarts_stragglers,
    )
    twins = tuple(replace(last, spec=spec) for spec in specs)
    return replace(setup, controller=replace(setup.controller, plan=members), sites=(first, *twins), expects=())


def verdict_of(name: str) -> Verdict | None:
    """The violation that a bug is planted for, None when the search has not found it."""
    found = searched(name).violations()
    return next((verdict for verdict in found if named(verdict) == BUGS[name].breaks), None)


def named(verdict: Verdict) -> str:
    """What a bug calls the property of a verdict."""
    return verdict.kind.value if verdict.kind is Kind.NO_DEADLOCK else verdict.name
