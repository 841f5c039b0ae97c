"""Properties of a save: whatever was there goes on one attempt later, and no changed byte is ever taken in."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import (
    FailingFiles,
    Servers,
    finished_call,
    fresh_servers,
    prepare_recorded,
    recorded_rollouts,
    started,
    tree,
)
from support.virtual_loop import virtual_time

from quiesce.participants.artefact_records import BoundaryRecord
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import MANIFEST_NAME
from quiesce.participants.server.errors import ControlRefusal
from quiesce.participants.server.ledger import CallRef

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ROLLOUT_IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@st.composite
def workloads(draw: st.DrawFn) -> dict[AttemptId, dict[str, object]]:
    """Rollouts with their attempt, state, output, mutations, and whether they have called the model."""
    ids = draw(st.lists(ROLLOUT_IDS, max_size=4, unique=True))
    found: dict[AttemptId, dict[str, object]] = {}
    for rollout_id in ids:
        found[AttemptId(rollout_id, draw(st.integers(0, 3)))] = {
            "state": draw(st.dictionaries(st.text(), JSON, max_size=3)),
            "items": draw(st.lists(JSON, max_size=3)),
            "mutations": draw(st.integers(0, 2)),
            "calls": draw(st.integers(0, 2)),
        }
    keys = [key_of(attempt) for attempt in found]
    return found if len(set(keys)) == len(keys) else {}


def key_of(attempt: AttemptId) -> str:
    """The capture key, spelled out."""
    return attempt.rollout_id if attempt.attempt_index == 0 else f"{attempt.rollout_id}-a{attempt.attempt_index}"


async def running(workload: Mapping[AttemptId, Mapping[str, object]]) -> Servers:
    """Servers with the workload, parked and frozen."""
    servers = fresh_servers()
    rollouts = {attempt: await started(servers, attempt) for attempt in workload}
    servers.runs.close()
    servers.runs.request_park()
    for attempt, facts in workload.items():
        mutations, calls, items, state = facts["mutations"], facts["calls"], facts["items"], facts["state"]
        assert isinstance(state, dict)
        assert isinstance(mutations, int)
        assert isinstance(calls, int)
        assert isinstance(items, list)
        for number in range(calls):
            finished_call(servers.ledger, attempt, f"call-{number}")
        revision = await servers.seed(attempt, mutations=mutations)
        await rollouts[attempt].turn(
            call_id=f"call-{calls - 1}" if calls else None, revision=revision, state=state, items=items
        )
    await servers.freeze_all()
    return servers


def later(record: BoundaryRecord) -> BoundaryRecord:
    """The same boundary one attempt later."""
    return record.model_copy(update={"attempt_index": record.attempt_index + 1})


@settings(max_examples=25)
@given(workload=workloads())
def test_what_was_saved_goes_on_one_attempt_later(
    tmp_path_factory: pytest.TempPathFactory, workload: dict[AttemptId, dict[str, object]]
) -> None:
    """Boundaries, session states and revisions, and lineage are the same; every saved attempt is fenced everywhere."""

    @virtual_time
    async def scenario() -> None:
        directory = tmp_path_factory.mktemp("save")
        before = await running(workload)
        boundaries = {attempt: execution.boundary for attempt, execution in before.runs._executions.items()}
        await before.save(directory)
        after = fresh_servers()
        await after.load(directory)
        expected = [later(record) for _, record in sorted(boundaries.items()) if record is not None]
        assert list(after.runs.restored()) == expected
        assert later_sessions(before) == sessions_of(after)
        assert after.counters.values == {
            AttemptId(attempt.rollout_id, attempt.attempt_index + 1): value
            for attempt, value in before.counters.values.items()
        }
        for attempt, facts in workload.items():
            calls = facts["calls"]
            assert isinstance(calls, int)
            assert after.runs.is_fenced(attempt)
            assert attempt in after.sessions._tombstones
            assert after.ledger.is_fenced(attempt) is (calls > 0)
            for number in range(calls):
                ref = CallRef(key_of(attempt), f"call-{number}")
                assert after.ledger.call(ref) == before.ledger.call(ref)

    scenario()


def sessions_of(servers: Servers) -> list[tuple[object, object, object]]:
    """Rollout, attempt and revision of each session."""
    rows = servers.sessions.status()["per_session"]
    assert isinstance(rows, list)
    return [(row["rollout_id"], row["attempt_index"], row["revision"]) for row in rows]


def later_sessions(servers: Servers) -> list[tuple[object, object, object]]:
    """The same one attempt later."""
    return [(rollout_id, int(str(attempt)) + 1, revision) for rollout_id, attempt, revision in sessions_of(servers)]


@settings(max_examples=25)
@given(workload=workloads())
def test_a_second_save_of_a_restore_has_everything_again(
    tmp_path_factory: pytest.TempPathFactory, workload: dict[AttemptId, dict[str, object]]
) -> None:
    """Cut a restored deployment before anybody has gone on and restore it again: nothing is lost or doubled."""

    @virtual_time
    async def scenario() -> None:
        first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
        servers = await running(workload)
        replies = await servers.save(first)
        middle = fresh_servers()
        await middle.load(first)
        await middle.freeze_all()
        again = await middle.save(second, "ck-2")
        for role, name in (("agent", "records"), ("policy", "rollouts"), ("policy", "rows"), ("resources", "sessions")):
            assert again[role][name] == replies[role][name]
        last = fresh_servers()
        await last.load(second)
        assert [record.attempt for record in last.runs.restored()] == [
            AttemptId(attempt.rollout_id, attempt.attempt_index + 2) for attempt in sorted(workload)
        ]

    scenario()


async def recorded_save(directory: Path) -> None:
    """The recorded checkpoint."""
    servers = fresh_servers()
    await prepare_recorded(servers, await recorded_rollouts(servers))
    await servers.save(directory)


@given(position=st.integers(0), bit=st.integers(0, 7), target=st.integers(0))
def test_any_changed_byte_of_a_data_file_is_refused_and_nothing_is_installed(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int, target: int
) -> None:
    """Whichever bit of whichever record, index, lineage or session flips: its owner refuses, and stays fresh."""

    @virtual_time
    async def scenario() -> None:
        directory = tmp_path_factory.mktemp("save")
        await recorded_save(directory)
        names = sorted(name for name in tree(directory) if not name.endswith(MANIFEST_NAME))
        assert len(names) == 5
        name = names[target % len(names)]
        path = directory / name
        content = bytearray(path.read_bytes())
        content[position % len(content)] ^= 1 << bit
        path.write_bytes(content)
        await assert_refused_by(name.split("/")[0], directory)

    scenario()


@given(cut=st.integers(0), target=st.integers(0))
def test_a_file_that_was_cut_short_or_is_gone_is_refused(
    tmp_path_factory: pytest.TempPathFactory, cut: int, target: int
) -> None:
    """Manifests included: a torn one is no manifest."""

    @virtual_time
    async def scenario() -> None:
        directory = tmp_path_factory.mktemp("save")
        await recorded_save(directory)
        names = sorted(tree(directory))
        path = directory / names[target % len(names)]
        content = path.read_bytes()
        kept = cut % (len(content) + 1)
        path.unlink() if kept == len(content) else path.write_bytes(content[:kept])
        await assert_refused_by(names[target % len(names)].split("/")[0], directory)

    scenario()


async def assert_refused_by(room: str, directory: Path) -> None:
    """The store that owns the room refuses; it has installed nothing and can still be restored from a good save."""
    servers = fresh_servers()
    store = servers.store(room)
    with pytest.raises(ControlRefusal):
        await store.restore(directory=directory)
    assert servers.ledger.tombstones() == ()
    assert servers.runs.restored() == ()
    assert (servers.sessions.status()["sessions"], servers.counters.values) == (0, {})
    store._refuse_unless_fresh()


@given(position=st.integers(0), bit=st.integers(0, 7), target=st.integers(0, 2))
def test_a_changed_manifest_is_refused_or_read_but_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int, target: int
) -> None:
    """A participant is not told its manifest's digest; comparing that is the controller's part (9, P5)."""

    @virtual_time
    async def scenario() -> None:
        directory = tmp_path_factory.mktemp("save")
        await recorded_save(directory)
        names = sorted(name for name in tree(directory) if name.endswith(MANIFEST_NAME))
        path = directory / names[target]
        content = bytearray(path.read_bytes())
        content[position % len(content)] ^= 1 << bit
        path.write_bytes(content)
        with contextlib.suppress(ControlRefusal):
            await fresh_servers().load(directory)

    scenario()


ROOMS = ("agent", "model-ledger", "resources")


OPERATIONS = 25
"""How many operations of a whole save can fail; the last test holds the number."""


@pytest.mark.parametrize("lasting", [True, False], ids=["full for good", "full once"])
@pytest.mark.parametrize("fail_at", range(1, OPERATIONS + 1))
def test_a_disk_that_fails_anywhere_leaves_only_whole_exports(fail_at: int, lasting: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a table
    """Whoever's manifest could not be written is refused and has none, and the same commits work once there is room."""

    @virtual_time
    async def scenario() -> None:
        directory = tmp_path / "save"
        files = FailingFiles()
        servers = fresh_servers(files=files)
        await prepare_recorded(servers, await recorded_rollouts(servers))
        files.fail_at, files.lasting = fail_at, lasting
        with pytest.raises(ControlRefusal, match="No space left"):
            await servers.save(directory)
        published = files.operations[: fail_at - 1].count(f"replace {MANIFEST_NAME}")
        present = [room for room in ROOMS if any(name.startswith(room) for name in manifests_in(directory))]
        assert present == list(ROOMS[:published])
        files.fail_at = None
        await servers.save(directory)
        await fresh_servers().load(directory)

    scenario()


def manifests_in(directory: Path) -> list[str]:
    """The manifests below ``directory``."""
    return [name for name in tree(directory) if name.endswith(MANIFEST_NAME)]


def test_the_number_of_operations_that_can_fail_is_known(tmp_path: Path) -> None:
    """The property above draws from all of them, and from no more."""

    @virtual_time
    async def scenario() -> None:
        files = FailingFiles()
        servers = fresh_servers(files=files)
        await prepare_recorded(servers, await recorded_rollouts(servers))
        await servers.save(tmp_path)
        assert len(files.operations) == OPERATIONS

    scenario()
