"""Recorded runs that are made up, each step of them a row of the tables: for tests of what is drawn of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from quiesce.diagrams import RunRecord
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.tables.participant import PARTICIPANT
from quiesce.fsm.tables.release import RELEASE
from quiesce.fsm.tables.transaction import TRANSACTION
from quiesce.fsm.trace import TraceRecord

BEGIN_TS = 1_790_000_000.0


@dataclass(slots=True)
class RunMaker:
    """Writes records down; ``now_s`` is the time of the next one."""

    records: list[RunRecord] = field(default_factory=list)
    now_s: float = 0.0
    states: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(
        self,
        table: Table[Any, Any],  # Any: any machine of ours
        subject: str,
        event: str,
        *,
        target: str | None = None,
        call: str | None = None,
        reply: str | None = None,
    ) -> None:
        """The first row of ``table`` for this event in the state in which the machine stands (and to ``target``)."""
        stands = self.states.get((table.name, subject), str(table.initial.value))
        row = next(row for row in table.rows if _is_meant(row, stands, event, target))
        self.states[(table.name, subject)] = str(row.target.value)
        verdicts = tuple(row.wants().items())
        names = (table.name, subject, stands, event, str(row.target.value))
        trace = TraceRecord(*names, row.effects, verdicts, row.reason)
        self.records.append(RunRecord(BEGIN_TS + self.now_s, trace, call, reply))

    def transaction(self, *events: str) -> None:
        """Steps of the transaction."""
        for event in events:
            self.take(TRANSACTION, "", event)

    def reach(self, subject: str, *, at_s: float) -> None:
        """A participant that drains until ``at_s``, asked now."""
        self.take(PARTICIPANT, subject, "close_due")
        self.take(PARTICIPANT, subject, "still_draining", call="close", reply="draining")
        asked_s, self.now_s = self.now_s, at_s
        self.take(PARTICIPANT, subject, "cut_reached", call="await_cut", reply="paused")
        self.now_s = asked_s

    def release(self, subject: str) -> None:
        """A participant that is reopened by the first resume."""
        self.take(RELEASE, subject, "release_due", target="releasing")
        self.take(RELEASE, subject, "opened", target="released", call="release", reply="released")
        self.take(PARTICIPANT, subject, "released", target="resumed", call="release", reply="released")

    def sorted(self) -> list[RunRecord]:
        """The records in the order of their times."""
        return sorted(self.records, key=lambda record: record.time_ts)


def cut(subjects: Sequence[str], *, slow: str = "", slow_s: float = 5.0, in_doubt: str = "") -> list[RunRecord]:
    """A cut over ``subjects``: each drains for a second, ``slow`` longer; ``in_doubt`` is not proven open."""
    run = RunMaker()
    run.transaction("begin")
    for subject in subjects:
        run.take(PARTICIPANT, subject, "inspect_due")
    run.now_s = 0.1
    for subject in subjects:
        run.take(PARTICIPANT, subject, "confirmed", call="inspect", reply="open")
    run.transaction("all_inspected")
    for subject in subjects:
        run.reach(subject, at_s=slow_s if subject == slow else 1.0)
    run.now_s = slow_s if slow else 1.0
    run.transaction("all_paused", "commit_requested")
    for subject in subjects:
        run.take(PARTICIPANT, subject, "export_due")
        run.take(PARTICIPANT, subject, "exported", call="export", reply="exported")
        run.take(PARTICIPANT, subject, "verified", call="export", reply="exported")
    run.now_s += 1.0
    run.transaction("all_committed", "publish_requested", "publish_succeeded", "release_requested")
    for subject in subjects:
        if subject != in_doubt:
            run.release(subject)
    if in_doubt:
        run.take(RELEASE, in_doubt, "release_due", target="releasing")
        run.now_s += 1.0
        run.take(RELEASE, in_doubt, "expired")
        run.take(PARTICIPANT, in_doubt, "unproven")
    run.now_s += 0.5
    run.transaction("some_unproven" if in_doubt else "all_released")
    return run.sorted()


def healed() -> list[RunRecord]:
    """The end of an abort at a coordinator that refuses a resume from idle: it is paused, then resumed."""
    run = RunMaker()
    who = "main/policy"
    run.transaction("begin")
    run.take(PARTICIPANT, who, "inspect_due")
    run.take(PARTICIPANT, who, "confirmed", call="inspect", reply="open")
    run.transaction("all_inspected")
    run.take(PARTICIPANT, who, "close_due")
    run.now_s = 1.0
    run.take(PARTICIPANT, who, "unanswered", call="close", reply="lost")
    run.transaction("abort_requested")
    run.take(RELEASE, who, "release_due", target="releasing")
    run.take(RELEASE, who, "wrong_phase", call="release", reply="wrong_phase")
    run.now_s = 2.0
    run.take(RELEASE, who, "read_open", target="closing", call="inspect", reply="open")
    run.take(RELEASE, who, "closed", call="close", reply="paused")
    run.now_s = 3.0
    run.take(RELEASE, who, "opened", target="released", call="release", reply="released")
    run.take(PARTICIPANT, who, "released", target="aborted", call="release", reply="released")
    run.transaction("all_released")
    return run.records


def _is_meant(row: Row[Any, Any], state: str, event: str, target: str | None) -> bool:  # Any: any machine of ours
    return row.source.value == state and row.event.value == event and target in (None, row.target.value)
