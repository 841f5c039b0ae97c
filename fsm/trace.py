"""The trace record: one step of one machine, as it is journaled, drawn and held against the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from quiesce.fsm.rows import Accepted, Facts, Row, Table

__all__ = ["TraceRecord", "trace_of"]


class TraceRecord(NamedTuple):
    """One step that was taken.

    ``subject`` is the participant (``deployment/name``) or "" for the transaction. ``verdicts`` has every guard
    that the pair's rows read. Number, time and payload are added by whoever writes it down.
    """

    machine: str
    subject: str
    source: str
    event: str
    target: str
    effects: tuple[str, ...]
    verdicts: tuple[tuple[str, bool], ...]
    reason: str

    def to_json(self) -> Mapping[str, object]:
        """A plain mapping with stable keys."""
        return {
            "machine": self.machine,
            "subject": self.subject,
            "source": self.source,
            "event": self.event,
            "target": self.target,
            "effects": list(self.effects),
            "verdicts": dict(self.verdicts),
            "reason": self.reason,
        }


def trace_of(table: Table, subject: str, accepted: Accepted, facts: Facts) -> TraceRecord:  # type: ignore[type-arg]  # any table
    """The record of a step that ``table`` accepted under ``facts``."""
    row: Row = accepted.row  # type: ignore[type-arg]  # any row
    guards = table.pair_guards(row.source, row.event)
    return TraceRecord(
        machine=table.name,
        subject=subject,
        source=row.source.value,
        event=row.event.value,
        target=row.target.value,
        effects=row.effects,
        verdicts=tuple((guard.name, guard.test.holds(facts)) for guard in guards),
        reason=row.reason,
    )
