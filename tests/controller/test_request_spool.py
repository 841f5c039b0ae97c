"""Another program asks the controller that holds the root: by files, once each, and never a later controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import run_virtual, virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, Cut, HalfRestored, InDoubt, PhasedCut, PhasedRestore
from quiesce.controller.asking import Asker, new_request_id
from quiesce.controller.errors import ControllerGone, RequestConflict, StorageFailed
from quiesce.controller.files import LocalFiles
from quiesce.controller.request_watch import RequestWatch
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.spool import AskedAnswer, AskedKind, AskedRequest, NotBelievable, Spool, spool_schemas
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError, InvalidIdentity
from quiesce.transport.port import ControlReply, Transport

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
REFUSED = ControlReply(
    409, {"content-type": "application/json"}, b'{"error":{"code":"ledger_mismatch","detail":"not fresh"}}'
)
every_fence = pytest.mark.parametrize("fence", FENCES)


def save(cut: Cut) -> None:
    """The trainer's own part."""
    (cut.directory / "trainer" / "weights").write_text("w")


def holding(fleet: Fleet, root: Path, transport: Transport | None = None) -> Controller:
    """A controller whose program says how its part is saved."""
    return Controller(
        fleet.config(root),
        on_completed=keep,
        on_asked_cut=save,
        transport=transport or fleet.transport(),
        clock=fleet.clock,
        observers=(fleet.traces.append,),
    )


def asker(fleet: Fleet, root: Path) -> Asker:
    """Another program, on the same file system."""
    return Asker(root, clock=fleet.clock)


def spool_of(root: Path, epoch: int = 1) -> Spool:
    """The spool of a tenure."""
    return Spool(LocalFiles(), RootLayout(root), epoch)


@every_fence
@virtual_time
async def test_a_cut_on_demand_is_taken_once(tmp_path: Path, fence: FenceVariant) -> None:
    """However often it is asked for under one id, at once or later; nothing else can be asked under it (F-50)."""
    fleet = Fleet(fence)
    work = fleet.rollout("r0", 1000)
    async with holding(fleet, tmp_path) as controller:
        ask = asker(fleet, tmp_path)
        both = [ask.ask(AskedKind.CUT, "q1", label="step-1", metadata={"step": 1}) for _ in range(2)]
        first, second = await asyncio.gather(*both)
        assert first.ok
        assert first == second == await ask.ask(AskedKind.CUT, "q1", label="step-1", metadata={"step": 1})
        (entry,) = controller.store.list()
        assert first.result["wire_id"] == entry.wire_id
        assert [file.path for file in controller.store.load("step-1").trainer] == ["trainer/weights"]
        with pytest.raises(RequestConflict, match="q1"):
            await ask.ask(AskedKind.CUT, "q1", label="step-2")
        with pytest.raises(RequestConflict, match="ask for another cut"):
            await ask.ask(AskedKind.ABORT, "q1")
        assert len(controller.store.list()) == 1
    assert await fleet.everybody_accepts()
    work.cancel()


@virtual_time
async def test_what_cannot_be_done_is_answered(tmp_path: Path) -> None:
    """A label that cannot be one, a transaction that runs, a program that does not say how it saves its own part."""
    fleet = Fleet()
    async with holding(fleet, tmp_path) as controller:
        ask = asker(fleet, tmp_path)
        bad = await ask.ask(AskedKind.CUT, "q1", label="../x")
        assert (bad.ok, bad.unproven, [kind for kind, _ in bad.errors]) == (False, False, ["InvalidIdentity"])
        assert "label" in (await ask.ask(AskedKind.CUT, "q2")).errors[0][1]
        async with controller.cut("step-1"):
            busy = await ask.ask(AskedKind.CUT, "q3", label="step-2")
            assert "is running" in busy.errors[0][1]
            assert "is running" in (await ask.ask(AskedKind.SETTLE, "q4")).errors[0][1]
        unknown = await ask.ask(AskedKind.SETTLE, "q5", give_up=["main/agent"])
        assert "Nobody is owed a resume" in unknown.errors[0][1]
        assert (await ask.ask(AskedKind.SETTLE, "q7")).ok
    async with fleet.controller(tmp_path):
        refused = await asker(fleet, tmp_path).ask(AskedKind.CUT, "q1", label="step-2")
        assert "on_asked_cut" in refused.errors[0][1]


