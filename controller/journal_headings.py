"""The first line of a journal, from who takes part to a line and back.

It holds what a controller needs that knows nothing but the root: who was called under the id, where, and as what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quiesce.controller.config import Config, ParticipantConfig
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.journal_lines import OpenedLine, OpenedParticipant
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.vocabulary import ParticipantKey, Phase
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.matrix import takes_part
from quiesce.participants.topology import contract_object

__all__ = ["Regained", "opened_fields", "regained", "taken_over_fields"]


@dataclass(frozen=True, slots=True)
class Regained:
    """Who takes part in a transaction that somebody else opened.

    Attributes:
        fleet: everybody of it, with the addresses that the configuration names now.
        gone: those whom the configuration does not name any more; they keep the address that they had.
    """

    fleet: Mapping[ParticipantKey, DiscoveredParticipant]
    gone: tuple[ParticipantKey, ...]


def opened_fields(
    wire_id: str,
    label: str,
    fleet: Mapping[ParticipantKey, DiscoveredParticipant],
    *,
    source_wire_id: str | None,
    drain: DrainMode,
    epoch: int | None,
    now_ts: float,
) -> dict[str, object]:
    """The fields of the first line; see :class:`~quiesce.controller.journal_lines.OpenedLine`."""
    return {
        "kind": "opened",
        "time_ts": now_ts,
        "wire_id": wire_id,
        "label": label,
        "source_wire_id": source_wire_id,
        "drain": drain.value,
        "epoch": epoch,
        "participants": [_participant_fields(participant) for participant in fleet.values()],
    }


def taken_over_fields(wire_id: str, *, epoch: int, damage: str, now_ts: float) -> dict[str, object]:
    """The fields of the line with which another tenure goes on."""
    return {"kind": "taken_over", "time_ts": now_ts, "wire_id": wire_id, "epoch": epoch, "damage": damage}


def regained(opened: OpenedLine, config: Config) -> Regained:
    """Who takes part, from the first line and from where the configuration has them now.

    Raises:
        ConfigurationError: a participant speaks a wire generation that this version does not know.
    """
    now = {
        ParticipantKey(name, settings.name): settings
        for name, deployment in config.deployment.items()
        for settings in deployment.participants
    }
    fleet = {one.key: _participant(one, now.get(one.key)) for one in opened.participants}
    return Regained(fleet, tuple(key for key in fleet if key not in now))


def _participant_fields(participant: DiscoveredParticipant) -> dict[str, object]:
    return {
        "deployment": participant.key.deployment,
        "url": participant.url,
        "checkpoint_url": participant.checkpoint_url,
        "instance": participant.instance,
        "dialect": participant.dialect.name,
        "contract": contract_object(participant.contract, features=True),
    }


def _participant(one: OpenedParticipant, settings: ParticipantConfig | None) -> DiscoveredParticipant:
    dialect = GymA()
    if one.dialect != dialect.name:
        raise ConfigurationError(
            f"{one.key} spoke {one.dialect!r}, which this version does not know; recover with the version that began it"
        )
    contract = one.contract.contract()
    return DiscoveredParticipant(
        key=one.key,
        url=settings.url if settings is not None else one.url,
        checkpoint_url=settings.checkpoint_url if settings is not None else one.checkpoint_url,
        contract=contract,
        instance=one.instance,
        dialect=dialect,
        phases=frozenset(phase for phase in Phase if takes_part(contract.declaration, phase)),
    )
