"""The kit that makes a server a participant: fence, admission gate, ledgers and control routes.

    from quiesce.participants import server

    app = server.mount_policy(app, ledger=server.ModelLedger("policy_model"), token=token)
    app = server.mount_auxiliary(app, name="judge", token=token)
    app = server.mount_agent(app, runs, token=token)
    app = server.mount_resources(app, name="tools", export=..., restore=..., retire=..., token=token)

``quiesce.participants.server.mount`` says what each of them takes.
"""

from __future__ import annotations

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.execution import CallParked, Execution, ExecutionRetired, is_parking_reply
from quiesce.participants.server.headers import attempt_of
from quiesce.participants.server.lease import Lease
from quiesce.participants.server.ledger import CallRef, ModelLedger
from quiesce.participants.server.lineage import DirectoryLineage, LineageStore, MemoryLineage
from quiesce.participants.server.mount import (
    Coordinated,
    mount_agent,
    mount_auxiliary,
    mount_coordinator,
    mount_policy,
    mount_resources,
    mount_sessions,
)
from quiesce.participants.server.runs import Runs
from quiesce.participants.server.session import RestoreHookFailed, SessionHooks
from quiesce.participants.server.sessions import Sessions
from quiesce.participants.server.worker import Worker
from quiesce.participants.server.workers import Workers

__all__ = [
    "CallParked",
    "CallRef",
    "ControlRefusal",
    "Coordinated",
    "DirectoryLineage",
    "Execution",
    "ExecutionRetired",
    "FenceVariant",
    "Lease",
    "LineageStore",
    "MemoryLineage",
    "ModelLedger",
    "MountedServer",
    "RefusalCode",
    "RestoreHookFailed",
    "Runs",
    "SessionHooks",
    "Sessions",
    "Worker",
    "Workers",
    "attempt_of",
    "is_parking_reply",
    "mount_agent",
    "mount_auxiliary",
    "mount_coordinator",
    "mount_policy",
    "mount_resources",
    "mount_sessions",
]
