"""Who takes part in which phase, as data (wire-protocol 1.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from quiesce.fsm.vocabulary import Phase, Role
from quiesce.participants.capabilities import Contract, Declaration

__all__ = ["PARTICIPATION", "ParticipationRow", "takes_part", "taking_part"]


@dataclass(frozen=True, slots=True)
class ParticipationRow:
    """One row: the ``phases`` that a participant of ``role`` takes part in, when it exports or when it does not."""

    role: Role
    phases: frozenset[Phase]
    reason: str
    exports: bool


_RELEASING: Final = frozenset({Phase.RESUME, Phase.ABORT, Phase.ROLLBACK})
_ALL: Final = frozenset({Phase.PREPARE, Phase.COMMIT, Phase.RESTORE}) | _RELEASING
_NONE: Final[frozenset[Phase]] = frozenset()

PARTICIPATION: Final[tuple[ParticipationRow, ...]] = (
    ParticipationRow(Role.POLICY, _ALL, "closes, drains and exports its lineage", exports=True),
    ParticipationRow(
        Role.POLICY, frozenset({Phase.PREPARE}) | _RELEASING, "drain only: has nothing to export", exports=False
    ),
    ParticipationRow(Role.AUXILIARY, _NONE, "keeps serving: policy work waits for it", exports=True),
    ParticipationRow(Role.AUXILIARY, _NONE, "keeps serving: policy work waits for it", exports=False),
    ParticipationRow(Role.AGENT, _ALL, "parks its executions at a boundary and exports them", exports=True),
    ParticipationRow(Role.AGENT, _NONE, "unfinished rollouts start over from their input", exports=False),
    ParticipationRow(Role.RESOURCES, _ALL, "freezes and exports its sessions", exports=True),
    ParticipationRow(Role.RESOURCES, _NONE, "has no state, or none that can be exported", exports=False),
)
"""The whole matrix. Everybody is inspected (PREFLIGHT), whatever stands here."""

_ROW_OF: Final[Mapping[tuple[Role, bool], ParticipationRow]] = MappingProxyType(
    {(row.role, row.exports): row for row in PARTICIPATION}
)


def takes_part(declaration: Declaration, phase: Phase) -> bool:
    """Whether a participant with this declaration takes part in ``phase``."""
    return phase is Phase.PREFLIGHT or phase in _ROW_OF[(declaration.role, declaration.exports)].phases


def taking_part(contracts: tuple[Contract, ...], phase: Phase) -> tuple[Contract, ...]:
    """Those who take part in ``phase``, in the order given."""
    return tuple(contract for contract in contracts if takes_part(contract.declaration, phase))
