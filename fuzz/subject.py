"""Who is under test, and on which routes it is asked what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from quiesce.fsm.tables.fence import FENCE, FenceEvent, FenceTable, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.steps import Operation
from quiesce.participants.capabilities import Declaration
from quiesce.participants.dialects.gym_a.routes import COORDINATOR_ROUTES, ROUTE_BY_NAME, Route, routes_served_by

__all__ = ["EVENT_OF", "Subject", "routes_for"]

_MODEL: Final = {
    Operation.PREPARE: "pause",
    Operation.STATUS: "model_status",
    Operation.ABORT_INFLIGHT: "abort_inflight",
    Operation.COMMIT: "model_commit",
    Operation.RESTORE: "model_restore",
    Operation.RESUME: "model_resume",
}
_NAMES: Final[Mapping[Role, Mapping[Operation, str]]] = {
    Role.POLICY: _MODEL,
    Role.AUXILIARY: _MODEL,
    Role.AGENT: {
        Operation.PREPARE: "agent_prepare",
        Operation.STATUS: "agent_status",
        Operation.COMMIT: "agent_commit",
        Operation.RESTORE: "agent_restore",
        Operation.RESUME: "agent_resume",
        Operation.RETIRE: "agent_retire",
        Operation.DISCARD: "discard",
        Operation.ACKNOWLEDGE: "acknowledge",
        Operation.ACKNOWLEDGE_COMPLETED: "acknowledge_completed",
    },
    Role.RESOURCES: {
        Operation.PREPARE: "resources_prepare",
        Operation.STATUS: "resources_status",
        Operation.COMMIT: "resources_commit",
        Operation.RESTORE: "resources_restore",
        Operation.RESUME: "resources_resume",
        Operation.RETIRE: "resources_retire",
    },
}
"""The names of the routes in the dialect's own table."""

EVENT_OF: Final[Mapping[Operation, FenceEvent]] = MappingProxyType(
    {
        operation: FenceEvent(operation.value)
        for operation in Operation
        if operation.value in {event.value for event in FenceEvent}
    }
)
"""The event of the fence that a call's arrival is; acknowledgements and capabilities are none."""


def routes_for(role: Role, *, coordinated: bool = False) -> Mapping[Operation, Route]:
    """The routes of a server of this role, by operation."""
    served = COORDINATOR_ROUTES if coordinated else routes_served_by(role)
    by_name = {route.name: route for route in served}
    found = {operation: by_name[name] for operation, name in _NAMES[role].items() if name in by_name}
    return {**found, Operation.CAPABILITIES: ROUTE_BY_NAME["capabilities"]}


@dataclass(frozen=True, slots=True)
class Subject:
    """One participant under test.

    Attributes:
        url: base of its control routes and of its data plane.
        name: how findings call it.
        role, coordinated: what it is, and whether it answers for several workers.
        declaration: what it has declared.
        routes: what can be asked of it.
    """

    url: str
    name: str
    role: Role
    coordinated: bool
    declaration: Declaration
    routes: Mapping[Operation, Route]

    @property
    def oracle(self) -> FenceTable:
        """The table that it is measured by."""
        return FENCE[FenceVariant.STRICT, self.role]

    @property
    def recorded(self) -> FenceTable:
        """The table of the recorded servers of its kind."""
        variant = FenceVariant.GYM_A_COORDINATOR if self.coordinated else FenceVariant.GYM_A_SINGLE
        return FENCE[variant, self.role]

    def has(self, operation: Operation) -> bool:
        """Whether it has the route; a feature that it does not declare is one that it does not have."""
        return operation in self.routes
