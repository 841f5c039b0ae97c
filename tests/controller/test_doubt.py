"""Who is owed a resume: named, kept, settled; and participants that are not those that were paused."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from support.fleet import FENCES, Fleet
from support.virtual_loop import virtual_time
from support.wiretap import TappedCall, Wiretap

from quiesce.controller import Controller, InDoubt, UnexpectedFence
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import (
    ConfigurationError,
    ControlRequestError,
    ProtocolViolation,
    TopologyError,
    Unreachable,
)
from quiesce.transport.faults import Fault, FaultKind, ScriptedFaults
from quiesce.transport.faulty import FaultyTransport
from quiesce.transport.port import ControlReply

on_both_fences = pytest.mark.parametrize("fence", FENCES)
RESUME = {
    "policy": "model-admission/resume",
    "agent": "agent-checkpoint/resume",
    "tools": "resources-checkpoint/resume",
}
PREPARE = {
    "policy": "model-admission/pause",
    "agent": "agent-checkpoint/prepare",
    "tools": "resources-checkpoint/prepare",
}
COMMIT = {
    "policy": "model-checkpoint/commit",
    "agent": "agent-checkpoint/commit",
    "tools": "resources-checkpoint/commit",
}
REVOKED = ControlReply(
    401, {"content-type": "application/json"}, b'{"detail":"missing or invalid control-plane bearer token"}'
)
NAMES = ("policy", "agent", "tools")
SLICE_S = 5.0


def key(name: str) -> ParticipantKey:
    """A participant of the one deployment."""
    return ParticipantKey("main", name)


async def dies_before_its_resume(fleet: Fleet, root: Path, name: str, *, fails: bool) -> None:
    """A cut, published or aborted, whose resume does not reach one participant; settled once that is back."""
    network = fleet.transport()

    def die(call: TappedCall) -> None:
        if call.route == RESUME[name] and not call.is_question:
            network.unmount(f"http://{name}")

    tap = Wiretap(network, instead=die)
    async with fleet.controller(root, transport=tap, release_timeout_s=30.0) as controller:
        doubt = await left_in_doubt(controller, fails=fails)
        assert doubt.published is not fails
        assert list(doubt.owed) == [key(name)]
        assert "no application is mounted" in doubt.owed[key(name)]
        assert len(controller.store.list()) == (0 if fails else 1)
        with pytest.raises(InDoubt, match=f"main/{name}"):
            await controller.cut("next").__aenter__()
        with pytest.raises(InDoubt, match=f"main/{name}"):
            await controller.settle()
        tap.instead = lambda _call: None
        network.mount(f"http://{name}", fleet.apps[name])
        await controller.settle()
        assert controller.unsettled is None
        assert await fleet.everybody_accepts()
        async with controller.cut("next") as cut:
            pass
        assert controller.store.verify(cut.wire_id).is_good


async def left_in_doubt(controller: Controller, *, fails: bool) -> InDoubt:
    """A cut that ends with somebody in doubt, whether or not its body failed."""
    cut = controller.cut("first")
    await cut.__aenter__()
    error = ValueError("the trainer failed") if fails else None
    with pytest.raises(ExceptionGroup if fails else InDoubt) as caught:
        await cut.__aexit__(type(error) if error else None, error, None)
    if isinstance(caught.value, InDoubt):
        return caught.value
    assert isinstance(caught.value, ExceptionGroup)
    assert caught.group_contains(ValueError, match="the trainer failed")
    return next(one for one in caught.value.exceptions if isinstance(one, InDoubt))


@on_both_fences
@pytest.mark.parametrize("fails", [False, True], ids=["published", "aborted"])
@pytest.mark.parametrize("name", NAMES)
@virtual_time
async def test_who_dies_before_its_resume_is_in_doubt_until_it_is_settled(
    tmp_path: Path, fence: FenceVariant, name: str, *, fails: bool
) -> None:
    """Named, the others open; no cut begins before; the snapshot stands if it was published (F-22)."""
    await dies_before_its_resume(Fleet(fence), tmp_path, name, fails=fails)


@on_both_fences
@virtual_time
async def test_a_lost_resume_is_repeated_one_at_a_time(tmp_path: Path, fence: FenceVariant) -> None:
    """Never two resumes to one participant in flight; agents only after every policy is open (F-02)."""
    fleet = Fleet(fence)
    faults = ScriptedFaults(
        {
            ("main/policy", f"POST /ng-control/v1/{RESUME['policy']}", 2): Fault(FaultKind.REPLY_STUCK),
            ("main/policy", f"POST /ng-control/v1/{RESUME['policy']}", 3): Fault(FaultKind.REPLY_LOST),
        }
    )
    tap = Wiretap(FaultyTransport(fleet.transport(), faults))
    async with fleet.controller(tmp_path, transport=tap) as controller, controller.cut("step-1"):
        pass
    resumes = tap.to(RESUME["policy"])
    assert len(resumes) == 3
    assert [call.answered_s is None for call in resumes] == [True, True, False]
    assert resumes[1].sent_s >= resumes[0].sent_s + resumes[0].request.timeout_s
    assert resumes[2].answered_s is not None
    assert tap.to(RESUME["agent"])[0].sent_s >= resumes[2].answered_s
    assert len({call.body["checkpoint_id"] for call in resumes}) == 1


@on_both_fences
@virtual_time
async def test_who_dies_while_it_drains_ends_the_cut_long_before_its_budget(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """Lost for certain after a few tries; it is named in doubt, and the others are open within seconds (F-11)."""
    fleet = Fleet(fence)
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()
    network = fleet.transport()
    tap = Wiretap(network)
    asyncio.get_running_loop().call_later(7.0, network.unmount, "http://policy")
    async with fleet.controller(tmp_path, transport=tap, reach_timeout_s=600.0, release_timeout_s=60.0) as controller:
        with pytest.raises(ExceptionGroup) as caught:
            await controller.cut("step-1").__aenter__()
        assert caught.group_contains(Unreachable, match="main/policy")
        assert caught.group_contains(InDoubt, match="main/policy")
        assert tap.to(RESUME["agent"])[0].sent_s <= 7.0 + SLICE_S + 2 * 10.0 + 2.0  # two waves' patience
        assert fleet.clock.monotonic() <= 7.0 + SLICE_S + 60.0 + 5.0
        network.mount("http://policy", fleet.apps["policy"])
        await controller.settle()
        assert await fleet.everybody_accepts()
    fleet.let_calls_end.set()
    await call


@on_both_fences
@virtual_time
async def test_a_token_that_is_revoked_in_the_middle(tmp_path: Path, fence: FenceVariant) -> None:
    """The cut is undone and says that it was refused; whoever refuses the resume too is in doubt (F-29)."""
    fleet = Fleet(fence)
    tap = Wiretap(fleet.transport())
    async with fleet.controller(tmp_path, transport=tap, release_timeout_s=20.0) as controller:
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        tap.instead = lambda call: REVOKED if call.site.participant == "main/policy" else None
        with pytest.raises(ExceptionGroup) as caught:
            await cut.commit()
        assert caught.group_contains(ControlRequestError, match="401.*check the control token")
        assert caught.group_contains(InDoubt, match="main/policy.*401")
        await cut.discard()
        await controller.end(cut)
        assert [name for name, (_, holder) in (await fleet.phases()).items() if holder] == ["policy"]
        tap.instead = lambda _call: None
        await controller.settle()
        assert await fleet.everybody_accepts()


@on_both_fences
@virtual_time
async def test_who_never_got_a_call_gets_no_resume(tmp_path: Path, fence: FenceVariant) -> None:
    """Its prepare certainly never left, so nothing is owed to it; the others are resumed (F-06)."""
    fleet = Fleet(fence)
    network = fleet.transport()
    tap = Wiretap(network)
    async with fleet.controller(tmp_path, transport=tap) as controller:
        tap.instead = lambda call: network.unmount("http://agent") if call.route == PREPARE["agent"] else None
        with pytest.raises(Unreachable, match="main/agent"):
            await controller.cut("step-1").__aenter__()
        assert controller.unsettled is None
    assert tap.to(RESUME["agent"]) == []
    assert len(tap.to(RESUME["policy"])) == 1
    assert tap.to(RESUME["tools"]) == []


@on_both_fences
@virtual_time
async def test_the_first_error_leaves_no_sibling_running(tmp_path: Path, fence: FenceVariant) -> None:
    """One refuses while another's late success is still to come: it is undone, and nobody later is called (F-33)."""
    fleet = Fleet(fence)
    slow = ScriptedFaults({("main/policy", f"POST /ng-control/v1/{PREPARE['policy']}", 2): Fault(FaultKind.DELAYED, 2)})
    tap = Wiretap(FaultyTransport(fleet.transport(), slow))
    async with fleet.controller(tmp_path, transport=tap) as controller:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0), controller.cut("step-1"):
                raise AssertionError
    assert fleet.clock.monotonic() >= 2.0
    assert {call.site.participant for call in tap.mutating()} == {"main/policy"}
    assert await fleet.everybody_accepts()


