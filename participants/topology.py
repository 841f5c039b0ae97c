"""The topology: one contract for each participant, in one order, with a fingerprint (wire-protocol 7.3, 7.4).

The fingerprint is equal exactly when a snapshot of one topology can be restored into the other. It ignores
``features``, which servers may add, and everything that is live.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import Contract
from quiesce.participants.strict_json import compact

__all__ = ["Topology", "contract_object"]

SCHEMA_VERSION: Final = 1


def contract_object(contract: Contract, *, features: bool) -> dict[str, object]:
    """One contract as it stands in a topology object, with or without its features."""
    declared = contract.declaration
    fields: dict[str, object] = {
        "participant": {
            "server_name": contract.server_name,
            "component": declared.component.value,
            "participant_name": declared.participant_name,
        },
        "schema_version": declared.schema_version,
        "admission_states": sorted(declared.admission_states),
        "checkpoint_mode": declared.checkpoint_mode.value,
        "concurrency_contract": declared.concurrency_contract.value,
        "multi_process": {"mode": declared.worker_mode.value, "num_workers": declared.num_workers},
        "instance_role": declared.instance_role.value if declared.instance_role else None,
    }
    return fields | ({"features": sorted(declared.features)} if features else {})


@dataclass(frozen=True, slots=True)
class Topology:
    """The participants of one deployment, sorted by component, routing name and own name. Make it with :meth:`of`."""

    contracts: tuple[Contract, ...]

    @classmethod
    def of(cls, contracts: Iterable[Contract]) -> Topology:
        """The topology of these contracts, whatever order they were discovered in."""

        def place(contract: Contract) -> tuple[str, str, str]:
            return (contract.declaration.component.value, contract.server_name, contract.participant_name)

        return cls(tuple(sorted(contracts, key=place)))

    def with_role(self, role: Role) -> tuple[Contract, ...]:
        """The participants of one role, in topology order."""
        return tuple(contract for contract in self.contracts if contract.role is role)

    def named(self, server_name: str) -> Contract | None:
        """The participant with this routing name."""
        return next((contract for contract in self.contracts if contract.server_name == server_name), None)

    def as_object(self, *, features: bool = True) -> dict[str, object]:
        """The topology object of the wire document; this is what a snapshot's manifest holds."""
        participants = [contract_object(contract, features=features) for contract in self.contracts]
        return {"schema_version": SCHEMA_VERSION, "participants": participants}

    def canonical_bytes(self) -> bytes:
        """What the fingerprint digests: no features, keys sorted at every level, compact, non-ASCII escaped."""
        return compact(self.as_object(features=False), sort_keys=True).encode()

    def fingerprint(self) -> str:
        """64 lower-case hex characters."""
        return hashlib.sha256(self.canonical_bytes()).hexdigest()
