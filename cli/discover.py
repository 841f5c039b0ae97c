"""``quiesce discover``: who takes part, whether they can be cut, and what to mend where they cannot."""

from __future__ import annotations

from typing import Final

import typer
from rich.console import Console
from rich.table import Table

from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile
from quiesce.cli.output import counted, emit_json
from quiesce.cli.running import run
from quiesce.controller.api import Controller
from quiesce.controller.config import load_config
from quiesce.controller.discovery import Discovered, DiscoveredParticipant
from quiesce.participants.gym_config import GymConfiguration, GymServer
from quiesce.participants.gym_config_yaml import key_path

__all__ = ["register"]

NAMED_MAX: Final = 20


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("discover")(_discover)


def _discover(*, config: ConfigFile = CONFIG_FILE, as_json: AsJson = False) -> None:
    """Ask every participant of the configuration and validate what they make together. Pauses nobody."""
    found = run(lambda: _found(config), as_json=as_json)
    if as_json:
        emit_json({"ok": True, **_described(found)})
    else:
        _show(found)


async def _found(config: ConfigFile) -> Discovered:
    controller = Controller(load_config(config))
    try:
        return await controller.look()
    finally:
        await controller.close()


def _described(found: Discovered) -> dict[str, object]:
    return {
        "participants": [_participant(participant) for participant in found.participants],
        "fingerprints": found.fingerprints(),
        "without_lease": [str(key) for key in found.without_lease()],
        "notes": list(found.notes),
        "gym": {deployment: _gym(configuration) for deployment, configuration in found.gym.items()},
    }


def _gym(configuration: GymConfiguration) -> dict[str, object]:
    """What a resolved NeMo Gym configuration says about servers; nothing else of it is kept."""
    return {
        "source": configuration.source,
        "policy_base_urls": list(configuration.policy_base_urls),
        "servers": [_gym_server(server) for server in configuration.servers],
        "left_out": [{"name": entry.name, "reason": entry.reason} for entry in configuration.left_out],
    }


def _gym_server(server: GymServer) -> dict[str, object]:
    return {
        "name": server.name,
        "component": server.component,
        "implementation": server.implementation,
        "host": server.host,
        "port": server.port,
        "num_workers": server.num_workers,
        "instance_role": server.instance_role,
        "upstreams": list(server.upstreams),
        "named_by": [str(reference) for reference in server.references],
        "asked": server.is_asked,
    }


def _participant(participant: DiscoveredParticipant) -> dict[str, object]:
    declared = participant.contract.declaration
    return {
        "deployment": participant.key.deployment,
        "name": participant.key.name,
        "own_name": participant.contract.participant_name,
        "role": participant.role.value,
        "url": participant.url,
        "checkpoint_mode": declared.checkpoint_mode.value,
        "phases": sorted(phase.value for phase in participant.phases),
        "instance": participant.instance,
        "dialect": participant.dialect.name,
        "features": sorted(declared.features),
    }


def _show(found: Discovered) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("participant", "role", "mode", "url"):
        table.add_column(column, header_style="dim", no_wrap=True)
    for participant in found.participants:
        mode = participant.contract.declaration.checkpoint_mode.value
        table.add_row(str(participant.key), participant.role.value, mode, participant.url)
    Console(soft_wrap=True).print(table)
    for name, fingerprint in found.fingerprints().items():
        typer.echo(f"fingerprint of {name}: {fingerprint}")
    for configuration in found.gym.values():
        asked = sum(server.is_asked for server in configuration.servers)
        leftovers = "".join(
            f"; {key_path([entry.name])} is a leftover" for entry in configuration.left_out if entry.is_leftover
        )
        typer.echo(f"{configuration.source}: {counted(len(configuration.servers), 'server')}, {asked} asked{leftovers}")
    if found.without_lease():
        named = ", ".join(str(key) for key in found.without_lease()[:NAMED_MAX])
        more = len(found.without_lease()) - NAMED_MAX
        others = f" and {more} more" if more > 0 else ""
        typer.echo(f"without a lease, so closed until recovered if the controller dies: {named}{others}")
    for note in found.notes:
        typer.echo(f"note: {note}")
