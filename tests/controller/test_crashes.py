"""A controller that dies at each record, each call and each file operation of a cut, of a restore, and of recovery.

The points are those of a clean run, for every kind of servers. ``make test`` takes a sample in which every kind of
point and every moment occurs; ``HYPOTHESIS_PROFILE=thorough`` (``make test-all``) takes all of them. Whatever the
point: the next controller leaves nobody paused, no half snapshot is to be seen and the newest one can be restored,
every rollout is accounted for, and each journal ends and holds nothing but steps of the tables (field cases F-04,
F-05).

All points of a transaction with all points of the recovery after each are too many to be played. Points that leave the
same behind (``support.crash_states``) are one point: the recoveries of one of them are swept for all, and of points of
recoveries that leave the same one is played to its end. Of those that are merged a sample is played all the same.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from support.crash_states import Census
from support.crashes import VARIANTS, CrashedCut, CrashedRestore, nth_token, saved_root
from support.mortal import MOMENTS, Doom, Kind, Moment, Point
from support.virtual_loop import run_virtual

from quiesce.controller.snapshots import SnapshotStore
from quiesce.fsm.tables.fence import FenceVariant

IS_THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
EVERY_NTH: Final = 1 if IS_THOROUGH else 20
EVERY_NTH_TWICE: Final = 1 if IS_THOROUGH else 170
"""Of the points after which a recovery runs, and of the recovery's own."""
EVERY_NTH_MERGED: Final = 200
EVERY_NTH_AGAIN: Final = 10
"""Of the points of recoveries: after so many the next recovery dies at the same point once more."""
SHARDS: Final = range(12 if IS_THOROUGH else 1)
"""So that no test takes long and several cores can share the points."""

NEIGHBOURS: Final = 3
"""So many points that follow one another stay in one shard: what their recoveries leave is often the same."""

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


@pytest.fixture(autouse=True)
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that looks wrong is read again after a while; here the while is nothing."""
    monkeypatch.setitem(SnapshotStore.__init__.__kwdefaults__ or {}, "sleep", lambda _seconds: None)


def points_of(doom: Doom, every_nth: int, offset: int) -> list[Point]:
    """Points at which a run could have died: of each kind and moment every nth, a run's first ones by ``offset``."""
    return [
        (kind, nth, moment)
        for kind, moments in MOMENTS.items()
        for place, moment in enumerate(moments)
        for nth in range(1 + (offset + 5 * place) % every_nth, doom.counts[kind] + 1, every_nth)
    ]


def played(crashed: Crashed, root: Path, *points: Point | None) -> tuple[str, Census]:
    """One run that dies at each of the points, one life after the other; None is a life that only counts."""
    dooms: list[Doom] = []

    async def run() -> str:
        dooms.extend(Census() if point is None else Doom(*point) for point in points)
        return await crashed.run(root, *dooms)

    try:
        with patch("secrets.token_hex", nth_token()):
            stood = run_virtual(run())
    except BaseException as error:
        for doom in dooms:
            named = doom.names[doom.kind][doom.nth - 1 :][:1]
            error.add_note(f"died {doom} ({named[0] if named else 'which did not come'})")
        raise
    shutil.rmtree(root)
    return stood, dooms[-1] if isinstance(dooms[-1], Census) else Census()


def prepared(what: str, variant: FenceVariant, root: Path) -> tuple[Crashed, Census]:
    """A transaction, and what is counted in a life of it without a death."""
    run_virtual(saved_root(root / "base", variant))
    crashed = TRANSACTIONS[what](variant, root / "base")
    return crashed, played(crashed, root / "clean", None)[1]


def merged(points: Iterable[Point], left: dict[Point, bytes]) -> dict[bytes, list[Point]]:
    """Points in the order of their coming, those together that leave the same."""
    wanted, classes = set(points), dict[bytes, list[Point]]()
    for point, state in left.items():
        if point in wanted:
            classes.setdefault(state, []).append(point)
    return classes


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
    firsts = list(merged(points_of(counted, EVERY_NTH_TWICE, VARIANTS.index(variant)), counted.left).values())
    if not IS_THOROUGH:
        firsts = [[points[0]] for points in firsts[::4]]
    firsts = [points for place, points in enumerate(firsts) if place // NEIGHBOURS % len(SHARDS) == shard]
    swept = stood_for = 0
    ended: set[bytes] = set()
    for number, mine in enumerate(firsts):
        _, recovery = played(crashed, tmp_path / "recovery", mine[0], None)
        wanted = points_of(recovery, EVERY_NTH_TWICE, number)
        for first, second in chosen(mine, merged(wanted, recovery.left), ended):
            again = (second,) if swept % EVERY_NTH_AGAIN == 0 else ()
            played(crashed, tmp_path / "run", first, second, *again)
            swept += 1
        stood_for += len(mine) * len(wanted)
    assert swept >= 5
    record_property("swept", f"points at which a recovery died: {swept}")
    record_property("standing for", f"points at which a recovery died: {stood_for}")


def chosen(firsts: list[Point], seconds: dict[bytes, list[Point]], ended: set[bytes]) -> Iterator[tuple[Point, Point]]:
    """Of deaths of a transaction that leave the same, and deaths of the recovery: one of each kind, and a sample.

    What was ended before is not ended again.
    """
    number = 0
    for state, points in seconds.items():
        if state not in ended:
            ended.add(state)
            yield firsts[0], points[0]
        for first in firsts:
            for second in points:
                number += 1
                if number % EVERY_NTH_MERGED == 0:
                    yield first, second


def test_only_what_leaves_the_same_is_merged(tmp_path: Path) -> None:
    """A call that changes somebody leaves something else before, on its way and after it; so does half a line."""
    _, counted = prepared("cut", FenceVariant.STRICT, tmp_path)
    changing = ("pause", "prepare", "commit", "resume")
    names = counted.names[Kind.CALL]
    begin = names.index("main/policy GET /ng-control/v1/capabilities", 1)  # what is asked before is discovery
    calls = [nth for nth, name in enumerate(names, start=1) if nth > begin and name.endswith(changing)]
    lines = re.compile(r"write .*\.ndjson")
    writes = [nth for nth, name in enumerate(counted.names[Kind.FILE], start=1) if lines.fullmatch(name)]
    assert len(calls) >= 9
    assert len(writes) >= 5
    for nth in calls:
        assert len({counted.left[Kind.CALL, nth, moment] for moment in MOMENTS[Kind.CALL]}) == 3
    torn = [
        nth
        for nth in writes
        if counted.left[Kind.FILE, nth, Moment.DURING]
        not in (counted.left[Kind.FILE, nth, Moment.BEFORE], counted.left[Kind.FILE, nth, Moment.AFTER])
    ]
    assert len(torn) >= len(writes) - 1  # a journal that is closed may write no byte
    assert len(set(counted.left.values())) < len(counted.left) / 3
