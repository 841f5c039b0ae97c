"""Replies that cannot be believed, and answers from something that is no participant: none is a success."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.declarations import contract
from support.recorded_calls import is_progress, route_of, spec_of
from support.recordings import Exchange, Json, all_exchanges

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Outcome, Role, Verb
from quiesce.participants.capabilities import WorkerMode
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import INSTANCE_HEADER, GymA
from quiesce.participants.errors import ControlRequestError, ProtocolViolation
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import (
    ArtefactReference,
    CompletionReceipt,
    DrainProgress,
    ExportReceipt,
    Inspection,
    RetireReceipt,
)

DIALECT = GymA()
JSON = {"content-type": "application/json"}
DIGEST = "ab" * 32
SUCCESSES = {
    Outcome.OPEN,
    Outcome.DRAINING,
    Outcome.PAUSED,
    Outcome.EXPORTED,
    Outcome.IMPORTED,
    Outcome.RELEASED,
    Outcome.ACKNOWLEDGED,
    Outcome.RETIRED,
    Outcome.DISCARDED,
}
ANSWERED = [exchange for exchange in all_exchanges() if exchange.status == 200]
RECEIPT = CompletionReceipt("job7.r1", 0, 1, "resp-88", DIGEST)
ATTEMPT = AttemptId("job7.r3", 0)


def spec(verb: Verb, role: Role, **fields: Json) -> CallSpec:
    """A spec of transaction ``cut-1`` with one participant of each kind."""
    names = {Role.POLICY: "policy_model", Role.AGENT: "solver_agent", Role.RESOURCES: "tools"}
    made = CallSpec(verb, role, checkpoint_id="cut-1", participant_name=names.get(role, "judge"), participant="main/it")
    return replace(made, **fields)


def read(asked: CallSpec, reply: Json, status: int = 200, **headers: str) -> Reading:
    """The reading of a JSON reply."""
    named = JSON | {key.replace("_", "-"): value for key, value in headers.items()}
    return DIALECT.read(asked, status, named, json.dumps(reply).encode())


PAUSE = {"state": "paused", "workers": {"acknowledged": 1, "expected": 1}, "inflight_total": 0, "waiters_total": 0}
CLOSE = spec(Verb.CLOSE, Role.POLICY)
AWAIT = spec(Verb.AWAIT_CUT, Role.POLICY)
STATUS = {
    "checkpoint_id": "cut-1",
    "state": "paused",
    "per_worker": {"0": {"state": "paused", "inflight": 0}},
    "inflight_total": 0,
    "waiters_total": 0,
    "inflight": [],
    "tombstones": [],
}
WORKERS = {
    "state": "paused",
    "workers": {"acknowledged": 2, "expected": 2, "live": 2},
    "missing_workers": 0,
    "inflight_total": 0,
    "waiters_total": 0,
    "per_worker": {"a": {"acked_seq": 1, "inflight": 0, "connected": True}},
}
TWO = contract(Role.POLICY, "policy_model", worker_mode=WorkerMode.COORDINATOR, num_workers=2)
FOUR = contract(Role.POLICY, "policy_model", worker_mode=WorkerMode.COORDINATOR, num_workers=4)
AWAIT_TWO = replace(AWAIT, coordinator=True, expected=TWO)
READY = {
    "state": "preparing",
    "ready_to_commit": True,
    "running": 0,
    "parked": 0,
    "parked_with_boundary": 0,
    "parked_without_boundary": 0,
    "completed_unacknowledged": 0,
    "active": 0,
    "blocking_attempts": [],
    "completed_unacknowledged_attempts": [],
    "executions": [],
}
PREPARE = spec(Verb.CLOSE, Role.AGENT)
FREEZE = spec(Verb.CLOSE, Role.RESOURCES)
INDEX = {
    "schema_version": 1,
    "relative_path": "model-ledger/policy_model/storage-references.jsonl",
    "sha256": DIGEST,
    "records": 2,
    "bytes": 278,
}
COMMIT = {
    "rollouts": 1,
    "rows": 2,
    "excluded_tombstoned": 0,
    "manifest_digest": DIGEST,
    "storage_reference_index": INDEX,
}
EXPORT = spec(Verb.EXPORT, Role.POLICY, checkpoint_dir="/c")
LOADED = {"rollouts": 1, "rows": 2, "checkpoint_id": "save-1", "storage_reference_index": INDEX}
SAVED = ExportReceipt(
    "model-ledger/policy_model/manifest.json",
    DIGEST,
    ArtefactReference(INDEX["relative_path"], DIGEST, 2, 278),  # type: ignore[arg-type]  # it is text
    {"rollouts": 1, "rows": 2, "excluded_inactive": 5},
)
IMPORT = spec(Verb.IMPORT, Role.POLICY, checkpoint_dir="/c", source_checkpoint_id="save-1", saved=SAVED)
AGENT_INDEX = "agent/instance-ba497424a9d475f080ac1c4be7025753381ec832778b55f5b125f1fc60acb9e0/continuations.jsonl"
AGENT_COMMIT = {"records": 1, "manifest_digest": DIGEST, "continuation_index": INDEX | {"relative_path": AGENT_INDEX}}
AGENT_EXPORT = spec(Verb.EXPORT, Role.AGENT, checkpoint_dir="/c")
RELEASE = spec(Verb.RELEASE, Role.RESOURCES)
ACKNOWLEDGE = spec(Verb.ACKNOWLEDGE, Role.AGENT, receipts=(RECEIPT,))
RECEIPT_REPLY = {
    "rollout_id": "job7.r1",
    "attempt_index": 0,
    "execution_generation": 1,
    "result_identity": "resp-88",
    "result_digest": DIGEST,
}
RETIRE = spec(Verb.RETIRE, Role.RESOURCES, attempt=ATTEMPT)
RETIRE_AGENT = spec(Verb.RETIRE, Role.AGENT, attempt=ATTEMPT)

BELIEVED: list[tuple[str, CallSpec, Json, Outcome]] = [
    ("paused", CLOSE, PAUSE, Outcome.PAUSED),
    ("draining", CLOSE, PAUSE | {"state": "draining", "inflight_total": 3}, Outcome.DRAINING),
    ("paused with calls in flight", CLOSE, PAUSE | {"inflight_total": 1}, Outcome.DRAINING),
    ("paused with pending generations", CLOSE, PAUSE | {"generation_pending_total": 1}, Outcome.DRAINING),
    ("paused without worker counts", CLOSE, {"state": "paused", "inflight_total": 0}, Outcome.PAUSED),
    (
        "paused without worker counts of two",
        replace(CLOSE, coordinator=True, expected=TWO),
        {"state": "paused", "inflight_total": 0},
        Outcome.DRAINING,
    ),
    (
        "two of four acknowledged",
        replace(CLOSE, coordinator=True, expected=FOUR),
        PAUSE | {"workers": {"acknowledged": 2, "expected": 2}},
        Outcome.DRAINING,
    ),
    ("status paused", AWAIT, STATUS, Outcome.PAUSED),
    (
        "status paused, but a worker still serves",
        AWAIT,
        STATUS | {"per_worker": {"0": {"state": "paused", "inflight": 1}}},
        Outcome.DRAINING,
    ),
    ("status paused without a worker", AWAIT, STATUS | {"per_worker": {}}, Outcome.DRAINING),
    ("both workers paused", AWAIT_TWO, WORKERS, Outcome.PAUSED),
    ("a worker missing", AWAIT_TWO, WORKERS | {"missing_workers": 1}, Outcome.DRAINING),
    ("worker counts missing", AWAIT_TWO, {k: v for k, v in WORKERS.items() if k != "workers"}, Outcome.DRAINING),
    (
        "all acknowledged, two configured",
        AWAIT_TWO,
        WORKERS | {"workers": {"acknowledged": 1, "expected": 1, "live": 1}},
        Outcome.DRAINING,
    ),
    ("agent ready", PREPARE, READY, Outcome.PAUSED),
    ("sessions frozen", FREEZE, {"sessions": 2, "state": "prepared"}, Outcome.PAUSED),
    ("unknown fields", FREEZE, {"sessions": 2, "state": "prepared", "new": [1]}, Outcome.PAUSED),
    ("exported", EXPORT, COMMIT, Outcome.EXPORTED),
    ("exported by an agent", AGENT_EXPORT, AGENT_COMMIT | {"records": 2}, Outcome.EXPORTED),
    ("imported", IMPORT, LOADED, Outcome.IMPORTED),
    (
        "imported without a comparison",
        replace(IMPORT, source_checkpoint_id=None, saved=None),
        LOADED | {"checkpoint_id": None},
        Outcome.IMPORTED,
    ),
    ("released", RELEASE, {"state": "accepting"}, Outcome.RELEASED),
    ("acknowledged", ACKNOWLEDGE, {"acknowledged": [RECEIPT_REPLY]}, Outcome.ACKNOWLEDGED),
    (
        "acknowledged with new fields",
        ACKNOWLEDGE,
        {"acknowledged": [RECEIPT_REPLY | {"manifest_capture_key": None}]},
        Outcome.ACKNOWLEDGED,
    ),
    ("session retired", RETIRE, {"retired": True, "rollout_id": "job7.r3", "attempt_index": 0}, Outcome.RETIRED),
    ("retired", RETIRE_AGENT, {"retired": True, "tombstoned": True}, Outcome.RETIRED),
    ("discarded", spec(Verb.DISCARD, Role.AGENT, attempt=ATTEMPT), {"discarded": False}, Outcome.DISCARDED),
]


@pytest.mark.parametrize(("asked", "reply", "outcome"), [row[1:] for row in BELIEVED], ids=[row[0] for row in BELIEVED])
def test_what_is_believed(asked: CallSpec, reply: Json, outcome: Outcome) -> None:
    """Well-formed replies give exactly this outcome, with a payload and without an error."""
    reading = read(asked, reply)
    assert (reading.outcome, reading.error) == (outcome, None)
    assert reading.payload is not None


LIES: list[tuple[str, CallSpec, Json, str]] = [
    ("admission open after a pause", CLOSE, PAUSE | {"state": "accepting"}, "admission is open"),
    ("admission open while closed", AWAIT, STATUS | {"state": "accepting"}, "admission is open"),
    ("more acknowledged than expected", CLOSE, PAUSE | {"workers": {"acknowledged": 2, "expected": 1}}, "2 workers"),
    ("another id", AWAIT, STATUS | {"checkpoint_id": "cut-2"}, "'cut-1', but is 'cut-2'"),
    ("a state that is none", CLOSE, PAUSE | {"state": "sleeping"}, "state"),
    ("a count as text", CLOSE, PAUSE | {"inflight_total": "0"}, "inflight_total"),
    ("a count as truth", CLOSE, PAUSE | {"inflight_total": False}, "inflight_total"),
    ("a count with a fraction", CLOSE, PAUSE | {"inflight_total": 0.0}, "inflight_total"),
    ("a negative count", CLOSE, PAUSE | {"inflight_total": -1}, "inflight_total"),
    ("a missing field", CLOSE, {"state": "paused"}, "inflight_total"),
    ("a wrong type inside", CLOSE, PAUSE | {"workers": {"acknowledged": "1", "expected": 1}}, "workers.acknowledged"),
    ("200 that is not ready", PREPARE, READY | {"ready_to_commit": False}, "without ready_to_commit"),
    ("ready while running", PREPARE, READY | {"running": 1}, "1 executions running"),
    ("ready with results", PREPARE, READY | {"completed_unacknowledged": 2}, "2 finished results"),
    ("ready without boundaries", PREPARE, READY | {"parked": 1, "parked_without_boundary": 1}, "without a boundary"),
    ("ready and open", PREPARE, READY | {"state": "accepting"}, "admission is open"),
    ("parked that do not add up", PREPARE, READY | {"parked": 2}, "parked should be 0, but is 2"),
    ("sessions not prepared", FREEZE, {"sessions": 2, "state": "preparing"}, "state"),
    ("an inventory of another length", FREEZE, {"sessions": 2, "state": "prepared", "inventory": []}, "inventory"),
    ("a digest of 63 characters", EXPORT, COMMIT | {"manifest_digest": "a" * 63}, "manifest_digest"),
    ("no index", EXPORT, {k: v for k, v in COMMIT.items() if k != "storage_reference_index"}, "storage_reference"),
    (
        "an index elsewhere",
        EXPORT,
        COMMIT | {"storage_reference_index": INDEX | {"relative_path": "../../etc/passwd"}},
        "the path of the index",
    ),
    ("more rows than records", AGENT_EXPORT, AGENT_COMMIT, "2 rows for 1 records"),
    ("another save", IMPORT, LOADED | {"checkpoint_id": "save-2"}, "'save-1', but is 'save-2'"),
    ("no save", IMPORT, LOADED | {"checkpoint_id": None}, "'save-1', but is None"),
    (
        "another index than saved",
        IMPORT,
        LOADED | {"storage_reference_index": INDEX | {"bytes": 279}},
        "the restored index",
    ),
    ("fewer rows than saved", IMPORT, LOADED | {"rows": 1}, "restored number of rows should be 2, but is 1"),
    ("not released", RELEASE, {"state": "paused"}, "state"),
    ("policy not released", spec(Verb.RELEASE, Role.POLICY), {"state": "draining"}, "'accepting', but is 'draining'"),
    ("nothing acknowledged", ACKNOWLEDGE, {"acknowledged": []}, "1 are missing"),
    (
        "another acknowledged",
        ACKNOWLEDGE,
        {"acknowledged": [RECEIPT_REPLY | {"result_identity": "resp-89"}]},
        "1 were not sent",
    ),
    ("acknowledged twice", ACKNOWLEDGE, {"acknowledged": [RECEIPT_REPLY] * 2}, "2 are echoed"),
    (
        "both new and repeated",
        replace(ACKNOWLEDGE, acknowledge_singly=True),
        {"acknowledged": True, "idempotent": True},
        "exactly one",
    ),
    ("another session", RETIRE, {"retired": True, "rollout_id": "job7.r3", "attempt_index": 1}, "retired attempt"),
    ("not retired", RETIRE, {"retired": False, "rollout_id": "job7.r3", "attempt_index": 0}, "retired"),
    ("neither fenced nor finished", RETIRE_AGENT, {"retired": False, "tombstoned": False}, "never neither"),
    (
        "retired, not fenced",
        RETIRE_AGENT,
        {"retired": True, "tombstoned": False, "completed_unacknowledged": True},
        "not fenced",
    ),
    ("a list", CLOSE, [PAUSE], "no object"),
    ("null", CLOSE, None, "no object"),
]


@pytest.mark.parametrize(("asked", "reply", "reason"), [row[1:] for row in LIES], ids=[row[0] for row in LIES])
def test_each_lie_is_named(asked: CallSpec, reply: Json, reason: str) -> None:
    """The outcome is LIED; the error names the participant, the call, and what was expected and found."""
    reading = read(asked, reply)
    assert reading.outcome is Outcome.LIED
    assert isinstance(reading.error, ProtocolViolation)
    assert reason in reading.error.reason
    assert "main/it" in str(reading.error)
    assert "/ng-control/v1/" in reading.error.call
    assert reading.error.status == 200


ODD_BODIES: list[tuple[str, int, dict[str, str], bytes, Outcome]] = [
    ("HTML with 200", 200, {"content-type": "text/html"}, b"<html>\x1b[31m\x00hello</html>", Outcome.LIED),
    ("empty with 200", 200, {}, b"", Outcome.LIED),
    ("blank with 200", 200, JSON, b" \n", Outcome.LIED),
    ("204", 204, {}, b"", Outcome.LIED),
    ("201", 201, JSON, json.dumps(PAUSE).encode(), Outcome.LIED),
    ("100", 100, {}, b"", Outcome.LIED),
    ("truncated", 200, JSON, json.dumps(PAUSE).encode()[:-9], Outcome.LIED),
    ("a key twice", 200, JSON, b'{"state":"draining","state":"paused","inflight_total":0}', Outcome.LIED),
    ("not a number", 200, JSON, b'{"state":"paused","inflight_total":NaN}', Outcome.LIED),
    ("another encoding", 200, JSON, json.dumps(PAUSE).encode("utf-16"), Outcome.LIED),
    ("no text at all", 200, JSON, b"\xff\xfe\xfd", Outcome.LIED),
    ("bottomless", 200, JSON, b"[" * 200_000, Outcome.LIED),
    ("bottomless object", 200, JSON, b'{"a":' * 200_000, Outcome.LIED),
    ("a number of 5,000 digits", 200, JSON, b'{"inflight_total":' + b"9" * 5_000 + b"}", Outcome.LIED),
    ("padded with NUL", 200, JSON, json.dumps(PAUSE).encode() + b"\0" * 9, Outcome.LIED),
    ("502 from a proxy", 502, {"content-type": "text/html"}, b"<h1>Bad gateway</h1>", Outcome.CRASHED),
    ("500 with a bare string", 500, JSON, b'"boom"', Outcome.CRASHED),
    ("500 empty", 500, {}, b"", Outcome.CRASHED),
    ("403", 403, JSON, b'{"detail":"no"}', Outcome.UNAUTHORIZED),
    ("405", 405, {}, b"", Outcome.ROUTE_MISSING),
    ("410", 410, {}, b"gone", Outcome.REFUSED),
    ("429", 429, {}, b"slow down", Outcome.REFUSED),
    ("409 without a code", 409, JSON, b"[1]", Outcome.REFUSED),
    ("409 with an odd code", 409, JSON, b'{"error":{"code":7}}', Outcome.REFUSED),
    ("409 with an unknown code", 409, JSON, b'{"error":{"code":"novel","message":"new"}}', Outcome.REFUSED),
    ("deadline", 409, JSON, b'{"error":{"code":"deadline_exceeded"}}', Outcome.DEADLINE_EXCEEDED),
    ("307", 307, {"location": "http://other:9/\x00x"}, b"", Outcome.REFUSED),
]


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome"), [row[1:] for row in ODD_BODIES], ids=[row[0] for row in ODD_BODIES]
)
def test_answers_from_something_else_are_typed(
    status: int, headers: dict[str, str], body: bytes, outcome: Outcome
) -> None:
    """Status, content type and a short clean excerpt are in the error; no JSON library's words reach the user."""
    reading = DIALECT.read(CLOSE, status, headers, body)
    assert reading.outcome is outcome
    assert isinstance(reading.error, ControlRequestError | ProtocolViolation)
    assert reading.error.status == status
    text = str(reading.error)
    assert text.isprintable()
    assert len(text) < 900
    if isinstance(reading.error, ProtocolViolation):
        assert len(reading.error.excerpt) <= 200


