"""Everything of Quiesce that can be drawn or listed, by the name that ``quiesce diagram`` takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from quiesce.diagrams.compose import row_key
from quiesce.diagrams.focus import Focus
from quiesce.diagrams.formats import Format, NotInThisFormat, render
from quiesce.diagrams.order import render_joint, render_phases
from quiesce.diagrams.phase_sequence import SAMPLE_TOPOLOGY, phase_sequence
from quiesce.diagrams.sequence import Sequence, sequence_mermaid
from quiesce.diagrams.sequence_svg import sequence_svg
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence import FENCE, MODEL_SERVER, FenceVariant
from quiesce.fsm.tables.joint import JOINT
from quiesce.fsm.tables.participant import PARTICIPANT
from quiesce.fsm.tables.phases import PHASES
from quiesce.fsm.tables.release import RELEASE
from quiesce.fsm.tables.transaction import TRANSACTION

__all__ = ["Sheet", "UnknownMachine", "find_sheet", "sheets"]


class UnknownMachine(QuiesceError):
    """There is no machine of this name. The text lists those that there are."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One machine, one difference between two, one sequence, or one list of rules.

    Attributes:
        name: lower case, words joined by hyphens; also its file name.
        title: one line on what it is.
        table: the machine; None for what is none.
        against: what the machine is compared with, for a difference.
        sequence: who is called in which order, for a sequence.
        lists: the Markdown of a list, below second-level headings; empty for what is no list.
    """

    name: str
    title: str
    # Any: the sheets are machines over different states and events
    table: Table[Any, Any] | None = None
    against: Table[Any, Any] | None = None
    sequence: Sequence | None = None
    lists: str = ""

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats in which it can be had."""
        if self.lists:
            return (Format.MARKDOWN,)
        if self.sequence is not None:
            return (Format.MERMAID, Format.MARKDOWN, Format.SVG)
        whole_machines = () if self.against is None else (Format.SCXML, Format.XSTATE, Format.PROMELA)
        return tuple(form for form in Format if form not in whole_machines)

    def render(self, form: Format, *, focus: Focus | None = None) -> str | bytes:
        """The sheet in a format; a Markdown page has its title.

        Raises:
            NotInThisFormat: it cannot be had so; the text says how it can.
            UnknownState, DotMissing, DotFailed: as :func:`quiesce.diagrams.render`.
        """
        if form not in self.formats:
            ways = " or ".join(f"--format {known.value}" for known in self.formats)
            raise NotInThisFormat(f"'{self.name}' cannot be had as {form.value}; ask for it with {ways}")
        if self.table is None and focus:
            raise NotInThisFormat(f"'{self.name}' is no machine; only a machine has states to focus on")
        found = self._rendered(form, focus)
        return (
            f"# {self.name}: {self.title}\n\n{found}" if isinstance(found, str) and form is Format.MARKDOWN else found
        )

    def mermaid(self) -> str:
        """The picture as Mermaid; raises as render."""
        return str(self.render(Format.MERMAID))

    def markdown(self) -> str:
        """The whole page: title, picture where there is one, and tables."""
        return str(self.render(Format.MARKDOWN))

    def _rendered(self, form: Format, focus: Focus | None) -> str | bytes:
        if self.table is not None:
            return render(self.table, form, focus=focus, against=self.against)
        if self.sequence is None:
            return self.lists
        if form is Format.SVG:
            return sequence_svg(self.sequence)
        drawn = sequence_mermaid(self.sequence)
        return f"```mermaid\n{drawn}```\n" if form is Format.MARKDOWN else drawn


@cache
def sheets() -> tuple[Sheet, ...]:
    """All of them: the machines, the differences of fences, the sequences, then the lists."""
    machines = [Sheet(_hyphened(table.name), table.title, table) for table in (TRANSACTION, PARTICIPANT, RELEASE)]
    fences = [
        Sheet(_hyphened("fence", variant.value, role.value), table.title, table)
        for (variant, role), table in FENCE.items()
    ]
    fences.append(Sheet(_hyphened(*MODEL_SERVER.name.split()), MODEL_SERVER.title, MODEL_SERVER))
    return (
        *machines,
        *fences,
        *_differences(),
        *_sequences(),
        Sheet("phases", "Which roles are called in a phase, in which order of waves", lists=render_phases(PHASES)),
        Sheet("joint", "What moves the transaction when all its members are there", lists=render_joint(JOINT)),
    )


def find_sheet(name: str) -> Sheet:
    """The sheet of this name, in whatever case and with hyphens or underscores.

    Raises:
        UnknownMachine: there is none; the text offers those that come close, or lists all.
    """
    known = {sheet.name: sheet for sheet in sheets()}
    wanted = _hyphened(name)
    if wanted in known:
        return known[wanted]
    close = get_close_matches(wanted, known, n=3)
    offer = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(known)}"
    message = f"there is no machine '{name[:80]}'; {offer}"
    raise UnknownMachine(message)


def _differences() -> Iterator[Sheet]:
    """Every fence that is not the kit's, compared with the kit's of its role, where they differ."""
    for (variant, role), table in FENCE.items():
        strict = FENCE[FenceVariant.STRICT, role]
        if {row_key(row) for row in table.rows} != {row_key(row) for row in strict.rows}:
            title = f"{table.title}, compared with the kit's"
            yield Sheet(_hyphened("fence", variant.value, role.value, "difference"), title, table, strict)


def _sequences() -> Iterator[Sheet]:
    for plan in PHASES:
        sequence = phase_sequence(plan, SAMPLE_TOPOLOGY)
        words = ("sequence", plan.phase.value, *([plan.drain.value] if plan.drain else []))
        yield Sheet(_hyphened(*words), sequence.title, sequence=sequence)


def _hyphened(*words: str) -> str:
    return "-".join(words).lower().replace("_", "-")
