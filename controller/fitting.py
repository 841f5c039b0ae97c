"""Whether a snapshot fits the participants that there are: restored into others, it would be lost work or wrong work.

Whether the participants of a cut are still those that were validated is asked by the core itself, which reads
everybody's capabilities again before anybody is paused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quiesce.participants.capabilities import Contract
from quiesce.participants.errors import TopologyError
from quiesce.participants.manifest_models import SnapshotManifest
from quiesce.participants.topology import Topology, contract_object

__all__ = ["check_fits"]


def check_fits(manifest: SnapshotManifest, topologies: Mapping[str, Topology]) -> None:
    """Compare a snapshot's topology with that of the participants that were discovered.

    ``features`` may differ: they are no part of the fingerprint (wire-protocol 7.4).

    Raises:
        TopologyError: they differ; every participant that is missing, new or changed is named.
    """
    problems = [
        f"snapshot {manifest.checkpoint_id}, deployment {name}: {problem}"
        for name in sorted({*topologies, *manifest.deployments})
        for problem in _differences(manifest, name, topologies.get(name))
    ]
    if problems:
        raise TopologyError(problems)


def _differences(manifest: SnapshotManifest, name: str, topology: Topology | None) -> Iterator[str]:
    entry = manifest.deployments.get(name)
    if entry is not None and topology is not None and entry.fingerprint == topology.fingerprint():
        return
    saved = _contracts(entry.topology.topology() if entry is not None else None)
    found = _contracts(topology)
    for server in sorted(saved.keys() - found.keys()):
        yield f"{server} is in the snapshot and was not discovered; start it, or name it in the configuration"
    for server in sorted(found.keys() - saved.keys()):
        yield f"{server} was discovered and is not in the snapshot; restore without it"
    for server in sorted(saved.keys() & found.keys()):
        yield from _changes(saved[server], found[server])


def _contracts(topology: Topology | None) -> dict[str, Contract]:
    return {contract.server_name: contract for contract in topology.contracts} if topology is not None else {}


def _changes(saved: Contract, found: Contract) -> Iterator[str]:
    before, after = (contract_object(contract, features=False) for contract in (saved, found))
    fields = [f"{name} was {before[name]}, is {after[name]}" for name in before if before[name] != after[name]]
    if fields:
        yield f"{saved.server_name} declares something else than at the cut: {'; '.join(fields)}"