def test_a_redirect_is_refused_and_says_where_it_leads() -> None:
    """The error names the status and the cleaned location; nothing follows it (field cases F-28)."""
    reading = DIALECT.read(CLOSE, 307, {"location": "http://other:9/\x00x"}, b"")
    assert "307" in str(reading.error)
    assert "http://other:9/ x" in str(reading.error)
    assert "not followed" in str(reading.error)


def test_refusals_say_what_to_do() -> None:
    """A missing token and a missing route are configuration errors, and the error says which."""
    assert "token" in str(read(CLOSE, {"detail": "no"}, 401).error)
    assert "route" in str(read(CLOSE, {"detail": "Not Found"}, 404).error)


def test_a_resource_server_that_owes_a_restore_is_told_apart_only_on_release() -> None:
    """The same code from another call is an ordinary refusal."""
    refused = {"error": {"code": "resources_checkpoint_error", "detail": "x"}}
    assert read(RELEASE, refused, 409).outcome is Outcome.OWES_RESTORE
    assert read(FREEZE, refused, 409).outcome is Outcome.REFUSED


@given(st.sampled_from(ANSWERED), st.integers(100, 599), st.binary(max_size=300), st.booleans())
def test_arbitrary_bytes_raise_nothing_and_are_no_success(
    exchange: Exchange,
    status: int,
    body: bytes,
    progress: bool,  # noqa: FBT001 - drawn
) -> None:
    """Whatever comes back, for every call, is an outcome with a typed error."""
    asked = spec_of(exchange)
    read_it = DIALECT.read_progress if progress and asked.role is not Role.AUXILIARY else DIALECT.read
    reading = read_it(asked, status, {}, body)
    assert reading.outcome not in SUCCESSES
    assert isinstance(reading.error, QuiesceError)


