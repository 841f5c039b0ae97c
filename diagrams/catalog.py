"""Everything of Quiesce that can be drawn or listed, by the name that ``quiesce diagram`` takes."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from quiesce.diagrams.markdown import render_markdown
from quiesce.diagrams.mermaid import render_mermaid
from quiesce.diagrams.order import render_joint, render_phases
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence import FENCE, MODEL_SERVER
from quiesce.fsm.tables.joint import JOINT
from quiesce.fsm.tables.participant import PARTICIPANT
from quiesce.fsm.tables.phases import PHASES
from quiesce.fsm.tables.release import RELEASE
from quiesce.fsm.tables.transaction import TRANSACTION

__all__ = ["Sheet", "UnknownMachine", "find_sheet", "sheets"]

_LEGEND: Final = """\
An arrow reads `event, event [guard, not guard] / effect, effect @deadline`. A step that stays in its state stands
inside the state's box; a refusal stands only in the table of rows. A resting state (broken border) reports an outcome
and may be left again; a final one (thick border) is never left.
"""


class UnknownMachine(QuiesceError):
    """There is no machine of this name. The text lists those that there are."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One machine, or one list of rules that is no machine.

    Attributes:
        name: lower case, words joined by hyphens; also its file name.
        title: one line on what it is.
        table: the machine; None for the lists, which have no picture.
        lists: the Markdown of a list, below second-level headings; empty for a machine.
    """

    name: str
    title: str
    # Any: the sheets are machines over different states and events
    table: Table[Any, Any] | None = None
    lists: str = ""

    def mermaid(self) -> str:
        """The picture.

        Raises:
            UnknownMachine: it is a list and has none.
        """
        if self.table is None:
            message = f"'{self.name}' is a list of rules and has no picture; ask for it with --format markdown"
            raise UnknownMachine(message)
        return render_mermaid(self.table)

    def markdown(self) -> str:
        """The whole page: title, picture where there is one, and tables."""
        head = f"# {self.name}: {self.title}\n"
        if self.table is None:
            return f"{head}\n{self.lists}"
        return f"{head}\n```mermaid\n{self.mermaid()}```\n\n{_LEGEND}\n{render_markdown(self.table)}"


@cache
def sheets() -> tuple[Sheet, ...]:
    """All of them: the machines, then the lists."""
    machines = [Sheet(_hyphened(table.name), table.title, table) for table in (TRANSACTION, PARTICIPANT, RELEASE)]
    fences = [
        Sheet(_hyphened("fence", variant.value, role.value), table.title, table)
        for (variant, role), table in FENCE.items()
    ]
    fences.append(Sheet(_hyphened(*MODEL_SERVER.name.split()), MODEL_SERVER.title, MODEL_SERVER))
    return (
        *machines,
        *fences,
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


def _hyphened(*words: str) -> str:
    return "-".join(words).lower().replace("_", "-")
