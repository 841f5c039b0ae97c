"""Calls of generation A: every verb to every role, what is refused before it leaves, and the probes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest
from pydantic import ValidationError
from support.recordings import Json

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Outcome, Phase, Role, Verb
from quiesce.participants.dialects.base import CallSpec, WireCall
from quiesce.participants.dialects.gym_a import PREFIX, ROUTES, GymA, routes_served_by, wire
from quiesce.participants.dialects.gym_a.routes import ROUTE_BY_NAME
from quiesce.participants.errors import ConfigurationError, ControlRequestError, ProtocolViolation, UnsupportedVerb
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import ArtefactReference, CompletionReceipt, RenewReceipt

DIALECT = GymA()
DEADLINE = 1893456000.5
ENVELOPE = {"schema_version": 1, "checkpoint_id": "cut-0412", "deadline_ts": DEADLINE}
RECEIPT = CompletionReceipt("job7.r1", 0, 1, "resp-88", "1d" * 32)
RECEIPT_BODY = {
    "rollout_id": "job7.r1",
    "attempt_index": 0,
    "execution_generation": 1,
    "result_identity": "resp-88",
    "result_digest": "1d" * 32,
}
INDEX = ArtefactReference("agent/x/continuations.jsonl", "ab" * 32, 1, 127)
INDEX_BODY = {
    "schema_version": 1,
    "relative_path": "agent/x/continuations.jsonl",
    "sha256": "ab" * 32,
    "records": 1,
    "bytes": 127,
}
ATTEMPT = {"rollout_id": "job7.r9", "attempt_index": 1}
DIRECTORY = {"checkpoint_dir": "/ckpt"}

# wire-protocol 2, written out: verb and role to method, path below the prefix and body
EXPECTED: dict[tuple[Verb, Role], tuple[str, str, Json]] = {
    (Verb.CLOSE, Role.POLICY): ("POST", "/model-admission/pause", ENVELOPE),
    (Verb.AWAIT_CUT, Role.POLICY): ("GET", "/model-admission/status", None),
    (Verb.RELEASE, Role.POLICY): ("POST", "/model-admission/resume", ENVELOPE),
    (Verb.RETIRE, Role.POLICY): ("POST", "/model-admission/abort_inflight", ENVELOPE | ATTEMPT),
    (Verb.EXPORT, Role.POLICY): (
        "POST",
        "/model-checkpoint/commit",
        ENVELOPE | DIRECTORY | {"continuation_indexes": [INDEX_BODY]},
    ),
    (Verb.IMPORT, Role.POLICY): ("POST", "/model-checkpoint/restore", ENVELOPE | DIRECTORY),
    (Verb.CLOSE, Role.AGENT): ("POST", "/agent-checkpoint/prepare", ENVELOPE),
    (Verb.AWAIT_CUT, Role.AGENT): ("POST", "/agent-checkpoint/prepare", ENVELOPE),
    (Verb.RELEASE, Role.AGENT): ("POST", "/agent-checkpoint/resume", ENVELOPE),
    (Verb.RETIRE, Role.AGENT): ("POST", "/agent-checkpoint/retire", ENVELOPE | ATTEMPT),
    (Verb.EXPORT, Role.AGENT): ("POST", "/agent-checkpoint/commit", ENVELOPE | DIRECTORY),
    (Verb.IMPORT, Role.AGENT): ("POST", "/agent-checkpoint/restore", ENVELOPE | DIRECTORY),
    (Verb.ACKNOWLEDGE, Role.AGENT): (
        "POST",
        "/agent-checkpoint/acknowledge-completed",
        {"schema_version": 1, "executions": [RECEIPT_BODY]},
    ),
    (Verb.DISCARD, Role.AGENT): ("POST", "/agent-checkpoint/discard-restored-continuation", ENVELOPE | ATTEMPT),
    (Verb.CLOSE, Role.RESOURCES): ("POST", "/resources-checkpoint/prepare", ENVELOPE),
    (Verb.AWAIT_CUT, Role.RESOURCES): ("POST", "/resources-checkpoint/prepare", ENVELOPE),
    (Verb.RELEASE, Role.RESOURCES): ("POST", "/resources-checkpoint/resume", ENVELOPE),
    (Verb.RETIRE, Role.RESOURCES): ("POST", "/resources-checkpoint/retire", ENVELOPE | ATTEMPT),
    (Verb.EXPORT, Role.RESOURCES): ("POST", "/resources-checkpoint/commit", ENVELOPE | DIRECTORY),
    (Verb.IMPORT, Role.RESOURCES): ("POST", "/resources-checkpoint/restore", ENVELOPE | DIRECTORY),
} | {(Verb.INSPECT, role): ("GET", "/capabilities", None) for role in Role}
# our extension (docs/leases.md)
EXPECTED |= {(Verb.RENEW, role): ("POST", "/lease/renew", ENVELOPE) for role in Role if role is not Role.AUXILIARY}


def full(verb: Verb, role: Role, **fields: Json) -> CallSpec:
    """A spec that has everything that any verb needs."""
    made = CallSpec(
        verb,
        role,
        checkpoint_id="cut-0412",
        deadline_ts=DEADLINE,
        checkpoint_dir="/ckpt",
        continuation_indexes=(INDEX,),
        receipts=(RECEIPT,),
        attempt=AttemptId("job7.r9", 1),
        participant_name="it",
    )
    return replace(made, **fields)


@pytest.mark.parametrize(("verb", "role"), list(product(Verb, Role)), ids=str)
def test_every_verb_to_every_role(verb: Verb, role: Role) -> None:
    """Each pair has exactly the call of the wire document, or is refused as not part of generation A."""
    expected = EXPECTED.get((verb, role))
    if expected is None:
        with pytest.raises(UnsupportedVerb, match=f"gym_a has no '{verb.value}' for role '{role.value}'"):
            DIALECT.call(full(verb, role))
        return
    call = DIALECT.call(full(verb, role))
    assert (call.method, call.path, call.json) == (expected[0], PREFIX + expected[1], expected[2])
    assert call.authorized is (verb is not Verb.INSPECT)
    assert json.loads(json.dumps(call.json)) == call.json


def test_a_policy_is_awaited_with_a_long_poll_that_is_bounded() -> None:
    """With a wait the query asks for ``paused`` for so many seconds; without one it asks for the moment."""
    query = {"checkpoint_id": "cut-0412", "deadline_ts": "1893456000.5"}
    assert DIALECT.call(full(Verb.AWAIT_CUT, Role.POLICY)).query == query
    waiting = DIALECT.call(full(Verb.AWAIT_CUT, Role.POLICY, wait_s=4.5))
    assert waiting.query == query | {"wait_state": "paused", "timeout_s": "4.5"}


def test_one_result_can_be_acknowledged_by_the_older_route() -> None:
    """Its body is the bare receipt; it takes exactly one."""
    call = DIALECT.call(full(Verb.ACKNOWLEDGE, Role.AGENT, acknowledge_singly=True))
    assert (call.path, call.json) == (f"{PREFIX}/agent-checkpoint/acknowledge", RECEIPT_BODY)
    with pytest.raises(ConfigurationError, match="one receipt a call, not 2"):
        DIALECT.call(full(Verb.ACKNOWLEDGE, Role.AGENT, acknowledge_singly=True, receipts=(RECEIPT, RECEIPT)))


BAD_SPECS: list[tuple[Verb, Role, dict[str, Json]]] = [
    (Verb.CLOSE, Role.POLICY, {"checkpoint_id": "../x"}),
    (Verb.CLOSE, Role.POLICY, {"checkpoint_id": "a\n"}),
    (Verb.CLOSE, Role.POLICY, {"checkpoint_id": ""}),
    (Verb.CLOSE, Role.POLICY, {"checkpoint_id": "a" * 129}),
    (Verb.CLOSE, Role.POLICY, {"deadline_ts": float("nan")}),
    (Verb.AWAIT_CUT, Role.POLICY, {"deadline_ts": float("inf")}),
    (Verb.AWAIT_CUT, Role.POLICY, {"checkpoint_id": "../x"}),
    (Verb.EXPORT, Role.POLICY, {"checkpoint_dir": None}),
    (Verb.EXPORT, Role.POLICY, {"participant_name": "../x"}),
    (Verb.IMPORT, Role.AGENT, {"checkpoint_dir": ""}),
    (Verb.RETIRE, Role.AGENT, {"attempt": None}),
    (Verb.RETIRE, Role.AGENT, {"attempt": AttemptId("../x", 0)}),
    (Verb.RETIRE, Role.AGENT, {"attempt": AttemptId("r", -1)}),
    (Verb.ACKNOWLEDGE, Role.AGENT, {"receipts": ()}),
    (Verb.ACKNOWLEDGE, Role.AGENT, {"receipts": (RECEIPT, RECEIPT)}),
    (Verb.ACKNOWLEDGE, Role.AGENT, {"receipts": (replace(RECEIPT, result_identity="x" * 513),)}),
]


@pytest.mark.parametrize(("verb", "role", "fields"), BAD_SPECS)
def test_a_call_that_a_server_would_refuse_is_not_made(verb: Verb, role: Role, fields: dict[str, Json]) -> None:
    """What may not go on the wire is refused here, with a typed error, before anything is sent."""
    with pytest.raises(QuiesceError):
        DIALECT.call(full(verb, role, **fields))


def test_reading_progress_asks_nothing_of_anybody() -> None:
    """Each role that takes part has a status; an auxiliary model has none to ask for."""
    agent = DIALECT.progress_call(full(Verb.CLOSE, Role.AGENT))
    assert (agent.method, agent.path) == ("GET", f"{PREFIX}/agent-checkpoint/status")
    assert agent.query == {"checkpoint_id": "cut-0412"}
    tools = DIALECT.progress_call(full(Verb.CLOSE, Role.RESOURCES))
    assert tools.query == {"checkpoint_id": "cut-0412", "deadline_ts": "1893456000.5"}
    policy = DIALECT.progress_call(full(Verb.CLOSE, Role.POLICY, wait_s=5))
    assert "wait_state" not in (policy.query or {})
    with pytest.raises(UnsupportedVerb):
        DIALECT.progress_call(full(Verb.CLOSE, Role.AUXILIARY))


def test_probes_cover_the_routes_of_the_phases_and_have_no_effect() -> None:
    """Posts are empty objects and gets lack their query, so a server refuses them whatever its state (F23)."""
    for role in (Role.POLICY, Role.AGENT, Role.RESOURCES):
        probes = DIALECT.probes(role, (Phase.PREPARE, Phase.COMMIT, Phase.RESUME))
        verbs = (Verb.CLOSE, Verb.AWAIT_CUT, Verb.RELEASE, Verb.EXPORT)
        assert {(probe.method, probe.path) for probe in probes} == {
            (EXPECTED[(verb, role)][0], PREFIX + EXPECTED[(verb, role)][1]) for verb in verbs
        }
        assert all(probe.json == ({} if probe.method == "POST" else None) for probe in probes)
        assert all(probe.query is None for probe in probes)
        for probe in probes:
            _refused_by_validation(probe)
    restore = DIALECT.probes(Role.POLICY, (Phase.RESTORE,))
    assert [probe.path.removeprefix(PREFIX) for probe in restore] == [
        "/model-checkpoint/restore",
        "/model-admission/resume",
    ]
    assert DIALECT.probes(Role.AUXILIARY, tuple(Phase)) == ()


def _refused_by_validation(probe: WireCall) -> None:
    route = next(route for route in ROUTES if (route.method, route.path) == (probe.method, probe.path))
    model = route.request or route.query
    assert model is not None
    with pytest.raises(ValidationError):
        model.model_validate(probe.json or {})


def test_a_probe_tells_a_route_that_is_there_from_one_that_is_not() -> None:
    """422 is there; 404 names the route and that nobody was paused; 401 names the token; anything else is odd."""
    probe = DIALECT.probes(Role.POLICY, (Phase.COMMIT,))[0]

    def answer(status: int) -> QuiesceError | None:
        return DIALECT.read_probe(probe, status, {}, b'{"detail":"x"}', participant="main/policy")

    assert answer(422) is None
    missing = answer(404)
    assert isinstance(missing, ControlRequestError)
    assert "model-checkpoint/commit" in str(missing)
    assert "nobody was paused" in str(missing)
    assert "token" in str(answer(401))
    assert isinstance(answer(200), ProtocolViolation)
    assert isinstance(answer(500), ProtocolViolation)


def test_the_route_table_is_whole_and_unambiguous() -> None:
    """Names and (method, path) are unique; every role serves capabilities; auxiliary models have the model routes."""
    assert len(ROUTE_BY_NAME) == len(ROUTES) == len({(route.method, route.path) for route in ROUTES})
    assert all(route.path.startswith(PREFIX) for route in ROUTES)
    for role in Role:
        assert ROUTE_BY_NAME["capabilities"] in routes_served_by(role)
    assert routes_served_by(Role.AUXILIARY) == routes_served_by(Role.POLICY)
    assert all((route.request is None) == (route.method == "GET") for route in ROUTES)


REQUESTS: list[tuple[type[wire.Request], Json]] = [
    (wire.ControlEnvelope, {}),
    (wire.CommitRequest, DIRECTORY),
    (wire.RestoreRequest, DIRECTORY),
    (wire.ModelCommitRequest, DIRECTORY | {"continuation_indexes": []}),
    (wire.RetireRequest, ATTEMPT),
]
BAD_FIELDS: list[tuple[str, Json]] = [
    ("extra_field", 1),
    ("include_continuation_index", True),
    ("schema_version", 2),
    ("schema_version", True),
    ("schema_version", "1"),
    ("schema_version", 1.0),
    ("checkpoint_id", "a\n"),
    ("checkpoint_id", 7),
    ("checkpoint_id", None),
    ("deadline_ts", "soon"),
    ("deadline_ts", True),
    ("deadline_ts", None),
    ("deadline_ts", float("nan")),
    ("deadline_ts", "inf"),
    ("deadline_ts", 10**400),
]


@pytest.mark.parametrize(("model", "extra"), REQUESTS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize(("field", "value"), BAD_FIELDS, ids=ascii)
def test_requests_are_strict(model: type[wire.Request], extra: Json, field: str, value: Json) -> None:
    """Unknown fields and wrong values are refused in every body that is built on the envelope."""
    good = {"checkpoint_id": "cut-0412", "deadline_ts": DEADLINE} | extra
    assert model.model_validate(good).model_dump()["schema_version"] == 1
    with pytest.raises(ValidationError):
        model.model_validate(good | {field: value})


@pytest.mark.parametrize(
    "change",
    [{"attempt_index": True}, {"attempt_index": "1"}, {"attempt_index": -1}, {"rollout_id": ""}, {"rollout_id": "a/b"}],
    ids=ascii,
)
def test_attempts_in_requests_are_strict(change: Json) -> None:
    """Booleans and text are no attempt, and a rollout id matches the identity pattern."""
    good = {"checkpoint_id": "cut-0412", "deadline_ts": DEADLINE} | ATTEMPT
    with pytest.raises(ValidationError):
        wire.RetireRequest.model_validate(good | change)


def test_a_deadline_may_be_text_that_spells_a_number() -> None:
    """The recorded servers take it, in bodies as well as in queries."""
    assert wire.ControlEnvelope.model_validate({"checkpoint_id": "a", "deadline_ts": "4000000000"}).deadline_ts == 4e9
    query = {"checkpoint_id": "a", "deadline_ts": "1.5", "timeout_s": "10", "other": "x"}
    assert wire.StatusQuery.model_validate(query).timeout_s == 10
    for change in ({"wait_state": "draining"}, {"timeout_s": "-1"}, {"timeout_s": "nan"}):
        with pytest.raises(ValidationError):
            wire.StatusQuery.model_validate(query | change)


def test_a_renewal_says_when_the_lease_expires() -> None:
    """For our id, with an instant or null; anything else is no renewal."""
    spec = full(Verb.RENEW, Role.AGENT)
    for text, expires_at in (("12.5", 12.5), ("null", None)):
        reply = f'{{"checkpoint_id": "cut-0412", "lease_expires_at": {text}}}'.encode()
        reading = DIALECT.read(spec, 200, {}, reply)
        assert (reading.outcome, reading.payload) == (Outcome.RENEWED, RenewReceipt(expires_at))
    for body in (b'{"checkpoint_id": "other", "lease_expires_at": 1.0}', b'{"checkpoint_id": "cut-0412"}', b"{}"):
        assert DIALECT.read(spec, 200, {}, body).outcome is Outcome.LIED