@given(st.data())
def test_a_recorded_reply_with_one_value_exchanged_raises_nothing(data: st.DataObject) -> None:
    """A reply that is right but for one value, anywhere in it, is read or refused, and nothing is raised."""
    exchange = data.draw(st.sampled_from(ANSWERED))
    reply = copy.deepcopy(exchange.reply)
    path = data.draw(st.sampled_from(list(_paths(reply))))
    odd: st.SearchStrategy[object] = (
        st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
    )
    _exchange_at(reply, path, data.draw(odd))
    read_it = DIALECT.read_progress if is_progress(exchange) else DIALECT.read
    reading = read_it(spec_of(exchange), 200, JSON, json.dumps(reply).encode())
    assert isinstance(reading, Reading)
    assert (reading.error is None) or isinstance(reading.error, QuiesceError)


def _paths(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in items for place in [(*path, key), *_paths(item, (*path, key))]]


def _exchange_at(value: Json, path: tuple[str | int, ...], odd: object) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = odd


def _reply_to(name: str) -> Exchange:
    return next(exchange for exchange in ANSWERED if route_of(exchange).name == name)


@pytest.mark.parametrize(
    "name",
    ["pause", "model_status", "agent_prepare", "resources_prepare", "agent_commit", "model_restore", "model_resume"],
)
def test_another_incarnation_is_not_believed(name: str) -> None:
    """A reply from another instance than the one that was asked before names both (field cases F-07, F-08)."""
    exchange = _reply_to(name)
    asked = replace(spec_of(exchange), expected_instance="first")
    same = DIALECT.read(asked, 200, {INSTANCE_HEADER: "first"}, exchange.body)
    assert same.error is None
    for headers in ({INSTANCE_HEADER: "second"}, {}):
        other = DIALECT.read(asked, 200, headers, exchange.body)
        assert other.outcome is Outcome.LIED
        assert "'first'" in str(other.error)
        assert ("'second'" if headers else "no instance") in str(other.error)


