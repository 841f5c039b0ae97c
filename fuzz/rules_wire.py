"""The rules that no table holds: requests, replies, the bearer, what status tells, the data plane, exported files."""

from __future__ import annotations

from typing import Final

from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.rules import EVERY_ROLE, PARTICIPATING, Need, Rule, Severity, gym_a

__all__ = ["WIRE_RULES"]

_POLICY: Final = frozenset({Role.POLICY})
_AGENT: Final = frozenset({Role.AGENT})
_RESOURCES: Final = frozenset({Role.RESOURCES})
_TRAFFIC: Final = frozenset({Need.TRAFFIC})
_WARNING: Final = Severity.WARNING

_CAPABILITIES: Final = (
    Rule("capabilities.open", "Capabilities are answered without a bearer.", "2.1", roles=EVERY_ROLE),
    Rule("capabilities.shape", "The capabilities have every field of 2.1, each of its type.", "2.1", roles=EVERY_ROLE),
    Rule(
        "capabilities.fields",
        "The capabilities have no field of their own; what is new stands in features.",
        "2.1, 9 #30",
        _WARNING,
        EVERY_ROLE,
    ),
    Rule(
        "capabilities.declared",
        "Component, role, mode and admission states fit each other.",
        "1.1 to 1.3, 2.1",
        roles=EVERY_ROLE,
    ),
    Rule(
        "capabilities.static",
        "Nothing but phase, active id, deadline and the feature of an owed restore changes while the process runs.",
        "2.1, 7.3",
        roles=EVERY_ROLE,
    ),
    Rule(
        "capabilities.deadline",
        "The deadline is shown while a prepare holds the fence, and is null when idle.",
        "2.1, 4.2 F11",
        _WARNING,
    ),
    Rule(
        "routes.present",
        "Every route that the declaration promises is there: an empty body gets 422, not 404.",
        "2, F23",
        known=gym_a("coordinator-without-export", "a coordinator declares an export and has no routes for it (F23)"),
    ),
)

_BEARER: Final = (
    Rule("bearer.accepted", "A call with the right bearer is not refused as unauthorized.", "3.3", roles=EVERY_ROLE),
    Rule("bearer.missing", "A call without a bearer gets 401 and changes nothing.", "2.0, 3.3", roles=EVERY_ROLE),
    Rule("bearer.wrong", "A call with another token gets 401 and changes nothing.", "3.3", roles=EVERY_ROLE),
    Rule(
        "bearer.exact",
        "The whole header is compared, exactly: scheme, one blank, every character of the token.",
        "3.3",
        roles=EVERY_ROLE,
    ),
    Rule(
        "bearer.not-ascii",
        "A header that is not ASCII is refused like any wrong one.",
        "9 #41",
        roles=EVERY_ROLE,
        needs=frozenset({Need.ANY_HEADER}),
    ),
    Rule(
        "bearer.last",
        "A malformed call without a bearer gets 422 (or 401), and nothing else.",
        "2.0, 9 #42",
        _WARNING,
        EVERY_ROLE,
    ),
)

_REQUESTS: Final = (
    Rule("request.accepted", "A valid call is not refused as malformed.", "2", roles=EVERY_ROLE),
    Rule("request.unknown-field", "A body with an unknown field is refused with 422.", "2.0, 9 #27", roles=EVERY_ROLE),
    Rule("request.missing-field", "A call without a required field is refused with 422.", "2.0, 2", roles=EVERY_ROLE),
    Rule("request.id", "An id that is not of the identity pattern is refused with 422.", "0.2, 2.0", roles=EVERY_ROLE),
    Rule("request.schema-version", "Another schema_version than 1 is refused with 422.", "2.0", roles=EVERY_ROLE),
    Rule("request.deadline", "A deadline that is no finite number is refused with 422.", "0.2, 2.0", roles=EVERY_ROLE),
    Rule("request.types", "A field of a wrong type or range is refused with 422.", "2", roles=EVERY_ROLE),
    Rule("request.body", "A body that is no JSON object is refused with 422.", "2.0", roles=EVERY_ROLE),
    Rule("request.query", "A malformed query is refused with 422.", "2.3, 2.18", roles=EVERY_ROLE),
)

_REPLIES: Final = (
    Rule("reply.shape", "A successful reply has the fields of its route, each of its type.", "2", roles=EVERY_ROLE),
    Rule("reply.refusal", "A refusal has error.code and error.detail, both text.", "3.1", roles=EVERY_ROLE),
    Rule(
        "reply.status",
        "Success is status 200 exactly; a refusal is 409, 401 or 422.",
        "0.2, 3.3",
        roles=EVERY_ROLE,
    ),
    Rule(
        "reply.crash",
        "No control call is answered with a server error.",
        "3.3",
        roles=EVERY_ROLE,
        known=gym_a("status-crashes-once-restored", "a status of a restored policy is a bare 500"),
    ),
    Rule("reply.in-time", "Every call is answered, a waiting one by its deadline.", "4.7, 5.2, F17", roles=EVERY_ROLE),
    Rule("reply.same-id", "A status names the id that it was asked for.", "2.3, 2.10, 2.18"),
    Rule("server.survives", "The server is still there after any sequence of calls.", "3.3", roles=EVERY_ROLE),
)