@virtual_time
async def test_what_cannot_be_asked_is_refused_here(tmp_path: Path) -> None:
    """An id that would be a path, a field that is none, a root that nobody holds: no file is written."""
    fleet = Fleet()
    with pytest.raises(StorageFailed, match="takes no requests"):
        await asker(fleet, tmp_path).ask(AskedKind.ABORT, "q1")
    async with holding(fleet, tmp_path):
        ask = asker(fleet, tmp_path)
        with pytest.raises(InvalidIdentity, match="request id"):
            await ask.ask(AskedKind.ABORT, "../q1")
        with pytest.raises(ConfigurationError, match="label"):
            await ask.ask(AskedKind.CUT, "q1", label=7)
        assert list((tmp_path / ".quiesce" / "requests" / "1").iterdir()) == []
    assert len({new_request_id() for _ in range(100)}) == 100


@every_fence
@pytest.mark.parametrize("named", [True, False])
@virtual_time
async def test_a_cut_that_runs_is_aborted_from_outside(tmp_path: Path, fence: FenceVariant, *, named: bool) -> None:
    """While it drains: its caller gets the abort, whoever asked gets how it ended, everybody is open."""
    fleet = Fleet(fence)
    stuck = fleet.stuck("slow")
    async with holding(fleet, tmp_path) as controller:
        cutting = asyncio.ensure_future(controller.cut("step-1").__aenter__())
        await fleet.clock.sleep(2.0)
        running = controller.running
        assert running is not None
        wire_id = running.wire_id
        answer = await asker(fleet, tmp_path).ask(AskedKind.ABORT, "q1", wire_id=wire_id if named else None)
        assert answer.result == {
            "wire_id": wire_id,
            "state": "aborted",
            "reopened": [],
            "to_restart": [],
            "silent": {},
            "waiting": [],
            "still_open": [],
            "moved_to": None,
            "notes": [],
        }
        with pytest.raises(Exception, match="was aborted on request"):
            await cutting
        assert await fleet.everybody_accepts()
        assert controller.unsettled is None
        assert (await asker(fleet, tmp_path).ask(AskedKind.ABORT, "q2")).result["wire_id"] is None
    stuck.cancel()


@every_fence
@virtual_time
async def test_a_restore_that_is_held_closed_is_aborted_from_outside(tmp_path: Path, fence: FenceVariant) -> None:
    """It says who must be restarted; no cut begins before, or before they are given up by name."""
    fleet = Fleet(fence)
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1"):
        pass
    fresh = Fleet(fence)

    def refuse(call: TappedCall) -> ControlReply | None:
        return REFUSED if call.route == "agent-checkpoint/restore" else None

    async with holding(fresh, tmp_path, Wiretap(fresh.transport(), instead=refuse)) as controller:
        with pytest.raises(ExceptionGroup):
            await controller.restore("step-1").__aenter__()
        held = controller.unsettled
        assert isinstance(held, PhasedRestore)
        answer = await asker(fresh, tmp_path).ask(AskedKind.ABORT, "q1")
        assert (answer.ok, answer.result["state"]) == (True, "aborted")
        assert answer.result["to_restart"] == ["main/agent", "main/policy"]
        assert await fresh.everybody_accepts()
        answer = await asker(fresh, tmp_path).ask(AskedKind.SETTLE, "q2")
        assert (answer.ok, answer.unproven) == (False, True)
        with pytest.raises(HalfRestored, match="main/agent, main/policy"):
            await controller.cut("step-2").__aenter__()
        given_up = ("main/agent", "main/policy")
        assert (await asker(fresh, tmp_path).ask(AskedKind.SETTLE, "q3", give_up=given_up)).ok
        assert controller.unsettled is None
        async with controller.cut("step-2"):
            pass