def test_a_refusal_by_another_incarnation_is_not_taken_for_its_own() -> None:
    """A restarted server refuses too; that it was restarted is what matters."""
    asked = replace(EXPORT, expected_instance="first")
    refused = json.dumps({"error": {"code": "invalid_phase", "detail": "idle"}}).encode()
    assert DIALECT.read(asked, 409, {INSTANCE_HEADER: "second"}, refused).outcome is Outcome.LIED
    assert DIALECT.read(asked, 409, {INSTANCE_HEADER: "first"}, refused).outcome is Outcome.WRONG_PHASE
    assert DIALECT.read(asked, 502, {}, b"proxy").outcome is Outcome.CRASHED


def test_an_incarnation_is_ignored_where_nobody_expects_one() -> None:
    """A rollback releases whoever is there."""
    assert DIALECT.read(RELEASE, 200, {INSTANCE_HEADER: "any"}, b'{"state":"accepting"}').outcome is Outcome.RELEASED


CAPABILITIES = {
    "component": "responses_api_models",
    "name": "policy_model",
    "schema_version": 1,
    "admission_states": ["paused", "accepting", "draining", "accepting"],
    "checkpoint_mode": "export_restore",
    "concurrency_contract": "stateless",
    "multi_process": {"mode": "single_worker", "num_workers": 1},
    "instance_role": "policy",
    "features": ["z", "external_storage_reference_index_v1"],
    "phase": "idle",
    "active_checkpoint_id": None,
    "deadline_ts": None,
}
INSPECT = spec(Verb.INSPECT, Role.POLICY, expected=contract(Role.POLICY, "policy_model"))

