"""What never confuses the store: torn manifests, left-overs, names that are paths, lies, versions, other cases."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faulty_files import FaultyFiles
from support.fleet import Fleet, keep
from support.folding_files import FoldingFiles
from support.snapshots import trainer_only, tree_of
from support.virtual_loop import virtual_time
from support.wiretap import Wiretap

from quiesce.controller import StorageFailed
from quiesce.controller.catalog import SnapshotState
from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.messages import Publication
from quiesce.participants.errors import ConfigurationError, SnapshotInvalid
from quiesce.participants.manifest import load_manifest
from quiesce.transport.faults import CallSite
from quiesce.transport.port import ControlReply, ControlRequest


def nobody_else() -> None:
    """A guard that never objects."""


# torn manifests


def three_snapshots(root: Path) -> tuple[SnapshotStore, Path]:
    """A store with c1, c2 and c3, and the manifest of c3."""
    store = SnapshotStore(root, files=FaultyFiles())
    for number in (1, 2, 3):
        trainer_only(store, f"c{number}-0000000{number}", label=f"c{number}", created_at=float(number))
    return store, store.layout.snapshot("c3-00000003") / "MANIFEST.json"


TEARS: dict[str, Callable[[bytes, int], bytes]] = {
    "cut": lambda whole, at: whole[:at],
    "cut and padded with zeros": lambda whole, at: whole[:at] + b"\0" * (len(whole) - at),
    "a byte that is no UTF-8": lambda whole, at: whole[:at] + b"\xff" + whole[at + 1 :],
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_manifest_that_is_torn_at_any_byte_is_no_snapshot(tmp_path: Path, tear: str) -> None:
    """At every offset: latest is c2; c3 is reported, not restored, counted or removed; the next one works (F-41)."""
    store, path = three_snapshots(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        content = TEARS[tear](whole, at)
        path.write_bytes(content)
        entries = store.list()
        assert [entry.wire_id for entry in entries] == ["c2-00000002", "c1-00000001", "c3-00000003"], at
        assert (entries[2].state, entries[2].manifest) == (SnapshotState.TORN, None)
        assert store.resolve("latest").wire_id == "c2-00000002"
        assert store.published("c3-00000003") is Publication.NOT_PUBLISHED
        for name in ("c3", "c3-00000003"):
            with pytest.raises(SnapshotInvalid):
                store.resolve(name)
        pruned = store.prune(keep=1, guard=nobody_else, dry_run=True)
        assert (pruned.kept, pruned.removed) == (("c2-00000002",), ("c1-00000001",))
        assert list(pruned.ignored) == ["c3-00000003"]
        assert path.read_bytes() == content
    assert store.prune(keep=1, guard=nobody_else).removed == ("c1-00000001",)
    trainer_only(store, "c4-00000004", label="c4", created_at=4.0)
    assert store.resolve("latest").wire_id == "c4-00000004"
    path.write_bytes(whole)
    assert store.verify("c3-00000003").is_good


OTHER_JSON = [
    b"",
    b"\0" * 600,
    b"null",
    b"[]",
    b"{}",
    b'"c3"',
    b"1",
    b'{"schema_version": 1}',
    b"{}\n{}",
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("content", OTHER_JSON, ids=lambda content: ascii(content[:20]))
def test_other_content_is_no_manifest(tmp_path: Path, content: bytes) -> None:
    """Empty, zeros, valid JSON of another shape, another byte order mark (F-41)."""
    store, path = three_snapshots(tmp_path)
    path.write_bytes(content)
    assert store.list()[2].state is SnapshotState.TORN
    assert store.resolve("latest").wire_id == "c2-00000002"
    assert store.prune(keep=2, guard=nobody_else).removed == ()


@pytest.mark.parametrize("version", [0, 2, 3, 1_000_000, -1, True, "1", 1.5, None])
@virtual_time
async def test_a_manifest_of_another_version_is_refused_before_anybody_is_called(
    tmp_path: Path, version: object
) -> None:
    """A newer one is refused with both versions named; there never was an older one (F-47)."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1") as cut:
        pass
    path = cut.result.directory / "MANIFEST.json"
    manifest = {**json.loads(path.read_bytes()), "schema_version": version}
    path.write_text(json.dumps(manifest))
    fresh = Fleet()
    tap = Wiretap(fresh.transport())
    async with fresh.controller(tmp_path, transport=tap) as controller:
        for name in ("step-1", cut.wire_id, "latest"):
            with pytest.raises(SnapshotInvalid) as caught:
                await controller.restore(name).__aenter__()
            if isinstance(version, int) and version > 1 and version is not True:
                assert f"has schema {version}" in str(caught.value)
                assert "reads up to 1" in str(caught.value)
        assert tap.mutating() == []
        async with controller.cut("step-2"):
            pass
        assert controller.store.resolve("latest").manifest.label == "step-2"