@on_both_fences
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("before", ["reading", "export"])
@virtual_time
async def test_a_restart_between_prepare_and_commit_aborts_the_cut(
    tmp_path: Path, fence: FenceVariant, name: str, before: str
) -> None:
    """Another incarnation at the same URL never gets into a snapshot; both ids are named (F-07, F-08)."""
    fleet = Fleet(fence)
    network = fleet.transport()
    old = fleet.apps[name].instance
    done: list[str] = []

    def restart(call: TappedCall) -> None:
        if call.route == COMMIT[name] and not done:
            fleet.restart(name, network)
            done.append(name)

    tap = Wiretap(network, instead=restart if before == "export" else lambda _call: None)
    async with fleet.controller(tmp_path, transport=tap) as controller:
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        if before == "reading":
            fleet.restart(name, network)
        with pytest.raises(ProtocolViolation, match="restarted or replaced") as caught:
            await cut.commit()
        await cut.discard()
        await controller.end(cut)
        assert old in str(caught.value)
        assert fleet.apps[name].instance in str(caught.value)
        assert f"main/{name}" in str(caught.value)
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
        async with controller.cut("step-2"):
            pass


@virtual_time
async def test_a_restart_of_a_server_that_names_no_instance_shows_in_its_phase(tmp_path: Path) -> None:
    """It reads idle where it must be prepared: the error says that it was restarted, or resumed by somebody."""
    fleet = Fleet()
    network = fleet.transport()

    class Nameless:
        """Drops the header that names the incarnation."""

        async def send(self, request: object) -> object:
            reply = await network.send(request)  # type: ignore[arg-type]  # a request
            headers = {name: value for name, value in reply.headers.items() if name != "x-quiesce-instance"}
            return type(reply)(reply.status, headers, reply.body)

        async def aclose(self) -> None:
            await network.aclose()

    async with fleet.controller(tmp_path, transport=Nameless()) as controller:  # type: ignore[arg-type]  # a transport
        cut = await controller.begin_cut("step-1")
        await cut.prepare()
        fleet.restart("tools", network)
        with pytest.raises(UnexpectedFence, match="no longer stands at the cut; the participant was restarted"):
            await cut.commit()
        await cut.discard()
        await controller.end(cut)
    assert await fleet.everybody_accepts()


