"""``quiesce discover``: who takes part, whether they can be cut, and what to mend where they cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quiesce.cli.failures import asked_json
from quiesce.cli.opened import CONFIG_FILE, AsJson, ConfigFile
from quiesce.cli.output import counted, emit_json, tell, tell_line
from quiesce.cli.running import run
from quiesce.controller.api import Controller
from quiesce.controller.config import load_config
from quiesce.controller.discovery import Discovered, DiscoveredParticipant
from quiesce.controller.files import LocalFiles
from quiesce.controller.recovery import Account, find_unfinished
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.standing import half_restored
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.excerpts import printable
from quiesce.participants.gym_config import GymConfiguration, GymServer
from quiesce.participants.gym_config_yaml import key_path

__all__ = ["register"]

NAMED_MAX: Final = 20
CELL_CHARS_MAX: Final = 2000


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
    settings = load_config(config)
    controller = Controller(settings)
    try:
        found = await controller.look()
    finally:
        await controller.close()
    hints = await asyncio.to_thread(_hints, settings.root, found)
    return replace(found, notes=(*found.notes, *hints))


def _hints(root: Path, found: Discovered) -> list[str]:
    """What to do about whoever is held, and about what stands unfinished in the journals of this root."""
    unfinished = {account.wire_id: account for account in find_unfinished(LocalFiles(), RootLayout(root))}
    instances = {one.key: one.instance for one in found.participants}
    half = [half_restored(account, instances) for account in unfinished.values()]
    hints = [str(error) for error in half if error is not None]
    hints += [
        _unfinished(account, found.holding.get(wire_id, ()))
        for wire_id, account in unfinished.items()
        if account.touched or not account.half_restored
    ]
    return hints + [
        f"nothing is known here of {printable(wire_id)}, which holds {_names(keys)}: if nobody works under it, "
        f"`quiesce abort {printable(wire_id)}` reopens them"
        for wire_id, keys in found.holding.items()
        if wire_id not in unfinished
    ]


def _unfinished(account: Account, held: Sequence[ParticipantKey]) -> str:
    whom = f" and holds {_names(held)}" if held else ""
    does = "says who stands where, and how to go on" if account.is_restore else "finishes it"
    return (
        f"{account.kind or 'transaction'} {account.wire_id} stands at {account.stood} in its journal{whom}: if its "
        f"controller is gone, `quiesce recover` {does}; `quiesce abort {account.wire_id}` gives it up"
    )


def _names(keys: Sequence[ParticipantKey]) -> str:
    more = f" and {len(keys) - NAMED_MAX} more" if len(keys) > NAMED_MAX else ""
    return ", ".join(map(str, keys[:NAMED_MAX])) + more


def _described(found: Discovered) -> dict[str, object]:
    return {
        "participants": [_participant(participant) for participant in found.participants],
        "asked": asked_json((participant.key, participant.url) for participant in found.participants),
        "fingerprints": found.fingerprints(),
        "without_lease": [str(key) for key in found.without_lease()],
        "holding": {wire_id: [str(key) for key in keys] for wire_id, keys in found.holding.items()},
        "waiting": [str(key) for key in found.waiting()],
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
        cells = (str(participant.key), participant.role.value, mode, participant.url)
        table.add_row(*(Text(printable(cell, CELL_CHARS_MAX)) for cell in cells))
    Console(soft_wrap=True).print(table)
    for name, fingerprint in found.fingerprints().items():
        tell(f"fingerprint of {name}: {fingerprint}")
    for configuration in found.gym.values():
        asked = sum(server.is_asked for server in configuration.servers)
        leftovers = "".join(
            f"; {key_path([entry.name])} is a leftover" for entry in configuration.left_out if entry.is_leftover
        )
        tell(f"{configuration.source}: {counted(len(configuration.servers), 'server')}, {asked} asked{leftovers}")
    if found.without_lease():
        tell(f"without a lease, so closed until recovered if the controller dies: {_names(found.without_lease())}")
    for note in found.notes:
        tell_line(f"note: {note}")
