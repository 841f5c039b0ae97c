"""One call makes a server a participant: it puts the admission gate before it and adds the control routes.

    app = mount_policy(app, ledger=ledger, token=token)
    app = mount_auxiliary(app, name="judge", token=token)
    app = mount_agent(app, runs, token=token)
    app = mount_resources(app, name="tools", export=take, restore=bring_back, retire=free, token=token)
    control, model_server = mount_coordinator(app, ledger=ledger, workers=Workers(4), token=token)

``app`` is any ASGI application; what is returned is one as well. Without a token a server declares that it takes part
in nothing, has no control route but that, and no gate (wire-protocol 2.1, 3.3). ``fence`` chooses the variant:
``strict`` is the kit's own; ``gym_a_single`` behaves as the recorded servers do, so that a client can be tested on it.
``lease`` (strict only, off by default) lets a server that a cut holds open by itself once its controller is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from quiesce.fsm.tables.fence import FENCE, MODEL_SERVER, FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.participants.dialects.gym_a.routes import COORDINATOR_ROUTES, MODEL_SERVER_ROUTES, Route
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.layout import check_participant_name
from quiesce.participants.server.agent import AgentControl
from quiesce.participants.server.agent_gate import AgentGate
from quiesce.participants.server.answers import ASGIApp
from quiesce.participants.server.auth import Bearer
from quiesce.participants.server.clock import SystemClock
from quiesce.participants.server.control import Face, MountedServer
from quiesce.participants.server.coordinator import CoordinatorControl, ModelServerControl
from quiesce.participants.server.fence import Door, LiveFence
from quiesce.participants.server.lease import Lease, LeaseControl
from quiesce.participants.server.operations import Endpoint
from quiesce.participants.server.policy import AlwaysOpen, PolicyControl, auxiliary_endpoints
from quiesce.participants.server.policy_gate import CaptureKeyOf, PolicyGate, WhenClosed
from quiesce.participants.server.ports import AgentRuns, Clock, ModelStore, ResourceSessions
from quiesce.participants.server.resources import ResourcesControl
from quiesce.participants.server.resources_gate import ResourcesGate
from quiesce.participants.server.session import ExportHook, RestoreHook, RetireHook, SessionHooks
from quiesce.participants.server.sessions import Sessions
from quiesce.participants.server.workers import Workers
from quiesce.participants.server.workers_gate import WorkersGate

__all__ = [
    "Coordinated",
    "mount_agent",
    "mount_auxiliary",
    "mount_coordinator",
    "mount_policy",
    "mount_resources",
    "mount_sessions",
]

PREPARE_GRACE_S: Final = 30.0


def mount_policy(
    app: ASGIApp,
    *,
    ledger: ModelStore,
    token: str | None,
    fence: FenceVariant = FenceVariant.STRICT,
    when_closed: WhenClosed = "refuse",
    capture_key_of: CaptureKeyOf | None = None,
    lease: Lease | None = None,
    clock: Clock | None = None,
) -> MountedServer:
    """Make a model server a policy participant.

    ``when_closed``: ``refuse`` answers new calls with 409 ``checkpoint_parked`` while a cut is taken; ``hold`` keeps
    them waiting until resume. ``capture_key_of`` finds the capture key in a path, where the server's paths have one.

    Raises:
        ConfigurationError: the token cannot be used, the application is mounted already, or there is no such fence.
    """
    clock = clock or SystemClock()
    bearer = _bearer(app, token)
    gate = PolicyGate(app, ledger, clock, when_closed, capture_key_of)
    live = _fence(fence, Role.POLICY, gate, clock)
    gate.on_drained = live.drained
    return MountedServer(
        app,
        Role.POLICY,
        ledger.name,
        gate=gate,
        fence=live,
        bearer=bearer,
        endpoints=PolicyControl(live, gate, ledger, clock).endpoints(),
        lease=_leased(live, lease, fence, clock),
    )


class Coordinated(NamedTuple):
    """The two applications of a model service of several workers; both serve its data plane.

    Attributes:
        control: the coordinator: capabilities and the admission routes. It has no commit and no restore (F23).
        model_server: the process beside it that has them; a controller knows it as ``checkpoint_url``.
    """

    control: MountedServer
    model_server: MountedServer


def mount_coordinator(
    app: ASGIApp,
    *,
    ledger: ModelStore,
    workers: Workers,
    token: str | None,
    when_closed: WhenClosed = "refuse",
    capture_key_of: CaptureKeyOf | None = None,
    clock: Clock | None = None,
) -> Coordinated:
    """Make a model server of several workers a policy participant that behaves as the recorded coordinator does.

    It is there so that a client can be tested on it, traps included (fence ``gym_a_coordinator``): a resume from idle
    is refused, a failed pause reopens the workers by itself, and ``workers`` can be told to leave or to fall silent.

    Raises:
        ConfigurationError: as ``mount_policy``, or the workers have a coordinator already.
    """
    clock = clock or SystemClock()
    bearer = _bearer(app, token)
    workers.mount(lambda: PolicyGate(app, ledger, clock, when_closed, capture_key_of))
    gate = WorkersGate(app, workers)
    table = FENCE[FenceVariant.GYM_A_COORDINATOR, Role.POLICY]
    live = LiveFence(table, workers, clock, prepare_grace_s=PREPARE_GRACE_S, closed=False, members=workers)
    beside = LiveFence(MODEL_SERVER, AlwaysOpen(), clock, prepare_grace_s=PREPARE_GRACE_S, closed=False)

    def served(fence: LiveFence, routes: Sequence[Route], endpoints: Mapping[str, Endpoint]) -> MountedServer:
        return MountedServer(
            app,
            Role.POLICY,
            ledger.name,
            gate=gate,
            fence=fence,
            bearer=bearer,
            endpoints=endpoints,
            face=Face(workers.expected, routes),
        )

    return Coordinated(
        served(live, COORDINATOR_ROUTES, CoordinatorControl(live, workers, ledger, clock).endpoints()),
        served(beside, MODEL_SERVER_ROUTES, ModelServerControl(beside, live, workers, ledger).endpoints()),
    )


def mount_auxiliary(
    app: ASGIApp,
    *,
    name: str,
    token: str | None,
    fence: FenceVariant = FenceVariant.STRICT,
    clock: Clock | None = None,
) -> MountedServer:
    """Declare a model server (a judge, a reward model) auxiliary: it serves on while policies are paused.

    Raises:
        ConfigurationError: as ``mount_policy``; InvalidIdentity: the name is no model server's.
    """
    bearer = _bearer(app, token)
    name = check_participant_name(Role.AUXILIARY, name)
    live = _fence(fence, Role.AUXILIARY, AlwaysOpen(), clock or SystemClock())
    return MountedServer(
        app, Role.AUXILIARY, name, gate=app, fence=live, bearer=bearer, endpoints=auxiliary_endpoints(live)
    )


def mount_agent(
    app: ASGIApp,
    runs: AgentRuns,
    *,
    token: str | None,
    fence: FenceVariant = FenceVariant.STRICT,
    prepare_grace_s: float = PREPARE_GRACE_S,
    lease: Lease | None = None,
    clock: Clock | None = None,
) -> MountedServer:
    """Make an agent server a participant.

    ``prepare_grace_s``: how long after its deadline an incomplete prepare that nobody repeats keeps the agent closed.

    Raises:
        ConfigurationError: as ``mount_policy``.
    """
    bearer = _bearer(app, token)
    gate = AgentGate(app, runs)
    clock = clock or SystemClock()
    live = _fence(fence, Role.AGENT, gate, clock, prepare_grace_s=prepare_grace_s)
    return MountedServer(
        app,
        Role.AGENT,
        runs.name,
        gate=gate,
        fence=live,
        bearer=bearer,
        endpoints=AgentControl(live, runs, clock).endpoints(),
        lease=_leased(live, lease, fence, clock),
    )


def mount_resources(  # noqa: PLR0913 - the one call of a server author, every part of it named
    app: ASGIApp,
    *,
    name: str,
    export: ExportHook,
    restore: RestoreHook,
    retire: RetireHook,
    token: str | None,
    restore_expected: bool = False,
    fence: FenceVariant = FenceVariant.STRICT,
    lease: Lease | None = None,
    clock: Clock | None = None,
) -> MountedServer:
    """Make a resource server a participant: three hooks take, bring back and free the state of one session.

    ``restore_expected``: the process serves nothing before it has been restored.

    Raises:
        ConfigurationError: as ``mount_policy``, or a restore is expected and there is no token to command it with.
    """
    hooks = SessionHooks(export, restore, retire)
    sessions = Sessions(name, hooks=hooks, clock=clock, restore_expected=restore_expected)
    return mount_sessions(app, sessions, token=token, fence=fence, lease=lease, clock=clock)


def mount_sessions(
    app: ASGIApp,
    sessions: ResourceSessions,
    *,
    token: str | None,
    fence: FenceVariant = FenceVariant.STRICT,
    lease: Lease | None = None,
    clock: Clock | None = None,
) -> MountedServer:
    """As ``mount_resources``, for sessions that the author keeps in hand or implements."""
    bearer = _bearer(app, token)
    if bearer is None and sessions.owes_restore:
        raise ConfigurationError(
            f"resource server {sessions.name!r} expects a restore, but without a control token nobody could "
            "command it; set the token or do not expect a restore"
        )
    gate = ResourcesGate(app, sessions)
    clock = clock or SystemClock()
    live = _fence(fence, Role.RESOURCES, gate, clock, closed=sessions.closed)
    return MountedServer(
        app,
        Role.RESOURCES,
        sessions.name,
        gate=gate,
        fence=live,
        bearer=bearer,
        endpoints=ResourcesControl(live, sessions).endpoints(),
        lease=_leased(live, lease, fence, clock),
    )


def _bearer(app: ASGIApp, token: str | None) -> Bearer | None:
    if isinstance(app, MountedServer):
        raise ConfigurationError(f"the application is mounted already, as {app.role.value} {app.name!r}; mount it once")
    return Bearer(token) if token else None


def _leased(live: LiveFence, lease: Lease | None, variant: FenceVariant, clock: Clock) -> LeaseControl | None:
    if lease is None:
        return None
    if variant is not FenceVariant.STRICT:
        raise ConfigurationError(f"the recorded servers have no lease; leave it out for a {variant.value} fence")
    return LeaseControl.over(live, lease, clock)


def _fence(
    variant: FenceVariant,
    role: Role,
    door: Door,
    clock: Clock,
    *,
    closed: bool = False,
    prepare_grace_s: float = PREPARE_GRACE_S,
) -> LiveFence:
    table = FENCE.get((variant, role))
    if table is None or variant is FenceVariant.GYM_A_COORDINATOR:
        raise ConfigurationError(f"there is no {variant.value} fence for a single {role.value} server")
    return LiveFence(table, door, clock, prepare_grace_s=prepare_grace_s, closed=closed)