@on_both_fences
@virtual_time
async def test_somebody_elses_checkpoint_is_left_alone_and_named(tmp_path: Path, fence: FenceVariant) -> None:
    """No call but the reading goes to anybody; the other holds what it held (F-38). A restore is refused alike."""
    fleet = Fleet(fence)
    async with fleet.controller(tmp_path) as other:
        async with other.cut("step-0"):
            pass
        foreign = await other.begin_cut("theirs")
        await foreign.prepare()
        before = await fleet.phases()
        fleet.traces = []  # the runs of two controllers are held against the tables apart
        tap = Wiretap(fleet.transport())
        async with fleet.controller(tmp_path / "ours", transport=tap) as controller:
            with pytest.raises(ExceptionGroup) as caught:
                await controller.cut("ours").__aenter__()
        assert {one.participant for one in caught.value.exceptions if isinstance(one, UnexpectedFence)} == {
            f"main/{name}" for name in NAMES
        }
        assert all(getattr(one, "holder", "") == foreign.wire_id for one in caught.value.exceptions)
        # a root has one controller, so the other one works on a copy of the snapshots
        shutil.copytree(tmp_path / "snapshots", tmp_path / "copy" / "snapshots")
        async with fleet.controller(tmp_path / "copy", transport=tap) as controller:
            with pytest.raises(ExceptionGroup) as caught:
                await controller.restore("step-0").__aenter__()
            assert caught.group_contains(UnexpectedFence, match=foreign.wire_id)
            assert controller.unsettled is None
        assert tap.mutating() == []
        assert await fleet.phases() == before
        await foreign.abort()
        await foreign.discard()
        await other.end(foreign)
    assert await fleet.everybody_accepts()


