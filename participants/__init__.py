"""What a participant is: identity, role, capabilities, topology, dialects, artefacts and the snapshot's manifest.

Everything here parses and verifies what it is given; files and sockets are opened in ``controller`` and ``transport``.
The kit that makes a server a participant is :mod:`quiesce.participants.server`.
"""

from __future__ import annotations

from quiesce.participants.artefacts import ArtefactReader, VerifiedExport, VerifiedFile, cross_check, verify_export
from quiesce.participants.capabilities import Contract, Declaration, LiveCapabilities
from quiesce.participants.discovery_rules import Discovered, validate_topology
from quiesce.participants.errors import (
    ConfigurationError,
    ControlRequestError,
    InvalidIdentity,
    MaybeApplied,
    NeverSent,
    ProtocolViolation,
    SnapshotInvalid,
    TopologyError,
    Unreachable,
    UnsupportedVerb,
)
from quiesce.participants.gym_config import GymConfiguration, GymServer, read_gym_configuration
from quiesce.participants.gym_config_participants import GymParticipant, GymParticipants, participants_of
from quiesce.participants.identity import (
    AttemptId,
    capture_key,
    check_identity,
    check_label,
    healing_id,
    restore_wire_id,
    wire_id,
)
from quiesce.participants.manifest import load_manifest, manifest_bytes, manifest_schema
from quiesce.participants.manifest_models import SnapshotManifest
from quiesce.participants.matrix import PARTICIPATION, takes_part, taking_part
from quiesce.participants.topology import Topology

__all__ = [
    "PARTICIPATION",
    "ArtefactReader",
    "AttemptId",
    "ConfigurationError",
    "Contract",
    "ControlRequestError",
    "Declaration",
    "Discovered",
    "GymConfiguration",
    "GymParticipant",
    "GymParticipants",
    "GymServer",
    "InvalidIdentity",
    "LiveCapabilities",
    "MaybeApplied",
    "NeverSent",
    "ProtocolViolation",
    "SnapshotInvalid",
    "SnapshotManifest",
    "Topology",
    "TopologyError",
    "Unreachable",
    "UnsupportedVerb",
    "VerifiedExport",
    "VerifiedFile",
    "capture_key",
    "check_identity",
    "check_label",
    "cross_check",
    "healing_id",
    "load_manifest",
    "manifest_bytes",
    "manifest_schema",
    "participants_of",
    "read_gym_configuration",
    "restore_wire_id",
    "takes_part",
    "taking_part",
    "validate_topology",
    "verify_export",
    "wire_id",
]