FENCES = [
    ("idle", None, Outcome.OPEN),
    ("idle", "cut-1", Outcome.HELD_BUSY),
    ("preparing", "cut-1", Outcome.HELD_PREPARING),
    ("prepared", "cut-1", Outcome.HELD_PREPARED),
    ("committing", "cut-1", Outcome.HELD_BUSY),
    ("committed_paused", "cut-1", Outcome.HELD_COMMITTED),
    ("restoring", "cut-1", Outcome.HELD_BUSY),
    ("restored_paused", "cut-1", Outcome.HELD_RESTORED),
    ("restore_failed_paused", "cut-1", Outcome.HELD_RESTORE_FAILED),
    ("preparing", None, Outcome.ORPHAN_FENCE),
    ("prepared", None, Outcome.ORPHAN_FENCE),
    ("prepared", "cut-2", Outcome.HELD_BY_OTHER),
    ("idle", "cut-2", Outcome.HELD_BY_OTHER),
]


@pytest.mark.parametrize(("phase", "active", "outcome"), FENCES)
def test_where_a_fence_stands_for_us(phase: str, active: str | None, outcome: Outcome) -> None:
    """Phase and active id together say who holds the participant."""
    reading = read(INSPECT, CAPABILITIES | {"phase": phase, "active_checkpoint_id": active}, x_quiesce_instance="i-1")
    assert (reading.outcome, reading.error) == (outcome, None)
    assert isinstance(reading.payload, Inspection)
    assert reading.payload.instance == "i-1"
    assert reading.payload.capabilities.active_checkpoint_id == active


