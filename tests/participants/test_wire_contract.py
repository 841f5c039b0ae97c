"""Every recorded exchange with real servers: our client would have sent the request, and understands the reply."""

from __future__ import annotations

import pytest
from support.recorded_calls import is_progress, route_of, spec_of, transaction_ids
from support.recorded_outcomes import EXPECTED
from support.recordings import Exchange, Json, all_exchanges, exchanges_of, scenarios

from quiesce.fsm.vocabulary import Outcome
from quiesce.participants.dialects.base import CallSpec, Reading, WireCall
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.dialects.gym_a.wire import Capabilities
from quiesce.participants.errors import ControlRequestError, QuiesceError

DIALECT = GymA()
EXCHANGES = all_exchanges()
ANSWERED = [exchange for exchange in EXCHANGES if exchange.status == 200]

# fields of replies that we tolerate and do not model: generation cuts of later servers
TOLERATED = {"generation_cut_proof"}

# requests that our client refuses to make, or has no way to make, and why
NEVER_SENT = {
    "bad_checkpoint_id": "an id that may not go on the wire is refused before anything is sent",
    "unknown_extra_field": "our bodies are made from the models and cannot have such fields",
}
# ... except these steps of the two scenarios, which are ordinary requests
ORDINARY = {"pause_128_chars", "schema_version_1"}


def _never_sent(exchange: Exchange) -> bool:
    return exchange.scenario in NEVER_SENT and exchange.step not in ORDINARY


def _read(exchange: Exchange, spec: CallSpec) -> Reading:
    read = DIALECT.read_progress if is_progress(exchange) else DIALECT.read
    return read(spec, exchange.status, exchange.headers, exchange.body)


def _call(exchange: Exchange, spec: CallSpec) -> WireCall:
    return DIALECT.progress_call(spec) if is_progress(exchange) else DIALECT.call(spec)


def test_the_recordings_are_there() -> None:
    """The walk finds every scenario; over an empty folder the tests below would say nothing."""
    assert scenarios() == sorted(EXPECTED)
    assert len(EXCHANGES) == 276


@pytest.mark.parametrize("scenario", sorted(EXPECTED))
def test_each_reply_means_what_is_written_out(scenario: str) -> None:
    """Step by step, the reply becomes the outcome and the error code of the table, and no row is left over."""
    exchanges = list(exchanges_of(scenario))
    found = []
    for exchange, transaction_id in zip(exchanges, transaction_ids(exchanges), strict=True):
        ours = transaction_id if _never_sent(exchange) or exchange.path.endswith("capabilities") else None
        reading = _read(exchange, spec_of(exchange, ours))
        code = getattr(reading.error, "error_code", None)
        found.append(f"{exchange.step} {exchange.component}: {reading.outcome.value}{f' {code}' if code else ''}")
    assert tuple(found) == EXPECTED[scenario]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.place)
def test_a_reading_is_a_success_with_a_payload_or_an_error(exchange: Exchange) -> None:
    """200 gives a payload and no error; anything else gives a typed error with the status and no payload."""
    reading = _read(exchange, spec_of(exchange, "ck-1" if _never_sent(exchange) else None))
    if exchange.status == 200:
        assert reading.payload is not None
        assert reading.error is None
    else:
        assert reading.payload is None
        assert isinstance(reading.error, ControlRequestError)
        assert reading.error.status == exchange.status
        assert reading.error.call == f"{exchange.method} {exchange.path}"


@pytest.mark.parametrize(
    "exchange", [exchange for exchange in EXCHANGES if not _never_sent(exchange)], ids=lambda exchange: exchange.place
)
def test_our_client_makes_the_recorded_request(exchange: Exchange) -> None:
    """Method, path, query and body are those that the recorded client sent; only the schema number is ours to add."""
    call = _call(exchange, spec_of(exchange))
    assert (call.method, call.path) == (exchange.method, exchange.path)
    assert _without_schema(call.json) == _without_schema(exchange.json)
    assert _numbers(call.query) == _numbers(exchange.query)


@pytest.mark.parametrize(
    "exchange",
    [exchange for exchange in EXCHANGES if exchange.scenario == "bad_checkpoint_id" and exchange.step not in ORDINARY],
    ids=lambda exchange: exchange.place,
)
def test_our_client_refuses_to_make_a_request_with_a_bad_id(exchange: Exchange) -> None:
    """An id that the recorded servers refuse with 422 never leaves."""
    with pytest.raises(QuiesceError, match="checkpoint_id"):
        _call(exchange, spec_of(exchange))


@pytest.mark.parametrize("exchange", ANSWERED, ids=lambda exchange: exchange.place)
def test_every_recorded_field_is_modelled_with_its_type(exchange: Exchange) -> None:
    """What the reply model holds is the recorded reply, field by field, without the tolerated fields."""
    route = route_of(exchange)
    coordinator_shape = route.coordinator_reply if exchange.component == "coordinator" else None
    reply = (coordinator_shape or route.reply).model_validate_json(exchange.body)
    assert reply.model_dump(mode="json", exclude_unset=True) == _tolerantly(exchange.reply)


def test_the_tolerated_fields_are_all_recorded() -> None:
    """The list of tolerated fields names nothing that no recording has, so it cannot hide a field by accident."""
    seen = {key for exchange in ANSWERED for key in _keys(exchange.reply)}
    assert seen >= TOLERATED


@pytest.mark.parametrize(
    "exchange",
    [exchange for exchange in ANSWERED if exchange.path.endswith("capabilities")],
    ids=lambda exchange: exchange.place,
)
def test_whoever_is_held_is_held_by_another_for_a_stranger(exchange: Exchange) -> None:
    """Seen by a transaction that the server does not know, an active id is another's, and no id is open."""
    reading = _read(exchange, spec_of(exchange, "a-stranger"))
    active = Capabilities.model_validate_json(exchange.body).active_checkpoint_id
    assert reading.outcome is (Outcome.HELD_BY_OTHER if active else Outcome.OPEN)


def test_tokens_are_for_every_route_but_capabilities() -> None:
    """The recorded servers want the header exactly where our call says that it is authorized."""
    for exchange in EXCHANGES:
        assert route_of(exchange).authorized is ("authorization" in exchange.headers_needed)


def _without_schema(body: Json) -> Json:
    return {key: value for key, value in body.items() if key != "schema_version"} if isinstance(body, dict) else body


def _numbers(query: Json) -> Json:
    """A query with its numbers as numbers: text on the wire, numbers in the recordings."""
    numeric = {"deadline_ts", "timeout_s"}
    return None if query is None else {k: float(v) if k in numeric else v for k, v in query.items()}


def _tolerantly(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _tolerantly(item) for key, item in value.items() if key not in TOLERATED}
    return [_tolerantly(item) for item in value] if isinstance(value, list) else value


def _keys(value: Json) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in _keys(item)}
    return {key for item in value for key in _keys(item)} if isinstance(value, list) else set()
