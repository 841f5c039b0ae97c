"""Generation A: the role-specific control routes of NeMo Gym's checkpoint participants (wire-protocol part one)."""

from __future__ import annotations

from quiesce.participants.dialects.gym_a.dialect import GymA
from quiesce.participants.dialects.gym_a.routes import INSTANCE_HEADER, PREFIX, ROUTES, Route, routes_served_by

__all__ = ["INSTANCE_HEADER", "PREFIX", "ROUTES", "GymA", "Route", "routes_served_by"]
