"""FENCE: the participant's own machine, as the wire defines it, for each variant and role (wire-protocol 4; design 2).

``strict`` is our kit's; ``gym_a_single`` and ``gym_a_coordinator`` are the recorded servers', deviations included. The
controller is proven against all of them, and the kit's servers run them. The rows stand in ``fence_strict``,
``fence_gym_a`` and ``fence_coordinator`` (``fence_model_server``: the process beside it that exports), the words in
``fence_vocabulary``, the chain by which a call is decided in ``fence_calls``; ``quiesce.fsm.fence`` steps them.
Acknowledgements are not here: no checkpoint id fences them (2.15).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence_coordinator import GYM_A_COORDINATOR
from quiesce.fsm.tables.fence_gym_a import GYM_A_SINGLE
from quiesce.fsm.tables.fence_model_server import MODEL_SERVER
from quiesce.fsm.tables.fence_strict import STRICT
from quiesce.fsm.tables.fence_vocabulary import (
    ANSWERS,
    ARRIVALS,
    ENDS,
    REFUSALS,
    FenceEvent,
    FencePhase,
    FenceVariant,
)
from quiesce.fsm.vocabulary import Role

__all__ = [
    "ANSWERS",
    "ARRIVALS",
    "ENDS",
    "FENCE",
    "MODEL_SERVER",
    "REFUSALS",
    "FenceEvent",
    "FencePhase",
    "FenceTable",
    "FenceVariant",
]

FenceTable: TypeAlias = Table[FencePhase, FenceEvent]

FENCE: Final[Mapping[tuple[FenceVariant, Role], FenceTable]] = {
    (variant, role): table
    for variant, tables in (
        (FenceVariant.STRICT, STRICT),
        (FenceVariant.GYM_A_SINGLE, GYM_A_SINGLE),
        (FenceVariant.GYM_A_COORDINATOR, GYM_A_COORDINATOR),
    )
    for role, table in tables.items()
}
"""Every fence that there is. A coordinator exists for policies only."""
