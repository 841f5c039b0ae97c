"""Whole cuts over the kit's servers in one loop, in virtual time: what is published, and that everybody goes on."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from support.fleet import FENCES, Fleet, keep
from support.virtual_loop import virtual_time

from quiesce.controller import CompletedResult, Controller, DeadlineExceeded, Unacknowledged
from quiesce.controller.errors import StorageFailed
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.errors import ConfigurationError, InvalidIdentity
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_cut_over_work_in_flight_is_published_and_everybody_goes_on(
    tmp_path: Path, fence: FenceVariant
) -> None:
    """Open calls drain, rollouts park, results are acknowledged, all is exported once, and work goes on."""
    fleet = Fleet(fence)
    rollouts = [fleet.rollout(f"r{number}", 40) for number in range(3)]
    done = fleet.rollout("done", 1)
    await fleet.clock.sleep(2.5)
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()
    asyncio.get_running_loop().call_later(7.0, fleet.let_calls_end.set)
    async with fleet.controller(tmp_path, on_completed=keep) as controller:
        async with controller.cut("step-1", metadata={"step": 1}) as cut:
            assert not await fleet.everybody_accepts()
            (cut.directory / "trainer" / "state.txt").write_text("weights")
        snapshot = controller.store.verify(cut.wire_id)
    assert snapshot.is_good
    assert sorted(cut.result.rollouts) == [AttemptId(f"r{number}", 0) for number in range(3)]
    assert cut.result.restarting == ()
    assert await fleet.everybody_accepts()
    assert await call == 200
    await asyncio.gather(*rollouts, done)


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_an_exception_inside_the_cut_undoes_it(tmp_path: Path, fence: FenceVariant) -> None:
    """Nothing is published, nothing stays staged, everybody accepts work, the exception comes through."""
    fleet = Fleet(fence)
    async with fleet.controller(tmp_path) as controller:
        with pytest.raises(ValueError, match="the trainer failed"):
            async with controller.cut("step-1"):
                raise ValueError("the trainer failed")
        assert controller.store.list() == ()
        assert await fleet.everybody_accepts()
        async with controller.cut("step-1") as cut:
            pass
    assert cut.result.label == "step-1"
    assert list((tmp_path / ".quiesce" / "staging").iterdir()) == []


async def cut_within(controller: Controller, timeout_s: float) -> None:
    """A cut that cannot be reached, since a call stays open; its caller gives up after a while."""
    async with asyncio.timeout(timeout_s), controller.cut("step-1"):
        raise AssertionError("the cut cannot have been reached")


@pytest.mark.parametrize("after_s", [0.0, 0.5, 3.0, 6.0, 20.0])
@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_cancelled_cut_reopens_everybody_and_then_the_cancellation_goes_on(
    tmp_path: Path, fence: FenceVariant, after_s: float
) -> None:
    """At whatever moment of the drain the caller is cancelled."""
    fleet = Fleet(fence)
    rollout = fleet.rollout("r0", 100)
    call = asyncio.create_task(fleet.model_call("r0"))
    await fleet.call_began.wait()
    async with fleet.controller(tmp_path) as controller:
        with pytest.raises(TimeoutError):
            await cut_within(controller, after_s)
        assert await fleet.everybody_accepts()
        assert controller.store.list() == ()
    fleet.let_calls_end.set()
    assert await call == 200
    await rollout


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_drain_that_takes_too_long_names_who_and_what(tmp_path: Path, fence: FenceVariant) -> None:
    """The reach budget ends the cut; the error names the participant, its state and the open call."""
    fleet = Fleet(fence)
    call = asyncio.create_task(fleet.model_call("slow-rollout"))
    await fleet.call_began.wait()
    async with fleet.controller(tmp_path, reach_timeout_s=20.0) as controller:
        with pytest.raises(DeadlineExceeded, match=r"main/policy: draining.*slow-rollout"):
            async with controller.cut("step-1"):
                raise AssertionError
        assert await fleet.everybody_accepts()
    fleet.let_calls_end.set()
    assert await call == 200


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_results_that_nobody_owns_end_the_cut_and_are_listed(tmp_path: Path, fence: FenceVariant) -> None:
    """Without a callback a finished result cannot be acknowledged, so the cut ends at once and says which."""
    fleet = Fleet(fence)
    await fleet.rollout("done", 1)
    async with fleet.controller(tmp_path) as controller:
        with pytest.raises(Unacknowledged, match="main/agent: done attempt 0"):
            async with controller.cut("step-1"):
                raise AssertionError
    assert await fleet.everybody_accepts()
    assert fleet.clock.monotonic() < 60


@virtual_time
async def test_what_on_completed_raises_aborts_the_cut(tmp_path: Path) -> None:
    """The trainer's own error reaches the caller as it was raised."""
    fleet = Fleet()
    await fleet.rollout("done", 1)

    def fails(_results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        raise RuntimeError("the trainer's disk is full")

    async with fleet.controller(tmp_path, on_completed=fails) as controller:
        with pytest.raises(RuntimeError, match="the trainer's disk is full"):
            async with controller.cut("step-1"):
                raise AssertionError
    assert await fleet.everybody_accepts()


@pytest.mark.parametrize("fence", FENCES)
@virtual_time
async def test_a_restore_puts_everything_back_into_fresh_servers(tmp_path: Path, fence: FenceVariant) -> None:
    """Boundaries wait as attempt n + 1, lineage is there, everybody accepts work again."""
    fleet = Fleet(fence)
    rollout = fleet.rollout("r0", 40)
    await fleet.clock.sleep(3.5)
    async with fleet.controller(tmp_path) as controller, controller.cut("step-1") as cut:
        pass
    rollout.cancel()
    fresh = Fleet(fence, restore_expected=True)
    async with fresh.controller(tmp_path) as controller:
        async with controller.restore("step-1") as restored:
            assert not await fresh.everybody_accepts()
            assert restored.directory == cut.result.directory
        assert restored.result.source_wire_id == cut.wire_id
        assert restored.result.rollouts == (AttemptId("r0", 0),)
    assert await fresh.everybody_accepts()
    assert [record.attempt for record in fresh.runs.restored()] == [AttemptId("r0", 1)]
    assert fresh.runs.is_fenced(AttemptId("r0", 0))
    assert fresh.ledger.is_fenced(AttemptId("r0", 0))


@pytest.mark.parametrize("label", ["../x", "latest", "", "a" * 91, "a b", "x\n"])
@virtual_time
async def test_a_label_that_may_not_be_used_pauses_nobody(tmp_path: Path, label: str) -> None:
    """Refused before any call."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        with pytest.raises(InvalidIdentity, match="label"):
            controller.cut(label)
    assert await fleet.everybody_accepts()


@virtual_time
async def test_a_root_whose_parent_is_a_file_pauses_nobody(tmp_path: Path) -> None:
    """Found out when the controller is opened."""
    (tmp_path / "file").write_text("")
    fleet = Fleet()
    with pytest.raises(StorageFailed, match="file"):
        async with fleet.controller(tmp_path / "file" / "root"):
            raise AssertionError
    assert await fleet.everybody_accepts()


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"loss": math.nan}, "JSON compliant"),
        ({"text": "x" * 70_000}, "70012 bytes"),
        ({1: 2}, "valid string"),
        ({"a": {"b": object()}}, "JSON value"),
        ({"a": (1, 2)}, "JSON value"),
        ({"half": "\ud800"}, "half a character"),
        ({"huge": 10**5000}, "Exceeds the limit"),
        ([1], "a JSON object, not a list"),
        ("x", "a JSON object, not a str"),
    ],
    ids=["nan", "too large", "key", "object", "tuple", "surrogate", "number", "list", "text"],
)
@virtual_time
async def test_metadata_that_cannot_be_kept_pauses_nobody(tmp_path: Path, metadata: Any, told: str) -> None:  # noqa: ANN401 - of any type
    """Refused before any call, and not after everybody was paused for it."""
    fleet = Fleet()
    async with fleet.controller(tmp_path) as controller:
        with pytest.raises(ConfigurationError, match=f"metadata: .*{told}"):
            controller.cut("step-1", metadata=metadata)
        with pytest.raises(ConfigurationError, match="metadata"):
            await controller.begin_cut("step-1", metadata=metadata)
        kept: dict[str, Any] = {"step": 1, "nested": [{"a": None}]}
        cut = controller.cut("step-2", metadata=kept)
        kept["nested"].append(object())
        async with cut:
            pass
        assert controller.store.load("step-2").metadata == {"step": 1, "nested": [{"a": None}]}
