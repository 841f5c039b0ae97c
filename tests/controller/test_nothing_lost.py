"""Nothing is lost and nothing is doubled: items that are everywhere at the moment of the cut come through it once."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import pytest
from support.pipeline import SETTINGS_OF, Trainer, World, living, named
from support.virtual_loop import run_virtual

from quiesce.controller import Controller

IS_WHOLE: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
SEEDS: Final = 200 if IS_WHOLE else 8
ITEMS: Final = 100
pytestmark = pytest.mark.timeout(3600 if IS_WHOLE else 300)


class NotNow(Exception):
    """What a trainer raises that does not want this cut."""


async def aborted(controller: Controller, world: World) -> None:
    """A cut that the trainer gives up in its body."""
    with contextlib.suppress(NotNow):
        async with controller.cut("given-up"):
            raise NotNow
    assert world.everybody_accepts()


async def first_life(root: Path, random: Random, monkeypatch: pytest.MonkeyPatch, notes: list[str]) -> Trainer:
    """Everything runs; at some moment a cut is taken; a little later everybody is killed."""
    settings = SETTINGS_OF(random, ITEMS)
    trainer = Trainer.at_the_beginning(settings)
    async with living(settings, monkeypatch) as world:
        dispatching = asyncio.ensure_future(trainer.dispatch(world))
        async with world.controller(root, trainer) as controller:
            await trainer.has_consumed(random.randint(0, ITEMS - 5))
            await asyncio.sleep(random.uniform(0.0, 1.0))
            if random.random() < 0.5:
                await aborted(controller, world)
                await asyncio.sleep(random.uniform(0.0, 3.0))
            async with controller.cut("step-1") as cut:
                trainer.save(cut.directory / "trainer")
                underway, refused = named(trainer.outstanding), named(trainer.refused)
                consumed, waiting = len(trainer.consumed), len(trainer.waiting)
            assert cut.result.restarting == ()
            live = [attempt.rollout_id for attempt in cut.result.rollouts]
            assert sorted(live) == sorted(underway - refused)
            assert consumed + len(live) + len(refused) + waiting == ITEMS
            notes.append(f"{consumed} consumed, {len(live)} live, {len(refused)} refused, {waiting} waiting")
        await asyncio.sleep(random.uniform(0.0, 2.0))
        dispatching.cancel()
        trainer.end()
    await asyncio.gather(dispatching, *trainer.outstanding.values(), return_exceptions=True)
    return trainer


async def second_life(root: Path, former: Trainer, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """Fresh servers and a fresh trainer go on from the snapshot to the end."""
    async with living(former.settings, monkeypatch, expects_restore=True) as world:
        trainer = Trainer(former.settings)
        async with world.controller(root, trainer) as controller:
            async with controller.restore("step-1") as restored:
                trainer = Trainer.load(restored.directory / "trainer", former.settings)
                going_on = restored.rollouts
                assert not world.everybody_accepts()
            assert [record.attempt for record in world.runs.restored()] == sorted(
                type(attempt)(attempt.rollout_id, attempt.attempt_index + 1) for attempt in going_on
            )
            for attempt in going_on:
                trainer.send(world, type(attempt)(attempt.rollout_id, attempt.attempt_index + 1))
            await trainer.dispatch(world)
        assert world.everybody_accepts()
    return trainer


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_item_is_consumed_exactly_once(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save at a random moment, perhaps after one that was given up; all is killed, restored, run to the end (F-48).

    Whatever was finished and acknowledged before the cut is in the trainer's part, whatever was live goes on as its
    next attempt, and the numbers add up; no result differs from that of a run that nothing disturbed.
    """
    notes: list[str] = []

    async def scenario() -> Trainer:
        random = Random(seed)  # noqa: S311 - repeatable on purpose
        former = await first_life(tmp_path, random, monkeypatch, notes)
        return await second_life(tmp_path, former, monkeypatch)

    try:
        trainer = run_virtual(scenario())
    except BaseException as failure:
        failure.add_note(f"seed {seed}: {'; '.join(notes)}")
        raise
    assert trainer.account() == Counter(f"item-{number}" for number in range(ITEMS))
    assert trainer.wrong() == []
