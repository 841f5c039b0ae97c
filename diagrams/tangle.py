"""Whether a drawing can be laid out in layers, each arrow leading down, or has too many arrows that lead far.

A layout in layers leads an arrow through each layer that it passes, and its time grows faster than the number of those
places: beyond some thousands of them ``dot`` takes minutes. The count depends on the drawing alone, so that the same
drawing is laid out in the same way on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from quiesce.diagrams.drawing import Drawing

__all__ = ["is_tangled", "passed_layers"]

_PASSED_MAX: Final = 2500


def is_tangled(drawing: Drawing) -> bool:
    """Whether its arrows pass more layers than ``dot`` leads them through in some seconds."""
    return passed_layers(drawing) > _PASSED_MAX


def passed_layers(drawing: Drawing) -> int:
    """How many layers the arrows pass together, when each state is as far down as the longest way to it."""
    layer = _layers(drawing)
    return sum(abs(layer[arrow.source] - layer[arrow.target]) for arrow in drawing.arrows)


def _layers(drawing: Drawing) -> Mapping[str, int]:
    targets: dict[str, list[str]] = {node.name: [] for node in drawing.nodes}
    for arrow in drawing.arrows:
        targets[arrow.source].append(arrow.target)
    downwards = list(_finished(targets))[::-1]
    place = {name: number for number, name in enumerate(downwards)}
    layer = dict.fromkeys(targets, 0)
    for name in downwards:
        for target in targets[name]:
            if place[target] > place[name]:
                layer[target] = max(layer[target], layer[name] + 1)
    return layer


def _finished(targets: Mapping[str, list[str]]) -> Iterator[str]:
    """Every node, behind all those that are reached from it without going round a cycle."""
    seen: set[str] = set()
    for first in targets:
        if first in seen:
            continue
        seen.add(first)
        way = [(first, iter(targets[first]))]
        while way:
            name, rest = way[-1]
            following = next((target for target in rest if target not in seen), None)
            if following is None:
                yield name
                way.pop()
            else:
                seen.add(following)
                way.append((following, iter(targets[following])))