_TRUTH: Final = (
    Rule("truth.counts", "The counts of a reply agree with one another and with its lists.", "2.3, 2.9, 2.18, 5.1"),
    Rule(
        "truth.in-flight",
        "A call that is being served is counted, and nothing is called paused or ready while it is.",
        "2.2, 2.3, 5.1",
        needs=_TRAFFIC,
    ),
    Rule("truth.admission", "The admission state in a reply is the one that holds.", "2.3, 2.9, 2.18, 5.1"),
    Rule(
        "truth.long-poll",
        "A status that waits answers 200 at its time-out, and as soon as the drain is over.",
        "5.2",
        roles=_POLICY,
        needs=_TRAFFIC,
    ),
    Rule("truth.tombstones", "Status lists every attempt that was aborted.", "2.3, 2.6", roles=_POLICY),
)

_AGENTS: Final = (
    Rule("agent.ready", "A prepare is answered with 200 only when it is ready to commit.", "2.9", roles=_AGENT),
    Rule(
        "agent.park-kept",
        "Between two polls of an incomplete prepare, executions stay asked to park.",
        "4.5, 9 #8",
        roles=_AGENT,
        known=gym_a("park-request-dropped", "executions run on between two polls of a prepare (9 #8)"),
        needs=_TRAFFIC,
    ),
    Rule(
        "agent.boundary",
        "An execution has a boundary from its begin, so that a cut can always be reached.",
        "2.9, F22",
        _WARNING,
        _AGENT,
        known=gym_a("no-boundary-at-begin", "an execution has no boundary before its first one (F22)"),
        needs=_TRAFFIC,
    ),
    Rule("agent.unknown-receipt", "A receipt that was never given out cannot be acknowledged.", "2.15", roles=_AGENT),
    Rule(
        "agent.acknowledged",
        "A finished result blocks the cut until it is acknowledged; acknowledging it again is harmless.",
        "2.9, 2.15",
        roles=_AGENT,
        needs=_TRAFFIC,
    ),
    Rule(
        "agent.all-or-none",
        "A batch with one wrong receipt acknowledges nothing.",
        "2.15",
        roles=_AGENT,
        needs=_TRAFFIC,
    ),
)

_DATA_PLANE: Final = (
    Rule(
        "data.closed",
        "While admission is closed, new work is refused with the code of its plane (or held until resume).",
        "2.20, 5.1",
        roles=PARTICIPATING,
        needs=_TRAFFIC,
    ),
    Rule("data.open", "While admission is open, new work is admitted.", "2.20, 5.1", needs=_TRAFFIC),
    Rule(
        "data.closed-for-nobody",
        "Admission is not closed while no id holds the fence.",
        "9 #7, 9 #10, F16",
        known=gym_a("closed-for-nobody", "admission stays closed after a prepare that failed (9 #7, 9 #10)"),
        needs=_TRAFFIC,
    ),
    Rule(
        "data.fenced",
        "A fenced attempt is refused with stale_attempt, also while admission is closed.",
        "2.6, 2.14, 2.19, 2.20",
        needs=_TRAFFIC,
    ),
    Rule(
        "data.drained",
        "Work that was admitted before the pause runs to its end.",
        "2.20, 5.1",
        roles=_POLICY,
        needs=_TRAFFIC,
    ),
    Rule(
        "data.half-named",
        "A call with a rollout id and no attempt index is refused with execution_identity_mismatch.",
        "0.3, 2.20",
        needs=_TRAFFIC,
    ),
    Rule(
        "data.retry-after",
        "A policy's checkpoint_parked comes with retry-after.",
        "2.20",
        _WARNING,
        _POLICY,
        needs=_TRAFFIC,
    ),
    Rule(
        "data.auxiliary",
        "An auxiliary model serves, whatever it is asked on its control routes.",
        "1.1",
        roles=frozenset({Role.AUXILIARY}),
        needs=_TRAFFIC,
    ),
)

_EXPORTS: Final = (
    Rule(
        "export.verifies",
        "What a commit reports lies in its directory, with these digests, sizes and counts.",
        "6.1 to 6.6",
        needs=frozenset({Need.DIRECTORY}),
    ),
    Rule(
        "export.source",
        "A restore names the save that it loaded, and installs what its index says.",
        "2.8, 2.12, 2.19, 9 #14",
        needs=frozenset({Need.DIRECTORY, Need.RESTORE}),
    ),
)

_LEASES: Final = (
    Rule(
        "lease.renew",
        "A renewal under the id that holds it says until when it is held, any other is refused; it moves nothing.",
        "docs/leases.md",
        needs=frozenset({Need.LEASE}),
    ),
)

WIRE_RULES: Final[tuple[Rule, ...]] = (
    *_CAPABILITIES,
    *_BEARER,
    *_REQUESTS,
    *_REPLIES,
    *_TRUTH,
    *_AGENTS,
    *_DATA_PLANE,
    *_EXPORTS,
    *_LEASES,
)
"""In the order in which the documents list them."""