@every_fence
@virtual_time
async def test_who_is_in_doubt_is_settled_from_outside(tmp_path: Path, fence: FenceVariant) -> None:
    """By asking again, or by giving up on somebody who is gone for good."""
    fleet = Fleet(fence)
    network = fleet.transport()
    async with holding(fleet, tmp_path, network) as controller:
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        network.unmount("http://tools")
        await cut.abort()
        await controller.end(cut)
        answer = await asker(fleet, tmp_path).ask(AskedKind.SETTLE, "q1")
        assert (answer.ok, answer.unproven) == (False, True)
        assert [kind for kind, _ in answer.errors] == [InDoubt.__name__]
        assert "main/tools" in answer.errors[0][1]
        assert (await asker(fleet, tmp_path).ask(AskedKind.SETTLE, "q2", give_up=["tools"])).ok
        assert controller.unsettled is None


@pytest.mark.parametrize("phase", ["prepared", "restored"])
@every_fence
@virtual_time
async def test_an_id_of_which_nothing_is_known_is_looked_for(tmp_path: Path, fence: FenceVariant, phase: str) -> None:
    """Whoever says that it holds them is reopened under it; it is written down; anybody else is left alone."""
    fleet = Fleet(fence)
    network = fleet.transport()
    if phase == "restored":
        async with fleet.controller(tmp_path / "other") as other, other.cut("step-1"):
            pass
        fleet = Fleet(fence)
        network = fleet.transport()
    stranger = fleet.controller(tmp_path / "other", transport=Wiretap(network))
    await stranger.open()
    if phase == "restored":
        restore = await stranger.begin_restore("step-1")
        await restore.restore()
        wire_id = restore.wire_id
        await restore.close()
    else:
        cut = await stranger.begin_cut("step-1")
        await cut.prepare()
        wire_id = cut.wire_id
        await cut.close()
    assert not await fleet.everybody_accepts()
    async with holding(fleet, tmp_path) as controller:
        assert set((await controller.holders()).holding) == {wire_id}
        nothing = await controller.abort("somebody-else-1")
        assert (nothing.wire_id, nothing.reopened) == (None, ())
        assert not await fleet.everybody_accepts()
        aborted = await controller.abort(wire_id)
        keys = {ParticipantKey("main", name) for name in ("policy", "agent", "tools")}
        assert set(aborted.reopened) == keys
        assert set(aborted.to_restart) == (keys if phase == "restored" else set())
        assert await fleet.everybody_accepts()
        assert (await controller.holders()).holding == {}
        assert (tmp_path / ".quiesce" / "journal" / f"{wire_id}.ndjson").exists()
        assert (await controller.abort(wire_id)).wire_id is None
        async with controller.cut("step-2"):
            pass


@virtual_time
async def test_what_is_asked_of_a_dead_controller_is_never_done(tmp_path: Path) -> None:
    """Its asker learns that it is gone; the next controller sweeps the request away and cuts nothing."""
    fleet = Fleet()
    controller = holding(fleet, tmp_path)
    await controller.open()
    requests = controller._requests
    await requests.close()  # as if it had stood still from here on
    asking = asyncio.ensure_future(asker(fleet, tmp_path).ask(AskedKind.CUT, "q1", label="step-1"))
    await fleet.clock.sleep(2.0)
    await controller.close()
    with pytest.raises(ControllerGone, match="q1"):
        await asking
    async with holding(fleet, tmp_path) as successor:
        await fleet.clock.sleep(5.0)
        assert successor.store.list() == ()
        assert [path.name for path in (tmp_path / ".quiesce" / "requests").iterdir()] == ["2"]


@virtual_time
async def test_a_cut_on_demand_ends_with_its_controller(tmp_path: Path) -> None:
    """Closed in the middle: aborted, everybody open, and the asker is told."""
    fleet = Fleet()
    stuck = fleet.stuck("slow")
    controller = holding(fleet, tmp_path)
    await controller.open()
    asking = asyncio.ensure_future(asker(fleet, tmp_path).ask(AskedKind.CUT, "q1", label="step-1"))
    await fleet.clock.sleep(2.0)
    running = controller.running
    assert isinstance(running, PhasedCut)
    assert running.state is TransactionState.DRAINING
    await controller.close()
    answer = await asking
    assert not answer.ok
    assert "closed meanwhile" in answer.errors[0][1]
    assert await fleet.everybody_accepts()
    stuck.cancel()


