"""The participation matrix against wire-protocol 1.4, written out again here."""

from __future__ import annotations

import pytest
from support.declarations import contract, healthy

from quiesce.fsm.vocabulary import Phase, Role
from quiesce.participants.capabilities import CheckpointMode
from quiesce.participants.matrix import PARTICIPATION, takes_part, taking_part

FOUR = (Phase.PREPARE, Phase.COMMIT, Phase.RESTORE, Phase.RESUME)
EXPECTED = {
    (Role.POLICY, True): (True, True, True, True),
    (Role.POLICY, False): (True, False, False, True),
    (Role.AUXILIARY, True): (False, False, False, False),
    (Role.AUXILIARY, False): (False, False, False, False),
    (Role.AGENT, True): (True, True, True, True),
    (Role.AGENT, False): (False, False, False, False),
    (Role.RESOURCES, True): (True, True, True, True),
    (Role.RESOURCES, False): (False, False, False, False),
}


@pytest.mark.parametrize("mode", list(CheckpointMode))
@pytest.mark.parametrize("role", list(Role))
def test_who_takes_part_in_what(role: Role, mode: CheckpointMode) -> None:
    """Each role, with each mode, takes part in exactly the phases of the wire document's matrix."""
    declared = contract(role, "one", checkpoint_mode=mode).declaration
    expected = EXPECTED[(role, mode is CheckpointMode.EXPORT_RESTORE)]
    assert tuple(takes_part(declared, phase) for phase in FOUR) == expected


def test_releasing_is_for_whoever_prepares() -> None:
    """Resume, abort and rollback have the same participants, and everybody is inspected."""
    for row in PARTICIPATION:
        released = {phase in row.phases for phase in (Phase.RESUME, Phase.ABORT, Phase.ROLLBACK)}
        assert released == {Phase.PREPARE in row.phases}
    for participant in healthy():
        assert takes_part(participant.contract.declaration, Phase.PREFLIGHT)


def test_the_matrix_has_each_pair_once() -> None:
    """No role is forgotten and none stands twice."""
    assert {(row.role, row.exports) for row in PARTICIPATION} == set(EXPECTED)
    assert len(PARTICIPATION) == len(EXPECTED)


def test_an_auxiliary_model_is_left_alone() -> None:
    """It is never among those who are paused, although it is in the topology."""
    contracts = tuple(participant.contract for participant in healthy())
    assert [each.server_name for each in taking_part(contracts, Phase.PREPARE)] == [
        "policy_model",
        "solver_agent",
        "tools",
    ]
