"""One cut or one restore under the faults of a plan, and what is asked of it whatever becomes of it.

Nobody is closed who is not named in doubt or held; nothing is visible that does not verify; what the caller was told is
true; once the network is well, what is in doubt settles, what is held can be mended, and the next cut works.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.sweep_fleet import SweepFleet
from support.wiretap import Wiretap

from quiesce.controller import Controller, CutResult, InDoubt, PhasedCut, PhasedRestore, RestoreFailed, RestoreResult
from quiesce.controller.catalog import SnapshotState
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.trace_check import check_trace, split_runs
from quiesce.participants.identity import AttemptId
from quiesce.transport.faults import CallSite, Fault, FaultPlan
from quiesce.transport.faulty import FaultyTransport

__all__ = ["saved_snapshot", "successors", "swept_cut", "swept_restore"]

RETRIES = 4
LABEL = "first"


@dataclass
class Switch:
    """The faults of a plan, until it is turned off."""

    plan: FaultPlan | None

    def fault_for(self, site: CallSite) -> Fault | None:
        """What the plan says, while it is on."""
        return self.plan.fault_for(site) if self.plan is not None else None

    def turn_off(self) -> None:
        """From now on every call goes through."""
        self.plan = None


@dataclass
class Stage:
    """A fleet behind a network that goes wrong until it is mended."""

    fleet: SweepFleet
    root: Path
    switch: Switch

    def __post_init__(self) -> None:
        self.tap = Wiretap(self.fleet.transport())
        self.network = FaultyTransport(self.tap, self.switch)

    async def opened(self) -> Controller:
        """A controller over them. Where discovery meets a fault, nobody was paused, and the next one is without."""
        controller = self.fleet.controller(self.root, self.network)
        try:
            await controller.open()
        except (QuiesceError, ExceptionGroup):
            assert not self.tap.mutating()
            self.switch.turn_off()
            await controller.open()
        return controller

    async def ended(self) -> None:
        """What was still on its way arrives, and closes nobody; all steps were steps of the tables."""
        await self.fleet.stop()
        await self.network.settled()
        assert not self.fleet.closed()
        for run in split_runs(self.fleet.traces):
            assert not check_trace(run, roles=self.fleet.served_as, drain=DrainMode.OVERLAPPED)


async def saved_snapshot(root: Path, size: int, fence: FenceVariant) -> CutResult:
    """What a cut without faults comes to."""
    fleet = SweepFleet(size, fence)
    await fleet.work()
    async with fleet.controller(root, fleet.transport()) as controller, controller.cut(LABEL) as cut:
        pass
    await fleet.stop()
    return cut.result


async def swept_cut(root: Path, size: int, fence: FenceVariant, plan: FaultPlan | None) -> list[CallSite]:
    """A cut under the plan's faults, then one on a network that is well; the first one's calls, discovery included."""
    stage = Stage(SweepFleet(size, fence), root, Switch(plan))
    await stage.fleet.work()
    controller = await stage.opened()
    told = await _told_of_a_cut(controller)
    check_cut(controller, stage.fleet, told)
    sites = list(stage.tap.sites)
    stage.switch.turn_off()
    await controller.settle()
    assert not stage.fleet.closed()
    async with controller.cut("second"):
        pass
    assert controller.store.verify("second").is_good
    await controller.close()
    await stage.ended()
    return sites


async def swept_restore(
    root: Path, size: int, fence: FenceVariant, plan: FaultPlan | None, live: frozenset[AttemptId]
) -> list[CallSite]:
    """A restore under the plan's faults, which is mended on a network that is well; its calls, discovery included.

    ``live`` are the attempts of the snapshot.
    """
    stage = Stage(SweepFleet(size, fence), root, Switch(plan))
    controller = await stage.opened()
    told = await _told_of_a_restore(controller)
    check_restore(controller, stage.fleet, told, live)
    sites = list(stage.tap.sites)
    stage.switch.turn_off()
    await _mended(controller, stage.fleet, live)
    await controller.close()
    await stage.ended()
    return sites


async def _told_of_a_cut(controller: Controller) -> CutResult | Exception:
    try:
        async with controller.cut(LABEL) as cut:
            pass
    except (QuiesceError, ExceptionGroup) as error:
        return error
    return cut.result


async def _told_of_a_restore(controller: Controller) -> RestoreResult | Exception:
    try:
        async with controller.restore(LABEL) as restored:
            pass
    except (QuiesceError, ExceptionGroup) as error:
        return error
    return restored.result


def check_cut(controller: Controller, fleet: SweepFleet, told: CutResult | Exception) -> None:
    """Whether what was told of a cut is true."""
    snapshots = controller.store.list()
    assert all(entry.state is SnapshotState.VALID for entry in snapshots)
    found = [entry for entry in snapshots if entry.label == LABEL]
    assert all(controller.store.verify(entry.wire_id).is_good for entry in found)
    if isinstance(told, CutResult):
        assert not fleet.closed()
        assert controller.unsettled is None
        assert [entry.wire_id for entry in found] == [told.wire_id]
        manifest = controller.store.load(told.wire_id)
        assert {entry.attempt for entry in manifest.rollouts} == set(told.rollouts)
        live = {AttemptId(f"{name}-r", 0) for name in fleet.runs}
        assert {*told.rollouts, *told.restarting} >= live
        return
    doubts = [error for error in flat(told) if isinstance(error, InDoubt)]
    assert fleet.closed() <= {str(key) for doubt in doubts for key in doubt.owed}
    assert bool(doubts) == (controller.unsettled is not None)
    assert len(found) == any(doubt.published for doubt in doubts)


def check_restore(
    controller: Controller, fleet: SweepFleet, told: RestoreResult | Exception, live: frozenset[AttemptId]
) -> None:
    """Whether what was told of a restore is true."""
    if isinstance(told, RestoreResult):
        assert not fleet.closed()
        assert controller.unsettled is None
        assert fleet.restored() == successors(live)
        return
    held = controller.unsettled
    failed = [error for error in flat(told) if isinstance(error, RestoreFailed)]
    doubts = [error for error in flat(told) if isinstance(error, InDoubt)]
    assert bool(failed or doubts) == (held is not None)
    named = {str(key) for error in failed for key in (*error.restored, *error.failed)}
    named |= {str(key) for error in doubts for key in error.owed}
    assert fleet.closed() <= named


async def _mended(controller: Controller, fleet: SweepFleet, live: frozenset[AttemptId]) -> None:
    """A restore that is held is retried, and aborted where that does not help; what is in doubt is settled."""
    held = controller.unsettled
    if isinstance(held, PhasedRestore) and held.state is TransactionState.RESTORE_FAILED:
        for _ in range(RETRIES):
            try:
                await held.retry()
            except RestoreFailed:
                await fleet.clock.sleep(1.0)
                continue
            await held.resume()
            assert fleet.restored() == successors(live)
            break
        else:
            await held.abort()
            assert held.to_restart()
    elif held is not None:
        assert not isinstance(held, PhasedCut)
        await controller.settle()


def successors(live: frozenset[AttemptId]) -> frozenset[AttemptId]:
    """As which the attempts of a snapshot go on."""
    return frozenset(AttemptId(attempt.rollout_id, attempt.attempt_index + 1) for attempt in live)


def flat(error: BaseException) -> Iterator[BaseException]:
    """An error, or those that a group consists of."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from flat(one)
    else:
        yield error
