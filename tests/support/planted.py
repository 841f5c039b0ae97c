"""Planted bugs: each is one row, one guard or one order of the declarations that is changed, and what must break.

The search must find each of them (``tests/fsm/test_explore_mutations.py``), and what it finds can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from quiesce.fsm.explore import Exploration, Kind, Verdict, explore
from quiesce.fsm.explore_changes import ChangedEngine, RowChange
from quiesce.fsm.explore_controller import ControllerAutomaton
from quiesce.fsm.explore_model import Setup, System
from quiesce.fsm.explore_site import Fault
from quiesce.fsm.explore_suites import SUITES, suite
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.tables import PARTICIPANT, RELEASE, TRANSACTION
from quiesce.fsm.tables.participant import ParticipantEvent, ParticipantState
from quiesce.fsm.tables.release import ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState

__all__ = ["BUGS", "Bug", "named", "searched", "setups"]

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
        """Whether it is a matter of the controller's own tables."""
        return all(part.table in (TRANSACTION, PARTICIPANT, RELEASE) for part in self.parts())

    def parts(self) -> Iterator[Bug]:
        """This change and those beside it."""
        yield self
        if self.beside is not None:
            yield from self.beside.parts()

    def row_changes(self) -> list[RowChange]:
        """The rows that this part changes, and what it makes of them."""
        rows = [
            row
            for row in self.table.rows
            if (row.source, row.event) == (self.source, self.event) and set(self.wants) <= set(row.guards)
        ]
        assert rows, "the row that the bug changes is gone; plant it elsewhere"
        return [RowChange.of(self.table, row, self.change(row)) for row in rows]


def goes_to(target: Enum, *effects: str) -> Change:
    """The row leads elsewhere, with other effects."""
    return lambda row: replace(row, target=target, effects=effects)


def without(*effects: str) -> Change:
    """The row forgets some of its effects."""
    return lambda row: replace(row, effects=tuple(effect for effect in row.effects if effect not in effects))


T, P, R = TransactionState, ParticipantState, ReleaseState
TE, PE, RE = TransactionEvent, ParticipantEvent, ReleaseEvent

STRICT_AGENT = "strict: policy (strict) + agent (strict), cut, {}"
STRICT_RESTORE = "strict: policy (strict) + resources (strict), restore, {}"
RECORDED = "gym_a_single: policy (gym_a_single) + agent (gym_a_single), cut, {}"
COORDINATOR = "gym_a_coordinator: policy (gym_a_coordinator) + agent (gym_a_single), cut, {}"

BUGS = {
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
}


@cache
def setups() -> dict[str, Setup]:
    """Every set-up of every suite by name."""
    return {setup.name: setup for name in SUITES for setup in suite(name)}


def searched(bug: Bug) -> Exploration:
    """The search that must find the bug; with several classes of faults it ends at the first violation."""
    sound = setups()[bug.where]
    engine = ChangedEngine(change for part in bug.parts() for change in part.row_changes())
    setup = replace(sound, controller=ControllerAutomaton(sound.controller.plan, engine))
    if bug.budgets is None:
        return explore(System(setup), states_max=200_000)
    return explore(System(replace(setup, budgets=bug.budgets)), states_max=200_000, stop_at_violation=True)


def named(verdict: Verdict) -> str:
    """What a bug calls the property of a verdict."""
    return verdict.kind.value if verdict.kind is Kind.NO_DEADLOCK else verdict.name
