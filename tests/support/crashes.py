"""A cut or a restore whose controller dies, the recovery that follows, and what must hold then."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from support.fleet import ENGINE, SERVED_AS, Fleet, keep
from support.ground import CoordinatedFleet, Ground, in_process
from support.mortal import Doom, MortalFiles, MortalRecords, MortalTransport, run_mortal
from support.virtual_loop import VirtualClock

from quiesce.controller import CompletedResult, Controller, HalfRestored, PhasedRestore
from quiesce.controller.catalog import SnapshotState
from quiesce.controller.files import LocalFiles
from quiesce.controller.journal_check import check_journal
from quiesce.controller.recovery import find_unfinished, has_ended
from quiesce.controller.root_layout import RootLayout
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt
from quiesce.transport.port import Transport

__all__ = ["VARIANTS", "CrashedCut", "CrashedRestore", "Scene", "build", "goes_on", "nth_token", "saved_root", "scene"]

VARIANTS = tuple(FenceVariant)
TURNS = 14
LIVE = AttemptId("r0", 0)


def build(variant: FenceVariant, *, restore_expected: bool = False) -> Fleet:
    """A fleet whose policy has a coordinator where the variant is that of one."""
    if variant is FenceVariant.GYM_A_COORDINATOR:
        return CoordinatedFleet(FenceVariant.GYM_A_SINGLE, restore_expected=restore_expected, clock=VirtualClock())
    return Fleet(variant, restore_expected=restore_expected)


@dataclass
class Trainer:
    """Owns results durably: what it once had it has for ever."""

    owned: list[str] = field(default_factory=list)

    def keep(self, results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        """Own everything at once."""
        self.owned += [result.attempt.rollout_id for result in results]
        return keep(results)


def nth_token() -> Callable[[int], str]:
    """What to draw names from instead of chance, so that a scene that is played again is the same."""
    numbers = itertools.count(1)
    return lambda size: f"{next(numbers):0{2 * size}x}"


@dataclass
class Scene:
    """A fleet on its ground, a root, and the controllers that come one after the other."""

    ground: Ground
    root: Path
    trainer: Trainer = field(default_factory=Trainer)

    @property
    def fleet(self) -> Fleet:
        return self.ground.fleet

    def controller(self, doom: Doom | None = None, transport: Transport | None = None) -> Controller:
        """A controller that dies as ``doom`` has it; over ``transport`` if it is given, and then nobody hears of it."""
        doom = doom or Doom()
        doom.scene = self
        told = self.fleet.traces.append if transport is None else _nobody_hears
        return Controller(
            self.ground._config(self.root, {}, without_model_server=False),
            transport=transport or MortalTransport(self.ground.way, doom),
            on_completed=self.trainer.keep,
            observers=(MortalRecords(doom, told),),
            clock=self.fleet.clock,
            engine=ENGINE,
            files=MortalFiles(doom),
        )

    async def recovery_that_dies(self, doom: Doom) -> bool:
        """A controller that takes the root and recovers; whether it came to the end of that."""

        async def life() -> None:
            async with self.controller(doom):
                pass

        return await run_mortal(life, doom)

    def stood(self) -> str:
        """Where the transaction stands that its controller has left, by its journal."""
        found = find_unfinished(LocalFiles(), RootLayout(self.root))
        assert len(found) <= 1
        return found[0].stood if found else "nothing recorded, or ended"

    def check_snapshots(self, controller: Controller) -> bool:
        """Nothing is visible that does not verify; whether the cut that died was published."""
        entries = controller.store.list()
        assert {entry.state for entry in entries} <= {SnapshotState.VALID}
        assert all(controller.store.verify(entry.wire_id).is_good for entry in entries)
        return any(entry.label == "first" for entry in entries)

    def check_journals(self, controller: Controller) -> None:
        """Every transaction has ended by its journal, whose steps are all steps of the tables."""
        files, layout = LocalFiles(), controller.store.layout
        left = find_unfinished(files, layout)
        # of an aborted restore, whoever holds a part of the snapshot is remembered until it is restarted
        assert all(account.half_restored and not account.touched for account in left)
        for path in sorted(layout.journals.glob("*.ndjson")):
            assert has_ended(files, path) or path.stem in {account.wire_id for account in left}, path.name
            if b"\n" in path.read_bytes():  # else nothing was recorded, and nobody called
                assert check_journal(path, roles=SERVED_AS) == (), path.name


def _nobody_hears(_trace: TraceRecord) -> None:
    """What a controller without the root still thinks is no step of anything."""


@contextlib.asynccontextmanager
async def scene(root: Path, fleet: Fleet) -> AsyncIterator[Scene]:
    """The fleet in this loop; whatever still runs on it is ended."""
    before = asyncio.all_tasks()
    async with in_process(fleet) as ground:
        yield Scene(ground, root)
    left = asyncio.all_tasks() - before
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def saved_root(root: Path, variant: FenceVariant) -> None:
    """A root with one snapshot of a rollout that was under way."""
    async with scene(root, build(variant)) as here:
        rollout = here.fleet.rollout("r0", TURNS)
        await here.fleet.seed_session("r0")
        await here.fleet.clock.sleep(2.5)
        async with here.controller() as controller, controller.cut("base") as cut:
            (cut.directory / "trainer" / "weights").write_text("w")
        assert not rollout.done()


@dataclass
class CrashedCut:
    """A cut with work in flight: ``before`` is a root to start from, with the snapshot ``base``."""

    variant: FenceVariant
    before: Path

    async def run(self, root: Path, *dooms: Doom) -> str:
        """The cut dies by the first doom, recoveries by the others, the last recovery lives; where it was left."""
        shutil.copytree(self.before, root)
        async with scene(root, build(self.variant)) as here:
            fleet = here.fleet
            rollout, done = fleet.rollout("r0", TURNS), fleet.rollout("done", 1)
            await fleet.seed_session("r0")
            await fleet.clock.sleep(2.5)
            ended = await run_mortal(lambda: self._live(here, dooms[0]), dooms[0])
            stood = here.stood()
            for doom in dooms[1:]:
                await here.recovery_that_dies(doom)
            async with here.controller() as controller:
                await self._recovered(here, controller, ended=ended)
                await fleet.clock.sleep(TURNS + 2.0)
                assert rollout.done()
                assert done.done()
                async with controller.cut("last"):
                    pass
                # every rollout is accounted for: both results came to the trainer, and neither was lost on the way
                assert {"done", "r0"} == set(here.trainer.owned)
            here.check_journals(controller)
        return stood

    async def _live(self, here: Scene, doom: Doom) -> None:
        async with here.controller(doom) as controller, controller.cut("first") as cut:
            (cut.directory / "trainer" / "weights").write_text("w")

    async def _recovered(self, here: Scene, controller: Controller, *, ended: bool) -> None:
        assert controller.unsettled is None
        assert await here.fleet.everybody_accepts()
        is_published = here.check_snapshots(controller)
        assert is_published or not ended
        for recovered in controller.recovered:
            assert recovered.is_settled
            assert not recovered.problem
            assert recovered.published is is_published
            assert recovered.state == ("resumed" if is_published else "aborted")
        assert list((here.root / ".quiesce" / "staging").iterdir()) == []
        async with controller.cut("second") as second:
            pass
        assert controller.store.verify(second.wire_id).is_good
        assert await here.fleet.everybody_accepts()


@dataclass
class CrashedRestore:
    """A restore of ``base`` into fresh servers. What is held then is retried, or aborted with ``gives_up``."""

    variant: FenceVariant
    before: Path
    gives_up: bool = False

    async def run(self, root: Path, *dooms: Doom) -> str:
        """As for a cut."""
        shutil.copytree(self.before, root)
        async with scene(root, build(self.variant, restore_expected=True)) as here:
            await run_mortal(lambda: self._live(here, dooms[0]), dooms[0])
            stood = here.stood()
            for doom in dooms[1:]:
                await here.recovery_that_dies(doom)
            async with here.controller() as controller:
                await self._recovered(here, controller)
            here.check_journals(controller)
        async with scene(root, build(self.variant, restore_expected=True)) as again:
            async with again.controller() as controller, controller.restore("latest"):
                pass
            await goes_on(again.fleet)
        return stood

    async def _live(self, here: Scene, doom: Doom) -> None:
        async with here.controller(doom) as controller, controller.restore("base"):
            pass

    async def _recovered(self, here: Scene, controller: Controller) -> None:
        assert len(controller.recovered) <= 1
        held = controller.unsettled
        if held is None:
            # whoever still waits for a restore is named
            assert all(recovered.is_settled or recovered.waiting for recovered in controller.recovered)
        elif self.gives_up:
            assert held.state is TransactionState.RESTORE_FAILED
            await held.abort()
            with contextlib.suppress(ExceptionGroup, HalfRestored):
                await controller.settle()
            to_restart = {str(key) for key in held.half_restored()}
            assert (controller.unsettled is None) == (not to_restart)
            # who holds anything of the snapshot, and is open, is named
            assert "main/tools" in to_restart or not here.fleet.states
            assert "main/agent" in to_restart or not here.fleet.runs.restored()
        else:
            assert isinstance(held, PhasedRestore)
            await held.retry()
            await held.resume()
            await controller.settle()
            await goes_on(here.fleet)
        fences = {name: app.fence.state for name, app in here.fleet.apps.items()}
        assert not [name for name, state in fences.items() if state.active is not None]


async def goes_on(fleet: Fleet) -> None:
    """Everybody accepts work, and the rollout of the cut waits as its next attempt, once."""
    assert await fleet.everybody_accepts()
    assert [record.attempt for record in fleet.runs.restored()] == [AttemptId("r0", 1)]
    assert list(fleet.states) == [AttemptId("r0", 1)]
    assert fleet.ledger.is_fenced(LIVE)
