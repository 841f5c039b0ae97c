"""Where a run went in the picture of its machine: the states that it was in and the arrows that it took."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from quiesce.diagrams.drawing import Arrow, Drawing
from quiesce.fsm.trace import TraceRecord

__all__ = ["with_way"]

_GROUP: Final = re.compile(r'class="((?:node|edge)[^"]*)">\n<title>([^<]*)</title>')
_JOINT: Final = "&#45;&gt;"


def with_way(svg: str, drawing: Drawing, steps: Collection[TraceRecord]) -> str:
    """The picture that ``dot`` made of a drawing, with the class ``visited`` at what the steps went through.

    An arrow is drawn as two edges and the node of its label between them, which has the arrow's number as its name.
    """
    taken = {str(number) for number, arrow in enumerate(drawing.arrows, start=1) if _is_taken(drawing, arrow, steps)}
    titles = {step.source for step in steps} | {step.target for step in steps}
    visited = {node.name for node in drawing.nodes if node.title in titles and not node.gathers}
    visited |= {arrow.source for number, arrow in enumerate(drawing.arrows, start=1) if str(number) in taken}

    def marked(group: re.Match[str]) -> str:
        classes, title = group.groups()
        is_edge = classes.startswith("edge")
        is_marked = bool(taken & set(title.split(_JOINT))) if is_edge else title in visited | taken
        return f'class="{classes}{" visited" if is_marked else ""}">\n<title>{title}</title>'

    return _GROUP.sub(marked, svg)


def _is_taken(drawing: Drawing, arrow: Arrow, steps: Collection[TraceRecord]) -> bool:
    nodes = {node.name: node for node in drawing.nodes}
    events = {event for label in arrow.labels for event in label.events}
    source, target = nodes[arrow.source], nodes[arrow.target].title
    return any(step.event in events and step.target == target and source.stands_for(step.source) for step in steps)