def test_the_present_version_is_what_is_written(tmp_path: Path) -> None:
    """A change of the version has to say what becomes of the former one: then this number changes (F-47)."""
    _, path = three_snapshots(tmp_path)
    assert json.loads(path.read_bytes())["schema_version"] == 1
    assert load_manifest(path.read_bytes()).checkpoint_id == "c3-00000003"


# left-overs


def same_nonces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wire id of a label is the same, as if two random numbers had met."""
    monkeypatch.setattr(secrets, "token_hex", lambda _size: "0badcafe")


LEFT_OVER = "step-40-0badcafe"


def lie_about(root: Path, what: str) -> None:
    """What an attempt that was broken off may have left."""
    store = SnapshotStore(root, files=FaultyFiles())
    store.prepare()
    match what:
        case "staged folder":
            store.stage(LEFT_OVER, ["main"])
        case "staged, in another case":
            store.stage(LEFT_OVER.upper(), ["main"])
        case "empty final folder":
            store.layout.snapshot(LEFT_OVER).mkdir()
        case "file in its place":
            store.layout.snapshot(LEFT_OVER).write_text("")
        case "valid final one":
            trainer_only(store, LEFT_OVER, label="step-40", created_at=1.0)


WHATS = ["staged folder", "staged, in another case", "empty final folder", "file in its place", "valid final one"]


@pytest.mark.parametrize("what", WHATS)
@virtual_time
async def test_what_an_attempt_left_is_never_mixed_with(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was staged is swept; what stands in the final place is refused before anybody is paused (F-42).

    Another attempt at the same step just works.
    """
    lie_about(tmp_path, what)
    before = tree_of(tmp_path / "snapshots")
    fleet = Fleet()
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap) as controller:
        if not what.startswith("staged"):
            with monkeypatch.context() as patched:
                same_nonces(patched)
                with pytest.raises(StorageFailed, match="stands there already"):
                    await controller.cut("step-40").__aenter__()
        assert tap.mutating() == []
        assert tree_of(tmp_path / "snapshots") == before
        async with controller.cut("step-40") as cut:
            pass
        assert controller.store.resolve("step-40").wire_id == cut.wire_id
        assert controller.store.verify("step-40").is_good
        await controller.prune()
        assert list(controller.store.layout.staging.iterdir()) == []


# names that are paths


BAD_NAMES = [
    "../x",
    "/etc/passwd",
    "C:\\x",
    "",
    ".",
    "..",
    "x" * 300,
    "a\0b",
    "a\nb",
    "\u0430bc",
    "con",
    "a.",
    "a ",
    "%2e%2e",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: ascii(name)[:12])
@virtual_time
async def test_a_name_that_is_a_path_is_refused_everywhere(tmp_path: Path, name: str) -> None:
    """As a label and as what is restored: refused by its field, nothing is touched, nobody is called (F-44)."""
    fleet = Fleet()
    tap = Wiretap(fleet.transport())
    root = tmp_path / "root"
    async with fleet.controller(root, transport=tap) as controller:
        before = tree_of(tmp_path)
        with pytest.raises(ConfigurationError) as refused:
            controller.cut(name)
        with pytest.raises(ConfigurationError):
            await controller.restore(name).__aenter__()
        assert len(str(refused.value)) < 300
        assert str(refused.value).isprintable()
        now = tree_of(tmp_path)
    beats = [path for path in now if "/epoch" in path]
    assert {path: now[path] for path in now if path not in beats} == {
        path: before[path] for path in before if path not in beats
    }
    assert tap.mutating() == []


# exports that are not what was said


async def a_rollout_and_a_session(fleet: Fleet) -> asyncio.Task[None]:
    """Something to export at the agent and at the tools."""
    rollout = fleet.rollout("r0", 400)
    await fleet.seed_session("r0")
    await fleet.clock.sleep(1.5)
    return rollout


