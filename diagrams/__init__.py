"""Pictures and tables of the state machines, drawn from the declarations that run; and of what a run did.

``render`` takes any :class:`quiesce.fsm.rows.Table`, also one of your own, and gives it in any format.
"""

from __future__ import annotations

from quiesce.diagrams.annotations import Annotations, Landmark, PathKind, check_annotations
from quiesce.diagrams.blocks import BlockFault, render_named, update_blocks
from quiesce.diagrams.catalog import Sheet, UnknownMachine, find_sheet, sheets
from quiesce.diagrams.compose import draw
from quiesce.diagrams.dot import render_dot
from quiesce.diagrams.drawing import Drawing
from quiesce.diagrams.focus import Focus, UnknownState
from quiesce.diagrams.formats import SUFFIXES, Format, NotInThisFormat, render
from quiesce.diagrams.graphviz import DotFailed, DotMissing, has_dot
from quiesce.diagrams.markdown import render_difference, render_markdown
from quiesce.diagrams.mermaid import render_mermaid
from quiesce.diagrams.order import render_joint, render_phases
from quiesce.diagrams.overview import overview_svg
from quiesce.diagrams.own_table import TableNotFound, load_table
from quiesce.diagrams.page import run_page
from quiesce.diagrams.phase_sequence import phase_sequence
from quiesce.diagrams.plantuml import render_plantuml
from quiesce.diagrams.promela import render_promela
from quiesce.diagrams.run_record import RunRecord
from quiesce.diagrams.run_sequence import run_sequence
from quiesce.diagrams.scxml import render_scxml
from quiesce.diagrams.sequence import Sequence, SequenceStep, StepKind, sequence_mermaid, sequence_of
from quiesce.diagrams.sequence_svg import sequence_svg
from quiesce.diagrams.timeline import Lane, PhaseSpan, Span, Stage, Timeline, timeline_of
from quiesce.diagrams.timeline_svg import timeline_svg
from quiesce.diagrams.timeline_text import timeline_text
from quiesce.diagrams.write import Difference, DifferenceKind, check, pages, pictures, replace_file, write_all
from quiesce.diagrams.xstate import render_xstate

__all__ = [
    "SUFFIXES",
    "Annotations",
    "BlockFault",
    "Difference",
    "DifferenceKind",
    "DotFailed",
    "DotMissing",
    "Drawing",
    "Focus",
    "Format",
    "Landmark",
    "Lane",
    "NotInThisFormat",
    "PathKind",
    "PhaseSpan",
    "RunRecord",
    "Sequence",
    "SequenceStep",
    "Sheet",
    "Span",
    "Stage",
    "StepKind",
    "TableNotFound",
    "Timeline",
    "UnknownMachine",
    "UnknownState",
    "check",
    "check_annotations",
    "draw",
    "find_sheet",
    "has_dot",
    "load_table",
    "overview_svg",
    "pages",
    "phase_sequence",
    "pictures",
    "render",
    "render_difference",
    "render_dot",
    "render_joint",
    "render_markdown",
    "render_mermaid",
    "render_named",
    "render_phases",
    "render_plantuml",
    "render_promela",
    "render_scxml",
    "render_xstate",
    "replace_file",
    "run_page",
    "run_sequence",
    "sequence_mermaid",
    "sequence_of",
    "sequence_svg",
    "sheets",
    "timeline_of",
    "timeline_svg",
    "timeline_text",
    "update_blocks",
    "write_all",
]