def test_live_fields_and_unknown_fields_are_no_part_of_the_declaration() -> None:
    """The declaration is sorted, free of duplicates, and the same whatever is live or new."""
    still = read(INSPECT, CAPABILITIES).payload
    moved = read(INSPECT, CAPABILITIES | {"phase": "prepared", "active_checkpoint_id": "cut-1", "novel": {}}).payload
    assert isinstance(still, Inspection)
    assert isinstance(moved, Inspection)
    assert still.capabilities.declaration == moved.capabilities.declaration
    assert still.capabilities.declaration.admission_states == ("accepting", "draining", "paused")
    assert still.capabilities.declaration.features == ("external_storage_reference_index_v1", "z")


CHANGES = [
    {"name": "other"},
    {"multi_process": {"mode": "coordinator", "num_workers": 2}},
    {"instance_role": "auxiliary"},
    {"checkpoint_mode": "stateless"},
    {"admission_states": ["accepting"]},
    {"component": "resources_servers"},
    {"concurrency_contract": "transactional_parallel"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_declaration_is_a_change(change: dict[str, object]) -> None:
    """What the fingerprint covers must be as discovery saw it; both values are named."""
    reading = read(INSPECT, CAPABILITIES | change)
    assert reading.outcome is Outcome.CHANGED
    assert isinstance(reading.payload, Inspection)
    assert isinstance(reading.error, ProtocolViolation)
    assert " was " in reading.error.reason


def test_more_features_are_no_change() -> None:
    """A server may learn something between discovery and the cut."""
    assert read(INSPECT, CAPABILITIES | {"features": ["new"]}).outcome is Outcome.OPEN


def test_another_incarnation_is_a_change_and_is_shown() -> None:
    """The inspection is still there to look at."""
    reading = read(replace(INSPECT, expected_instance="first"), CAPABILITIES, x_quiesce_instance="second")
    assert reading.outcome is Outcome.CHANGED
    assert isinstance(reading.payload, Inspection)
    assert "'first'" in str(reading.error)
    assert "'second'" in str(reading.error)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "asleep"},
        {"schema_version": 2},
        {"schema_version": True},
        {"name": ""},
        {"deadline_ts": "soon"},
        {"component": "other"},
        {"multi_process": {"mode": "single_worker", "num_workers": 0}},
        {"features": "all"},
    ],
    ids=ascii,
)
def test_capabilities_of_a_wrong_type_are_a_lie(change: dict[str, object]) -> None:
    """Unknown fields are tolerated, wrong values of known ones are not."""
    assert read(INSPECT, CAPABILITIES | change).outcome is Outcome.LIED


