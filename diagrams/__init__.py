"""Pictures and tables of the state machines, drawn from the declarations that run.

``render_mermaid`` and ``render_markdown`` take any :class:`quiesce.fsm.rows.Table`, also one of your own.
"""

from __future__ import annotations

from quiesce.diagrams.catalog import Sheet, UnknownMachine, find_sheet, sheets
from quiesce.diagrams.markdown import render_markdown
from quiesce.diagrams.mermaid import render_mermaid
from quiesce.diagrams.order import render_joint, render_phases
from quiesce.diagrams.write import Difference, DifferenceKind, check, pages, write_all

__all__ = [
    "Difference",
    "DifferenceKind",
    "Sheet",
    "UnknownMachine",
    "check",
    "find_sheet",
    "pages",
    "render_joint",
    "render_markdown",
    "render_mermaid",
    "render_phases",
    "sheets",
    "write_all",
]
