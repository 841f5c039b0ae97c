"""No parser raises anything but our errors, whatever it is given, and none takes more memory than it should."""

from __future__ import annotations

import asyncio
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.artefact_tree import Exported, agent_export, boundary, policy_export, resources_export
from support.counterexamples import counterexample_of, row_bugs
from support.damage import heavy, spoiled
from support.parsers import PARSERS, journal_of
from support.recorded_calls import is_progress, route_of, spec_of
from support.recordings import Exchange, all_exchanges

from quiesce.controller.config import parse_config
from quiesce.controller.journal import JournalFile
from quiesce.controller.records import JournalRecord
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import Phase, Role, Verb
from quiesce.fuzz.counterexample import counterexample_text, parse_counterexample
from quiesce.fuzz.replays import KIND, parse_replay
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import parse_step, render_step
from quiesce.participants.artefact_writing import continuation_row
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import GymA
from quiesce.participants.gym_config import read_gym_configuration
from quiesce.participants.identity import AttemptId
from quiesce.participants.manifest import load_manifest, manifest_bytes
from quiesce.participants.manifest_models import SnapshotManifest, TrainerFileEntry
from quiesce.transport.port import ControlReply

EXAMPLES: Final = settings(max_examples=25, deadline=None)
MANY: Final = settings(max_examples=200, deadline=None)
GOOD: Final = [
    exchange for exchange in all_exchanges() if exchange.status == 200 and exchange.component != "coordinator"
]
T = TypeVar("T")


def outcome(parse: Callable[[], T]) -> tuple[T | None, str]:
    """What was read, or else the words of the refusal; anything but an error of ours fails the test."""
    try:
        return parse(), ""
    except QuiesceError as error:
        words = str(error)
    assert words
    return None, words


def recorded_bodies() -> list[Exchange]:
    """One recorded success of each route."""
    found: dict[str, Exchange] = {}
    for exchange in GOOD:
        found.setdefault(route_of(exchange).name, exchange)
    return list(found.values())


# ---- replies


@pytest.mark.parametrize("exchange", recorded_bodies(), ids=lambda exchange: exchange.path.rsplit("/", 2)[-1])
def test_no_reply_raises(exchange: Exchange) -> None:
    """A spoiled reply of any route, with any status, is read to an outcome; what is no success says why."""
    spec = spec_of(exchange)
    read = GymA().read_progress if is_progress(exchange) else GymA().read

    @EXAMPLES
    @given(spoiled(exchange.body), st.sampled_from([200, 201, 204, 302, 401, 404, 409, 422, 500, 999]))
    def holds(body: bytes, status: int) -> None:
        reading = read(spec, status, {"content-type": "application/json"}, body)
        assert isinstance(reading, Reading)
        assert reading.error is None or isinstance(reading.error, QuiesceError)
        if status != 200:
            assert reading.error is not None

    holds()


HEADERS: Final = st.dictionaries(
    st.sampled_from(["content-type", "x-quiesce-instance", "location", "retry-after"]), st.text(max_size=50)
)