def test_an_agents_progress_names_what_holds_it_up_and_what_to_acknowledge() -> None:
    """Receipts come with the results where the server gives them; where it does not, the attempts are named."""
    execution = {
        "rollout_id": "job7.r3",
        "attempt_index": 0,
        "generation": 1,
        "state": "park_requested",
        "parked_boundary_state": None,
        "boundary_index": None,
        "age_seconds": 8.0,
    }
    done = execution | {"rollout_id": "job7.r1", "state": "completed"}
    status = READY | {
        "checkpoint_id": "cut-1",
        "ready_to_commit": False,
        "running": 1,
        "completed_unacknowledged": 3,
        "blocking_attempts": [execution],
        "completed_unacknowledged_attempts": [
            done | {"completion_receipt": RECEIPT_REPLY},
            done | {"rollout_id": "job7.r2"},
        ],
        "executions": [execution, done],
    }
    reading = DIALECT.read_progress(PREPARE, 200, JSON, json.dumps(status).encode())
    progress = reading.payload
    assert reading.outcome is Outcome.DRAINING
    assert isinstance(progress, DrainProgress)
    assert [blocker.attempt for blocker in progress.blockers] == [ATTEMPT]
    assert [one.attempt for one in progress.executions] == [ATTEMPT]
    assert progress.completions == (RECEIPT,)
    assert progress.unreceipted == (AttemptId("job7.r2", 0),)
    assert progress.sentence() == "1 executions running, 3 finished results unacknowledged"