@on_both_fences
@virtual_time
async def test_participants_that_are_not_there_any_more_are_all_named_and_nobody_is_paused(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """A cut over fewer than were validated is never begun: each that is missing is named (F-12)."""
    fleet = Fleet(fence)
    network = fleet.transport()
    tap = Wiretap(network)
    async with fleet.controller(tmp_path, transport=tap) as controller:
        for name in ("agent", "judge", "tools"):
            network.unmount(f"http://{name}")
        with pytest.raises(ExceptionGroup) as caught:
            await controller.cut("step-1").__aenter__()
        assert {getattr(one, "participant", "") for one in caught.value.exceptions} == {
            "main/agent",
            "main/judge",
            "main/tools",
        }
        assert fleet.clock.monotonic() < 5
        network.unmount("http://policy")
        with pytest.raises(ExceptionGroup, match="did not end as asked"):
            await controller.cut("step-2").__aenter__()
        for name, app in fleet.apps.items():
            network.mount(f"http://{name}", app)
        async with controller.cut("step-3"):
            pass
    assert {call.body["checkpoint_id"].rpartition("-")[0] for call in tap.mutating()} == {"step-3"}


@virtual_time
async def test_a_participant_that_declares_something_else_than_when_it_was_validated(tmp_path: Path) -> None:
    """The cut is refused before anybody is paused, and says what has changed."""
    fleet = Fleet()
    network = fleet.transport()
    tap = Wiretap(network)
    async with fleet.controller(tmp_path, transport=tap) as controller:
        network.mount("http://agent", Fleet().apps["tools"])
        with pytest.raises(QuiesceError, match="declares something else than when it was discovered"):
            await controller.cut("step-1").__aenter__()
    assert tap.mutating() == []


@virtual_time
async def test_two_transactions_of_one_controller_do_not_run_at_once(tmp_path: Path) -> None:
    """The second is refused and changes nothing; the first goes on."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        async with controller.cut("step-1") as cut:
            before = await fleet.phases()
            for second in (controller.cut("step-2"), controller.restore("step-1")):
                with pytest.raises(ConfigurationError, match="another cut or restore"):
                    await second.__aenter__()
            with pytest.raises(ConfigurationError, match="another cut or restore"):
                await controller.settle()
            assert await fleet.phases() == before
        with pytest.raises(ConfigurationError, match="entered before"):
            await cut.__aenter__()
        async with controller.cut("step-2"):
            pass
    with pytest.raises(ConfigurationError, match="not open"):
        await controller.cut("step-3").__aenter__()


@on_both_fences
@virtual_time
async def test_observers_that_raise_change_nothing(tmp_path: Path, fence: FenceVariant) -> None:
    """Every step is told to every observer, and what one of them raises is nobody else's business."""
    fleet = Fleet(fence)
    told: list[TraceRecord] = []

    def raises(_trace: TraceRecord) -> None:
        raise RuntimeError("an embedder's fault")

    async with fleet.controller(tmp_path, observers=(raises, told.append)) as controller, controller.cut("step-1"):
        pass
    assert told == fleet.traces
    assert [trace.target for trace in told if trace.machine == "TRANSACTION"][-1] == "resumed"
    assert await fleet.everybody_accepts()


@virtual_time
async def test_nobody_to_cut_is_refused_when_the_controller_opens(tmp_path: Path) -> None:
    """A deployment without a policy proves nothing about anybody's work."""
    fleet = Fleet()
    del fleet.apps["policy"]
    with pytest.raises(TopologyError, match="policy"):
        async with fleet.controller(tmp_path):
            raise AssertionError
    assert await fleet.everybody_accepts()