GOOD = AskedRequest.of_this_program(AskedKind.CUT, "good", label="step-1").model_dump_json()
TORN: dict[str, str] = {
    "torn.request.json": GOOD[: len(GOOD) // 2],
    "empty.request.json": "",
    "other-id.request.json": GOOD,
    "later.request.json": GOOD.replace('"schema_version":1', '"schema_version":2').replace('"good"', '"later"'),
    "more.request.json": GOOD.replace('"good"', '"more","surprise":1'),
    "twice.request.json": GOOD.replace('"good"', '"twice","request_id":"twice"'),
    "kind.request.json": GOOD.replace('"good"', '"kind"').replace('"cut"', '"destroy"'),
    "..request.json": GOOD,
    "note.txt": "hello",
}


@virtual_time
async def test_what_is_no_request_is_ignored_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torn, foreign, of a later version: none of it is done, each is reported once, and the others are answered."""
    named: dict[str, str] = {}

    def ignored(_watch: RequestWatch, what: str, why: str) -> None:
        named[what] = why

    monkeypatch.setattr(RequestWatch, "_name", ignored)
    fleet = Fleet()
    async with holding(fleet, tmp_path) as controller:
        folder = tmp_path / ".quiesce" / "requests" / "1"
        for name, content in TORN.items():
            (folder / name).write_text(content)
        (folder / "folder.request.json").mkdir()
        assert (await asker(fleet, tmp_path).ask(AskedKind.CUT, "q1", label="step-1")).ok
        assert len(controller.store.list()) == 1
        assert sorted(name for name in folder.iterdir() if name.name.endswith("answer.json")) == [
            folder / "q1.answer.json"
        ]
        strangers = {"note.txt"} | {name.removesuffix(".request.json") for name in TORN if name != "note.txt"}
        assert set(named) == {*strangers, "folder"}
    assert await fleet.everybody_accepts()


@given(content=st.binary(max_size=200), name=st.sampled_from(["request", "answer"]))
def test_a_reader_survives_whatever_lies_there(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    """Not believable, and nothing else."""
    root = tmp_path_factory.mktemp("root")
    spool = spool_of(root)
    spool.prepare()
    (root / ".quiesce" / "requests" / "1" / f"q1.{name}.json").write_bytes(content)
    read: Callable[[str], object] = spool.request if name == "request" else spool.answer
    with pytest.raises(NotBelievable):
        read("q1")


def test_an_answer_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Whoever asked is not left waiting."""

    async def scenario() -> None:
        fleet = Fleet()
        async with holding(fleet, tmp_path):
            folder = tmp_path / ".quiesce" / "requests" / "1"
            (folder / "q1.answer.json").write_text("{")
            with pytest.raises(ConfigurationError, match="cannot be read"):
                await asker(fleet, tmp_path).ask(AskedKind.SETTLE, "q1")

    run_virtual(scenario())


def test_requests_and_answers_read_back_as_they_were_written(tmp_path: Path) -> None:
    """Whole, and under their own ids."""
    spool = spool_of(tmp_path)
    spool.prepare()
    request = AskedRequest.of_this_program(AskedKind.SETTLE, "q1", give_up=["main/a"])
    spool.submit(request)
    assert spool.look() == (("q1",), ())
    assert spool.request("q1") == request
    assert spool.answer("q1") is None
    answer = AskedAnswer(request_id="q1", ok=False, errors=(("InDoubt", "somebody"),), unproven=True)
    spool.reply(answer)
    assert spool.answer("q1") == answer
    assert spool.look() == ((), ())


@pytest.mark.source
def test_the_published_schemas_are_those_of_the_code() -> None:
    """``docs/schemas`` holds the JSON Schema of requests and answers; unknown fields are forbidden."""
    for name, schema in spool_schemas().items():
        assert json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")) == schema
        assert schema["additionalProperties"] is False