@pytest.mark.parametrize(
    "receipt", [RECEIPT_REPLY | {"rollout_id": "job7.r2"}, RECEIPT_REPLY | {"execution_generation": 2}]
)
def test_a_receipt_of_another_execution_is_a_lie(receipt: dict[str, object]) -> None:
    """Acknowledging it would drop a result that nobody has."""
    done = {
        "rollout_id": "job7.r1",
        "attempt_index": 0,
        "generation": 1,
        "state": "completed",
        "parked_boundary_state": None,
        "boundary_index": None,
        "age_seconds": 8.0,
        "completion_receipt": receipt,
    }
    status = READY | {
        "checkpoint_id": "cut-1",
        "completed_unacknowledged": 1,
        "completed_unacknowledged_attempts": [done],
    }
    reading = DIALECT.read_progress(PREPARE, 200, JSON, json.dumps(status).encode())
    assert reading.outcome is Outcome.LIED


def test_a_status_without_anything_open_says_nothing() -> None:
    """The sentence for people is empty when nothing is open, and names workers otherwise."""
    assert DrainProgress(state="paused").sentence() == ""
    assert DrainProgress(state="paused", workers_acknowledged=2, workers_expected=4).sentence() == (
        "2 of 4 workers acknowledged"
    )
    assert DrainProgress(state="draining", inflight_total=3, without_boundary=1).sentence() == (
        "3 calls in flight, 1 executions parked without a boundary"
    )


def test_an_attempt_that_finished_meanwhile_is_not_fenced() -> None:
    """The payload says that its result waits to be acknowledged."""
    payload = read(RETIRE_AGENT, {"retired": False, "tombstoned": False, "completed_unacknowledged": True}).payload
    assert payload == RetireReceipt(ATTEMPT, fenced=False, completed_unacknowledged=True)


def test_a_manifest_path_is_ours_and_not_the_replys() -> None:
    """A reply that names another path is read as if it named none."""
    payload = read(EXPORT, COMMIT | {"manifest_path": "../../x"}).payload
    assert isinstance(payload, ExportReceipt)
    assert payload.manifest_path == "model-ledger/policy_model/manifest.json"
    assert payload.counts == {"rollouts": 1, "rows": 2, "excluded_tombstoned": 0, "excluded_inactive": 0}
