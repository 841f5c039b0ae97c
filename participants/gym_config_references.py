"""Who names whom in a resolved NeMo Gym configuration: any field that holds ``{type, name}``, also nested.

References are evidence for a warning, never for a role: a policy may be named as judge, and a user simulator is the
``model_server`` of an agent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quiesce.participants.capabilities import Component
from quiesce.participants.gym_config_entries import Entry, Half
from quiesce.participants.gym_config_yaml import Node, key_path

__all__ = ["Reference", "references_to"]

MODEL_SERVER: Final = "model_server"
"""The field by which an agent names the model that answers for it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One server naming another.

    Attributes:
        owner: the server that names it.
        component: of the owner.
        field: the path of keys below the owner's implementation: ``model_server``, ``verifiers.math_with_judge``.
    """

    owner: str
    component: str
    field: str

    @property
    def is_model_of_agent(self) -> bool:
        """Whether an agent names its model server, as it does for a policy."""
        return self.component == Component.AGENT.value and self.field == MODEL_SERVER

    def __str__(self) -> str:
        return f"{key_path([self.owner])}:{self.field}"


def references_to(entries: Iterable[Entry]) -> Mapping[tuple[str, str], tuple[Reference, ...]]:
    """The references to each (component, name), in the order of the entries."""
    kept = list(entries)
    components = {component for entry in kept for component in entry.components}
    found: dict[tuple[str, str], list[Reference]] = defaultdict(list)
    for half in (half for entry in kept for half in entry.halves):
        for target, field in _targets(half, components):
            found[target].append(Reference(half.server, half.component, field))
    return {target: tuple(references) for target, references in found.items()}


def _targets(half: Half, components: Collection[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Every reference in the settings of an implementation; without recursion, in the order of the document."""
    waiting: list[tuple[tuple[str, ...], Node]] = [((), half.settings)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, Mapping):
            component, name = node.get("type"), node.get("name")
            if path and isinstance(component, str) and component in components and isinstance(name, str):
                yield (component, name), key_path(path)
            waiting += [((*path, key), child) for key, child in reversed(list(node.items()))]
        elif isinstance(node, Sequence) and not isinstance(node, str):
            waiting += [((*path, str(index)), child) for index, child in reversed(list(enumerate(node)))]
