"""A controller that dies at each record, each call and each file operation of a cut, of a restore, and of recovery.

The points are those of a clean run, for every kind of servers. ``make test`` takes a sample in which every kind of
point and every moment occurs; ``HYPOTHESIS_PROFILE=thorough`` (``make test-all``) takes all of them. Whatever the
point: the next controller leaves nobody paused, no half snapshot is to be seen and the newest one can be restored,
every rollout is accounted for, and each journal ends and holds nothing but steps of the tables (field cases F-04,
F-05).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from support.crashes import VARIANTS, CrashedCut, CrashedRestore, saved_root
from support.mortal import Doom, Kind, Moment
from support.virtual_loop import run_virtual

from quiesce.fsm.tables.fence import FenceVariant

IS_THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
MOMENTS: Final = {
    Kind.RECORD: (Moment.AFTER, Moment.POWER_LOSS),
    Kind.CALL: (Moment.BEFORE, Moment.DURING, Moment.AFTER),
    Kind.FILE: (Moment.BEFORE, Moment.DURING, Moment.AFTER, Moment.POWER_LOSS),
}
EVERY_NTH: Final = 1 if IS_THOROUGH else 20
EVERY_NTH_TWICE: Final = 16 if IS_THOROUGH else 170
"""Of the points after which a recovery runs, and of the recovery's own."""
SHARDS: Final = range(8 if IS_THOROUGH else 1)
"""So that no test takes long and several cores can share the points."""

Point = tuple[Kind, int, Moment]
Crashed = CrashedCut | CrashedRestore
Build = Callable[[FenceVariant, Path], Crashed]

CUT: Build = CrashedCut
RETRIED: Build = CrashedRestore


def aborted(variant: FenceVariant, before: Path) -> Crashed:
    """A restore whose operator gives up what is held."""
    return CrashedRestore(variant, before, gives_up=True)


TRANSACTIONS: Final = {"cut": CUT, "restore, retried": RETRIED, "restore, aborted": aborted}
on_every_fence = pytest.mark.parametrize("variant", VARIANTS)
in_shards = pytest.mark.parametrize("shard", SHARDS)
of_every_transaction = pytest.mark.parametrize("what", TRANSACTIONS)


def points_of(doom: Doom, every_nth: int, offset: int) -> list[Point]:
    """Points at which a run could have died: of each kind and moment every nth, a run's first ones by ``offset``."""
    return [
        (kind, nth, moment)
        for kind, moments in MOMENTS.items()
        for place, moment in enumerate(moments)
        for nth in range(1 + (offset + 5 * place) % every_nth, doom.counts[kind] + 1, every_nth)
    ]


def played(crashed: Crashed, root: Path, *points: Point | None) -> tuple[str, Doom]:
    """One run that dies at each of the points, one life after the other; None is a life that only counts."""
    dooms: list[Doom] = []

    async def run() -> str:
        dooms.extend(Doom() if point is None else Doom(*point) for point in points)
        return await crashed.run(root, *dooms)

    try:
        return run_virtual(run()), dooms[-1]
    except BaseException as error:
        for doom in dooms:
            named = doom.names[doom.kind][doom.nth - 1 :][:1]
            error.add_note(f"died {doom} ({named[0] if named else 'which did not come'})")
        raise


def prepared(what: str, variant: FenceVariant, root: Path) -> tuple[Crashed, Doom]:
    """A transaction, and what is counted in a life of it without a death."""
    run_virtual(saved_root(root / "base", variant))
    crashed = TRANSACTIONS[what](variant, root / "base")
    _, counted = played(crashed, root / "clean", None)
    return crashed, counted


@in_shards
@on_every_fence
@of_every_transaction
def test_a_controller_may_die_at_any_point(
    tmp_path: Path, what: str, variant: FenceVariant, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """And the next one finishes what it left."""
    crashed, counted = prepared(what, variant, tmp_path)
    points = points_of(counted, EVERY_NTH, VARIANTS.index(variant))
    assert {(kind, moment) for kind, _, moment in points} == {(k, m) for k, ms in MOMENTS.items() for m in ms}
    mine = points[shard :: len(SHARDS)]
    stood = {played(crashed, tmp_path / str(number), point)[0] for number, point in enumerate(mine)}
    assert len(stood) >= 4
    record_property("swept", f"points at which a controller died: {len(mine)}")


@in_shards
@on_every_fence
@of_every_transaction
def test_recovery_may_die_at_any_point_too(
    tmp_path: Path, what: str, variant: FenceVariant, shard: int, record_property: Callable[[str, object], None]
) -> None:
    """However often it is broken off, the last one finishes all."""
    crashed, counted = prepared(what, variant, tmp_path)
    swept = 0
    firsts = points_of(counted, EVERY_NTH_TWICE, VARIANTS.index(variant))[shard :: len(SHARDS)]
    for number, first in enumerate(firsts if IS_THOROUGH else firsts[::4]):
        _, recovery = played(crashed, tmp_path / f"{number}", first, None)
        for place, second in enumerate(points_of(recovery, EVERY_NTH_TWICE, number)):
            played(crashed, tmp_path / f"{number}-{place}", first, second)
            swept += 1
    assert swept >= 5
    record_property("swept", f"points at which a recovery died: {swept}")
