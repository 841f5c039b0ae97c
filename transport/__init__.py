"""How a control call travels: the port, HTTP, in-process, and a faulty one for tests.

Every transport keeps the contract at the top of ``quiesce.transport.port``.
"""

from __future__ import annotations

from quiesce.transport.faults import GATEWAY_PAGE, CallSite, Fault, FaultKind, FaultPlan, ScriptedFaults, SeededFaults
from quiesce.transport.faulty import FaultyTransport, InjectedFault
from quiesce.transport.http import HttpTransport
from quiesce.transport.inprocess import AsgiApplication, AsgiTransport
from quiesce.transport.limits import CONNECT_TIMEOUT_S, KEEPALIVE_S, REPLY_BODY_CAP, REQUEST_BODY_MAX
from quiesce.transport.port import ControlReply, ControlRequest, Transport
from quiesce.transport.token import (
    TOKEN_VARIABLES,
    EnvironmentTokenProvider,
    StaticTokenProvider,
    Token,
    TokenProvider,
)

__all__ = [
    "CONNECT_TIMEOUT_S",
    "GATEWAY_PAGE",
    "KEEPALIVE_S",
    "REPLY_BODY_CAP",
    "REQUEST_BODY_MAX",
    "TOKEN_VARIABLES",
    "AsgiApplication",
    "AsgiTransport",
    "CallSite",
    "ControlReply",
    "ControlRequest",
    "EnvironmentTokenProvider",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "FaultyTransport",
    "HttpTransport",
    "InjectedFault",
    "ScriptedFaults",
    "SeededFaults",
    "StaticTokenProvider",
    "Token",
    "TokenProvider",
    "Transport",
]
