"""A controller that is killed with SIGKILL while everybody is held: leased servers open by themselves, over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Command, last_object
from support.workload import TOKEN, Deployment, deployment

from quiesce.fsm.vocabulary import Role
from quiesce.participants.control_token import TOKEN_VARIABLES

LEASE_S = 0.5
SHORT = "reach_timeout_s = 1.5"
"""No call of the drain carries a deadline beyond this, so the leases lapse soon."""


def checkpoint(config: Path, *options: str) -> subprocess.Popen[str]:
    """``quiesce checkpoint`` in a process of its own."""
    command = [sys.executable, "-m", "quiesce.cli.main", "checkpoint", "--config", str(config), *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, TOKEN_VARIABLES[0]: TOKEN},
    )


def held_ids(servers: Deployment) -> set[str]:
    """The ids that hold anybody."""
    found = {servers.capabilities(role)["active_checkpoint_id"] for role in Role}
    return {str(id_) for id_ in found if id_ is not None}


@pytest.mark.parametrize("role", [Role.POLICY, Role.AGENT], ids=str)
def test_a_killed_controller_leaves_nobody_closed(quiesce: Command, tmp_path: Path, role: Role) -> None:
    """Killed in the middle of the drain; nobody recovers, and everybody accepts work; then the next cut just works."""
    with deployment(latency_s=2.0, lease_s=LEASE_S) as servers:
        config = servers.write_config(tmp_path, extra=SHORT)
        discovered = last_object(quiesce("discover", "--config", str(config), "--json"))
        assert discovered["without_lease"] == []
        servers.run("live", turns=2)
        servers.arrivals.wait(Role.POLICY, "/v1/responses")
        child = checkpoint(config, "--label", "killed")
        try:
            while servers.capabilities(role)["active_checkpoint_id"] is None:
                assert child.poll() is None, child.communicate()
            ids = held_ids(servers)
        finally:
            child.kill()
            child.communicate()
        assert len(ids) == 1
        while servers.phases() != {"idle"}:
            pass
        held = next(iter(ids))
        assert held.startswith("killed-")
        config = servers.write_config(tmp_path, extra="reach_timeout_s = 60")
        cut = quiesce("checkpoint", "--label", "next", "--acknowledge-completed", "--config", str(config), "--json")
        assert cut.exit_code == 0, cut.stderr
        assert [
            entry["label"]
            for entry in json.loads(quiesce("list", "--config", str(config), "--json").stdout)["snapshots"]
        ] == ["next"]
        assert servers.phases() == {"idle"}