def become_a_link(mine: Path, other: Path) -> None:
    """A file that is another participant's."""
    mine.unlink()
    mine.symlink_to(other)


def lie_in_a_linked_folder(mine: Path, other: Path) -> None:
    """A whole folder that is another participant's."""
    shutil.rmtree(mine.parent)
    mine.parent.symlink_to(other.parent)


EXPORT_LIES: dict[str, Callable[[Path, Path], object]] = {
    "one file is missing": lambda mine, _other: mine.unlink(),
    "one has another size": lambda mine, _other: mine.write_bytes(mine.read_bytes() + b" "),
    "one has another digest": lambda mine, _other: mine.write_bytes(mine.read_bytes().replace(b"0", b"1")),
    "one more, undeclared": lambda mine, _other: mine.with_name("more.json").write_text("{}"),
    "a link to another's file": become_a_link,
    "a link to a folder": lie_in_a_linked_folder,
}


@pytest.mark.parametrize("lie", EXPORT_LIES)
@virtual_time
async def test_a_commit_whose_files_are_not_there_publishes_nothing(tmp_path: Path, lie: str) -> None:
    """Aborted with participant, file and reason; everybody is resumed, and the next cut works (F-46)."""
    fleet = Fleet()
    rollout = await a_rollout_and_a_session(fleet)

    def spoil(reply: ControlReply, request: ControlRequest) -> ControlReply:
        directory = Path(json.loads(request.body or b"{}")["checkpoint_dir"])
        mine = next(directory.glob("resources/tools/r0*.json"))
        EXPORT_LIES[lie](mine, next(directory.glob("agent/*/*.json")))
        return reply

    site = CallSite("main/tools", "POST /ng-control/v1/resources-checkpoint/commit", 2)  # the first is a probe
    tap = Wiretap(fleet.transport(), replies={site: spoil})
    async with fleet.controller(tmp_path, transport=tap, on_completed=keep) as controller:
        with pytest.raises(SnapshotInvalid, match="resources/tools") as caught:
            async with controller.cut("step-1"):
                pass
        assert "main/tools" in str(caught.value) or "not declared" in str(caught.value)
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
        async with controller.cut("step-2"):
            pass
        assert [entry.label for entry in controller.store.list()] == ["step-2"]
    rollout.cancel()


# a file system that folds case


@virtual_time
async def test_a_file_system_that_folds_case_confuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that differ in case only never meet; cuts, restores, lists and pruning work there as anywhere (F-44)."""
    files = FoldingFiles(tmp_path)
    fleet = Fleet()
    rollout = await a_rollout_and_a_session(fleet)
    async with fleet.controller(tmp_path, files=files, on_completed=keep) as controller:
        nonces = itertools.cycle(["0badcafe"])
        with monkeypatch.context() as patched:
            patched.setattr(secrets, "token_hex", lambda _size: next(nonces))
            async with controller.cut("Step") as cut:
                (cut.directory / "trainer" / "Weights").write_text("w")
            with pytest.raises(StorageFailed, match="stands there already"):
                await controller.cut("step").__aenter__()
            assert await fleet.everybody_accepts()
        async with controller.cut("step"):
            pass
        assert [entry.label for entry in await controller.snapshots()] == ["step", "Step"]
        assert controller.store.resolve("Step").wire_id == "Step-0badcafe"
        with pytest.raises(SnapshotInvalid, match="foreign"):
            controller.store.resolve("step-0badcafe")
        assert controller.store.published("step-0badcafe") is Publication.NOT_PUBLISHED
        assert controller.store.verify("Step").is_good
    fresh = Fleet()
    async with fresh.controller(tmp_path, files=files) as controller:
        async with controller.restore("Step") as restored:
            assert (restored.directory / "trainer" / "Weights").read_text() == "w"
        assert (await controller.prune(keep=1)).removed == ("Step-0badcafe",)
        assert [entry.label for entry in await controller.snapshots()] == ["step"]
    rollout.cancel()


@virtual_time
async def test_a_trainers_files_that_a_folding_file_system_would_mix_up_are_refused(tmp_path: Path) -> None:
    """They may be told apart here and not where the snapshot is restored."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        cut = controller.cut("step-1")
        await cut.__aenter__()
        for name in ("model", "Model"):
            (cut.directory / "trainer" / name).write_text(name)
        with pytest.raises(SnapshotInvalid, match="in case only"):
            await cut.__aexit__(None, None, None)
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