@MANY
@given(
    st.sampled_from(Verb),
    st.sampled_from(Role),
    st.booleans(),
    st.integers(100, 999),
    HEADERS,
    st.binary(max_size=300),
)
def test_no_answer_to_any_call_raises(
    verb: Verb,
    role: Role,
    coordinator: bool,  # noqa: FBT001 - given
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> None:
    """Every verb of every role, whatever comes back; verbs that a role lacks are our own errors."""
    spec = CallSpec(verb=verb, role=role, coordinator=coordinator, checkpoint_id="a", attempt=AttemptId("r", 0))
    dialect = GymA()
    for read in (dialect.read, dialect.read_progress):
        try:
            assert isinstance(read(spec, status, headers, body), Reading)
        except QuiesceError:
            assert role is Role.AUXILIARY or verb in {Verb.RENEW, Verb.ACKNOWLEDGE, Verb.DISCARD}
    for probe in dialect.probes(Role.AGENT, [Phase.COMMIT]):
        problem = dialect.read_probe(probe, status, headers, body, participant="p")
        assert (problem is None) is (status == 422)
    assert str(Seen.of(ControlReply(status, headers, body)))


# ---- what was saved

RECORDS: Final = [boundary("job7.r1"), boundary("job7.r3")]
ROOTS: Final = [row for record in RECORDS if (row := continuation_row(record))]
EXPORTS: Final = {
    "agent": lambda: agent_export(records=RECORDS),
    "policy": lambda: policy_export(roots=ROOTS),
    "resources": lambda: resources_export(attempts=[AttemptId("job7.r1", 0)]),
}


@pytest.mark.parametrize("make", EXPORTS.values(), ids=list(EXPORTS))
def test_no_artefact_raises_anything_else(make: Callable[[], Exported]) -> None:
    """One spoiled file in an export: it is refused, or it is so little spoiled that it still verifies."""
    whole = make()
    files = sorted(name for name, content in whole.reader.files.items() if isinstance(content, bytes))

    @given(st.data())
    @settings(max_examples=80, deadline=None)
    def holds(data: st.DataObject) -> None:
        export = make()
        name = data.draw(st.sampled_from(files))
        content = export.reader.files[name]
        assert isinstance(content, bytes)
        damaged = data.draw(spoiled(content))
        if name == export.manifest:
            export.replace_manifest(damaged)  # with a digest that fits, so that its content is looked at
        else:
            export.reader.files[name] = damaged
        _, refused = outcome(export.verify)
        assert refused or damaged == content or name == export.manifest

    holds()


def journal() -> bytes:
    """A few records, as a controller writes them."""
    trace = TraceRecord("PARTICIPANT", "main/policy", "idle", "close_sent", "draining", ("call",), (), "because")
    lines: list[bytes] = []

    async def written(folder: Path) -> None:
        file = JournalFile(folder / "j.ndjson")
        for number in range(4):
            record = JournalRecord(1.9e9 + number, "step-1-0123abcd", trace, "POST /pause", "200")
            await file.append(record, barrier=True)
        await file.close()
        lines.append((folder / "j.ndjson").read_bytes())

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(written(Path(folder)))
    return lines[0]


def test_no_journal_raises() -> None:
    """What is damaged ends the reading, and what stands before it is read as it was."""
    whole = journal()
    good = journal_of(whole).records

    @MANY
    @given(spoiled(whole) | st.lists(st.sampled_from(whole.splitlines(keepends=True))).map(b"".join))
    def holds(content: bytes) -> None:
        reading = journal_of(content)
        assert all(record in good for record in reading.records)

    assert len(good) == 4
    holds()


def manifest() -> bytes:
    """A manifest of the trainer's part alone, with something in each of its free parts."""
    return manifest_bytes(
        SnapshotManifest(
            checkpoint_id="step-40-0123abcd",
            label="step-40",
            created_at=1.8e9,
            deployments={},
            participants=(),
            rollouts=(),
            restarting=(),
            files=(),
            trainer=(TrainerFileEntry(path="trainer/state.bin", bytes=7, sha256=None),),
            metadata={"step": 40},
        )
    )


@MANY
@given(spoiled(manifest()))
def test_no_manifest_raises_anything_else(content: bytes) -> None:
    """A spoiled manifest is refused, or it is one that reads back as it stands there."""
    found, _ = outcome(lambda: load_manifest(content))
    assert found is None or load_manifest(manifest_bytes(found)) == found


# ---- configurations

TOML: Final = b"""
root = "/shared/run-7"
reach_timeout_s = 90
hold_timeout_s = 600.5

[deployment.main]
participants = [
  { name = "policy_model", url = "http://10.0.0.5:8000/", role = "policy", upstream = "http://10.0.0.5:9000/v1" },
  { name = "agent", url = "http://[::1]:8000", checkpoint_url = "http://10.0.0.7:8001/prefix" },
]
policy_base_urls = ["http://10.0.0.5:9000/v1"]
"""
YAML: Final = b"""
policy_model:
  responses_api_models:
    vllm: {entrypoint: app.py, host: 10.0.0.5, port: 8000}
agent:
  responses_api_agents:
    simple: {entrypoint: app.py, host: "${policy_model.host}", port: 0x1F90, anchor: &a {x: *a}}
"""


@MANY
@given(spoiled(TOML))
def test_no_configuration_raises_anything_else(content: bytes) -> None:
    """A spoiled file is a configuration or a ConfigurationError."""
    text = content.decode("utf-8", errors="replace")
    outcome(lambda: parse_config(text, source="quiesce.toml", directory=Path("/somewhere"), environment={}))


@MANY
@given(spoiled(YAML))
def test_no_gym_configuration_raises_anything_else(content: bytes) -> None:
    """Aliases of themselves, odd numbers and torn text are refused, not followed."""
    outcome(lambda: read_gym_configuration(content.decode("utf-8", errors="replace"), source="resolved.yaml"))


# ---- replay files

REPLAY: Final = (
    b'{"kind":"quiesce.fuzz","schema_version":1,"tested":{"name":"n","role":"agent","coordinated":false,"profile":'
    b'"strict","seed":0,"fence":null},"violation":{"rule":"fence.replay","sentence":"S.","section":"4.2","severity":'
    b'"error","known":null,"expected":"200","got":"409"},"steps":[{"do":"call","operation":"prepare"}]}'
)


WORDS: Final = [
    "prepare",
    "work",
    "wait",
    "commit",
    "a",
    "p",
    "begin",
    "deadline=short",
    "send=twice",
    "long_poll=yes",
    "=",
]


@MANY
@given(spoiled(REPLAY))
def test_no_replay_file_raises_anything_else(content: bytes) -> None:
    """A spoiled file is refused, or it is a replay of the same kind."""
    replay, refused = outcome(lambda: parse_replay(content, source="a file"))
    assert refused.startswith("a file: ") if replay is None else replay.kind == KIND


def test_no_counterexample_raises_anything_else() -> None:
    """A spoiled file is refused with the place of what is wrong, or it is one that is written as it was read."""
    whole = counterexample_text(counterexample_of(row_bugs()[0]))

    @MANY
    @given(spoiled(whole.encode()))
    def holds(content: bytes) -> None:
        text = content.decode("utf-8", errors="replace")
        found, refused = outcome(lambda: parse_counterexample(text, "a file"))
        assert refused.startswith("a file: ") if found is None else counterexample_text(found) == whole

    assert outcome(lambda: parse_counterexample(whole))[1] == ""
    holds()


@MANY
@given(st.text(max_size=80) | st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join))
def test_no_line_of_steps_raises_anything_else(line: str) -> None:
    """Any text is a step, which says the same when it is written again, or is refused."""
    step, _ = outcome(lambda: parse_step(line))
    assert step is None or parse_step(render_step(step)) == step


def test_the_whole_files_are_good() -> None:
    """What the examples above were spoiled from is taken: otherwise they would prove nothing."""
    assert parse_config(TOML.decode(), source="f", directory=Path("/x"), environment={}).deployment
    assert parse_replay(REPLAY, source="f").steps


# ---- memory

SIZE_BYTES: Final = 2**17
PEAK_TIMES: Final = 64


@pytest.mark.parametrize("kind", list(heavy(64)))
@pytest.mark.parametrize("parser", PARSERS.values(), ids=list(PARSERS))
def test_a_heavy_body_costs_a_bounded_amount_of_memory(parser: Callable[[bytes], object], kind: str) -> None:
    """What was made to hurt is refused or read, with no more than 64 times its size in memory."""
    body = heavy(SIZE_BYTES)[kind]
    with suppress(QuiesceError):
        parser(heavy(SIZE_BYTES // 64)[kind])  # what is built once for all is not counted
    tracemalloc.start()
    try:
        with suppress(QuiesceError):
            parser(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_TIMES * SIZE_BYTES
