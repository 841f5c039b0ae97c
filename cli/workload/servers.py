"""From settings to a server: the workload's application of a role, mounted on the kit in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quiesce.cli.workload.agent import agent_app
from quiesce.cli.workload.coordinator import MODEL_SERVER_PATH, CoordinatedPolicy
from quiesce.cli.workload.judge import judge_app
from quiesce.cli.workload.policy import policy_app
from quiesce.cli.workload.tools import Tools, tools_app
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.participants import server
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.server.answers import ASGIApp

__all__ = ["DEFAULT_LATENCY_S", "DEFAULT_NAMES", "ServerSettings", "build_server"]

DEFAULT_NAMES: Final[Mapping[Role, str]] = {
    Role.POLICY: "policy_model",
    Role.AUXILIARY: "judge",
    Role.AGENT: "agent",
    Role.RESOURCES: "tools",
}
DEFAULT_LATENCY_S: Final[Mapping[Role, float]] = {
    Role.POLICY: 0.3,
    Role.AUXILIARY: 0.1,
    Role.AGENT: 0.0,
    Role.RESOURCES: 0.05,
}
_UPSTREAMS: Final[Mapping[Role, tuple[Role, ...]]] = {
    Role.POLICY: (Role.AUXILIARY,),
    Role.AGENT: (Role.POLICY, Role.RESOURCES),
}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How one server is to be.

    Attributes:
        role: what it is.
        name: its own name; by default that of its role.
        token: the bearer of its control routes; without one it takes part in nothing.
        fence: how its fence behaves.
        workers: how many a policy behind a coordinator has.
        latency_s: how long one call takes; for an agent, how long it pauses before a turn.
        upstreams: where the servers are that it calls, by their role; only an agent may know several policies.
        ledger: a policy's directory for its lineage, in memory without one.
        expects_restore: whether a resource server serves nothing before it has been restored.
        lease_s: so long after the last deadline that its controller named it opens by itself; None for never.
    """

    role: Role
    name: str = ""
    token: str | None = field(default=None, repr=False)
    fence: FenceVariant = FenceVariant.STRICT
    workers: int = 1
    latency_s: float | None = None
    upstreams: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    ledger: Path | None = None
    expects_restore: bool = False
    lease_s: float | None = None

    @property
    def own_name(self) -> str:
        return self.name or DEFAULT_NAMES[self.role]

    @property
    def pace_s(self) -> float:
        return DEFAULT_LATENCY_S[self.role] if self.latency_s is None else self.latency_s

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator answers for its workers."""
        return self.fence is FenceVariant.GYM_A_COORDINATOR

    def problems(self) -> list[str]:
        """What cannot be, each a sentence; empty when all is well."""
        role = self.role
        found = [
            f"a server of role {role.value} calls no {other.value} server; leave out --upstream {other.value}=..."
            for other in self.upstreams
            if other not in _UPSTREAMS.get(role, ())
        ]
        if role is Role.AGENT:
            found += [
                f"an agent calls a {other.value} server; say where it is: --upstream {other.value}=URL"
                for other in _UPSTREAMS[role]
                if not self.upstreams.get(other)
            ]
        found += [
            f"{len(urls)} servers of role {other.value} are given; a {role.value} server calls one"
            for other, urls in self.upstreams.items()
            if len(urls) > 1 and other is not Role.POLICY
        ]
        if self.coordinated and role is not Role.POLICY:
            found.append(f"only a policy has a coordinator; leave out --fence {self.fence.value} for role {role.value}")
        if self.workers != 1 and not self.coordinated:
            found.append(
                f"{self.workers} workers need a coordinator that answers for them: add --fence "
                f"{FenceVariant.GYM_A_COORDINATOR.value}, or leave out --workers"
            )
        if self.ledger is not None and role is not Role.POLICY:
            found.append(f"only a policy keeps a ledger; leave out --ledger for role {role.value}")
        if self.expects_restore and role is not Role.RESOURCES:
            found.append(f"only a resource server can expect a restore; leave out --expect-restore for {role.value}")
        if self.lease_s is not None and role is Role.AUXILIARY:
            found.append("no cut ever closes an auxiliary, so that it needs no lease; leave out --lease")
        if self.lease_s is not None and self.fence is not FenceVariant.STRICT:
            found.append(
                f"a recorded fence ({self.fence.value}) has no lease; leave out --lease, or take --fence strict"
            )
        return found

    @property
    def lease(self) -> server.Lease | None:
        """Its lease, None for none."""
        return None if self.lease_s is None else server.Lease(self.lease_s)

    def announced(self, url: str) -> dict[str, str]:
        """What the server says of itself once it serves at ``url``."""
        said = {"role": self.role.value, "name": self.own_name, "url": url}
        return {**said, "checkpoint_url": f"{url}{MODEL_SERVER_PATH}"} if self.coordinated else said

    def upstream(self, role: Role) -> str | None:
        """Where the only server of a role is, None where none is given."""
        return next(iter(self.upstreams.get(role, ())), None)


def build_server(settings: ServerSettings) -> ASGIApp:
    """The server as an ASGI application.

    Raises:
        ConfigurationError: the settings contradict each other, or the kit refuses one of them.
    """
    problems = settings.problems()
    if problems:
        raise ConfigurationError("; ".join(problems))
    return _BUILDERS[settings.role](settings)


def _policy(settings: ServerSettings) -> ASGIApp:
    lineage = server.MemoryLineage() if settings.ledger is None else server.DirectoryLineage(settings.ledger)
    ledger = server.ModelLedger(settings.own_name, lineage=lineage)
    app = policy_app(ledger, judge_url=settings.upstream(Role.AUXILIARY), latency_s=settings.pace_s)
    if settings.coordinated:
        return CoordinatedPolicy(app, ledger=ledger, workers=settings.workers, token=settings.token)
    return server.mount_policy(app, ledger=ledger, token=settings.token, fence=settings.fence, lease=settings.lease)


def _judge(settings: ServerSettings) -> server.MountedServer:
    app = judge_app(latency_s=settings.pace_s)
    return server.mount_auxiliary(app, name=settings.own_name, token=settings.token, fence=settings.fence)


def _agent(settings: ServerSettings) -> server.MountedServer:
    # recorded agents have no boundary before their first one (wire-protocol F22)
    runs = server.Runs(settings.own_name, boundary_at_begin=settings.fence is FenceVariant.STRICT)
    app = agent_app(
        runs,
        policy_urls=settings.upstreams[Role.POLICY],
        tools_url=settings.upstreams[Role.RESOURCES][0],
        pause_s=settings.pace_s,
    )
    return server.mount_agent(app, runs, token=settings.token, fence=settings.fence, lease=settings.lease)


def _tools(settings: ServerSettings) -> server.MountedServer:
    tools = Tools(latency_s=settings.pace_s)
    sessions = server.Sessions(
        settings.own_name,
        hooks=server.SessionHooks(tools.export, tools.restore, tools.retire),
        restore_expected=settings.expects_restore,
        require_identity=settings.fence is FenceVariant.STRICT,
    )
    return server.mount_sessions(
        tools_app(tools), sessions, token=settings.token, fence=settings.fence, lease=settings.lease
    )


_BUILDERS: Final[Mapping[Role, Callable[[ServerSettings], ASGIApp]]] = {
    Role.POLICY: _policy,
    Role.AUXILIARY: _judge,
    Role.AGENT: _agent,
    Role.RESOURCES: _tools,
}
